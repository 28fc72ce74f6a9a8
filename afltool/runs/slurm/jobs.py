"""A run on Slurm: each job is `afltool run run.toml -o . --step NAME` in the run's folder.

The plan is that of `run`, so each goes on where the other stopped. A step is named by its file; one
that can be cut is a job array, whose task I makes part I, and a job that joins the parts.
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
from ...stages.stage import STAGES
from ...values.names import Phase
from ...values.text import difference
from ..config import RunConfig, keep_options, read_config, with_features
from ..folder import RunFolder
from ..plan import LINK, Step, first_steps, next_steps
from ..step_cache import StepCache
from ..validation import check_before, check_own_files, client_count, serves
from .site import Site, load_site, quote

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
    """A job, or an array of ``tasks``; ``words``: for job.sh; ``after``: the jobs before it."""

    name: str
    stage: str
    words: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    tasks: tuple[int, ...] = ()


class _Script(Template):
    delimiter = "§"


# ---------------------------------------------------------------- scripts


def prepare(config: RunConfig, site: Site, root: Path) -> Path:
    """Write options, the first head, links to given files, and scripts; returns submit.sh."""
    folder = RunFolder(root.absolute())
    config = with_features(config).with_absolute_paths()
    texts = script_texts(config, site, root)
    check_own_files(config, folder)
    _refuse_another(config, folder)
    make_folder(folder.root)
    keep_options(config, folder.options)
    for step in first_steps(config, folder):
        kept = serves(config, folder.first_head)
        if step.stage.name == LINK or (step.stage.name == "head" and not kept):
            StepCache().carry_out(step)
    return keep_scripts(texts, site, folder.root)


def keep_scripts(texts: Mapping[str, str], site: Site, root: Path) -> Path:
    """Write job.sh, submit.sh and the site's settings; returns submit.sh."""
    make_folder(root / RunFolder.LOGS)
    make_folder(default_store().absolute())  # which a job that does not see it refuses
    write_json(site.save(), root / RunFolder.SITE, overwrite=True)
    for name in ("job.sh", "submit.sh"):
        write_text(texts[name], root / RunFolder.SLURM / name, overwrite=True)
    return root / RunFolder.SUBMIT


def script_texts(config: RunConfig, site: Site, root: Path) -> dict[str, str]:
    """The options and scripts of a run by name, and as ``jobs`` what submit.sh submits first."""
    config = with_features(config).with_absolute_paths()
    folder = RunFolder(root.absolute())
    check_slurm(config)
    check_before(config, RunFolder(root), here=False)
    texts = scripts(folder.root, site, "run run.toml -o .", NEXT)
    planned = submit_lines(missing(config, site, folder), site, folder.root)
    return {RunFolder.OPTIONS: config.to_toml(), **texts, "jobs": planned}


def check_slurm(config: RunConfig) -> None:
    if config.extract is not None and config.extract.store is not None:
        raise UsageError("--store is for run: jobs write the features into the run's folder")
    for name, value in config.here.changed_options().items():
        raise UsageError(
            f"{name} = {value!r} among the options is for run on one machine: leave it out"
        )


def scripts(
    root: Path, site: Site, command: str, jobs: str, after: str = "afterok"
) -> dict[str, str]:
    """job.sh, whose jobs call ``command``, and submit.sh, which submits them by ``jobs``."""
    values = {
        "root": quote(root), "setup": site.shell(), "command": command, "jobs": jobs,
        "tag": tag(root), "ended": ENDED, "after": after,
    }  # fmt: skip
    names = ("job.sh", "submit.sh")
    return {name: _Script((TEXTS / name).read_text("utf-8")).substitute(values) for name in names}


def tag(root: Path) -> str:
    """What the names of a folder's jobs end with, so that the queue tells whose they are."""
    return f"@{sha256(os.path.realpath(root).encode()).hexdigest()[:12]}"


def submit_lines(jobs: Sequence[Job], site: Site, root: Path) -> str:
    """The lines of submit.sh that submit jobs, each after those that it waits for."""
    logs = f"{root}/{RunFolder.LOGS}".replace("%", "%%")  # in a pattern % begins a number's name
    return "".join(f"{_line(job, site.of(job.stage), logs)}\n" for job in jobs)


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
    return " ".join(["enqueue", job.name, quote(" ".join(job.after)), *map(quote, words)])


def check_submitting() -> None:
    if shutil.which("sbatch") is None:
        raise InputError(
            "cannot submit: is sbatch on this machine's PATH? Leave --submit out, and call "
            "submit.sh on a machine that has it"
        )


def submit(script: Path) -> list[str]:
    """Run submit.sh; what it says, a line for each job."""
    done = subprocess.run(["bash", script.absolute()], capture_output=True, text=True, check=False)
    if done.returncode:
        answer = " ".join((done.stderr or done.stdout).split())
        raise InputError(f"{script} could not submit everything: {answer}; run the command again")
    return done.stdout.splitlines()


def _refuse_another(config: RunConfig, folder: RunFolder) -> None:
    """Refuse other options; until a head is solved, what `solve` is told may differ."""
    if not folder.options.exists():
        return
    every = [RunConfig(**read_config(folder.options)), config]
    late = set[str]().union(*(one.at_solve() for one in every))
    late = set() if folder.head(1).exists() else late
    then, now = (
        {k: str(v) for k, v in one.given_options().items() if k not in late} for one in every
    )
    if where := difference(then, now, "in the file", "now"):
        text = f"{folder.options} is of a run with other options: {where}"
        raise OutputExistsError(f"{text}; choose another -o, or remove it")


# ---------------------------------------------------------------- the plan as jobs


def next_lines(root: Path) -> str:
    folder = RunFolder(root.absolute())
    config = RunConfig(**read_config(folder.options))
    site = load_site(folder / RunFolder.SITE)
    return submit_lines(missing(config, site, folder), site, folder.root)


def list_known_steps(config: RunConfig, folder: RunFolder) -> Iterator[Step]:
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
    steps = list(list_known_steps(config, folder))
    for step in steps:
        after = tuple(dict.fromkeys(made_by[one] for one in step.paths() if one in made_by))
        if step.stage.name == "evaluate":
            done = (folder / RunFolder.SUMMARY).exists()
            jobs += [] if done else [Job(LAST, step.stage.name, (), after)]
        elif step.stage.name not in (LINK, "head") and not _exists(step, steps):
            own = list(_make_jobs(step, config, site, folder, after))
            jobs += own
            made_by |= dict.fromkeys(step.results(), own[-1].name) if own else {}
    return jobs


def _make_jobs(
    step: Step, config: RunConfig, site: Site, folder: RunFolder, after: tuple[str, ...]
) -> Iterator[Job]:
    """The jobs of a step that is missing: an array over its parts, and what joins them."""
    name, cut = step_name(step), get_cut(step, config, site, folder)
    words = ("--step", name)
    if cut is None:
        yield Job(name, step.stage.name, words, after)
        return
    if tasks := tuple(i for i in range(cut.count) if not cut.is_complete(i)):
        parts = Job(f"{name}.parts", step.stage.name, words, after, tasks)
        gpus = step.stage.name == "extract" and site.of("extract").gpus
        device = ("--device", "cuda") if gpus else ()  # a GPU that does not work is an error
        yield replace(parts, words=(*words, "--part", f"%I/{cut.count}", *device))
        after = (parts.name,)
    if not cut.of_clients:
        stage = cut.join_step()[0].stage.name
        yield Job(name, stage, (*words, "--join", str(cut.count)), after)


def _exists(step: Step, steps: Sequence[Step]) -> bool:
    """Whether what a step makes is there; of one file a client, what is made of these."""
    if step.out is not None and not step.out.suffix:
        return all(_exists(one, steps) for one in steps if step.out in one.paths())
    return all(path.exists() for path in step.results())


def step_name(step: Step) -> str:
    """What a step is called: its file without the suffix."""
    return (step.out or Path(step.name)).stem


@dataclass(frozen=True)
class Cut:
    """A step in ``count`` parts: part I is ``folder``/I.h5, of held-out clients beside."""

    whole: Step
    folder: Path
    count: int

    @property
    def of_clients(self) -> bool:
        """Whether a part is a file for each of its clients, so that nothing joins the parts."""
        out = self.whole.out
        return out is not None and not out.suffix

    def step(self, number: int) -> Step:
        part = Part(number, self.count)
        if self.of_clients:
            return replace(self.whole, part=part)
        outs = [folder / f"{number}.h5" for folder in self._folders()]
        how: dict[str, Any] = {"held_out": outs[0]} if len(outs) > 1 else {}
        return replace(
            self.whole, options=replace(self.whole.options, **how), out=outs[-1], part=part
        )

    def join_step(self) -> list[Step]:
        """What puts the parts together: the results are those of the step itself."""
        cut = self.whole.stage.parts
        assert cut is not None
        stage = STAGES[cut.joined_by]
        return [
            Step(stage, stage.options(), {cut.role: (folder,)}, out)
            for folder, out in zip(self._folders(), self.whole.results(), strict=True)
        ]

    def _folders(self) -> list[Path]:
        beside = self.folder.with_name(f"held-{self.folder.name}")
        return [beside, self.folder][-len(self.whole.results()) :]

    def is_complete(self, number: int) -> bool:
        if self.of_clients:
            return self.mark(number).exists()
        return all(path.exists() for path in self.step(number).results())

    def mark(self, number: int) -> Path:
        """What says that all files of a part's clients are there."""
        return self.folder / f"{number}.done"


def get_cut(step: Step, config: RunConfig, site: Site, folder: RunFolder) -> Cut | None:
    """The parts of a step that jobs make, if it is cut."""
    count = 0
    if step.stage.name == "extract":
        count = site.shards
    elif step.stage.name == "local-stats":
        clients = round(client_count(config) * config.local_stats.participation)
        count = max(1, -(-clients // site.clients_per_task))
    return _make_cut(step, min(count, site.max_array), folder) if count else None


def _make_cut(step: Step, count: int, folder: RunFolder) -> Cut:
    if step.stage.parts is None:
        raise UsageError(f"--step {step_name(step)}: this step has no parts")
    place = folder / f"{RunFolder.PARTS}/{step_name(step)}-of-{count}"
    return Cut(step, place, count)


def carry_out(
    config: RunConfig, root: Path, name: str, part: Part | None = None, join: int = 0
) -> Path:
    """Make the file ``name`` of a run, a part of it, or put ``join`` parts of it together."""
    folder = RunFolder(root.absolute())
    known = {step_name(one): one for one in list_known_steps(config, folder)}
    step = known.get(name)
    if step is None or step.out is None:
        raise UsageError(
            f"--step {name}: the run in {root} has no such step now; it has {', '.join(known)}"
        )
    if part is None and not join:
        return StepCache().carry_out(step).path
    cut = _make_cut(step, part.count if part is not None else join, folder)
    if part is None:
        for one in cut.join_step():
            one.make()
        return step.out
    make_folder(cut.folder)
    one = cut.step(part.number)
    one.make()
    if cut.of_clients:
        write_text("", cut.mark(part.number), overwrite=True)
    assert one.out is not None
    return one.out
