# adapted: RUN/slurm/01-extract-train.sh → the jobs that submit.sh asks afltool for
# Fault: `slurm --gpus 1` asks Slurm for a GPU, but the extract tasks call `extract` with --device auto:
# where the driver is broken they run on the processor, for a night, on a node that is paid for its GPU.
# Right: the scripts call extract with --device cuda, so that a missing GPU is an error at once.
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }

mkdir -p data/a data/b
python - <<'E'
import numpy as np
from PIL import Image
for i in range(6):
    Image.fromarray(np.zeros((32, 32, 3), np.uint8)).save(f"data/{'ab'[i % 2]}/{i}.png")
E
run afltool slurm --backbone resnet18 --weights random --data imagefolder:"$PWD"/data --scheme iid --clients 2 --gpus 1 -o RUN
(cd RUN && afltool slurm --next -o .) >jobs.txt || wrong "could not be tried: no jobs"
grep -q 'gres=gpu:1' jobs.txt || wrong "could not be tried: no GPU is asked for"
devices=$(grep 'gres=gpu:1' jobs.txt | grep -c -- '--device[= ]cuda')
echo "jobs with --device cuda: $devices"
[ "$devices" -ge 1 ] && right "extract gets --device cuda"
wrong "a GPU is asked for, and extract may run without it"
