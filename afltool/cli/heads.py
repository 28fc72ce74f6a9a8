"""`afltool head NAME`: a command for each head, with its options."""

from __future__ import annotations

from functools import partial
from typing import Any

import typer

from ..heads import OPTIONS
from ..options.features import SpaceOptions
from ._options import add, parameters
from ._types import Json, Out, Overwrite, show


def add_to(app: typer.Typer) -> None:
    heads = typer.Typer(
        no_args_is_help=True,
        help="Write a head file: a head and its options, on which a federation agrees first.",
    )
    for name, cls in OPTIONS.items():
        add(heads, name, _head_command(name), head_options=partial(parameters, cls, "Head"))
    app.add_typer(heads, name="head")


def _head_command(name: str) -> Any:
    def head(
        out: Out,
        options: SpaceOptions,
        head_options: dict[str, Any],
        overwrite: Overwrite = False,
        as_json: Json = False,
    ) -> None:
        from ..stages.head import head as stage

        show(stage(name, out, options, head_options=head_options, overwrite=overwrite), as_json)

    head.__doc__ = OPTIONS[name].__doc__
    return head
