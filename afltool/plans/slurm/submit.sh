#!/bin/bash
# Submits what is missing of this run and not in the queue yet. The solve job calls it for the next
# round; call it again after a failure: bash §{run}/slurm/submit.sh
§{queue}
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
§{before}
while [ -e "$solved" ]; do of_round $((round + 1)); done
if [ "$round" -gt 1 ] && [ "$(afltool info "$head" --field phase)" = null ]; then
    one 06-evaluate "$test" "$RUN/§{metrics}"
    exit
fi
job=''
if [ ! -e "$total" ]; then
§{sums}
fi
one 05-solve "$job" "$solved"
