# adapted: a script a step → one job.sh
# Fault: a busy controller takes a job, but its answer comes too late: sbatch ends with "Socket timed out on send/recv
# operation", and the job is in the queue. submit.sh tries again at once, and two jobs write the same file.
# (Public reports of the kind: rwth-i6/sisyphus 281, nextflow-io/nextflow 970.)
# Right: after a failure the queue is asked for the name before the job is submitted again (or the first one is
# cancelled). The sbatch, squeue, scancel and scontrol here are made up; the first sbatch times out so.
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
echo "$n ${name:-none}" >>"$FAKE/jobs"
if [ ! -e "$FAKE/timed-out" ]; then
    touch "$FAKE/timed-out"
    echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
    exit 1
fi
echo "$n"
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
twice=$(cut -d' ' -f2 jobs | sort | uniq -d)
echo "in the queue: $(tr '\n' ';' <jobs)"
[ -z "$twice" ] && [ -s jobs ] && right "no job is submitted twice"
wrong "submitted twice: $twice"
