# adapted: bash RUN/slurm/01-extract-train.sh → bash RUN/slurm/job.sh --step 01-features-train --part %I/2
# Fault: a task whose images are not there ends with exit code 3 and goes back into the queue three times,
# because files of network file systems may show late. Nothing will make a data set appear.
# Right: what is missing is refused when the scripts are written, or the task is not put back. (scontrol
# here is made up; the task is called as Slurm would. The data set is one that is not looked at before.)
set -u
right() { echo "RIGHT: $*"; exit 0; }
wrong() { echo "WRONG: $*"; exit 1; }
try() { "$@" >out.txt 2>err.txt; code=$?; echo "$* ended with $code"; tail -n 3 err.txt; }  # what is tried
refused() { [ "$code" -ge 2 ] && [ "$code" -le 5 ] && ! grep -q Traceback err.txt && grep -qiE -- "$1" err.txt; }

mkdir -p bin root/tiny-imagenet-200
export FAKE=$PWD PATH=$PWD/bin:$PATH
printf '#!/usr/bin/env bash\necho "$*" >>"$FAKE/scontrol.txt"\n' >bin/scontrol
chmod +x bin/scontrol
touch scontrol.txt
try afltool slurm --backbone resnet18 --weights random --data tiny-imagenet --data-root "$PWD"/root --scheme iid --clients 2 --shards 2 -o RUN
if [ "$code" != 0 ]; then
    refused 'tiny-imagenet' && right "refused when the scripts are written: $(tail -n 1 err.txt | cut -c1-100)"
    wrong "ended with $code without naming the data set"
fi
SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=0 SLURM_RESTART_COUNT=0 timeout 100 bash RUN/slurm/job.sh --step 01-features-train --part %I/2 >task.txt 2>&1 </dev/null
code=$?
again=$(grep -c requeue scontrol.txt)
echo "the task ended with $code: $(grep -m 1 error task.txt | cut -c1-120); put back into the queue: $again times"
[ "$code" != 0 ] && [ "$again" = 0 ] && right "it is not put back"
wrong "the task goes back into the queue, though its data set is not there"
