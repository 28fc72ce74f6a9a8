#!/bin/bash
# A level of the tree of sums: task I adds up 8 of the 100 files below.
#SBATCH --job-name=04-aggregate-1
#SBATCH --output=/scratch/run/slurm/log/%x-%A_%a.log
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

first=$((SLURM_ARRAY_TASK_ID * 8))
last=$((first + 7 < 99 ? first + 7 : 99))
files "$parts/level-0-of-100" "$first" "$last"
stage aggregate "${files[@]}" -o "$parts/level-1-of-100-by-8/$SLURM_ARRAY_TASK_ID.h5"
