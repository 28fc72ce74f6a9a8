"""The steps of a run as jobs: what each script calls, and which files show that it is done.

Paths are those of `run`, as the scripts' variables name them (`_COMMON` in scripts.py); what only
passes between jobs lies in slurm/parts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..heads import OPTIONS
from ..stages.run_config import RunConfig
from .site import Site

WIDTH = 96
DONE = ".done"  # of a task that writes many files
_PARTS = "slurm/parts/round-{round}/"
TASK = '"$SLURM_ARRAY_TASK_ID'
# Options of a run that extract and partition take by the same name.
EXTRACT = ("backbone", "data", "weights", "preprocess", "image_size", "classes", "limit", "dtype",
           "fraction_bits", "precision", "batch_size", "device", "data_root", "checksums",
           "skip_corrupt")  # fmt: skip
PARTITION = ("shards_per_client", "min_size", "held_out", "label_noise")


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


def steps(config: RunConfig, site: Site) -> list[Step]:
    """Every script of a run, in the order of the road."""
    found: list[Step] = []
    if config.train_features is None:
        for split in ("train", "test"):
            found += [_extract(config, site, split), _merge(split, site)]
    found.append(_partition(config))
    if config.keep_clients:
        return [*found, *_kept_clients(config, site), _solve(config), _evaluate()]
    sizes = tree(config, site)
    found.append(_local_stats(config, site, sizes))
    found += [_aggregate(config, site, sizes, level) for level in range(1, len(sizes))]
    return [*found, _total(config, site, sizes), _solve(config), _evaluate()]


def tree(config: RunConfig, site: Site) -> list[int]:
    """Tasks of each level of partial sums: clients first, until one task can add up the rest."""
    clients = 100 if config.clients is None else config.clients
    sizes = [max(1, -(-round(clients * config.participation) // site.clients_per_task))]
    while sizes[-1] > site.fan_in:
        sizes.append(-(-sizes[-1] // site.fan_in))
    return sizes


def _call(stage: str, *words: str) -> str:
    """``stage NAME WORDS…``, broken into lines."""
    lines, line = [], f"stage {stage}"
    for word in words:
        if len(line) + len(word) > WIDTH:
            lines.append(line)
            line = "   "
        line += f" {word}"
    return " \\\n".join([*lines, line])


def _options(config: RunConfig, names: Iterable[str]) -> list[str]:
    """``--name value`` for each option that is not its default."""
    defaults = {f.name: f.default for f in fields(config)}
    return [
        _option(name, getattr(config, name))
        for name in names
        if getattr(config, name) != defaults[name]
    ]


def _option(name: str, value: Any) -> str:
    flag = "--" + name.replace("_", "-")
    return flag if value is True else f"{flag} {shlex.quote(str(value))}"


# ------------------------------------------------------------ features and clients


def _extract(config: RunConfig, site: Site, split: str) -> Step:
    parts = f"slurm/parts/{split}-of-{site.shards}"
    body = _call(
        "extract",
        *_options(config, EXTRACT),
        f"--split {split}",
        f'--shard {TASK}/{site.shards}"',
        f'-o "$RUN/{parts}/$SLURM_ARRAY_TASK_ID.h5"',
    )
    about = f"Images of the {split} split → features; task I is shard I of {site.shards}."
    return Step(f"01-extract-{split}", "extract", about, body, parts, site.shards)


def _merge(split: str, site: Site) -> Step:
    out = f"01-features-{split}.h5"
    body = _call("merge", f'"$RUN/slurm/parts/{split}-of-{site.shards}"', f'-o "$RUN/{out}"')
    return Step(f"01-merge-{split}", "merge", "The shards → one file of features.", body, out)


def _partition(config: RunConfig) -> Step:
    c = config
    alpha = 0.1 if c.alpha is None and c.scheme.startswith("dirichlet") else c.alpha
    body = _call(
        "partition",
        '"$RUN/01-features-train.h5"',
        f"--scheme {shlex.quote(c.scheme)}",
        *([] if alpha is None else [_option("alpha", alpha)]),
        _option("clients", 100 if c.clients is None else c.clients),
        _option("seed", c.partition_seed),
        *_options(c, PARTITION),
        '-o "$RUN/02-clients.h5"',
    )
    return Step("02-partition", "partition", "Who owns which row.", body, "02-clients.h5")


# ------------------------------------------------------------ statistics and their sum


def _statistics(config: RunConfig, tasks: int, *words: str) -> str:
    seed = _option("participation-seed", config.partition_seed)
    return _call(
        "local-stats",
        '"$RUN/01-features-train.h5"',
        '--partition "$RUN/02-clients.h5"',
        '--head "$head"',
        f'--only {TASK}/{tasks}"',
        *_options(config, ("participation",)),
        *([] if config.participation == 1 else [seed]),
        *_options(config, ("cache",)),
        *words,
    )


def _place(sizes: list[int], site: Site, level: int) -> str:
    """Folder of a level below $parts: trees of another shape have others, and never mix."""
    return f"level-{level}-of-{sizes[0]}" + (f"-by-{site.fan_in}" if level else "")


def _local_stats(config: RunConfig, site: Site, sizes: list[int]) -> Step:
    place, tasks = _place(sizes, site, 0), sizes[0]
    held = [f'--held-out "$parts/held-{place}/$SLURM_ARRAY_TASK_ID.h5"']
    out = f'-o "$parts/{place}/$SLURM_ARRAY_TASK_ID.h5"'
    body = _statistics(config, tasks, "--sum", *(held if config.held_out else []), out)
    about = f"Statistics of the clients' rows; task I sums part I of {tasks} of the clients."
    return Step("04-local-stats", "local-stats", about, body, _PARTS + place, tasks)


def _aggregate(config: RunConfig, site: Site, sizes: list[int], level: int) -> Step:
    below, place = sizes[level - 1], _place(sizes, site, level)
    last = f"first + {site.fan_in - 1}"
    body = (
        f"first=$((SLURM_ARRAY_TASK_ID * {site.fan_in}))\n"
        f"last=$(({last} < {below - 1} ? {last} : {below - 1}))\n"
    ) + _sums(config, _place(sizes, site, level - 1), '"$first" "$last"', place)
    about = f"A level of the tree of sums: task I adds up {site.fan_in} of the {below} files below."
    return Step(f"04-aggregate-{level}", "aggregate", about, body, _PARTS + place, sizes[level])


def _sums(config: RunConfig, below: str, which: str, place: str) -> str:
    """Held-out clients have a tree of their own, whose file comes before the one waited for."""
    return "\n".join(
        f'files "$parts/{kind}{below}" {which}\n'
        + _call("aggregate", '"${files[@]}"', f'-o "$parts/{kind}{place}/$SLURM_ARRAY_TASK_ID.h5"')
        for kind in (("held-", "") if config.held_out else ("",))
    )


def _total(config: RunConfig, site: Site, sizes: list[int]) -> Step:
    top = _place(sizes, site, len(sizes) - 1)
    held = [("held-", "$held_out")] if config.held_out else []
    body = "\n".join(
        f'files "$parts/{kind}{top}" 0 {sizes[-1] - 1}\n'
        + _call("aggregate", '"${files[@]}"', f'-o "{out}"')
        for kind, out in [*held, ("", "$total")]
    )
    about = "The top of the tree: the sum over all clients."
    return Step("04-aggregate", "aggregate", about, body, "04-total{suffix}.h5")


def _kept_clients(config: RunConfig, site: Site) -> list[Step]:
    """One file a client, added up one after another as `run --keep-clients` does."""
    tasks = tree(config, site)[0]
    place = f"done-of-{tasks}"
    each = _statistics(config, tasks, '-o "$RUN/04-stats$suffix"')
    each += f'\nmkdir -p "$parts/{place}" && touch "$parts/{place}/$SLURM_ARRAY_TASK_ID{DONE}"'
    held = ['--held-out "$held_out"'] if config.held_out else []
    total = _call("aggregate", '"$RUN/04-stats$suffix"', *held, '-o "$total"')
    about = f"Statistics of each client; task I makes those of part I of {tasks} of the clients."
    top = "The sum over all clients."
    return [
        Step("04-local-stats", "local-stats", about, each, _PARTS + place, tasks, DONE),
        Step("04-aggregate", "aggregate", top, total, "04-total{suffix}.h5"),
    ]


# ------------------------------------------------------------ the head


def _solve(config: RunConfig) -> Step:
    body = _call(
        "solve",
        '"$total"',
        '--head "$head"',
        *(['--validate "$held_out"'] if config.held_out else []),
        _option("threads", config.threads),
        '-o "$solved"',
    )
    body += '\nbash "$RUN/slurm/submit.sh" || finish 3   # the next round, or evaluate'
    return Step("05-solve", "solve", "The head, one phase further.", body, "05-head{suffix}.h5")


def _evaluate() -> Step:
    body = _call(
        "evaluate",
        '"$head"',
        '"$RUN/01-features-test.h5"',
        '-o "$RUN/06-metrics.json"',
        '--confusion "$RUN/06-confusion.csv"',
    )
    return Step("06-evaluate", "evaluate", "How good the solved head is.", body, "06-metrics.json")


def first_head(config: RunConfig) -> Path | None:
    """The head file that a run is given; None for one that it makes of its options."""
    return None if config.head in OPTIONS else Path(config.head)
