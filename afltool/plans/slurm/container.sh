# afltool of the image; in a process of its own it takes that over, so that signals reach it.
afltool() {
    local run=(apptainer exec ${SLURM_JOB_GPUS:+--nv} --bind "$RUN" §{image} afltool)
    if [ "$BASHPID" = $$ ]; then "${run[@]}" "$@"; else exec "${run[@]}" "$@"; fi
}

