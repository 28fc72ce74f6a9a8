"""The commands `head NAME`: one for each head, with its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..heads import OPTIONS, options_class
from ..options.base import fields_of, set_of
from ..options.statistics import NewHead
from .app import Builder, Group, group
from .commands import JSON, apart, parameters, show, typer_command

MOST = 7  # options of a head that -h shows without being asked for all


def head_group(_: Sequence[str]) -> Group:
    return group("head", NewHead.__doc__ or "", _builders)


def _builders() -> Mapping[str, Builder]:
    return {name: partial(_command, name) for name in OPTIONS}


def _command(name: str, _: Sequence[str]) -> Any:
    cls = options_class(name)
    of_head = parameters(cls, "Head")
    common = set_of(cls, "COMMON") | fields_of(NewHead).keys() | {"as_json"}

    def call(as_json: bool, **values: Any) -> None:
        from ..stages.head import head

        show(head(NewHead(name, **apart(values, of_head, "head_options"))), as_json)

    given = [*of_head, *parameters(NewHead, skip={"name"}), JSON]
    return typer_command(
        name, cls.__doc__, call, given, common if len(fields_of(cls)) > MOST else frozenset()
    )
