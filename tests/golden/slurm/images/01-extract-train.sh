#!/bin/bash
# Images of the train split → features; task I is shard I of 32.
#SBATCH --job-name=01-extract-train
#SBATCH --output=/scratch/run/slurm/log/%x-%A_%a.log
#SBATCH --open-mode=append
#SBATCH --chdir=/
#SBATCH --partition=gpu
#SBATCH --account=physics
#SBATCH --time=08:00:00
#SBATCH --mem=16G
#SBATCH --cpus-per-task=8
#SBATCH --gres=gpu:1
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
source /scratch/run/slurm/common.sh
of_round "${1:-1}"

stage extract --backbone resnet18 --data cifar100 --split train --shard "$SLURM_ARRAY_TASK_ID/32" \
    -o "$RUN/slurm/parts/train-of-32/$SLURM_ARRAY_TASK_ID.h5"
