#!/bin/bash
# Who owns which row.
#SBATCH --job-name=02-partition
#SBATCH --output=/scratch/run/slurm/log/%x-%j.log
#SBATCH --open-mode=append
#SBATCH --chdir=/
#SBATCH --time=01:00:00
#SBATCH --mem=4G
#SBATCH --cpus-per-task=1
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
source /scratch/run/slurm/common.sh
of_round "${1:-1}"

stage partition "$RUN/01-features-train.h5" --scheme iid --clients 100 --seed 0 \
    -o "$RUN/02-clients.h5"
