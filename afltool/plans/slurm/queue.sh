source §{run}/slurm/common.sh
set -e
cd "$RUN/§{slurm}"
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
    [ -z "$after" ] || set -- "--dependency=§{after}:$after" --kill-on-invalid-dep=yes "$@"
    for wait in 1 5 20 0; do
        job=$(sbatch --parsable --job-name="$name-$round" "$@" "$name.sh" "$round") && break
        [ "$wait" -gt 0 ] && sleep "$wait"
    done
    [ -n "$job" ] || { echo "$name was not submitted" >&2; exit 3; }
    job=${job%%;*}
    echo "$job" >>"jobs/$name-$round"
    echo "$name: job $job, round $round"
}
