"""The plan of a run: its steps in order. This machine, Slurm, `status` and studies only read it.

Features, clients and the first head come first. Then each round gathers sums and solves the head
one phase further, until the head has no next phase. Then the head is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from ..options.features import ExtractOptions, SpaceOptions
from ..options.partition import PartitionOptions
from ..stages.stage import STAGES
from ..values.phases import Phase
from .checks import holds_clients_out
from .config import OUTSIDE, RunConfig
from .layout import RunFolder
from .steps import Step, linking

SPLITS = ("train", "test")


def next_steps(
    config: RunConfig,
    folder: RunFolder,
    phase: Callable[[Path], Phase | None],
    late: Callable[[], Mapping[str, Any]] = dict,
) -> Iterator[list[Step]]:
    """The steps of a run, group by group; a group is asked for when those before it are made.

    ``phase``: what the head in a file is to gather next; None ends the rounds. ``late``: options of
    the first head that `solve` is told, see `plans.solve_options`.
    """
    first = first_steps(config, folder)
    yield first
    heads: list[Path] = []
    head = config.first_head or folder.first_head
    held = holds_clients_out(config)
    for number in count(1):
        steps = round_steps(config, folder, number, head, held, late())
        yield steps
        head = folder.head(number)
        heads.append(head)
        if phase(head) is None:
            break
    yield last_steps(config, folder, heads)


def first_steps(config: RunConfig, folder: RunFolder) -> list[Step]:
    """Features of both splits, the partition, and the head before its first phase."""
    own, found = config.own, []
    for split, given in (("train", own.train_features), ("test", own.test_features)):
        place = folder.features(split)
        if given is not None:
            found.append(linking(f"features {split}", "features", given, place))
        elif config.extract is not None:
            found.append(features(config.extract, split, place))
    if own.partition is not None:
        found.append(linking("partition", "partition", own.partition, folder.clients))
    elif config.partition is not None:
        found.append(partition(config.partition, found[0], folder.clients))
    given_head = config.first_head
    if given_head is not None:
        return [*found, linking("head", "head", given_head, given_head)]
    options = config.all_head_options()
    name: dict[str, Any] = {"name": own.head}
    head = Step(STAGES["head"], SpaceOptions(), name, folder.first_head, options)
    return [*found, head]


def features(extract: ExtractOptions, split: str, place: Path) -> Step:
    """The features of the images of a split."""
    options = replace(extract, split=split)
    return Step(STAGES["extract"], options, out=place, label=f"extract {split}")


def partition(dealt: PartitionOptions, train: Step | Path, place: Path) -> Step:
    """Who owns which row."""
    return Step(STAGES["partition"], dealt, {"features": train}, place)


def round_steps(
    config: RunConfig,
    folder: RunFolder,
    number: int,
    head: Path,
    held_out: bool,
    late: Mapping[str, Any] | None = None,
) -> list[Step]:
    """The sums of a round, over all clients, and the head that is solved from them.

    ``held_out``: some clients are kept for validation, so that there are two sums.
    """
    held = folder.held_out(number) if held_out else None
    gathered = _gathered(config, folder, number, head, held)
    solving: dict[str, Any] = {"total": gathered[-1], "head": head}
    if held is not None:
        solving["validate"] = held
    stage, out = STAGES["solve"], folder.head(number)
    return [*gathered, Step(stage, config.solve, solving, out, late or {})]


def _gathered(
    config: RunConfig, folder: RunFolder, number: int, head: Path, held: Path | None
) -> list[Step]:
    """`local-stats` of all clients; with --keep-clients a file of each, which `aggregate` adds."""
    inputs = {"features": folder.features("train"), "partition": folder.clients, "head": head}
    stage, options = STAGES["local-stats"], config.local_stats
    total = folder.total(number)
    if not config.own.keep_clients:
        return [Step(stage, replace(options, sum=True, held_out=held), inputs, total)]
    each = folder.stats(number)
    adding = replace(config.aggregate, held_out=held)
    return [
        Step(stage, options, inputs, each),
        Step(STAGES["aggregate"], adding, {"files": (each,)}, total),
    ]


def last_steps(config: RunConfig, folder: RunFolder, heads: list[Path]) -> list[Step]:
    """The measuring of the solved head, and the stages from outside that belong to a run."""
    options, train = config.evaluate, folder.features("train")
    inputs: dict[str, Any] = {"head": heads[-1], "features": folder.features("test")}
    if config.own.train_accuracy:
        inputs["train"] = train
    if options.each_round:
        inputs["earlier"] = tuple(heads[:-1])
    found = [Step(STAGES["evaluate"], options, inputs, folder / RunFolder.METRICS)]
    files = {"train": train, "test": inputs["features"], "clients": folder.clients}
    files["head"] = heads[-1]
    for stage in OUTSIDE.values():
        if stage.in_run is not None:
            reads = {role: files[name] for role, name in stage.in_run.reads.items()}
            out = folder / stage.in_run.out
            found.append(Step(stage, config.outside[stage.name], reads, out))
    return found
