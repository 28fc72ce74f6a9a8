#!/bin/bash
# How good the solved head is.
#SBATCH --job-name=06-evaluate
#SBATCH --output=/scratch/run/slurm/log/%x-%j.log
#SBATCH --open-mode=append
#SBATCH --chdir=/
#SBATCH --partition=cpu
#SBATCH --account=physics
#SBATCH --time=01:00:00
#SBATCH --mem=4G
#SBATCH --cpus-per-task=1
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
source /scratch/run/slurm/common.sh
of_round "${1:-1}"

ln -f "$head" "$RUN/head-final.h5" 2> /dev/null || cp -f "$head" "$RUN/head-final.h5" || finish 3
stage evaluate "$head" "$RUN/01-features-test.h5" -o "$RUN/06-metrics.json" \
    --confusion "$RUN/06-confusion.csv"
