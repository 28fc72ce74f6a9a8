#!/bin/bash
# Submits the cells that have no result and are not in the queue yet, and before them what they
# share. Call it again after a failure: bash §{run}/slurm/submit.sh
§{queue}
round=§{round}
§{lists}
todo=$(afltool status "$RUN" --field todo)

# lacking: the numbers of the tasks with a cell that has no result, in the array "missing".
missing=()
for i in "${!cells[@]}"; do
    for name in ${cells[i]//,/ }; do
        if [[ $todo == *"\"$name\""* ]]; then missing+=("$i"); break; fi
    done
done
if [ "${#missing[@]}" = 0 ]; then echo "every cell has its result"; exit; fi

first=()
for i in "${!shared[@]}"; do [ -e "parts/${shared[i]}§{done}" ] || first+=("$i"); done
job=''
if [ "${#first[@]}" -gt 0 ]; then
    enqueue §{prepare} '' --array="$(IFS=,; echo "${first[*]}")§{limit}"
fi
enqueue §{cells} "$job" --array="$(IFS=,; echo "${missing[*]}")§{limit}"
# Which cells the tasks of this job are, for status.
[ -e "jobs/cells-$job" ] || printf '%s\n' "${cells[@]}" >"jobs/cells-$job"
