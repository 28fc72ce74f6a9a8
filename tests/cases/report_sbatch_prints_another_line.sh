# adapted: a script a step → one job.sh; the jobs are those that submit.sh asks afltool for
# Fault: on many clusters a plug-in or wrapper of sbatch prints a line of its own on stdout ("charged to account …").
# submit.sh takes all of stdout for the number: the dependency is "afterok:This job is charged …", which Slurm refuses,
# so only the first job is submitted, and one more by each further call.
# (Public reports of the kind: mlr-org/batchtools 243, dask/dask-jobqueue 209.)
# Right: the number is found in the output (its last line is NUMBER or NUMBER;CLUSTER). sbatch, squeue, scontrol are made up.
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }
try() { "$@" >out.txt 2>err.txt; code=$?; echo "$* ended with $code"; tail -n 3 err.txt; }  # what is tried
refused() { [ "$code" -ge 2 ] && [ "$code" -le 5 ] && ! grep -q Traceback err.txt && grep -qiE -- "$1" err.txt; }

mkdir bin
export FAKE=$PWD PATH=$PWD/bin:$PATH
cat >bin/sbatch <<'S'
#!/usr/bin/env bash
n=$(($(cat "$FAKE/number" 2>/dev/null || echo 100) + 1)); echo $n >"$FAKE/number"
for word in "$@"; do case $word in --job-name=*) name=${word#*=} ;; --dependency=*) after=${word#*:} ;; esac; done
case ${after:-0} in *[!0-9:]*) echo "sbatch: error: Batch job submission failed: Job dependency problem" >&2; exit 1 ;; esac
echo "$n ${name:-none} ${after:-}" >>"$FAKE/jobs"
echo "sbatch: this job is charged to the account physics, 99 % of its hours remain"
echo "$n;north"
S
cat >bin/squeue <<'S'
#!/usr/bin/env python
import os, re, sys
if os.path.exists(os.environ["FAKE"] + "/squeue-fails"):
    sys.exit("slurm_load_jobs error: Socket timed out on send/recv operation")
text = " ".join(sys.argv[1:])
def given(short, long):
    found = re.search(rf"(?:^|\s)(?:-{short}\s*|--{long}[= ])(\S+)", text)
    return found and found[1].split(",")
jobs, names, form = given("j", "jobs"), given("n", "name"), given("o", "format")
form = ",".join(form) if form else "%i"
for line in open(os.environ["FAKE"] + "/jobs") if os.path.exists(os.environ["FAKE"] + "/jobs") else ():
    number, name = line.split()[:2]
    if (not jobs or number in jobs) and (not names or name in names):
        values = dict(i=number, A=number, F=number, K="N/A", T="PENDING", t="PD", r="Priority", j=name)
        print(re.sub(r"%\.?\d*([a-zA-Z])", lambda m: values.get(m[1], "?"), form))
S
cat >bin/scancel <<'S'
#!/usr/bin/env bash
for job in "$@"; do case $job in [0-9]*) sed -i "/^$job /d" "$FAKE/jobs" ;; esac; done
S
printf '#!/usr/bin/env bash\necho "Slurmctld(primary) at here is UP"\n' >bin/scontrol
chmod +x bin/*
python -c '
import numpy as np
rng = np.random.default_rng(0)
np.savez("x.npz", x=rng.normal(size=(90, 3)), y=np.arange(90) % 3)'
run afltool import x.npz -o x.h5
run afltool slurm --train-features x.h5 --test-features x.h5 --scheme iid --clients 4 --ridge 1 -o RUN
try bash RUN/slurm/submit.sh
found=$(wc -l <jobs)
steps=$(cd RUN && afltool slurm --next -o . | grep -c ^enqueue)
echo "$found of $steps jobs are in the queue: $(tr '\n' ';' <jobs)"
[ "$code" = 0 ] && [ "$found" = "$steps" ] && right "the number is found"
wrong "$((steps - found)) of $steps jobs are not submitted"
