#!/usr/bin/env bash
# A run on a Slurm cluster: write the scripts, look at them, submit them, watch them.
#
#     examples/slurm.sh [FOLDER]          default: slurm-run; it must be seen by every node
#
# Other settings by environment: SITE=site.toml (docs/slurm.md), RUN_OPTIONS="options of afltool run"
set -euo pipefail

run=${1:-slurm-run}
options=${RUN_OPTIONS:---backbone resnet18 --data cifar100 --clients 1000}

# shellcheck disable=SC2086  # both hold several words
afltool slurm $options ${SITE:+--site "$SITE"} ${SLURM_OPTIONS:-} -o "$run"
echo "the jobs of this run:"
(cd "$run" && afltool slurm --next -o .)
bash "$run/slurm/submit.sh"
while afltool status "$run" --json | grep -qE '"state": "(running|pending)",?$' &&
    squeue --me -h | grep -q .; do
    sleep 5
done
afltool status "$run"
