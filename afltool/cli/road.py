"""Commands from features to a head, and `run` for all stages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ..heads import OPTIONS
from ..options.shared import SpaceOptions
from ..options.statistics import AggregateOptions, LocalStatsOptions, SolveOptions
from ._options import (
    HeadSpec,
    Json,
    Overwrite,
    Track,
    add,
    of_heads,
    of_run,
    parameters,
    passing,
    show_folder,
    tracking,
)
from .app import made_later


def add_to(app: typer.Typer) -> None:
    passing(
        app,
        "local-stats",
        {"features": "a feature file"},
        "Compute the statistics of each client: one file per client, or their sum.",
        LocalStatsOptions,
        more={"head": HeadSpec},
        out=Annotated[Path, typer.Option("--out", "-o", help="folder; with --sum a file")],
        head_options=of_heads,
    )
    passing(
        app,
        "aggregate",
        {"files": (list[Path], "files, folders, quoted globs, - for stdin")},
        "Add statistics up, in any order and grouping; totals can be added, too.",
        AggregateOptions,
    )
    passing(
        app,
        "solve",
        {"total": "a total (or any statistics)"},
        "Solve the head that the total was gathered for.",
        SolveOptions,
        head_options=partial(of_heads, at_solve=True),
        tells="solution:say_solution",
    )
    add(app, "run", run, options=of_run)
    about = "Write a head file: a head and its options, on which a federation agrees first."
    heads = typer.Typer(cls=made_later(_heads), no_args_is_help=True, help=about)
    app.add_typer(heads, name="head")


def _heads() -> typer.Typer:
    """`afltool head NAME`: a command for each head, with its options."""
    heads = typer.Typer()
    for name, cls in OPTIONS.items():
        own = partial(parameters, cls, "Head")
        how: dict[str, Any] = {"stage": "head:head", "first": (name,), "head_options": own}
        passing(heads, name, {}, cls.__doc__, SpaceOptions, **how)
    return heads


def run(
    out: Annotated[Path, typer.Option("--out", "-o", help="run folder")],
    options: dict[str, Any],
    config: Annotated[
        Path | None, typer.Argument(help="TOML with these options; options given here win")
    ] = None,
    track: Track = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Carry out every stage on this machine; keep finished and valid files."""
    from ..plans.config import RunConfig, read_config
    from ..plans.here import run as stage
    from ..plans.layout import RunFolder
    from ..show.tables import print_summary

    given = {**({} if config is None else read_config(config)), **options}
    with tracking(track):
        folder = stage(RunConfig(**given), out, overwrite=overwrite)
    show_folder(folder, RunFolder.SUMMARY, as_json, print_summary)
