"""Commands of stages from outside, each made of its `Stage` alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import Options
from ._options import passing

if TYPE_CHECKING:
    from ..stages.stage import Stage


def add_to(app: typer.Typer) -> None:
    """Add the commands, where a package has a stage."""
    from ..stages.stage import from_outside

    for stage in from_outside().values():
        _add(app, stage)


def _add(app: typer.Typer, stage: Stage) -> None:
    def made(out: Path, overwrite: bool, options: Options = Options(), **files: Path) -> list[Any]:
        return [stage.make(files, options, out, overwrite=overwrite)]

    files = {role: _declared(stage, role) for role in stage.positional}
    how: dict[str, Any] = {"stage": made, "more": files, "writes_json": False}
    passing(app, stage.name, {}, stage.about, stage.options, **how)


def _declared(stage: Stage, role: str) -> Any:
    about = f"a {stage.reads[role] or 'file'}"
    option = typer.Option(f"--{role}", help=about)
    return Annotated[Path, option if role in stage.named else typer.Argument(help=about)]
