"""Commands that look at files: info, verify, plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ._console import command
from ._types import Json, print_json

plot = typer.Typer(
    no_args_is_help=True, help="Draw pictures: partition, confusion, ridge-path, layers."
)
Picture = Annotated[Path, typer.Option("--out", "-o", help="PNG file.")]


def add_to(app: typer.Typer) -> None:
    app.command("info")(command(info))
    app.command("verify")(command(verify))
    plot.command("partition")(command(plot_partition))
    plot.command("confusion")(command(plot_confusion))
    plot.command("ridge-path")(command(plot_ridge_path))
    plot.command("layers")(command(plot_layers))
    app.add_typer(plot, name="plot")


def info(
    file: Annotated[Path, typer.Argument(help="Any file that afltool wrote.")],
    as_json: Json = False,
) -> None:
    """What is in a file, where it comes from, its digest."""
    from ..stages.inspect import info as look

    found = look(file)
    if as_json:
        print_json(found)
        return
    from ..report.tables import print_facts

    print_facts(found)


def verify(
    files: Annotated[list[Path], typer.Argument(help="Files, folders, globs, or - for stdin.")],
    as_json: Json = False,
) -> None:
    """Read every byte, compare every checksum and digest; the first damaged file ends it."""
    import sys

    from ..files import expand
    from ..stages.inspect import check

    found = [check(path) for path in expand(files, sys.stdin)]
    if as_json:
        print_json(found)
        return
    for one in found:
        typer.echo(f"{one['path']}: intact, {one['kind']}, digest {one['digest']}")


def plot_partition(
    file: Annotated[Path, typer.Argument(help="A partition file.")], out: Picture
) -> None:
    """Clients × classes, client sizes and their cumulative share."""
    from ..stages.pictures import partition_picture

    typer.echo(str(partition_picture(file, out)))


def plot_confusion(
    file: Annotated[Path, typer.Argument(help="What evaluate wrote with -o (JSON).")], out: Picture
) -> None:
    """The confusion matrix of an evaluation."""
    from ..stages.pictures import confusion_picture

    typer.echo(str(confusion_picture(file, out)))


def plot_ridge_path(
    file: Annotated[Path, typer.Argument(help="A head solved with --ridge auto or a path.")],
    out: Picture,
) -> None:
    """Error estimates along the ridge path, and the ridge that was chosen."""
    from ..stages.pictures import ridge_path_picture

    typer.echo(str(ridge_path_picture(file, out)))


def plot_layers(
    file: Annotated[Path, typer.Argument(help="A head of layers.")], out: Picture
) -> None:
    """Training error layer by layer, and how long each solve took."""
    from ..stages.pictures import layers_picture

    typer.echo(str(layers_picture(file, out)))
