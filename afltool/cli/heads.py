"""`afltool head NAME`: a command for each head, with its options."""

from __future__ import annotations

from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..heads import OPTIONS
from ..options import made
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
    add(heads, "evaluation", evaluation, agreed=_agreed)
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


def _agreed() -> list[Parameter]:
    from ..options.counting import RoundOptions

    return parameters(RoundOptions)


def evaluation(
    heads: Annotated[
        list[Path], typer.Argument(help="solved heads, of one feature space and list of classes")
    ],
    out: Out,
    agreed: dict[str, Any],
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a round of evaluation, on which sites agree before they count (evaluate --counts)."""
    from ..options.counting import RoundOptions
    from ..stages.counts import evaluation as stage

    show(stage(heads, out, made(RoundOptions, agreed), overwrite=overwrite), as_json)
