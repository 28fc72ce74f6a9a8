#!/bin/bash
# The top of the tree: the sum over all clients.
#SBATCH --job-name=04-aggregate
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

files "$parts/level-2-of-100-by-8" 0 1
stage aggregate "${files[@]}" -o "$total"
