"""A step of a plan: a stage with its options, what it is made of, and where its result goes.

Steps are compared by structure before they are made, and by recipe when their inputs are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..options import Options, flag
from ..stages.stage import STAGES, Input, Place, Stage

LINK = "link"  # no command
Word = tuple[str, Any]  # a flag, or "" of an input; a value, or None of an option that is only said


@dataclass(frozen=True)
class Step:
    """One stage with everything that it needs.

    Attributes:
        inputs: by role a step, or a file that is there.
        out: its result; None for features that stay in their store.
        head_options: options of a head, beside those of the stage.
        label: what a run calls it; by default the name of the stage.
    """

    stage: Stage
    options: Options = field(default_factory=Options)
    inputs: Mapping[str, Step | Input] = field(default_factory=dict)
    out: Path | None = None
    head_options: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""

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

    def make(self, **more: Any) -> Any:
        """Carry it out; returns what its stage returns.

        ``more``: ``overwrite``, and the ``cache`` of a run for stages that use one.
        """
        how = {name: more[name] for name in more if name != "cache" or self.stage.cached}
        if self.head_options:
            how["head_options"] = self.head_options
        return self.stage.make(self.files(), self.options, self.out, **how)

    def key(self) -> tuple[Any, ...]:
        """What it makes, wherever that goes: equal keys make equal files."""
        inputs = ((role, _key(one)) for role, one in sorted(self.inputs.items()))
        how = sorted(self.options.chosen().items()) + sorted(self.head_options.items())
        return self.stage.name, str(how), tuple(inputs)

    def parts(self, count: int, folder: Path) -> list[Step]:
        """The step cut into parts, which `joined` puts together; part i is ``folder``/i.h5."""
        assert self.stage.parts is not None
        name = self.stage.parts.option
        each: list[Any] = [{name: f"{i}/{count}"} for i in range(count)]
        return [
            replace(self, options=replace(self.options, **part), out=folder / f"{i}.h5")
            for i, part in enumerate(each)
        ]

    def joined(self, folder: Path) -> Step:
        """The step that makes of its parts in ``folder`` what it makes itself."""
        assert self.stage.parts is not None
        stage = STAGES[self.stage.parts.joined_by]
        return Step(stage, stage.options(), {self.stage.parts.role: (folder,)}, self.out)

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
        for name, value in {**named, **self.options.told(), **self.head_options}.items():
            for one in value if isinstance(value, tuple) else (value,):
                if one is not False and one is not None:
                    yield flag(name), None if one is True else one

    def line(self) -> list[str]:
        """The words of its command."""
        found = [str(one) for pair in self.words() for one in pair if one not in ("", None)]
        return [self.stage.name, *found, "-o", str(self.out)]


def linking(label: str, kind: str, given: Path, place: Path) -> Step:
    """A given file under the name that a run has for it."""
    stage = Stage(LINK, Options, {"file": kind}, kind, Place.SITE)
    return Step(stage, inputs={"file": given}, out=place, label=label)


def _file(one: Step | Input) -> Input:
    if isinstance(one, Step):
        assert one.out is not None, f"{one.name} has no file of its own"
        return one.out
    return one


def _key(one: Step | Input) -> Any:
    return one.key() if isinstance(one, Step) else str(one)
