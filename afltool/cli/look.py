"""Commands that look at files: info, verify, plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ._console import command
from ._types import Json, print_json

plot = typer.Typer(
    no_args_is_help=True, help="Draw pictures: partition, confusion, ridge-path, rounds."
)
Picture = Annotated[Path, typer.Option("--out", "-o", help="PNG file.")]


def add_to(app: typer.Typer) -> None:
    app.command("info")(command(info))
    app.command("verify")(command(verify))
    plot.command("partition")(command(plot_partition))
    plot.command("confusion")(command(plot_confusion))
    plot.command("ridge-path")(command(plot_ridge_path))
    plot.command("rounds")(command(plot_rounds))
    plot.command("layers")(command(plot_layers))
    app.add_typer(plot, name="plot")


def info(
    file: Annotated[Path, typer.Argument(help="Any file that afltool wrote.")],
    name: Annotated[
        str | None,
        typer.Option("--field", help="Only this one, such as digest or report.ridge, for scripts."),
    ] = None,
    as_json: Json = False,
) -> None:
    """What is in a file, where it comes from, its digest."""
    from ..stages.inspect import field
    from ..stages.inspect import info as look

    found = look(file)
    if name is not None:
        value = field(found, name)
        typer.echo(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        return
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


Rounds = Annotated[
    Path, typer.Argument(help="A run folder, what evaluate --each-round -o wrote, or a head.")
]


def plot_rounds(source: Rounds, out: Picture) -> None:
    """Error, accuracies, seconds and bytes of every round of a head."""
    from ..stages.pictures import rounds_picture

    typer.echo(str(rounds_picture(source, out)))


def plot_layers(source: Rounds, out: Picture) -> None:
    """The same as plot rounds, for heads of layers."""
    plot_rounds(source, out)
