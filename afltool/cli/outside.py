"""Commands of stages from outside, each made of its `Stage` alone."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import Options
from ._console import say
from ._options import KEYWORD_ONLY, Out, Overwrite, add

if TYPE_CHECKING:
    from ..stages.stage import Stage


def add_to(app: typer.Typer) -> None:
    """Add the commands, where a package has a stage."""
    from ..stages.stage import from_outside

    for stage in from_outside().values():
        _add(app, stage)


def _add(app: typer.Typer, stage: Stage) -> None:
    def made(
        files: dict[str, Any], out: Out, options: Options, overwrite: Overwrite = False
    ) -> None:
        say(stage.make(files, options, out, overwrite=overwrite))

    made.__doc__, made.__annotations__["options"] = stage.about, stage.options
    add(app, stage.name, made, files=[_input(stage, role) for role in stage.positional])


def _input(stage: Stage, role: str) -> inspect.Parameter:
    about = f"a {stage.reads[role] or 'file'}"
    named = typer.Option(f"--{role}", help=about) if role in stage.named else None
    how = Annotated[Path, named or typer.Argument(help=about)]
    return inspect.Parameter(role, KEYWORD_ONLY, annotation=how)
