#!/bin/bash
# The top of the tree: the sum over all clients.
#SBATCH --job-name=04-aggregate
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

files "$parts/held-level-0-of-2" 0 1
stage aggregate "${files[@]}" -o "$held_out"
files "$parts/level-0-of-2" 0 1
stage aggregate "${files[@]}" -o "$total"
