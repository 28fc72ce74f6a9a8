"""A plan as jobs: which command each script calls, and which file it makes.

The steps are those of `plans.plan`. What is Slurm's own is here: a step whose stage can be cut into
parts is an array, and parts of sums are added up by a tree of arrays. Paths are those of
`plans.layout`, as the scripts' variables name them (`_ROUNDS` in scripts.py); files that only jobs
read lie in slurm/parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...options import flag
from ...stages.stage import STAGES
from ..checks import checked_head, client_count, holds_clients_out
from ..config import RunConfig
from ..layout import RunFolder
from ..plan import LINK, Step, Word, first_steps, last_steps, round_steps
from .quoting import quoted
from .site import Site

WIDTH = 96
DONE = ".done"  # of a task that writes many files
ME = "$SLURM_ARRAY_TASK_ID"
_PARTS = RunFolder.PARTS + "/"


@dataclass(frozen=True)
class Job:
    """One script: a job, or with ``tasks`` a job array whose task i makes ``output``/i``ending``.

    ``output`` is relative to the run's folder; {round} and {suffix} stand in those of a round.
    """

    name: str
    stage: str
    about: str
    body: str
    output: str
    tasks: int = 0
    ending: str = ".h5"


class Bash(type(Path())):  # type: ignore[misc]  # the class of paths depends on the system
    """A path with a variable of the scripts in it, which no quotes may hide."""


class ScriptFolder(RunFolder):
    """The folder of a run as its scripts name it; of its rounds the one that a job is of."""

    def __init__(self) -> None:
        super().__init__(Bash("$RUN"))

    def stats(self, number: int) -> Path:
        return self / self.STATS.format(suffix="$suffix")

    def total(self, number: int) -> Path:
        return Bash("$total")

    def held_out(self, number: int) -> Path:
        return Bash("$held_out")

    def head(self, number: int) -> Path:
        return Bash("$solved")


def is_last(job: Job) -> bool:
    """Whether a job follows the last round: that of `evaluate`, and of a stage from outside."""
    return job.stage == "evaluate" or job.stage not in STAGES


@dataclass(frozen=True)
class Tree:
    """The shape of a run: tasks of each level of partial sums, and whether clients are held out."""

    sizes: tuple[int, ...]
    held_out: bool


def tree(config: RunConfig, site: Site) -> Tree:
    """Tasks of each level: clients first, until one task can add up the rest."""
    share = config.local_stats.participation
    sizes = [max(1, -(-round(client_count(config) * share) // site.clients_per_task))]
    while sizes[-1] > site.fan_in:
        sizes.append(-(-sizes[-1] // site.fan_in))
    return Tree(tuple(sizes), holds_clients_out(config))


def jobs(config: RunConfig, site: Site, at_solve: Mapping[str, Any] | None = None) -> list[Job]:
    """Every script of a run, in order of the stages; ``at_solve``: see `plans.checks`."""
    folder, head, shape = ScriptFolder(), Bash("$head"), tree(config, site)
    steps = [
        *first_steps(config, folder),
        *round_steps(config, folder, 1, head, shape.held_out, at_solve),
        *last_steps(config, folder, [head]),
    ]
    made = _Jobs(config, site, shape)
    return [job for step in steps for job in made.of(step)]


class _Jobs:
    """The jobs of single steps."""

    def __init__(self, config: RunConfig, site: Site, shape: Tree) -> None:
        self.config, self.site, self.shape = config, site, shape

    def of(self, step: Step) -> list[Job]:
        """The jobs of a step; none of one that is made when the scripts are written."""
        own = {"extract": self.extract, "local-stats": self.sums, "solve": self.solve}
        own |= {"evaluate": self.evaluate}
        if step.stage.name in (LINK, "head"):
            return []
        return own.get(step.stage.name, self.one)(step)

    def one(self, step: Step) -> list[Job]:
        """A job as the step is."""
        name = step.stage.name
        output, about = OUTPUTS.get(name, (Path(str(step.out)).name, step.stage.about))
        return [Job(f"{output[:2]}-{name}", name, about, _call(step), output)]

    def extract(self, step: Step) -> list[Job]:
        """An array over the shards of a split, and the job that merges them."""
        split, shards = step.name.removeprefix("extract "), self.site.shards
        place = RunFolder.SHARDS.format(split=split, shards=shards)
        parts = Bash("$RUN") / place
        body = _call(replace(step, out=parts / f"{ME}.h5"), _part(step, shards))
        about = f"Images of the {split} split → features; task I is shard I of {shards}."
        merged, joining = (
            RunFolder.FEATURES.format(split=split),
            "The shards → one file of features.",
        )
        return [
            Job(f"01-extract-{split}", "extract", about, body, place, shards),
            Job(f"01-merge-{split}", "merge", joining, _call(step.joined(parts)), merged),
        ]

    def sums(self, step: Step) -> list[Job]:
        """An array over parts of the clients, and the tree of sums over it."""
        if self.config.own.keep_clients:
            return [self.each(step)]
        tasks, place = self.shape.sizes[0], self.place(0)
        held = Bash(f"$parts/held-{place}/{ME}.h5") if self.shape.held_out else None
        options = replace(self.config.local_stats, sum=True, held_out=held)
        part = replace(step, options=options, out=Bash(f"$parts/{place}/{ME}.h5"))
        body = _call(part, _part(step, tasks))
        about = f"Statistics of the clients' rows; task I sums part I of {tasks} of the clients."
        first = Job("04-local-stats", "local-stats", about, body, _PARTS + place, tasks)
        return [first, *map(self.level, range(1, len(self.shape.sizes))), self.total()]

    def each(self, step: Step) -> Job:
        """One file a client, which are added up one after another as `run --keep-clients` does."""
        tasks = self.shape.sizes[0]
        place = f"done-of-{tasks}"
        body = _call(step, _part(step, tasks))
        body += f'\nmkdir -p "$parts/{place}" && touch "$parts/{place}/{ME}{DONE}"'
        about = (
            f"Statistics of each client; task I makes those of part I of {tasks} of the clients."
        )
        return Job("04-local-stats", "local-stats", about, body, _PARTS + place, tasks, DONE)

    def place(self, level: int) -> str:
        """Folder of a level below $parts; it has the tree's shape, so that trees do not mix."""
        by = f"-by-{self.site.fan_in}" if level else ""
        return f"level-{level}-of-{self.shape.sizes[0]}{by}"

    def level(self, level: int) -> Job:
        """An array that adds up so many files of the level below a task."""
        sizes, fan_in = self.shape.sizes, self.site.fan_in
        below, last = sizes[level - 1], f"first + {fan_in - 1}"
        body = (
            f"first=$((SLURM_ARRAY_TASK_ID * {fan_in}))\n"
            f"last=$(({last} < {below - 1} ? {last} : {below - 1}))\n"
        )
        outs = {kind: f"$parts/{kind}{self.place(level)}/{ME}.h5" for kind in self.kinds()}
        body += self.added(level - 1, '"$first" "$last"', outs)
        about = f"A level of the tree of sums: task I adds up {fan_in} of the {below} files below."
        place = _PARTS + self.place(level)
        return Job(f"04-aggregate-{level}", "aggregate", about, body, place, sizes[level])

    def total(self) -> Job:
        """The top of the tree."""
        top = len(self.shape.sizes) - 1
        outs = {kind: "$held_out" if kind else "$total" for kind in self.kinds()}
        body = self.added(top, f"0 {self.shape.sizes[-1] - 1}", outs)
        about = "The top of the tree: the sum over all clients."
        return Job("04-aggregate", "aggregate", about, body, RunFolder.TOTAL)

    def kinds(self) -> tuple[str, ...]:
        """Held-out clients have a tree of their own, which is summed first."""
        return ("held-", "") if self.shape.held_out else ("",)

    def added(self, below: int, which: str, outs: Mapping[str, str]) -> str:
        """Sums of files of a level, by the tree that they are of."""
        files = {"files": (Bash("${files[@]}"),)}
        return "\n".join(
            f'files "$parts/{kind}{self.place(below)}" {which}\n'
            + _call(Step(STAGES["aggregate"], inputs=files, out=Bash(out)))
            for kind, out in outs.items()
        )

    def solve(self, step: Step) -> list[Job]:
        made = self.config.first_head is None
        advised = made and "ridge" in checked_head(self.config).options.changeable()
        body = (_ADVICE if advised else "") + _call(step)
        body += f'\nbash "$RUN/{RunFolder.SUBMIT}" || finish 3   # the next round, or evaluate'
        about = "The head, one phase further."
        return [Job("05-solve", "solve", about, body, RunFolder.HEAD)]

    def evaluate(self, step: Step) -> list[Job]:
        more = [f'--confusion "$RUN/{RunFolder.CONFUSION}"']
        result = f'"$RUN/{RunFolder.FINAL}"'
        before = f'ln -f "$head" {result} 2> /dev/null || cp -f "$head" {result} || finish 3\n'
        if self.config.evaluate.each_round:
            heads = '"$RUN"/' + RunFolder.HEAD.format(suffix="*")
            before += f'earlier=()\nfor one in {heads}; do earlier+=(--earlier "$one"); done\n'
            more += ['"${earlier[@]}"', f'--rounds "$RUN/{RunFolder.ROUNDS}"']
        body = before + _call(step, after=more)
        about = "How good the solved head is."
        return [Job("06-evaluate", "evaluate", about, body, RunFolder.METRICS)]


#: What jobs of one file make, which begins with the number of the job, and what is said of them.
OUTPUTS = {
    "partition": (RunFolder.CLIENTS, "Who owns which row."),
    "aggregate": (RunFolder.TOTAL, "The sum over all clients."),
}

_ADVICE = """\
[ "$round" -gt 1 ] || \\
advice="what is done is kept: afltool slurm ${RUN@Q}/run.toml -o ${RUN@Q} --ridge auto --submit"
"""


def _call(step: Step, *before: str, after: Iterable[str] = ()) -> str:
    """``stage NAME WORDS… -o OUT``, broken into lines; ``before``, ``after``: words beside -o."""
    words = [*_said(step.words()), *before, f"-o {_text(step.out)}", *after]
    lines, line = [], f"stage {step.stage.name}"
    for word in words:
        if len(line) + len(word) > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {word}"
    return " \\\n".join([*lines, line])


def _part(step: Step, tasks: int) -> str:
    """The word that makes a task's part of a step."""
    assert step.stage.parts is not None
    return f'{flag(step.stage.parts.option)} "{ME}/{tasks}"'


def _said(words: Iterable[Word]) -> Iterator[str]:
    for name, value in words:
        yield " ".join(filter(None, [name, _text(value) if value is not None else ""]))


def _text(value: Any) -> str:
    return f'"{value}"' if isinstance(value, Bash) else quoted(value)
