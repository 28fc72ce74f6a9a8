# adapted: a script a step → one job.sh; names of jobs end with a digest of the folder
# Fault: submit.sh asks squeue for the states PD,R,CG,S. While its nodes boot a job is CONFIGURING, so
# it is not listed, and submit.sh submits it a second time: two jobs write the same files.
# Right: what is in the queue is not submitted again, in whatever state (squeue without -t lists all
# jobs that have not ended). The sbatch, squeue and scontrol here are made up; all jobs are CONFIGURING.
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
run() { "$@" >out.txt 2>err.txt || wrong "could not be tried: $* ended with $?: $(tail -n 1 err.txt)"; }

mkdir bin
export FAKE=$PWD PATH=$PWD/bin:$PATH
cat >bin/sbatch <<'E'
#!/usr/bin/env bash
n=$(($(cat "$FAKE/number" 2>/dev/null || echo 100) + 1)); echo $n >"$FAKE/number"
for word in "$@"; do case $word in --job-name=*) name=${word#*=} ;; esac; done
echo "$n ${name:-none}" >>"$FAKE/jobs"; echo "$n"
E
cat >bin/squeue <<'E'
#!/usr/bin/env python
import os, re, sys
text = " ".join(sys.argv[1:])
def given(short, long):
    found = re.search(rf"(?:^|\s)(?:-{short}\s*|--{long}[= ])(\S+)", text)
    return found and found[1].split(",")
states, jobs, names, form = given("t", "states"), given("j", "jobs"), given("n", "name"), given("o", "format")
if states and not {one.upper() for one in states} & {"CF", "CONFIGURING", "ALL"}:
    sys.exit()
form = ",".join(form) if form else "%i"
for line in open(os.environ["FAKE"] + "/jobs") if os.path.exists(os.environ["FAKE"] + "/jobs") else ():
    number, name = line.split()
    if (not jobs or number in jobs) and (not names or name in names):
        values = dict(i=number, A=number, F=number, K="N/A", T="CONFIGURING", t="CF", r="None", j=name)
        print(re.sub(r"%\.?\d*([a-zA-Z])", lambda m: values.get(m[1], "?"), form))
E
printf '#!/usr/bin/env bash\necho "Slurmctld(primary) at here is UP"\n' >bin/scontrol
chmod +x bin/*
python -c '
import numpy as np
rng = np.random.default_rng(0)
np.savez("x.npz", x=rng.normal(size=(90, 3)), y=np.arange(90) % 3)'
run afltool import x.npz -o x.h5
run afltool slurm --train-features x.h5 --test-features x.h5 --scheme iid --clients 4 --ridge 1 -o RUN
run bash RUN/slurm/submit.sh
first=$(wc -l <jobs)
run bash RUN/slurm/submit.sh
second=$(wc -l <jobs)
echo "jobs after submit.sh: $first; after submit.sh again, while all are CONFIGURING: $second"
cut -d' ' -f2 jobs | sort | uniq -d | sed 's/^/twice: /'
[ "$first" -gt 0 ] && [ "$second" = "$first" ] && right "nothing is submitted twice"
wrong "$((second - first)) jobs are submitted twice"
