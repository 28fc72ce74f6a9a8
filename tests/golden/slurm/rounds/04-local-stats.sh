#!/bin/bash
# Statistics of the clients' rows; task I sums part I of 2 of the clients.
#SBATCH --job-name=04-local-stats
#SBATCH --output=/scratch/run/slurm/log/%x-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --chdir=/
#SBATCH --time=01:00:00
#SBATCH --mem=4G
#SBATCH --cpus-per-task=1
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
source /scratch/run/slurm/common.sh
of_round "${1:-1}"

stage local-stats "$RUN/01-features-train.h5" --partition "$RUN/02-clients.h5" --head "$head" \
    --participation 0.5 --participation-seed 0 --sum \
    --held-out "$parts/held-sums-of-2/$SLURM_ARRAY_TASK_ID.h5" --cache /scratch/cache \
    --only "$SLURM_ARRAY_TASK_ID/2" -o "$parts/sums-of-2/$SLURM_ARRAY_TASK_ID.h5"
