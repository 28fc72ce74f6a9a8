"""A run on Slurm: each job is `afltool run run.toml -o . --step NAME` in the run's folder.

    RUN/slurm/job.sh      what every job runs: the site's environment, signals, what is tried again
    RUN/slurm/submit.sh   submits what is missing; the job that solves a round calls it for the next
    RUN/slurm/site.json   the site's settings, for submit.sh
    RUN/slurm/parts, log  parts of features and of sums; logs

The plan is that of `run`, with the same files and recipes, so each goes on where the other stopped.
A step is named by its file. A step that can be cut is a job array, whose task I makes part I, and a
job that puts the parts together.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from string import Template
from typing import Any

from ...errors import InputError, OutputExistsError, UsageError
from ...files.atomic import write_text
from ...files.hdf5 import read_header
from ...files.outputs import make_folder
from ...files.tables import write_json
from ...options.features import default_store
from ...options.grammars import Part
from ...stages.stage import STAGES, Parts
from ...values.names import Phase
from ...values.text import difference
from ..config import FIELDS, RunConfig, is_of_run, read_config, with_features
from ..folder import RunFolder
from ..local import ridge_advice
from ..plan import LINK, Step, first_steps, next_steps
from ..step_cache import Alone
from ..validation import check_before, check_own_files, client_count, serves
from .site import Site, kept_site, quoted

TEXTS = Path(__file__).parent
LAST = "06-metrics"  # after the last round: the run itself, which finds all else done
#: The lines of submit.sh that ask for the jobs of a run and submit them.
NEXT = 'lines=$("${run[@]}" slurm --next -o .) || exit\neval "$lines"'
#: States of jobs that will not run any more.
ENDED = (
    "BOOT_FAIL|CANCELLED|COMPLETED|DEADLINE|FAILED|NODE_FAIL|OUT_OF_MEMORY|PREEMPTED|REVOKED|"
    "TIMEOUT"
)


@dataclass(frozen=True)
class Job:
    """A job, or an array of ``tasks``.

    Attributes:
        words: what job.sh is told beside its command.
        after: names of the jobs that it waits for.
    """

    name: str
    stage: str
    words: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()


class _Script(Template):
    delimiter = "§"


# ---------------------------------------------------------------- scripts


def prepare(config: RunConfig, site: Site, root: Path) -> Path:
    """Write the options, the first head, links to given files, and the scripts; returns submit.sh.

    A folder of a run with other options is refused; another site's settings replace the old ones.
    """
    folder = RunFolder(root.absolute())
    config = with_features(config).with_absolute_paths()
    texts = script_texts(config, site, root)
    check_own_files(config, folder)
    make_folder(folder.root)
    _keep_options(config, folder)
    for step in first_steps(config, folder):
        kept = folder.first_head.exists() and serves(config, folder.first_head)
        if step.stage.name == LINK or (step.stage.name == "head" and not kept):
            Alone().carry_out(step)
    return keep_scripts(texts, site, folder.root)


def keep_scripts(texts: Mapping[str, str], site: Site, root: Path) -> Path:
    """Write job.sh, submit.sh and the site's settings; returns submit.sh."""
    make_folder(root / RunFolder.LOGS)
    make_folder(default_store().absolute())  # which a job that does not see it refuses
    write_json(site.kept(), root / RunFolder.SITE, overwrite=True)
    for name in ("job.sh", "submit.sh"):
        write_text(texts[name], root / RunFolder.SLURM / name, overwrite=True)
    return root / RunFolder.SUBMIT


def script_texts(config: RunConfig, site: Site, root: Path) -> dict[str, str]:
    """The options and scripts of a run by name, and what submit.sh submits first, as ``jobs``.

    Nothing is written.

    Raises what `check_before` raises, and `UsageError` for options that jobs do not take and arrays
    that are too long.
    """
    config = with_features(config).with_absolute_paths()
    folder = RunFolder(root.absolute())
    check_slurm(config)
    check_before(config, RunFolder(root), here=False)
    texts = scripts(folder.root, site, "run run.toml -o .", NEXT)
    planned = lines_of(missing(config, site, folder), site, folder.root)
    return {RunFolder.OPTIONS: config.to_toml(), **texts, "jobs": planned}


def check_slurm(config: RunConfig) -> None:
    """Refuse options of `run` that jobs cannot use."""
    if config.extract is not None and config.extract.store is not None:
        raise UsageError("--store is for run: jobs write the features into the run's folder")
    for name, value in config.here.changed().items():
        jobs = "; slurm --memory 4G says what a job may take" if name == "memory" else ""
        raise UsageError(
            f"{name.replace('_', '-')} = {value!r} among the options is for run on one machine: "
            f"leave it out{jobs}"
        )


def scripts(
    root: Path, site: Site, command: str, jobs: str, after: str = "afterok"
) -> dict[str, str]:
    """job.sh and submit.sh of a folder.

    Args:
        command: what of afltool every job calls.
        jobs: the lines of submit.sh that submit them.
        after: what a job waits for of another.
    """
    values = {
        "root": quoted(root), "setup": site.shell(), "command": command, "jobs": jobs,
        "tag": tag(root), "ended": ENDED, "after": after,
    }  # fmt: skip
    names = ("job.sh", "submit.sh")
    return {name: _Script((TEXTS / name).read_text("utf-8")).substitute(values) for name in names}


def tag(root: Path) -> str:
    """What the names of a folder's jobs end with, so that the queue tells whose they are."""
    return f"@{sha256(os.path.realpath(root).encode()).hexdigest()[:12]}"


def lines_of(jobs: Sequence[Job], site: Site, root: Path) -> str:
    """The lines of submit.sh that submit jobs, each after those that it waits for."""
    logs = f"{log_folder(root)}/{RunFolder.LOGS}"
    return "".join(f"{_line(job, site.of(job.stage), logs)}\n" for job in jobs)


def log_folder(root: Path) -> str:
    """A folder in a pattern of ``--output``, where % begins the name of a number.

    A backslash in it would switch all patterns off, so that the tasks of an array wrote one log.
    """
    if "\\" in str(root):
        raise UsageError(
            f"sbatch cannot write logs below {root}: expected a folder without a backslash in its "
            "path; choose another -o"
        )
    return str(root).replace("%", "%%")


def _line(job: Job, site: Site, logs: str) -> str:
    tasks = ",".join(map(str, job.tasks))
    if job.tasks == tuple(range(len(job.tasks))):
        tasks = f"0-{len(job.tasks) - 1}"
    options = {
        "output": f"{logs}/{job.name}-{'%A_%a' if job.tasks else '%j'}.log",
        "open-mode": "append",
        "partition": site.partition_name,
        "account": site.account,
        "qos": site.qos,
        "time": site.time,
        "mem": site.memory,
        "cpus-per-task": site.cpus,
        "gres": f"gpu:{site.gpus}" if site.gpus else None,
        "signal": f"B:USR1@{site.warning()}",
        "array": tasks + (f"%{site.at_once}" if site.at_once else "") if job.tasks else None,
    }
    asked = [f"--{name}={value}" for name, value in options.items() if value is not None]
    words = ["--requeue", *asked, f"{RunFolder.SLURM}/job.sh", *job.words]
    return " ".join(["enqueue", job.name, quoted(" ".join(job.after)), *map(quoted, words)])


def check_submitting() -> None:
    """Refuse to submit from a machine without Slurm's commands."""
    if shutil.which("sbatch") is None:
        raise InputError(
            "cannot submit: is sbatch on this machine's PATH? Without --submit the scripts are "
            "written, and submit.sh may be called on a machine that has it"
        )


def submit(script: Path) -> list[str]:
    """Run submit.sh; what it says, a line for each job."""
    try:
        done = subprocess.run(
            ["bash", str(script.absolute())], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise InputError(f"cannot run bash: {error.strerror}") from None
    if done.returncode:
        answer = " ".join((done.stderr or done.stdout).split())
        raise InputError(
            f"{script} could not submit everything: {answer}; what is in the queue stays there; "
            "run the command again"
        )
    return done.stdout.splitlines()


def _keep_options(config: RunConfig, folder: RunFolder) -> None:
    """Write the options; those of a run that is there may differ in what is still to be done."""
    place = folder.options
    if is_of_run(place, config):
        return
    if place.exists():
        theirs = RunConfig(**read_config(place))
        stages = {name: f.part for name, f in FIELDS.items()} | {"train_accuracy": "evaluate"}
        stages |= dict.fromkeys(config.at_solve().keys() | theirs.at_solve().keys(), "solve")
        done = {"solve": folder.head(1), "evaluate": folder / RunFolder.SUMMARY}
        late = {name for name, one in stages.items() if one in done and not done[one].exists()}
        then, now = (
            {
                k: str(v) if isinstance(v, Path) else v
                for k, v in one.given().items()
                if k not in late
            }
            for one in (theirs, config)
        )
        if where := difference(then, now, "in the file", "now"):
            raise OutputExistsError(
                f"{place} is of a run with other options: {where}; choose another -o, or remove it"
            )
    write_text(config.to_toml(), place, overwrite=True)


# ---------------------------------------------------------------- the plan as jobs


def next_lines(root: Path) -> str:
    """The lines of submit.sh for what is missing of a run now."""
    folder = RunFolder(root.absolute())
    config = RunConfig(**read_config(folder.options))
    site = kept_site(folder / RunFolder.SITE)
    return lines_of(missing(config, site, folder), site, folder.root)


def steps_known(config: RunConfig, folder: RunFolder) -> Iterator[Step]:
    """The steps of a run up to the first head that is not there: its phase tells what follows."""
    for steps in next_steps(config, folder, _phase):
        yield from steps
        if any(one.stage.name == "solve" and not one.results()[-1].exists() for one in steps):
            return


def _phase(head: Path) -> Phase | None:
    phase = read_header(head, "head")["phase"]  # the arrays of deep heads are gigabytes
    return None if phase is None else Phase(phase)


def missing(config: RunConfig, site: Site, folder: RunFolder) -> list[Job]:
    """What is to be submitted of a run now, in order; a file that is there has no job."""
    jobs: list[Job] = []
    made_by: dict[Path, str] = {}
    steps = list(steps_known(config, folder))
    for step in steps:
        after = tuple(dict.fromkeys(made_by[one] for one in inputs(step) if one in made_by))
        if step.stage.name == "evaluate":
            done = (folder / RunFolder.SUMMARY).exists()
            jobs += [] if done else [Job(LAST, step.stage.name, (), after)]
        elif step.stage.name not in (LINK, "head") and not _is_there(step, steps):
            own = list(_jobs_of(step, config, site, folder, after))
            jobs += own
            made_by |= dict.fromkeys(step.results(), own[-1].name) if own else {}
    return jobs


def _jobs_of(
    step: Step, config: RunConfig, site: Site, folder: RunFolder, after: tuple[str, ...]
) -> Iterator[Job]:
    """The jobs of a step that is missing: an array over its parts, and what joins them."""
    name, cut = name_of(step), cut_of(step, config, site, folder)
    words = ("--step", name)
    if cut is None:
        yield Job(name, step.stage.name, words, after)
        return
    if cut.count > site.max_array:
        other = "smaller --shards" if step.stage.name == "extract" else "larger --clients-per-task"
        raise UsageError(
            f"{name} would be an array of {cut.count} tasks; Slurm takes {site.max_array} here "
            f"(--max-array): choose a {other}"
        )
    if tasks := tuple(i for i in range(cut.count) if not cut.is_there(i)):
        parts = Job(f"{name}.parts", step.stage.name, words, after, tasks)
        gpus = step.stage.name == "extract" and site.of("extract").gpus
        device = ("--device", "cuda") if gpus else ()  # a GPU that does not work is an error
        yield replace(parts, words=(*words, "--part", f"%I/{cut.count}", *device))
        after = (parts.name,)
    if not cut.of_clients:
        yield Job(name, cut.cut.joined_by, (*words, "--join", str(cut.count)), after)


def _is_there(step: Step, steps: Sequence[Step]) -> bool:
    """Whether what a step makes is there; of one file a client, what is made of these."""
    if step.out is not None and not step.out.suffix:
        return all(_is_there(one, steps) for one in steps if step.out in inputs(one))
    return all(path.exists() for path in step.results())


def inputs(step: Step) -> list[Path]:
    """The files that a step reads."""
    each = (one if isinstance(one, tuple) else (one,) for one in step.files().values())
    return [Path(path) for paths in each for path in paths]


def name_of(step: Step) -> str:
    """What a step is called: its file without the suffix."""
    return (step.out or Path(step.name)).stem


@dataclass(frozen=True)
class Cut:
    """A step in ``count`` parts that may be made at the same time: part I is ``folder``/I.h5.

    Files of single clients lie where they belong. Where the step sums up held-out clients, each
    part has such a sum, too, in a folder beside.
    """

    whole: Step
    cut: Parts
    folder: Path
    count: int

    @property
    def of_clients(self) -> bool:
        """Whether a part is a file for each of its clients, so that nothing joins the parts."""
        return self.whole.out is not None and not self.whole.out.suffix

    def step(self, number: int) -> Step:
        """What makes a part."""
        part = Part(number, self.count)
        if self.of_clients:
            return replace(self.whole, part=part)
        outs = [folder / f"{number}.h5" for folder in self._folders()]
        how: dict[str, Any] = {"held_out": outs[0]} if len(outs) > 1 else {}
        return replace(
            self.whole, options=replace(self.whole.options, **how), out=outs[-1], part=part
        )

    def joined(self) -> list[Step]:
        """What puts the parts together: the results are those of the step itself."""
        stage = STAGES[self.cut.joined_by]
        return [
            Step(stage, stage.options(), {self.cut.role: (folder,)}, out)
            for folder, out in zip(self._folders(), self.whole.results(), strict=True)
        ]

    def _folders(self) -> list[Path]:
        """Where the parts lie of each of the step's results."""
        beside = self.folder.with_name(f"held-{self.folder.name}")
        return [beside, self.folder][-len(self.whole.results()) :]

    def is_there(self, number: int) -> bool:
        """Whether a part is done."""
        if self.of_clients:
            return self.mark(number).exists()
        return all(path.exists() for path in self.step(number).results())

    def mark(self, number: int) -> Path:
        """What says that all files of a part's clients are there."""
        return self.folder / f"{number}.done"


def cut_of(step: Step, config: RunConfig, site: Site, folder: RunFolder) -> Cut | None:
    """The parts of a step that jobs make, if it is cut."""
    count = 0
    if step.stage.name == "extract":
        count = site.shards
    elif step.stage.name == "local-stats":
        clients = round(client_count(config) * config.local_stats.participation)
        count = max(1, -(-clients // site.clients_per_task))
    return _cut(step, count, folder) if count else None


def _cut(step: Step, count: int, folder: RunFolder) -> Cut:
    if step.stage.parts is None:
        raise UsageError(f"--step {name_of(step)}: this step has no parts")
    place = folder / f"{RunFolder.PARTS}/{name_of(step)}-of-{count}"
    return Cut(step, step.stage.parts, place, count)


def carry_out(
    config: RunConfig, root: Path, name: str, part: Part | None = None, join: int = 0
) -> Path:
    """Make the file ``name`` of a run, a part of it, or put ``join`` parts of it together.

    Raises:
        UsageError: the run has no such step now; it may follow a head that is not solved yet.
    """
    folder = RunFolder(root.absolute())
    known = {name_of(one): one for one in steps_known(config, folder)}
    step = known.get(name)
    if step is None or step.out is None:
        raise UsageError(
            f"--step {name}: the run in {root} has no such step now; it has {', '.join(known)}"
        )
    if part is None and not join:
        with ridge_advice(step, folder, "slurm", "--submit"):
            return Alone().carry_out(step).path
    cut = _cut(step, part.count if part is not None else join, folder)
    if part is None:
        for one in cut.joined():
            one.make()
        return step.out
    make_folder(cut.folder)
    one = cut.step(part.number)
    one.make()
    if cut.of_clients:
        write_text("", cut.mark(part.number), overwrite=True)
    assert one.out is not None
    return one.out
