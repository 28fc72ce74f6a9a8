"""A plan as jobs: which command each script calls, and which file it makes.

The steps are those of `plans.plan`. What is Slurm's own is here: a step whose stage can be cut into
parts is an array, and a job puts the parts together. Paths are those of `plans.layout`, as the
scripts' variables name them (rounds.sh); files that only jobs read lie in slurm/parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...options.grammars import Part
from ..checks import checked_head, client_count, holds_clients_out
from ..config import RunConfig
from ..layout import RunFolder
from ..plan import LINK, Array, Step, first_steps, last_steps, round_steps
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


def jobs(config: RunConfig, site: Site, at_solve: Mapping[str, Any] | None = None) -> list[Job]:
    """Every script of a run, in order of the stages; ``at_solve``: see `plans.checks`."""
    folder, head = ScriptFolder(), Bash("$head")
    steps = [
        *first_steps(config, folder),
        *round_steps(config, folder, 1, head, holds_clients_out(config), at_solve),
        *last_steps(config, folder, [head]),
    ]
    made = _Jobs(config, site)
    return [job for step in steps for job in made.of(step)]


class _Jobs:
    """The jobs of single steps."""

    def __init__(self, config: RunConfig, site: Site) -> None:
        self.config, self.site = config, site

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
        output, about = OUTPUTS[name]
        return [Job(f"{output[:2]}-{name}", name, about, _call(step), output)]

    def extract(self, step: Step) -> list[Job]:
        """An array over the shards of a split, and the job that merges them."""
        split, shards = step.name.removeprefix("extract "), self.site.shards
        place = RunFolder.SHARDS.format(split=split, shards=shards)
        parts = step.parts(shards, Bash("$RUN") / place)
        about = f"Images of the {split} split → features; task I is shard I of {shards}."
        joining, merged = "The shards → one file of features.", Path(str(step.out)).name
        return [
            Job(f"01-extract-{split}", "extract", about, _call(parts.step(ME)), place, shards),
            Job(f"01-merge-{split}", "merge", joining, _calls(parts.joined()), merged),
        ]

    def sums(self, step: Step) -> list[Job]:
        """An array over parts of the clients, and the job that adds up their sums.

        The folder of the parts has their number in its name, so that other parts do not mix in.
        """
        clients = round(client_count(self.config) * self.config.local_stats.participation)
        tasks = max(1, -(-clients // self.site.clients_per_task))
        parts = step.parts(tasks, Bash("$parts") / f"sums-of-{tasks}")
        if self.config.own.keep_clients:
            return [self.each(step, parts)]
        about = f"Statistics of the clients' rows; task I sums part I of {tasks} of the clients."
        place, adding = _PARTS + parts.folder.name, OUTPUTS["aggregate"][1]
        return [
            Job("04-local-stats", "local-stats", about, _call(parts.step(ME)), place, tasks),
            Job("04-aggregate", "aggregate", adding, _calls(parts.joined()), RunFolder.TOTAL),
        ]

    def each(self, step: Step, parts: Array) -> Job:
        """One file a client, which are added up one after another as `run --keep-clients` does."""
        part, tasks = parts.step(ME), parts.count
        place = f"done-of-{tasks}"
        body = _call(replace(part, out=step.out))
        body += f'\nmkdir -p "$parts/{place}" && touch "$parts/{place}/{ME}{DONE}"'
        about = (
            f"Statistics of each client; task I makes those of part I of {tasks} of the clients."
        )
        return Job("04-local-stats", "local-stats", about, body, _PARTS + place, tasks, DONE)

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


def _calls(steps: Iterable[Step]) -> str:
    return "\n".join(map(_call, steps))


def _call(step: Step, after: Iterable[str] = ()) -> str:
    """``stage NAME WORDS… -o OUT``, broken into lines; ``after``: words behind -o."""
    lines, line = [], f"stage {step.stage.name}"
    words = (f"{name} {'' if value is None else _text(value)}" for name, value in step.words())
    for word in [*map(str.strip, words), f"-o {_text(step.out)}", *after]:
        if len(line) + len(word) > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {word}"
    return " \\\n".join([*lines, line])


def _text(value: Any) -> str:
    return f'"{value}"' if isinstance(value, (Bash, Part)) else quoted(value)
