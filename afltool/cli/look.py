"""Commands that look at files: info, verify, plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InputError
from ..options import ABSENT, OnlyWith
from ..options.evaluation import RocOptions, SizeOptions, TotalOptions
from ..options.shared import ThreadOptions
from ._console import say, tell
from ._options import (
    FieldName,
    Json,
    JsonOfAll,
    Overwrite,
    Picture,
    add,
    passing,
    print_json,
    show_found,
)
from .app import Group, ask

# Pictures of one file, or of several: what they show, what the file is, their options.
PICTURES: dict[str, tuple[str, Any, type[SizeOptions]]] = {
    "partition": (
        "Draw a partition: rows by client and class, client sizes, their cumulative share.",
        (list[Path], "a partition file; several are drawn side by side"),
        SizeOptions,
    ),
    "confusion": (
        "Draw the confusion matrix of an evaluation.",
        "what evaluate wrote with -o (JSON), or a total of counts",
        TotalOptions,
    ),
    "reliability": (
        "Draw the accuracy of a head by its confidence, and the number of rows by confidence.",
        "what evaluate --metrics ece wrote with -o (JSON), or a total of counts",
        TotalOptions,
    ),
    "roc": (
        "Draw ROC curves: of the positive class that evaluate names, else each against the rest.",
        "what evaluate --metrics auc wrote with -o (JSON), or a total of counts",
        RocOptions,
    ),
    "coverage": (
        "Draw the accuracy of the rows that are answered, by their share: the least sure are not.",
        "a total of counts: afltool evaluate --counts",
        SizeOptions,
    ),
    "ridge-path": (
        "Draw the error estimates along a ridge path, and the ridge that was chosen.",
        "a head solved with --ridge auto or a path",
        SizeOptions,
    ),
}


def add_to(app: typer.Typer) -> None:
    add(app, "info", info)
    add(app, "verify", verify)
    plot = typer.Typer(
        cls=Group,
        no_args_is_help=True,
        help="Draw pictures: partition, confusion, reliability, roc, coverage, ridge-path, rounds, "
        "study.",
    )
    for name, (says, file, options) in PICTURES.items():
        how: dict[str, Any] = {"stage": f"plot:{name}_picture".replace("-", "_"), "out": Picture}
        files = {"file" if isinstance(file, str) else "files": file}
        passing(plot, name, files, says, options, writes_json=False, **how)
    add(plot, "rounds", plot_rounds)
    app.add_typer(plot, name="plot")


def info(
    file: Annotated[Path, typer.Argument(help="any file that afltool wrote")],
    name: FieldName = None,
    every: Annotated[
        bool,
        typer.Option("--all", help="print everything: options, report, recipe, provenance …"),
        OnlyWith({"json": ABSENT, "field": ABSENT}),
    ] = False,
    as_json: JsonOfAll = False,
) -> None:
    """Show what is in a file, and its digest; with --all also where it comes from."""
    from ..show.brief import print_brief
    from ..show.tables import print_facts
    from ..stages.inspect import info as look

    show_found(look(file), name, as_json, file, print_facts if every else print_brief)


def verify(
    files: Annotated[list[Path], typer.Argument(help="files, folders, globs, or - for stdin")],
    options: ThreadOptions,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="check the other files after a damaged one, too")
    ] = False,
    as_json: Json = False,
) -> None:
    """Read every byte and compare every checksum and digest; stop at the first damaged file."""
    import sys

    from ..files.listing import expand
    from ..stages.inspect import check_all

    results = check_all(expand(files, sys.stdin), keep_going, options)
    if as_json:
        print_json(results)
    for one in results:
        if one["intact"] and not as_json:
            say(f"{one['path']}: intact, {one['kind']}, digest {one['digest']}")
        elif not one["intact"]:
            tell(f"error: {one['error']}")
    damaged = sum(not one["intact"] for one in results)
    if damaged:
        raise InputError(f"{damaged} of {len(results)} files cannot be used")


Runs = Annotated[
    list[Path],
    typer.Argument(
        help="a run folder, the JSON of evaluate --each-round, or a head file; several are "
        "compared in one picture, cells of a study by their labels"
    ),
]


def plot_rounds(
    source: Runs, out: Picture, options: SizeOptions, overwrite: Overwrite = False
) -> None:
    """Draw error, accuracy, seconds and bytes of every round; for several runs the accuracies."""
    from ..stages.plot import compared_picture, rounds_picture

    if len(source) == 1:
        say(rounds_picture(source[0], out, options, overwrite=overwrite))
        return
    say(compared_picture(_by_name(source), out, options, overwrite=overwrite))


def _by_name(paths: list[Path]) -> dict[tuple[str, ...], list[Path]]:
    """Runs by the names of their files or folders; those of another part as it names them."""
    theirs, left = ask("runs_by_name", paths) or ({}, paths)
    named: dict[tuple[str, ...], list[Path]] = {}
    for path in left:
        name = path.resolve().stem if path.is_file() else path.resolve().name
        named[str(path) if (name,) in named else name,] = [path]
    for line, alike in theirs.items():
        named.setdefault(line, []).extend(alike)
    return named
