#!/bin/bash
# What every job of this folder runs: afltool §{command} WORDS…, with the site's environment. In a job
# array %I in a word is the number of the task. `afltool slurm` writes this file anew.
cd §{root} || exit 3
ls . slurm/parts/* >/dev/null 2>&1   # network file systems look anew at folders that are listed

# Slurm sends SIGUSR1 before the time limit, SIGTERM at scancel: the command ends with exit code 75
# and what it has finished is kept.
child='' asked=''
trap 'asked=USR1; [ -z "$child" ] || kill -USR1 "$child"' USR1
trap 'asked=TERM; [ -z "$child" ] || kill -TERM "$child"' TERM
§{setup}
[ -d "$AFLTOOL_STORE" ] || { echo "this node does not see the store $AFLTOOL_STORE: give a shared one" >&2; exit 3; }

code=75
if [ -z "$asked" ]; then
    "${run[@]}" §{command} "${@//%I/${SLURM_ARRAY_TASK_ID:-}}" &
    child=$!
    [ -z "$asked" ] || kill "-$asked" "$child"   # asked just before its number was known
    while wait "$child"; code=$?; [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null; do :; done
fi
if [ "$code" = 0 ]; then
    case "$*" in *--step\ 05-head*) bash slurm/submit.sh || exit 3 ;; esac   # the next round
    exit 0
fi

# A second try may help after a stop before the time limit (75: it goes on from there), and after a
# kill, perhaps for memory. A job that was cancelled stays so; a preempted one Slurm puts back itself.
tries=0
[ "$code" != 75 ] || tries=100
[ "$code" -le 128 ] || tries=5
[ "$asked" != TERM ] || tries=0
if [ "${SLURM_RESTART_COUNT:-0}" -lt "$tries" ]; then
    job=$SLURM_JOB_ID
    [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    echo "exit code $code: this task goes back into the queue" >&2
    for wait in 1 2 5 10 20 20 20 0; do   # the controller may be starting again
        scontrol requeue "$job" && break
        sleep "$wait"
    done
fi
exit "$code"
