# Sourced by the scripts of this folder: where the run is, the site's environment, how a stage runs.
RUN=§{run}
§{head}§{setup}set -uo pipefail

§{container}§{rounds}# stage NAME OPTIONS…: a command of afltool, in a process that signals to the job are passed on to.
# Slurm sends SIGUSR1 before the time limit, SIGTERM at scancel: the command ends with exit code 75
# and what it has finished is kept.
child='' asked=''
trap 'asked=USR1; [ -z "$child" ] || kill -USR1 "$child"' USR1
trap 'asked=TERM; [ -z "$child" ] || kill -TERM "$child"' TERM
stage() {
    local code
    [ -z "$asked" ] || finish 75
    afltool "$@" &
    child=$!
    [ -z "$asked" ] || kill "-$asked" "$child"   # asked just before its number was known
    while wait "$child"; code=$?; [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null; do :; done
    child=''
    [ "$code" = 0 ] || finish "$code"
}

# finish CODE: end this task. If a second try may succeed, this one task goes back into the queue:
#   75        stopped before the time limit; the next try goes on from there
#   3         a file is not there or busy: network file systems show some late
#   over 128  killed by a signal, perhaps for its memory
# What helps against exit code 5, a system without an answer, is in $advice.
finish() {
    local code=$1 tries=0 wait job=$SLURM_JOB_ID
    [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    [ "$code" != 75 ] || tries=100
    [ "$code" != 3 ] || tries=3
    [ "$code" -le 128 ] || tries=5
    [ "$code" != 5 ] || [ -z "${advice:-}" ] || echo "$advice" >&2
    [ "$asked" != TERM ] || tries=0   # cancelled; or preempted, then Slurm puts it back itself
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "$tries" ]; then
        echo "exit code $code: this task goes back into the queue" >&2
        for wait in 1 2 5 10 20 20 20 20; do   # the controller may be starting again
            scontrol requeue "$job" && break
            sleep "$wait"
        done
    fi
    exit "$code"
}
