"""The commands of studies: study, table, report and plot study; what status says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cli._console import print_json, say, say_lines
from ..cli.commands import (
    JSON,
    TRACK,
    Command,
    argument,
    option,
    parameters,
    switch,
    tracking,
    typer_command,
)
from ..cli.runs import (
    SLURM,
    check_submit,
    given_of,
    of_run,
    refuse_read,
    show_scripts,
    submitted,
)
from ..errors import UsageError
from ..options.base import flag
from ..plans.slurm.site import Site, make_site
from .options import Report, StudyOptions, StudyPicture, Table, TableOptions, refuse_options

PANEL = "Studies"


def commands() -> dict[str, Command]:
    """For `cli.app`."""
    return {
        "study": Command("carry out a grid of runs and baselines", PANEL, make=study_command),
        "table": Command("print the table of a study", PANEL, make=_table),
        "report": Command("write the page of a study", PANEL, make=_report),
        "plot study": Command("draw a figure of a study", PANEL, make=_picture),
    }


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
#: What ``-h`` shows.
COMMON = frozenset(
    {
        "study",
        "out",
        "list_",
        "print_",
        "dry_run",
        "slurm",
        "submit",
        "seeds",
        "only",
        "jobs",
        "prepare",
    }
    | {"as_json"}
)


def study_command(words: Sequence[str]) -> Any:
    own = [
        argument("study", str, "a TOML file, a name of --list, or the folder of a study", False),
        option("out", Path, "folder of the study; --print needs it, too"),
        switch("list_", "the studies that are shipped", "--list"),
        switch("slurm", "write job scripts: an array over cells; --dry-run shows them"),
        switch("print_", "print the commands of the cells, and write nothing", "--print"),
        *SLURM,
        TRACK,
        JSON,
    ]
    of_site = parameters(Site, "Slurm", skip={*_OF_RUNS, "setup", "stages"}, rename=_RENAMED)
    how = parameters(StudyOptions, "Study")

    def call(
        study: str | None, out: Path | None, list_: bool, slurm: bool, print_: bool, dry_run: bool,
        submit: bool, next_: bool, site: Path | None, track: str | None, as_json: bool,
        **values: Any,
    ) -> None:  # fmt: skip
        given = given_of(values)
        where = {p.name: given.pop(p.name) for p in of_site if p.name in given}
        options = {p.name: given.pop(p.name) for p in how if p.name in given}
        if out is not None:
            read = {"STUDY": Path(study) if study else None, "--site": site}
            refuse_read(out, read, given, where)
        asked = StudyOptions(**options)
        _check_together(locals(), where, options)
        if list_:
            from .listings import listed

            listing = listed(given, options.get("seeds"))
            print_json(listing) if as_json else say_lines(_list(listing))
            return
        if study is None:
            raise UsageError("name a study: a TOML file, or one of afltool study --list")
        if slurm and next_:
            from .jobs import next_lines

            say_lines(next_lines(study))
        elif slurm:
            _jobs(study, out, given, asked, where, site, dry_run, submit, as_json)
        elif print_:
            _script(study, out, given, asked)
        else:
            with tracking(track):
                _run(study, out, given, asked, as_json)

    given = [*own, *how, *of_site]
    given += of_run(words, taken=[p.name.strip("_") for p in given])
    about = "Carry out a grid of runs and baselines; options given here replace those of the study."
    return typer_command("study", about, call, given, COMMON)


def _check_together(
    given: Mapping[str, Any], of_site: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    """Refuse what is not used beside --list, and without --slurm."""
    alone = {"out", "print_", "slurm", "track"} if given["list_"] else set()
    wrong = [name for name in sorted(alone) if given[name]]
    wrong += [name for name in sorted(options) if given["list_"] and name != "seeds"]
    if wrong:
        raise UsageError(
            f"{flag(wrong[0].strip('_'))} is not used with --list: leave one of them out"
        )
    if not given["slurm"]:
        of_jobs = (n for n in ("submit", "site", "dry_run", "next_") if given[n])
        for name in (*of_jobs, *sorted(of_site)):
            needed = f"{flag(name.strip('_'))} is used only with --slurm"
            raise UsageError(f"{needed}: give that one, too")
    elif given["print_"]:
        raise UsageError("--print is for one machine: --slurm --dry-run shows the scripts of jobs")
    for name in ("slurm", "print_"):
        if given["track"] and given[name]:
            other = flag(name.strip("_"))
            raise UsageError(f"--track is not used with {other}: leave one of them out")


def _run(
    spec: str, out: Path | None, given: Mapping[str, Any], how: StudyOptions, as_json: bool
) -> None:
    from .description import asked_for
    from .execution import carry_out

    wanted, place = asked_for(spec, out, given, how.seeds)
    folder = carry_out(wanted, place, replace(how, seeds=None))
    print_json({"path": str(folder), "cells": len(wanted.cells)}) if as_json else say(folder)


def _script(spec: str, out: Path | None, given: dict[str, Any], how: StudyOptions) -> None:
    """Print the command lines of the cells."""
    from .cells import words
    from .description import asked_for
    from .execution import check_cells, part_of
    from .listings import script

    wanted, place = asked_for(spec, out, given, how.seeds)
    named = f"./{spec}" if spec.startswith("-") else spec  # else it would be an option
    again = ["study", named, *words({**given, **how.changed(), "out": place.root})]
    cells = part_of(wanted.cells, how.only)
    check_cells(wanted, place, cells, here=False)
    say_lines(script(cells, place, again))


def _jobs(
    spec: str,
    out: Path | None,
    given: Mapping[str, Any],
    how: StudyOptions,
    of_site: Mapping[str, Any],
    site: Path | None,
    dry_run: bool,
    submit: bool,
    as_json: bool,
) -> None:
    """Write the job scripts of a study, or print them; with ``submit`` also start them."""
    from . import jobs
    from .description import asked_for

    wanted, place = asked_for(spec, out, given, how.seeds)
    if how.only is not None or how.prepare:
        raise UsageError("--slurm is for all cells: leave --only and --prepare out")
    if how.jobs > 1:
        raise UsageError("--jobs is for one machine: leave it out with --slurm, or see --at-once")
    check_submit(dry_run, submit)
    called = {name: own for own, name in _RENAMED.items()}
    options = make_site({called.get(name, name): value for name, value in of_site.items()}, site)
    if dry_run:
        show_scripts(jobs.script_texts(wanted, options, place.root), as_json)
    else:
        made = jobs.prepare(wanted, options, place.root, most=how.most)
        submitted(made, place.root, submit, as_json)


def _made(cls: Any, values: Mapping[str, Any]) -> Any:
    return cls(**{k: v for k, v in values.items() if v is not None and v != []})


def _table(_: Sequence[str]) -> Any:
    def call(**values: Any) -> None:
        from ..files.atomic import write_text
        from ..files.counts import holds_counts
        from .crosstab import FORMATS, as_csv
        from .tables import table, table_of_counts

        o = _made(Table, values)
        o.needs("overwrite", "out")
        if holds_counts(o.study):
            refuse_options(o.to(TableOptions), f"{o.study} is a total of counts")
            text = table_of_counts(o.study, o.format)
        else:
            made = table(o)
            text = as_csv(made) if o.format == "csv" else FORMATS[o.format](made)
        if o.out is None:
            say_lines(text)
        else:
            say(write_text(text, o.out, o.overwrite))

    return typer_command("table", Table.__doc__, call, parameters(Table), Table.COMMON)


def _report(_: Sequence[str]) -> Any:
    def call(**values: Any) -> None:
        from .pages import report

        say(report(_made(Report, values)))

    return typer_command("report", Report.__doc__, call, parameters(Report), Report.COMMON)


def _picture(_: Sequence[str]) -> Any:
    def call(**values: Any) -> None:
        from .plots import study_picture

        say(study_picture(_made(StudyPicture, values)))

    return typer_command("study", StudyPicture.__doc__, call, parameters(StudyPicture))


def _list(cells: list[dict[str, Any]]) -> str:
    """What is said of each study."""
    lines = []
    for one in cells:
        lines += [f"{one['name']}: {one['cells']} cells. {one['shows']}"]
        lines += [f"    needs {one['needs']}"] if one["needs"] else []
    return "\n".join(lines) + "\n"
