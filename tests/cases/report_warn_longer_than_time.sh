# adapted: #SBATCH lines of RUN/slurm/05-solve.sh → the jobs that submit.sh asks afltool for
# Surprise: jobs ask Slurm for a signal --warn seconds before the time limit (120 unless given). `slurm --time 1` or
# 00:02:00 is accepted, so by Slurm's rules the signal comes as soon as the job runs: the stage stops with 75 and goes back into the
# queue, up to 100 times, without having worked for more than a few seconds. Short limits are usual in test queues.
# (Neighbours in public: facebookincubator/submitit 1603 and 1732, jean-zay-users/jean-zay-doc 41.)
# Right: refused or said, or the signal comes well within the limit.
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }
try() { "$@" >out.txt 2>err.txt; code=$?; echo "$* ended with $code"; tail -n 3 err.txt; }  # what is tried
refused() { [ "$code" -ge 2 ] && [ "$code" -le 5 ] && ! grep -q Traceback err.txt && grep -qiE -- "$1" err.txt; }

python -c '
import numpy as np
rng = np.random.default_rng(0)
np.savez("x.npz", x=rng.normal(size=(90, 3)), y=np.arange(90) % 3)'
run afltool import x.npz -o x.h5
bad=0
for given in "--time 1" "--time 00:02:00" "--time 10 --warn 600"; do
    rm -rf RUN
    try afltool slurm --train-features x.h5 --test-features x.h5 --scheme iid --clients 4 --ridge 1 $given -o RUN
    if [ "$code" != 0 ]; then refused 'warn|signal|limit|time' || bad=$((bad + 1)); continue; fi
    grep -qiE 'warn(s|ing)? |--warn|signal' err.txt && continue
    (cd RUN && afltool slurm --next -o .) >jobs.txt || wrong "could not be tried: no jobs"
    limit=$(grep -hoE -m 1 -- '--time=[^ ]*' jobs.txt | head -n 1 | cut -d= -f2)
    seconds=$(python -c '
import sys
days, _, clock = sys.argv[1].rpartition("-")
parts = [int(p) for p in clock.split(":")]
print(int(days or 0) * 86400 + (parts[0] * 60 if len(parts) == 1 else sum(p * 60**k for k, p in enumerate(parts[::-1]))))' "$limit")
    warn=$(grep -hoE 'USR1@[0-9]+' jobs.txt | head -n 1 | cut -d@ -f2)
    echo "$given: a limit of $seconds s, the signal ${warn:-never} s before it"
    [ -z "$warn" ] || [ "$warn" -lt "$seconds" ] || bad=$((bad + 1))
done
[ "$bad" = 0 ] && right "the signal comes within the limit, or it is said"
wrong "the signal comes at once, without a word, in $bad of 3 cases"
