"""The door of studies: the commands study, table, report and plot study; what status says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..cli._console import say, say_lines
from ..cli._options import (
    Json,
    Overwrite,
    Picture,
    Track,
    add,
    of_run,
    parameters,
    print_json,
    tracking,
    used_with,
)
from ..errors import UsageError
from ..options import ABSENT, GIVEN, OnlyWith
from ..options.shared import Files
from ..plans.slurm.site import Site, make_site
from .options import PictureOptions, StudyOptions, TableOptions, refuse_options


def add_to(app: typer.Typer) -> None:
    add(app, "study", study, how=_of_study, of_site=_of_site, options=of_run)
    add(app, "table", table)
    add(app, "report", report)
    plot = typer.Typer()
    add(plot, "study", plot_study)
    app.add_typer(plot, name="plot")


def _of_study() -> list[Parameter]:
    return used_with(parameters(StudyOptions, "Study"), {"list": ABSENT}, but=("seeds",))


def _of_site() -> list[Parameter]:
    of_site = parameters(Site, "Slurm", skip=_OF_RUNS, rename=_RENAMED, rare=True)
    return used_with(of_site, {"slurm": GIVEN})


def status_of(folder: Path) -> tuple[dict[str, Any], Callable[[dict[str, Any]], None]] | None:
    """For `status`: the state of a study's cells, and what prints it; None of another folder."""
    from .cells import StudyFolder

    if not StudyFolder.is_one(folder):
        return None
    from .listings import print_status, status

    return status(folder), print_status


def runs_by_name(paths: list[Path]) -> tuple[dict[tuple[str, ...], list[Path]], list[Path]] | None:
    """For `plot rounds`: see `plots.runs_by_name`."""
    from .plots import runs_by_name as named

    return named(paths)


_OF_RUNS = {"shards", "clients_per_task"}  # of a site: they divide the jobs of one run
_RENAMED = {"memory": "job_memory"}  # `run` has a --memory of its own


def study(
    how: StudyOptions,
    of_site: dict[str, Any],
    options: dict[str, Any],
    spec: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY", help="a TOML file, a name of --list, or the folder of a study"
        ),
        Files(),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="folder of the study; --print needs it, too"),
        OnlyWith({"list": ABSENT}),
    ] = None,
    print_: Annotated[
        bool,
        typer.Option("--print", help="print the command lines and do nothing"),
        OnlyWith({"list": ABSENT}),
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="the studies that are shipped")] = False,
    slurm: Annotated[
        bool,
        typer.Option("--slurm", help="write job scripts: an array over cells; --print shows them"),
        OnlyWith({"list": ABSENT}),
    ] = False,
    submit: Annotated[
        bool,
        typer.Option("--submit", help="with --slurm: also start them"),
        OnlyWith({"slurm": GIVEN}),
    ] = False,
    site: Annotated[
        Path | None,
        typer.Option("--site", help="TOML of the site's defaults ($AFLTOOL_SITE)"),
        OnlyWith({"slurm": GIVEN}),
    ] = None,
    track: Annotated[Track, OnlyWith({"list": ABSENT, "print": ABSENT, "slurm": ABSENT})] = None,
    as_json: Json = False,
) -> None:
    """Carry out a grid of runs and baselines; options given here replace those of the study."""
    from .description import asked_for

    if list_:
        from .listings import listed

        listing = listed(options, how.seeds)
        print_json(listing) if as_json else say_lines(_list(listing))
        return
    from .cells import words
    from .execution import check_cells, part_of
    from .execution import study as stage

    if spec is None:
        raise UsageError("name a study: a TOML file, or one of afltool study --list")
    wanted, place = asked_for(spec, out, options, how.seeds)
    out = place.root
    if slurm:
        _jobs(wanted, out, how, of_site, site, print_, submit, as_json)
        return
    if print_:
        from .listings import script

        named = f"./{spec}" if spec.startswith("-") else spec  # else it would be an option
        again = ["study", named, *words({**options, **how.chosen(), "out": out})]
        cells = part_of(wanted.cells, how.only)
        check_cells(wanted, place, cells, here=False)
        say_lines(script(cells, place, again))
        return
    with tracking(track):
        folder = stage(wanted, out, replace(how, seeds=None))
    print_json({"path": str(folder), "cells": len(wanted.cells)}) if as_json else say(folder)


def _jobs(
    wanted: Any,
    out: Path,
    how: StudyOptions,
    of_site: dict[str, Any],
    site: Path | None,
    print_: bool,
    submit: bool,
    as_json: bool,
) -> None:
    """Write the job scripts of a study, or print them; with ``submit`` also start them."""
    from ..cli.batch import check_submit, show_scripts, submitted
    from . import jobs

    if how.only is not None or how.prepare:
        raise UsageError("--slurm is for all cells: leave --only and --prepare out")
    if how.jobs > 1:
        raise UsageError("--jobs is for one machine: leave it out with --slurm, or see --at-once")
    check_submit(print_, submit)
    called = {name: own for own, name in _RENAMED.items()}
    options = make_site({called.get(name, name): value for name, value in of_site.items()}, site)
    if print_:
        show_scripts(jobs.script_texts(wanted, options, out), as_json)
    else:
        submitted(jobs.prepare(wanted, options, out, most=how.most), out, submit, as_json)


Folder = Annotated[Path, typer.Argument(metavar="STUDY", help="the folder of a study")]
Counted = Annotated[
    Path, typer.Argument(metavar="STUDY", help="the folder of a study, or a total of counts")
]


def table(
    folder: Counted,
    options: TableOptions,
    form: Annotated[str, typer.Option("--format", help="md, csv, latex or json")] = "md",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="also write it to this file; - is stdout")
    ] = None,
    overwrite: Annotated[Overwrite, OnlyWith({"out": GIVEN})] = False,
) -> None:
    """Print the table of a study: rows and columns by options, a statistic over seeds.

    Of a total of counts (evaluate --counts) the figures of each head, with intervals and bounds.
    """
    from ..files.atomic import write_text
    from .crosstab import FORMATS, as_csv
    from .tables import table as make
    from .tables import table_of_counts

    if form not in FORMATS:
        raise UsageError(f"--format is {', '.join(FORMATS)}; found {form!r}")
    from ..files.counts import holds_counts

    if holds_counts(folder):
        refuse_options(options, f"{folder} is a total of counts")
        text = table_of_counts(folder, form)
    else:
        made = make(folder, options)
        text = as_csv(made) if form == "csv" else FORMATS[form](made)
    if out is None:
        say_lines(text)
    else:
        say(write_text(text, out, overwrite))


Trial = Annotated[
    Path, typer.Argument(metavar="STUDY", help="the folder of a study, or of a finished trial")
]


def report(
    folder: Trial,
    out: Annotated[Path, typer.Option("--out", "-o", help="an .html file")],
    options: TableOptions,
    overwrite: Overwrite = False,
) -> None:
    """Write the page of a study: one HTML file with its tables, pictures, commands and digests.

    Of a folder with heads, what members sent and a total of counts (evaluate --counts): members,
    bytes, figures with intervals, classes, groups, reliability, what left the sites.
    """
    from .pages import report as make

    say(make(folder, out, options, overwrite=overwrite))


def plot_study(
    folder: Folder, out: Picture, options: PictureOptions, overwrite: Overwrite = False
) -> None:
    """Draw a figure of a study against an option: a line for each method, bars over seeds."""
    from .plots import study_picture

    say(study_picture(folder, out, options, overwrite=overwrite))


def _list(cells: list[dict[str, Any]]) -> str:
    """What is said of each study."""
    lines = []
    for one in cells:
        lines += [f"{one['name']}: {one['cells']} cells. {one['shows']}"]
        lines += [f"    needs {one['needs']}"] if one["needs"] else []
    return "\n".join(lines) + "\n"
