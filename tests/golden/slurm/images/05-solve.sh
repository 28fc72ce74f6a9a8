#!/bin/bash
# The head, one phase further.
#SBATCH --job-name=05-solve
#SBATCH --output=/scratch/run/slurm/log/%x-%j.log
#SBATCH --open-mode=append
#SBATCH --chdir=/
#SBATCH --partition=cpu
#SBATCH --account=physics
#SBATCH --time=01:00:00
#SBATCH --mem=64G
#SBATCH --cpus-per-task=1
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
source /scratch/run/slurm/common.sh
of_round "${1:-1}"

[ "$round" -gt 1 ] || \
advice="what is done is kept: afltool slurm ${RUN@Q}/run.toml -o ${RUN@Q} --ridge auto --submit"
stage solve "$total" --head "$head" -o "$solved"
bash "$RUN/slurm/submit.sh" || finish 3   # the next round, or evaluate
