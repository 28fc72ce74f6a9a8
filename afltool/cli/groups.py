"""The commands that have commands of their own: a head's name, a picture's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..heads import OPTIONS, options_class
from ..options.base import fields_of, set_of
from ..options.common import Printed
from ..options.statistics import NewHead
from .app import Builder, Group, added, group
from .commands import Command, apart, inputs_of, parameters, piped, show, typer_command

MOST = 7  # options of a head that -h shows without being asked for all
#: Pictures: the class of their options.
PICTURES = {
    "partition": "PartitionPicture",
    "confusion": "ConfusionPicture",
    "reliability": "ReliabilityPicture",
    "roc": "RocPicture",
    "coverage": "CoveragePicture",
    "ridge-path": "RidgePathPicture",
    "rounds": "RoundsPicture",
}


def head_group(_: Sequence[str]) -> Group:
    builders = {name: partial(_head, name) for name in OPTIONS}
    return group("head", NewHead.__doc__ or "", lambda _: builders)


def _head(name: str, _: Sequence[str]) -> Any:
    cls = options_class(name)
    of_head = parameters(cls, "Head")

    def call(as_json: bool | None, **values: Any) -> None:
        from ..stages.head import head

        given = apart(piped(inputs_of(NewHead), values), of_head, "head_options")
        show(head(NewHead(name, **given)), bool(as_json))

    given = parameters(NewHead, skip={"name"}) + parameters(Printed)
    common = set_of(cls, "COMMON") | {p.name for p in given}
    few = len(fields_of(cls)) <= MOST
    return typer_command(
        name, cls.__doc__, call, [*of_head, *given], frozenset() if few else common
    )


def plot_group(_: Sequence[str]) -> Group:
    return group("plot", "Draw pictures: one of a file, or of several side by side.", _pictures)


def _pictures(word: str) -> Mapping[str, Builder]:
    every = {name: Command("", "", f"options.look:{cls}") for name, cls in PICTURES.items()}
    if word not in every:
        every |= {k.split()[1]: one for k, one in added().items() if k.startswith("plot ")}
    return {name: partial(one.build, name) for name, one in every.items()}
