"""The plan of a run: its steps in order. `run`, a job, `status` and studies compute it anew.

Features, clients and the first head come first. Then each round gathers sums and solves the head
one phase further, until the head has no next phase. Then the head is measured.

A step is a stage with its options, what it is made of, and where its result goes. Steps are
compared by structure before they are made, and by recipe when their inputs are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Unpack

from ..options.base import Options, flag
from ..options.common import SpaceOptions
from ..options.features import ExtractOptions
from ..options.grammars import Part
from ..options.partition import PartitionOptions
from ..stages.stage import STAGES, How, Input, Parts, Result, Stage
from ..values.names import Phase
from .checks import holds_clients_out
from .config import RunConfig
from .layout import RunFolder

LINK = "link"  # no command
Word = tuple[str, Any]  # a flag, or "" of an input; a value, or None of an option that is only said


@dataclass(frozen=True)
class Step:
    """One stage with everything that it needs.

    Attributes:
        inputs: by role a step, or files that are there.
        out: its result; None for features that stay in their store.
        head_options: options of a head, beside those of the stage.
        label: what a run calls it; by default the name of the stage.
        part: the part of it that is made.
    """

    stage: Stage
    options: Options = field(default_factory=Options)
    inputs: Mapping[str, Step | Input] = field(default_factory=dict)
    out: Path | None = None
    head_options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    part: Part | None = None

    @property
    def name(self) -> str:
        return self.label or self.stage.name

    def files(self) -> dict[str, Input]:
        """Its inputs by role as files."""
        return {role: _file(one) for role, one in self.inputs.items()}

    def results(self) -> list[Path]:
        """The files that it makes; of sums over held-out clients first."""
        held = getattr(self.options, "held_out", None)
        return [one for one in (held, self.out) if isinstance(one, Path)]

    def make(self, **how: Unpack[How]) -> Result:
        """Carry it out; returns what its stage returns."""
        more: How = {**how, "head_options": self.head_options}
        options = self.options
        if self.part is not None and self.stage.parts is not None:
            named: dict[str, Any] = {self.stage.parts.option: str(self.part)}
            options = replace(options, **named)
        return self.stage.make(self.files(), options, self.out, **more)

    def key(self) -> tuple[Any, ...]:
        """What it makes, wherever that goes: equal keys make equal files."""
        inputs = ((role, _key(one)) for role, one in sorted(self.inputs.items()))
        how = sorted(self.options.changed().items()) + sorted(self.head_options.items())
        return self.stage.name, str(how), tuple(inputs)

    def parts(self, count: int, folder: Path) -> Array:
        """The step cut into parts, as its stage can be; part I is ``folder``/I.h5."""
        assert self.stage.parts is not None
        return Array(self, self.stage.parts, folder, count)

    def words(self) -> Iterator[Word]:
        """Its command line, without -o: inputs and options as (flag, value).

        An input has no flag, an option that is only said has no value.
        """
        files = self.files()
        for role in self.stage.plain:
            one = files[role]
            yield from (("", value) for value in (one if isinstance(one, tuple) else (one,)))
        others = (role for role in self.stage.reads if role in files)
        named = {role: files[role] for role in others if role not in self.stage.plain}
        values = {**named, **self.options.said(), **self.head_options}
        if self.stage.parts is not None and self.part is not None:
            values[self.stage.parts.option] = self.part  # last
        for name, value in values.items():
            for one in value if isinstance(value, tuple) else (value,):
                if one is not False and one is not None:
                    yield flag(name), None if one is True else one

    def line(self) -> list[str]:
        """The words of its command."""
        words = [str(one) for pair in self.words() for one in pair if one not in ("", None)]
        return [self.stage.name, *words, "-o", str(self.out)]


@dataclass(frozen=True)
class Array:
    """Parts of a step that may be made at the same time: part I of ``count`` is ``folder``/I.h5.

    Where the step sums up held-out clients, each part has such a sum, too, in a folder beside.
    """

    whole: Step
    cut: Parts
    folder: Path
    count: int

    def step(self, number: Any) -> Step:
        """What makes a part."""
        outs = [folder / f"{number}.h5" for folder in self._folders()]
        how: dict[str, Any] = {"held_out": outs[0]} if len(outs) > 1 else {}
        options = replace(self.whole.options, **how)
        return replace(self.whole, options=options, out=outs[-1], part=Part(number, self.count))

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


def linking(label: str, kind: str, given: Path, place: Path) -> Step:
    """A given file under the name that a run has for it."""
    stage = Stage(LINK, Options, Options, {"file": kind}, kind)
    return Step(stage, inputs={"file": given}, out=place, label=label)


def _file(one: Step | Input) -> Input:
    if isinstance(one, Step):
        assert one.out is not None, f"{one.name} has no file of its own"
        return one.out
    return one


def _key(one: Step | Input) -> Any:
    return one.key() if isinstance(one, Step) else str(one)


SPLITS = ("train", "test")


def next_steps(
    config: RunConfig,
    folder: RunFolder,
    phase: Callable[[Path], Phase | None],
    late: Callable[[], Mapping[str, Any]] = dict,
) -> Iterator[list[Step]]:
    """The steps of a run, group by group; a group is asked for when those before it are made.

    ``phase``: what the head in a file is to gather next; None ends the rounds. ``late``: options of
    the first head that `solve` is told, see `plans.checks`.
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
    own, steps = config.own, []
    for split, given in (("train", own.train_features), ("test", own.test_features)):
        place = folder.features(split)
        if given is not None:
            steps.append(linking(f"features {split}", "features", given, place))
        elif config.extract is not None:
            steps.append(features(config.extract, split, place))
    if own.partition is not None:
        steps.append(linking("partition", "partition", own.partition, folder.clients))
    elif config.partition is not None:
        steps.append(partition(config.partition, steps[0], folder.clients))
    given_head = config.first_head
    if given_head is not None:
        return [*steps, linking("head", "head", given_head, given_head)]
    options = config.all_head_options()
    name: dict[str, Any] = {"name": own.head}
    head = Step(STAGES["head"], SpaceOptions(), name, folder.first_head, options)
    return [*steps, head]


def features(extract: ExtractOptions, split: str, place: Path) -> Step:
    """The features of the images of a split."""
    half: Any = split
    options = replace(extract, split=half)
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
    """The measuring of the solved head."""
    options, train = config.evaluate, folder.features("train")
    inputs: dict[str, Any] = {"head": heads[-1], "features": folder.features("test")}
    if config.own.train_accuracy:
        inputs["train"] = train
    if options.each_round:
        inputs["earlier"] = tuple(heads[:-1])
    return [Step(STAGES["evaluate"], options, inputs, folder / RunFolder.METRICS)]
