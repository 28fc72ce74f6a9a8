#!/usr/bin/env bash
# The AFL paper's pipeline as shell commands: CIFAR-100, 100 clients, Dirichlet α = 0.1.
#
#     examples/cifar100.sh [FOLDER]          default: cifar100-run
#
# Needs internet the first time: CIFAR-100 (into $AFLTOOL_DATA or ./afl-data) and the ImageNet
# weights of the backbone. Other settings by environment:
#     BACKBONE=resnet18  ALPHA=0.1  CLIENTS=100  EXTRACT="further options of extract"
#     SOLVE="further options of solve"
set -euo pipefail

run=${1:-cifar100-run}
mkdir -p "$run"
cd "$run"

for split in train test; do
    # shellcheck disable=SC2086  # EXTRACT holds several words
    afltool extract --backbone "${BACKBONE:-resnet18}" --data "${DATA:-cifar100}" \
        --split "$split" --preprocess paper ${EXTRACT:-} -o "$split.h5"
done
afltool partition train.h5 --scheme dirichlet --alpha "${ALPHA:-0.1}" \
    --clients "${CLIENTS:-100}" --seed 0 -o clients.h5
afltool head linear --ridge 0 -o head0.h5
afltool local-stats train.h5 --partition clients.h5 --head head0.h5 -o stats
afltool aggregate stats -o total.h5
# shellcheck disable=SC2086
afltool solve total.h5 ${SOLVE:-} -o head.h5
afltool evaluate head.h5 test.h5 -o metrics.json
