"""The bash scripts of a run: one for each step, what they share, and what submits them."""

from __future__ import annotations

from pathlib import Path

from ..layout import RunFolder
from . import quoting as shell
from .quoting import quoted
from .site import Site
from .steps import Job, is_last

NAMES = {
    "second": RunFolder.HEAD.format(suffix=""),
    "before": RunFolder.HEAD.format(suffix="-$(($1 - 1))"),
    "total": RunFolder.TOTAL.format(suffix="$suffix"),
    "held_out": RunFolder.HELD_OUT.format(suffix="$suffix"),
    "solved": RunFolder.HEAD.format(suffix="$suffix"),
    "parts": RunFolder.PARTS.format(round="$1"),
    "metrics": RunFolder.METRICS,
    "slurm": RunFolder.SLURM,
}
_WHERE = """\
# Sourced by the scripts of this folder: where the run is, the site's environment, how a stage runs.
RUN={run}
{head}{setup}set -uo pipefail

"""
_CONTAINER = """\
# afltool of the image; in a process of its own it takes that over, so that signals reach it.
afltool() {{
    local run=(apptainer exec ${{SLURM_JOB_GPUS:+--nv}} --bind "$RUN" {image} afltool)
    if [ "$BASHPID" = $$ ]; then "${{run[@]}}" "$@"; else exec "${{run[@]}}" "$@"; fi
}}

"""
_ROUNDS = """\
# of_round N: the files of round N of a head (most heads have one round).
of_round() {{
    round=$1 suffix= head=$HEAD
    [ "$1" -lt 2 ] || suffix=-$1 head=$RUN/{names[second]}
    [ "$1" -lt 3 ] || head=$RUN/{names[before]}
    total=$RUN/{names[total]}
    held_out=$RUN/{names[held_out]}
    solved=$RUN/{names[solved]}
    parts=$RUN/{names[parts]}
}}

# files FOLDER FIRST LAST: the parts of these numbers, in the array "files".
files() {{
    local i
    files=()
    for i in $(seq "$2" "$3"); do files+=("$1/$i.h5"); done
}}

"""
_STAGE = """\
# stage NAME OPTIONS…: a command of afltool, in a process that signals to the job are passed on to.
# Slurm sends SIGUSR1 before the time limit, SIGTERM at scancel: the command ends with exit code 75
# and what it has finished is kept. Its last line is one of JSON: seconds, peak memory, exit code.
child='' asked=''
trap 'asked=USR1; [ -z "$child" ] || kill -USR1 "$child"' USR1
trap 'asked=TERM; [ -z "$child" ] || kill -TERM "$child"' TERM
stage() {
    local code
    [ -z "$asked" ] || finish 75
    afltool --summary "$@" &
    child=$!
    [ -z "$asked" ] || kill "-$asked" "$child"   # asked just before its number was known
    while wait "$child"; code=$?; [ "$code" -gt 128 ] && kill -0 "$child" 2>/dev/null; do :; done
    child=''
    [ "$code" = 0 ] || finish "$code"
}

# finish CODE: end this task. If a second try may succeed, this one task goes back into the queue:
#   75        stopped before the time limit; the next try goes on from there
#   3         a file is not there or busy: network file systems show some late
#   over 128  killed by a signal, perhaps for its memory
# What helps against exit code 5, a system without an answer, is in $advice.
finish() {
    local code=$1 tries=0 wait job=$SLURM_JOB_ID
    [ -z "${SLURM_ARRAY_TASK_ID:-}" ] || job=${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID
    [ "$code" != 75 ] || tries=100
    [ "$code" != 3 ] || tries=3
    [ "$code" -le 128 ] || tries=5
    [ "$code" != 5 ] || [ -z "${advice:-}" ] || echo "$advice" >&2
    [ "$asked" != TERM ] || tries=0   # cancelled; or preempted, then Slurm puts it back itself
    if [ "${SLURM_RESTART_COUNT:-0}" -lt "$tries" ]; then
        echo "exit code $code: this task goes back into the queue" >&2
        for wait in 1 2 5 10 20 20 20 20; do   # the controller may be starting again
            scontrol requeue "$job" && break
            sleep "$wait"
        done
    fi
    exit "$code"
}
"""

_QUEUE = """\
source {run}/slurm/common.sh
set -e
cd "$RUN/{names[slurm]}"
# The jobs that this script submits must not inherit the calling job's own settings.
unset "${{!SLURM_ARRAY@}}" "${{!SLURM_CPUS@}}" "${{!SLURM_JOB@}}" "${{!SLURM_RESTART@}}"
mkdir -p jobs log
exec 9>jobs/lock
flock 9 || true   # one at a time, where the file system has locks
for wait in 1 2 5 10 20 20 0; do   # the controller may be starting again
    if scontrol ping | grep -q UP; then break; fi
    sleep "$wait"
done

# enqueue NAME AFTER OPTIONS…: submit NAME.sh, unless its job of this round is in the queue; $job is
# its number. jobs/NAME-ROUND lists the jobs that it has had.
enqueue() {{
    local name=$1 after=$2 wait
    shift 2
    job=$(tail -n 1 "jobs/$name-$round" 2>/dev/null || true)
    if [ -n "$job" ] && squeue -h -j "$job" -t PD,R,CG,S -o %i 2>/dev/null | grep -q .
    then return; fi
    [ -z "$after" ] || set -- "--dependency={after}:$after" --kill-on-invalid-dep=yes "$@"
    for wait in 1 5 20 0; do
        job=$(sbatch --parsable --job-name="$name-$round" "$@" "$name.sh" "$round") && break
        [ "$wait" -gt 0 ] && sleep "$wait"
    done
    [ -n "$job" ] || {{ echo "$name was not submitted" >&2; exit 3; }}
    job=${{job%%;*}}
    echo "$job" >>"jobs/$name-$round"
    echo "$name: job $job, round $round"
}}
"""
_SUBMIT = """\
#!/bin/bash
# Submits what is missing of this run and not in the queue yet. The solve job calls it for the next
# round; call it again after a failure: bash {run}/slurm/submit.sh
{queue}
# one NAME AFTER FILE: submit the job that makes FILE, if it is missing. What needs FILE waits for
# $job, which is AFTER if there is nothing to do.
one() {{
    job=$2
    [ -e "$3" ] || enqueue "$1" "$2"
}}

# many NAME AFTER FOLDER TASKS LIMIT ENDING: the same for the tasks I whose FOLDER/I.h5 is missing.
many() {{
    local i missing=()
    job=$2
    for ((i = 0; i < $4; i++)); do [ -e "$3/$i$6" ] || missing+=("$i"); done
    [ "${{#missing[@]}}" = 0 ] && return
    if [ "${{#missing[@]}}" = "$4" ]; then missing=("0-$(($4 - 1))"); fi
    enqueue "$1" "$2" --array="$(IFS=,; echo "${{missing[*]}}")$5"
}}

of_round 1
{before}
while [ -e "$solved" ]; do of_round $((round + 1)); done
if [ "$round" -gt 1 ] && [ "$(afltool info "$head" --field phase)" = null ]; then
    one 06-evaluate "$test" "$RUN/{names[metrics]}"
{last}    exit
fi
job=''
if [ ! -e "$total" ]; then
{sums}
fi
one 05-solve "$job" "$solved"
"""


def common(folder: Path, head: Path | None, site: Site) -> str:
    """common.sh of a run."""
    first = f"$RUN/{RunFolder.FIRST_HEAD}" if head is None else quoted(head)
    return shared(folder, site, f"HEAD={first}\n", _ROUNDS.format(names=NAMES))


def shared(folder: Path, site: Site, head: str = "", between: str = "") -> str:
    """common.sh: where the folder is, the site's environment, and how a stage runs in a job."""
    modules = site.modules.split(",") if site.modules else []
    lines = [f"module load {shell.line(modules)}"] if modules else []
    if site.venv is not None:
        lines.append(f"source {quoted(site.venv.absolute() / 'bin' / 'activate')}")
    setup = "".join(line + "\n" for line in [*lines, *site.setup])
    where = _WHERE.format(run=quoted(folder), head=head, setup=setup) + _container(site)
    return where + between + _STAGE


def _container(site: Site) -> str:
    """How the command runs, if it is in an image; the path of a file does not depend on the job."""
    if site.container is None:
        return ""
    address = "://" in site.container
    image = site.container if address else Path(site.container).absolute()
    return _CONTAINER.format(image=quoted(image))


def queue(folder: Path, after: str = "afterok") -> str:
    """The part of submit.sh that defines `enqueue`; ``after``: what a job waits for of another."""
    return _QUEUE.format(run=quoted(folder), after=after, names=NAMES)


def script(step: Job, folder: Path, site: Site, start: Path) -> str:
    """The job script of a step of a run."""
    lines = [*header(step, folder, site, start), 'of_round "${1:-1}"', ""]
    return "\n".join([*lines, step.body]) + "\n"


def header(step: Job, folder: Path, site: Site, start: Path) -> list[str]:
    """The first lines of a job script: what it is, what it asks Slurm for, common.sh."""
    s = site.of(step.stage)
    one = "%A_%a" if step.tasks else "%j"
    options = {
        "job-name": step.name,
        "output": f"{shell.log_folder(folder)}/{RunFolder.LOGS}/%x-{one}.log",
        "open-mode": "append",
        "chdir": start,
        "partition": s.partition_name,
        "account": s.account,
        "qos": s.qos,
        "time": s.time,
        "mem": s.memory,
        "cpus-per-task": s.cpus,
        "gres": f"gpu:{s.gpus}" if s.gpus else None,
        "signal": f"B:USR1@{s.warn}",
    }
    asked = [f"#SBATCH --{k}={shell.for_sbatch(v)}" for k, v in options.items() if v is not None]
    lines = ["#!/bin/bash", f"# {step.about}", *asked, "#SBATCH --requeue"]
    return [*lines, f"source {quoted(folder / RunFolder.COMMON)}"]


def submitting(steps: list[Job], folder: Path, site: Site) -> str:
    """submit.sh."""
    limit = f"%{site.at_once}" if site.at_once else ""
    lines = ["train='' test=''"]
    sums: list[str] = []
    dealt = any(step.stage == "partition" for step in steps)
    after = '"$clients"' if dealt else '"$train"'
    for step in steps:
        if step.name.startswith("01-extract"):
            split = step.name.removeprefix("01-extract-")
            place = f'"$RUN/{RunFolder.FEATURES.format(split=split)}"'
            lines += [
                f"if [ ! -e {place} ]; then",
                f"    {_many(step, limit, chr(34) * 2)}",
                f'    one 01-merge-{split} "$job" {place}',
                f"    {split}=$job",
                "fi",
            ]
        elif step.stage == "partition":
            lines += [f'one {step.name} "$train" "$RUN/{step.output}"', "clients=$job"]
        elif step.tasks:
            sums.append(f"    {_many(step, limit, after)}")
            after = '"$job"'
        elif step.stage == "aggregate":
            sums.append(f'    one {step.name} "$job" "$total"')
    own = (step for step in steps if is_last(step) and step.stage != "evaluate")
    last = "".join(f'    one {step.name} "$job" "$RUN/{step.output}"\n' for step in own)
    before, rest = "\n".join(lines), "\n".join(sums)
    return _SUBMIT.format(
        run=quoted(folder), queue=queue(folder), before=before, sums=rest, last=last, names=NAMES
    )


def _many(step: Job, limit: str, after: str) -> str:
    place = step.output.replace(RunFolder.PARTS, "$parts")
    place = place if place.startswith("$") else f"$RUN/{place}"
    return f'many {step.name} {after} "{place}" {step.tasks} "{limit}" {step.ending}'
