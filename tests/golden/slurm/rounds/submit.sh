#!/bin/bash
# Submits what is missing of this run and not in the queue yet. The solve job calls it for the next
# round; call it again after a failure: bash /scratch/run/slurm/submit.sh
source /scratch/run/slurm/common.sh
set -e
cd "$RUN/slurm"
# The jobs that this script submits must not inherit the calling job's own settings.
unset "${!SLURM_ARRAY@}" "${!SLURM_CPUS@}" "${!SLURM_JOB@}" "${!SLURM_RESTART@}"
mkdir -p jobs log
exec 9>jobs/lock
flock 9 || true   # one at a time, where the file system has locks
for wait in 1 2 5 10 20 20 0; do   # the controller may be starting again
    if scontrol ping | grep -q UP; then break; fi
    sleep "$wait"
done

# enqueue NAME AFTER OPTIONS…: submit NAME.sh, unless its job of this round is in the queue; $job is
# its number. jobs/NAME-ROUND lists the jobs that it has had; a controller that lost its last minutes
# gives their numbers to other jobs, so the name is asked for, too.
enqueue() {
    local name=$1 after=$2 wait
    shift 2
    job=$(tail -n 1 "jobs/$name-$round" 2>/dev/null || true)
    if [ -n "$job" ] && squeue -h -j "$job" -n "$name-$round" -t PD,R,CG,S -o %i 2>/dev/null |
        grep -q .
    then return; fi
    [ -z "$after" ] || set -- "--dependency=afterok:$after" --kill-on-invalid-dep=yes "$@"
    for wait in 1 5 20 0; do
        job=$(sbatch --parsable --job-name="$name-$round" "$@" "$name.sh" "$round") && break
        [ "$wait" -gt 0 ] && sleep "$wait"
    done
    [ -n "$job" ] || { echo "$name was not submitted" >&2; exit 3; }
    job=${job%%;*}
    echo "$job" >>"jobs/$name-$round"
    echo "$name: job $job, round $round"
}

# one NAME AFTER FILE: submit the job that makes FILE, if it is missing. What needs FILE waits for
# $job, which is AFTER if there is nothing to do.
one() {
    job=$2
    [ -e "$3" ] || enqueue "$1" "$2"
}

# many NAME AFTER FOLDER TASKS LIMIT ENDING: the same for the tasks I whose FOLDER/I.h5 is missing.
many() {
    local i missing=()
    job=$2
    for ((i = 0; i < $4; i++)); do [ -e "$3/$i$6" ] || missing+=("$i"); done
    [ "${#missing[@]}" = 0 ] && return
    if [ "${#missing[@]}" = "$4" ]; then missing=("0-$(($4 - 1))"); fi
    enqueue "$1" "$2" --array="$(IFS=,; echo "${missing[*]}")$5"
}

of_round 1
train='' test=''
one 02-partition "$train" "$RUN/02-clients.h5"
clients=$job
while [ -e "$solved" ]; do of_round $((round + 1)); done
if [ "$round" -gt 1 ] && [ "$(afltool info "$head" --field phase)" = null ]; then
    one 06-evaluate "$test" "$RUN/06-metrics.json"
    exit
fi
job=''
if [ ! -e "$total" ]; then
    many 04-local-stats "$clients" "$parts/sums-of-2" 2 "" .h5
    one 04-aggregate "$job" "$total"
fi
one 05-solve "$job" "$solved"
