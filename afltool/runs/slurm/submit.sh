#!/bin/bash
# Submits what is missing and not in the queue, in whatever state; the job that solves a round calls
# this for the next one. `afltool slurm` writes this file anew.
set -uo pipefail
cd §{root} || exit 3
mkdir -p slurm/log
exec 9>slurm/lock
flock 9 || true   # one at a time, where the file system has locks
# The jobs that are submitted here must not inherit the calling job's own settings.
unset "${!SLURM_ARRAY@}" "${!SLURM_CPUS@}" "${!SLURM_JOB@}" "${!SLURM_RESTART@}"
§{setup}
declare -A job

# The jobs of this folder that may still run: number and name. The controller may be starting again.
queue() {
    local wait lines
    for wait in 1 2 5 10 20 20 0; do
        if lines=$(squeue --me -h -t all -o '%F|%T|%j'); then
            awk -F'|' '$2 !~ /^(§{ended})$/ && $3 ~ /§{tag}$/ {print $1, $3}' <<<"$lines"
            return
        fi
        sleep "$wait"
    done
    echo "squeue does not answer: nothing more is submitted; call this again" >&2
    return 3
}

# number NAME: of its job in the queue.
number() { awk -v name="$1§{tag}" '$2 == name {print $1; exit}' <<<"$queued"; }

# enqueue NAME AFTER WORDS…: submit a job, unless it is in the queue; ${job[NAME]} is its number. An
# answer that does not come, or is no number, says nothing: the queue is asked before a second try.
enqueue() {
    local name=$1 after='' one wait said
    for one in $2; do after+=${job[$one]:+:${job[$one]}}; done
    shift 2
    job[$name]=$(number "$name")
    [ -z "${job[$name]}" ] || return 0
    [ -z "$after" ] || set -- --dependency="§{after}$after" --kill-on-invalid-dep=yes "$@"
    for wait in 2 10 20 0; do
        if said=$(sbatch --parsable --job-name="$name§{tag}" "$@"); then
            job[$name]=$(grep -oE '^[0-9]+(;.*)?$' <<<"$said" | tail -n 1)
        fi
        if [ -z "${job[$name]}" ]; then
            sleep "$wait"
            queued=$(queue) || exit
            job[$name]=$(number "$name")
        fi
        [ -z "${job[$name]}" ] || break
    done
    job[$name]=${job[$name]%%;*}
    [ -n "${job[$name]}" ] || { echo "$name was not submitted: ${said:-sbatch has failed}" >&2; exit 3; }
    echo "$name: job ${job[$name]}"
}

queued=$(queue) || exit
§{jobs}
