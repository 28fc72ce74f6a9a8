"""The steps of a run as jobs: which command each script calls, and which file it makes.

Paths are those of `afltool.plans.layout`, as the scripts' variables name them (`_COMMON` in
scripts.py); files that only jobs read lie in slurm/parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...options import Options, flag
from ..checks import checked_head, client_count, holds_clients_out
from ..config import RunConfig
from ..layout import RunFolder
from .quoting import quoted
from .site import Site

WIDTH = 96
DONE = ".done"  # of a task that writes many files
_PARTS = RunFolder.PARTS + "/"
TASK = '"$SLURM_ARRAY_TASK_ID'
TRAIN, TEST = (RunFolder.FEATURES.format(split=split) for split in ("train", "test"))


@dataclass(frozen=True)
class Step:
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

    @property
    def of_a_round(self) -> bool:
        return "{" in self.output


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


def steps(config: RunConfig, site: Site, at_solve: Mapping[str, Any] | None = None) -> list[Step]:
    """Every script of a run, in order of the stages; ``at_solve``: see `plans.solve_options`."""
    found: list[Step] = []
    if config.extract is not None:
        for split in ("train", "test"):
            found += [_extract(config.extract, site, split), _merge(split, site)]
    if config.partition is not None:
        found.append(_partition(config.partition))
    shape = tree(config, site)
    last = [_solve(config, shape, at_solve or {}), _evaluate(config)]
    if config.own.keep_clients:
        return [*found, *_kept_clients(config, shape), *last]
    found.append(_local_stats(config, site, shape))
    found += [_aggregate(site, shape, level) for level in range(1, len(shape.sizes))]
    return [*found, _total(site, shape), *last]


def _call(stage: str, *words: str) -> str:
    """``stage NAME WORDS…``, broken into lines."""
    lines, line = [], f"stage {stage}"
    for word in words:
        if len(line) + len(word) > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {word}"
    return " \\\n".join([*lines, line])


def _options(options: Options) -> list[str]:
    """``--name value`` for each option that a script has to give."""
    return _words(options.told())


def _words(values: Mapping[str, Any]) -> list[str]:
    return [
        flag(name) if one is True else f"{flag(name)} {quoted(one)}"
        for name, value in values.items()
        for one in (value if isinstance(value, tuple) else (value,))
    ]


# ------------------------------------------------------------ features and clients


def _extract(options: Options, site: Site, split: str) -> Step:
    parts = RunFolder.SHARDS.format(split=split, shards=site.shards)
    body = _call(
        "extract",
        *_options(options),
        f"--split {split}",
        f'--shard {TASK}/{site.shards}"',
        f'-o "$RUN/{parts}/$SLURM_ARRAY_TASK_ID.h5"',
    )
    about = f"Images of the {split} split → features; task I is shard I of {site.shards}."
    return Step(f"01-extract-{split}", "extract", about, body, parts, site.shards)


def _merge(split: str, site: Site) -> Step:
    out = RunFolder.FEATURES.format(split=split)
    parts = RunFolder.SHARDS.format(split=split, shards=site.shards)
    body = _call("merge", f'"$RUN/{parts}"', f'-o "$RUN/{out}"')
    return Step(f"01-merge-{split}", "merge", "The shards → one file of features.", body, out)


def _partition(options: Options) -> Step:
    out = RunFolder.CLIENTS
    body = _call("partition", f'"$RUN/{TRAIN}"', *_options(options), f'-o "$RUN/{out}"')
    return Step("02-partition", "partition", "Who owns which row.", body, out)


# ------------------------------------------------------------ statistics and their sum


def _statistics(config: RunConfig, tasks: int, *words: str) -> str:
    return _call(
        "local-stats",
        f'"$RUN/{TRAIN}"',
        f'--partition "$RUN/{RunFolder.CLIENTS}"',
        '--head "$head"',
        f'--only {TASK}/{tasks}"',
        *_options(config.local_stats),
        *words,
    )


def _place(sizes: tuple[int, ...], site: Site, level: int) -> str:
    """Folder of a level below $parts; the name has the tree's shape, so that trees do not mix."""
    return f"level-{level}-of-{sizes[0]}" + (f"-by-{site.fan_in}" if level else "")


def _local_stats(config: RunConfig, site: Site, shape: Tree) -> Step:
    place, tasks = _place(shape.sizes, site, 0), shape.sizes[0]
    held = [f'--held-out "$parts/held-{place}/$SLURM_ARRAY_TASK_ID.h5"']
    out = f'-o "$parts/{place}/$SLURM_ARRAY_TASK_ID.h5"'
    body = _statistics(config, tasks, "--sum", *(held if shape.held_out else []), out)
    about = f"Statistics of the clients' rows; task I sums part I of {tasks} of the clients."
    return Step("04-local-stats", "local-stats", about, body, _PARTS + place, tasks)


def _aggregate(site: Site, shape: Tree, level: int) -> Step:
    sizes = shape.sizes
    below, place = sizes[level - 1], _place(sizes, site, level)
    last = f"first + {site.fan_in - 1}"
    body = (
        f"first=$((SLURM_ARRAY_TASK_ID * {site.fan_in}))\n"
        f"last=$(({last} < {below - 1} ? {last} : {below - 1}))\n"
    ) + _sums(shape, _place(sizes, site, level - 1), '"$first" "$last"', place)
    about = f"A level of the tree of sums: task I adds up {site.fan_in} of the {below} files below."
    return Step(f"04-aggregate-{level}", "aggregate", about, body, _PARTS + place, sizes[level])


def _sums(shape: Tree, below: str, which: str, place: str) -> str:
    """Sum files of a level; held-out clients have a tree of their own, which is summed first."""
    return "\n".join(
        f'files "$parts/{kind}{below}" {which}\n'
        + _call("aggregate", '"${files[@]}"', f'-o "$parts/{kind}{place}/$SLURM_ARRAY_TASK_ID.h5"')
        for kind in (("held-", "") if shape.held_out else ("",))
    )


def _total(site: Site, shape: Tree) -> Step:
    top = _place(shape.sizes, site, len(shape.sizes) - 1)
    held = [("held-", "$held_out")] if shape.held_out else []
    body = "\n".join(
        f'files "$parts/{kind}{top}" 0 {shape.sizes[-1] - 1}\n'
        + _call("aggregate", '"${files[@]}"', f'-o "{out}"')
        for kind, out in [*held, ("", "$total")]
    )
    about = "The top of the tree: the sum over all clients."
    return Step("04-aggregate", "aggregate", about, body, RunFolder.TOTAL)


def _kept_clients(config: RunConfig, shape: Tree) -> list[Step]:
    """One file a client, added up one after another as `run --keep-clients` does."""
    tasks = shape.sizes[0]
    place = f"done-of-{tasks}"
    folder = RunFolder.STATS.format(suffix="$suffix")
    each = _statistics(config, tasks, f'-o "$RUN/{folder}"')
    each += f'\nmkdir -p "$parts/{place}" && touch "$parts/{place}/$SLURM_ARRAY_TASK_ID{DONE}"'
    held = ['--held-out "$held_out"'] if shape.held_out else []
    how = _options(config.aggregate)
    total = _call("aggregate", f'"$RUN/{folder}"', *held, *how, '-o "$total"')
    about = f"Statistics of each client; task I makes those of part I of {tasks} of the clients."
    top = "The sum over all clients."
    return [
        Step("04-local-stats", "local-stats", about, each, _PARTS + place, tasks, DONE),
        Step("04-aggregate", "aggregate", top, total, RunFolder.TOTAL),
    ]


# ------------------------------------------------------------ the head


def _solve(config: RunConfig, shape: Tree, at_solve: Mapping[str, Any]) -> Step:
    body = _ADVICE if _takes_ridge(config) else ""
    body += _call(
        "solve",
        '"$total"',
        '--head "$head"',
        *(['--validate "$held_out"'] if shape.held_out else []),
        *_options(config.solve),
        *_words(at_solve),
        '-o "$solved"',
    )
    body += f'\nbash "$RUN/{RunFolder.SUBMIT}" || finish 3   # the next round, or evaluate'
    return Step("05-solve", "solve", "The head, one phase further.", body, RunFolder.HEAD)


_ADVICE = """\
[ "$round" -gt 1 ] || \\
advice="what is done is kept: afltool slurm ${RUN@Q}/run.toml -o ${RUN@Q} --ridge auto --submit"
"""


def _takes_ridge(config: RunConfig) -> bool:
    """Whether `solve` can be told another ridge for the head that is made of the options."""
    return config.first_head is None and "ridge" in checked_head(config).options.changeable()


def _evaluate(config: RunConfig) -> Step:
    rounds, before = [], ""
    if config.evaluate.each_round:
        rounds = ['"${earlier[@]}"', f'--rounds "$RUN/{RunFolder.ROUNDS}"']
        heads = '"$RUN"/' + RunFolder.HEAD.format(suffix="*")
        before = f'earlier=()\nfor one in {heads}; do earlier+=(--earlier "$one"); done\n'
    result = f'"$RUN/{RunFolder.FINAL}"'
    link = f'ln -f "$head" {result} 2> /dev/null || cp -f "$head" {result} || finish 3\n'
    body = (
        link
        + before
        + _call(
            "evaluate",
            '"$head"',
            f'"$RUN/{TEST}"',
            *_options(config.evaluate),
            *([f'--train "$RUN/{TRAIN}"'] if config.own.train_accuracy else []),
            f'-o "$RUN/{RunFolder.METRICS}"',
            f'--confusion "$RUN/{RunFolder.CONFUSION}"',
            *rounds,
        )
    )
    about = "How good the solved head is."
    return Step("06-evaluate", "evaluate", about, body, RunFolder.METRICS)
