#!/bin/bash
# The shards → one file of features.
#SBATCH --job-name=01-merge-train
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

stage merge "$RUN/slurm/parts/train-of-32" -o "$RUN/01-features-train.h5"
