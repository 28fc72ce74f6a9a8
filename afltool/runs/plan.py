"""The plan of a run: its steps in order. `run`, a job, `status` and studies compute it anew.

Features, clients and the first head come first. Then each round gathers sums and solves the head
one phase further, until the head has no next phase. Then the head is measured.

A step is a stage with its options, what it is made of, and where its result goes. Steps are equal
when the files that they make have equal recipes, wherever these go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal

from ..options.base import Options, flag, get_fields
from ..options.grammars import Part
from ..stages.runner import Artifact, Files, make
from ..stages.stage import STAGES, Input, Stage
from ..values.names import Phase
from .config import RunConfig
from .folder import RunFolder
from .validation import holds_clients_out

LINK = "link"  # no command


@dataclass(frozen=True)
class Step:
    """One stage with everything that it needs.

    Attributes:
        inputs: its files by role.
        out: its result; None for features that stay in their store.
        head_options: options of a head or of a baseline's method, beside those of the stage.
        label: what a run calls it; by default the name of the stage.
        part: the part of it that is made.
    """

    stage: Stage
    options: Options = field(default_factory=Options)
    inputs: Mapping[str, Input] = field(default_factory=dict)
    out: Path | None = None
    head_options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    part: Part | None = None

    @property
    def name(self) -> str:
        return self.label or self.stage.name

    def results(self) -> list[Path]:
        """The files that it makes; of sums over held-out clients first."""
        held = getattr(self.options, "held_out", None)
        return [one for one in (held, self.out) if isinstance(one, Path)]

    def paths(self) -> list[Path]:
        """The files that it reads."""
        every = (one if isinstance(one, tuple) else (one,) for one in self.inputs.values())
        return [path for some in every for path in some if isinstance(path, Path)]

    def call(self, overwrite: bool = False) -> Any:
        """Its options and files, as the job of its stage takes them."""
        options = self.options
        if self.part is not None and self.stage.parts is not None:
            named: dict[str, Any] = {self.stage.parts.option: str(self.part)}
            options = replace(options, **named)
        own = dict.fromkeys(("head_options", "settings"), self.head_options)
        return self.stage.make_call(self.inputs, options, self.out, overwrite=overwrite, **own)

    def make(self, overwrite: bool = False, files: Files | None = None) -> Artifact:
        with self.stage.function.opened(self.call(overwrite), files) as job:
            return Artifact(self.out or job.targets[-1].path, make(job, overwrite))

    def line(self) -> list[str]:
        """The words of its command: inputs, options, where its result goes."""
        own = get_fields(self.stage.call)
        named = {role: one for role, one in self.inputs.items() if role in own}
        plain = (named.pop(role) for role in self.stage.plain)
        inputs = [
            str(path) for one in plain for path in (one if isinstance(one, tuple) else (one,))
        ]
        values = {**named, **self.options.changed_options(), **self.head_options}
        if self.stage.parts is not None and self.part is not None:
            values[self.stage.parts.option] = self.part  # last
        return [self.stage.name, *inputs, *option_words(values), "-o", str(self.out)]


def option_words(options: Mapping[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in options.items():
        for one in value if isinstance(value, (tuple, list)) else [value]:
            if one is not False and one is not None:
                words += [flag(name)] if one is True else [flag(name), str(one)]
    return words


def linking(label: str, kind: str, given: Path, place: Path) -> Step:
    stage = Stage(LINK, Options, Options, kind)
    return Step(stage, inputs={"file": given}, out=place, label=label)


Split = Literal["train", "test"]
SPLITS: tuple[Split, Split] = ("train", "test")


def next_steps(
    config: RunConfig,
    folder: RunFolder,
    phase: Callable[[Path], Phase | None],
    held_out: Callable[[RunConfig], bool] = holds_clients_out,
) -> Iterator[list[Step]]:
    """The steps of a run, group by group.

    ``phase``: what a head is to gather next, or None. ``held_out``: whether some clients are.
    """
    first = first_steps(config, folder)
    yield first
    heads: list[Path] = []
    head = config.first_head or folder.first_head
    held = held_out(config)
    for number in count(1):
        steps = round_steps(config, folder, number, head, held)
        yield steps
        head = folder.head(number)
        heads.append(head)
        if phase(head) is None:
            break
    yield last_steps(config, folder, heads)


def data_steps(config: RunConfig, folder: RunFolder, train: Path | None = None) -> list[Step]:
    """Features of both splits and the partition; ``train``: the rows that are dealt, if elsewhere.

    What is given is linked.
    """
    own, steps = config.own, []
    for split, given in zip(SPLITS, (own.train_features, own.test_features), strict=True):
        place = folder.features(split)
        if given is not None:
            steps.append(linking(f"features {split}", "features", given, place))
        elif config.extract is not None:
            options = replace(config.extract, split=split)
            steps.append(Step(STAGES["extract"], options, out=place, label=f"extract {split}"))
    if own.partition is not None:
        steps.append(linking("partition", "partition", own.partition, folder.clients))
    elif config.partition is not None:
        dealt = {"features": train or folder.features("train")}
        steps.append(Step(STAGES["partition"], config.partition, dealt, folder.clients))
    return steps


def first_steps(config: RunConfig, folder: RunFolder) -> list[Step]:
    """`data_steps`, and the head before its first phase."""
    steps, given_head = data_steps(config, folder), config.first_head
    if given_head is not None:
        return [*steps, linking("head", "head", given_head, given_head)]
    late = config.at_solve()
    options = {k: v for k, v in config.all_head_options().items() if k not in late}
    head: dict[str, Any] = {"name": config.own.head}
    return [*steps, Step(STAGES["head"], Options(), head, folder.first_head, options)]


def round_steps(
    config: RunConfig, folder: RunFolder, number: int, head: Path, held_out: bool
) -> list[Step]:
    """The sums of a round, over all clients, and the head that is solved from them.

    With --keep-clients `aggregate` adds a file of each client. ``held_out``: some clients are kept
    for validation, so that there are two sums.
    """
    held = folder.held_out(number) if held_out else None
    inputs = {"features": folder.features("train"), "partition": folder.clients, "head": head}
    stage, options, total = STAGES["local-stats"], config.local_stats, folder.total(number)
    steps = [Step(stage, replace(options, sum=True, held_out=held), inputs, total)]
    if config.own.keep_clients:
        each, adding = folder.stats(number), replace(config.aggregate, held_out=held)
        steps = [
            Step(stage, options, inputs, each),
            Step(STAGES["aggregate"], adding, {"files": (each,)}, total),
        ]
    solving: dict[str, Any] = {"total": total, "head": head}
    solving |= {} if held is None else {"validate": held}
    out = folder.head(number)
    return [*steps, Step(STAGES["solve"], config.solve, solving, out, config.at_solve())]


def last_steps(config: RunConfig, folder: RunFolder, heads: list[Path]) -> list[Step]:
    options, train = config.evaluate, folder.features("train")
    inputs: dict[str, Any] = {"head": heads[-1], "features": folder.features("test")}
    if config.own.train_accuracy:
        inputs["train"] = train
    if options.each_round:
        inputs["earlier"] = tuple(heads[:-1])
    return [Step(STAGES["evaluate"], options, inputs, folder / RunFolder.METRICS)]
