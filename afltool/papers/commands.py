"""The commands of studies: study, table, report and plot study; what status says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..cli._console import print_json, say, say_lines
from ..cli.commands import Command, divided, parameters, tracking, typer_command
from ..cli.runs import JobsHow, of_run, refuse_read, show_scripts, submitted
from ..errors import UsageError
from ..options.base import Holds, Writes, flag
from ..options.common import Printed, Tracked, files_of, refuse_files

if TYPE_CHECKING:
    from .options import StudyOptions, Table

PANEL = "Studies"


def commands() -> dict[str, Command]:
    """For `cli.app`."""
    return {
        "study": Command("carry out a grid of runs and baselines", PANEL, make=study_command),
        "table": Command("print the table of a study", PANEL, "papers.options:Table"),
        "report": Command("write the page of a study or a run", PANEL, "papers.options:Report"),
        "plot study": Command("draw a figure of a study", PANEL, "papers.options:StudyPicture"),
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
    {"study", "out", "list_", "print_", "dry_run", "slurm", "submit", "seeds", "only", "jobs"}
    | {"prepare"}
)


@dataclass(frozen=True)
class StudyHow(JobsHow, Tracked, Printed):
    """Carry out a grid of runs and baselines; options given here replace those of the study."""

    _study = "a TOML file, a name of --list, or the folder of a study"
    study: Annotated[str | None, Holds()] = Field(default=None, description=_study)
    _out = "folder of the study; --print needs it, too"
    out: Annotated[Path | None, Writes("study")] = Field(
        default=None, kw_only=True, description=_out
    )
    _list = "the studies that are shipped"
    list_: bool = Field(default=False, kw_only=True, description=_list)
    _slurm = "write job scripts: an array over cells; --dry-run shows them"
    slurm: bool = Field(default=False, kw_only=True, description=_slurm)
    _print = "print the commands of the cells, and write nothing"
    print_: bool = Field(default=False, kw_only=True, description=_print)

    def check(self) -> None:
        super().check()
        refuse_files(files_of(self))
        self.excludes("list_", "out", "print_", "slurm", "track")
        for name in ("submit", "site", "dry_run", "next_"):
            self.needs(name, "slurm")
        if self.slurm and self.print_:
            raise UsageError(
                "--print is for one machine: --slurm --dry-run shows the scripts of jobs"
            )
        self.excludes("track", "slurm", "print_")


def study_command(words: Sequence[str]) -> Any:
    from ..plans.slurm.site import Site
    from .options import StudyOptions

    of_site = parameters(Site, "Slurm", skip={*_OF_RUNS, "setup", "stages"}, rename=_RENAMED)

    def call(**values: Any) -> None:
        o, given = divided(StudyHow, values)
        how, given = divided(StudyOptions, given)
        where = {p.name: given.pop(p.name) for p in of_site if p.name in given}
        if o.out is not None:
            read = {"STUDY": Path(o.study) if o.study else None, "--site": o.site}
            refuse_read(o.out, read, given, where)
        _check_together(o, where, how)
        if o.list_:
            from .listings import listed

            listing = listed(given, how.seeds)
            print_json(listing) if o.as_json else say_lines(_list(listing))
            return
        if o.study is None:
            raise UsageError("name a study: a TOML file, or one of afltool study --list")
        if o.slurm and o.next_:
            from .jobs import next_lines

            say_lines(next_lines(o.study))
        elif o.slurm:
            _jobs(o.study, o, given, how, where)
        elif o.print_:
            _script(o.study, o.out, given, how)
        else:
            with tracking(o.track):
                _run(o.study, o.out, given, how, o.as_json)

    every = [*parameters(StudyHow), *parameters(StudyOptions, "Study"), *of_site]
    every += of_run(words, [p.name for p in every], heads=True)
    return typer_command("study", StudyHow.__doc__, call, every, COMMON)


def _check_together(o: StudyHow, where: Mapping[str, Any], how: StudyOptions) -> None:
    """Refuse what is not used beside --list, and without --slurm."""
    wrong = sorted(how.changed().keys() - {"seeds"}) if o.list_ else []
    if wrong:
        raise UsageError(f"{flag(wrong[0])} is not used with --list: leave one of them out")
    if where and not o.slurm:
        raise UsageError(
            f"{flag(min(where))} is used only with --slurm: give that one, too, or leave "
            f"{flag(min(where))} out"
        )


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
    spec: str, o: StudyHow, given: Mapping[str, Any], how: StudyOptions, of_site: Mapping[str, Any]
) -> None:
    """Write the job scripts of a study, or print them; with --submit also start them."""
    from ..plans.slurm.site import make_site
    from . import jobs
    from .description import asked_for

    wanted, place = asked_for(spec, o.out, given, how.seeds)
    if how.only is not None or how.prepare:
        raise UsageError("--slurm is for all cells: leave --only and --prepare out")
    if how.jobs > 1:
        raise UsageError("--jobs is for one machine: leave it out with --slurm, or see --at-once")
    called = {name: own for own, name in _RENAMED.items()}
    options = make_site({called.get(name, name): value for name, value in of_site.items()}, o.site)
    if o.dry_run:
        show_scripts(jobs.script_texts(wanted, options, place.root), o.as_json)
    else:
        made = jobs.prepare(wanted, options, place.root, most=how.most)
        submitted(made, place.root, o.submit, o.as_json)


def print_table(o: Table) -> None:
    """The table of a study, or of a total of counts, on stdout or as a file."""
    from ..files.atomic import write_text
    from ..files.counts import holds_counts
    from .crosstab import FORMATS
    from .options import TableOptions, refuse_options
    from .tables import table, table_of_counts

    study = Path(o.study)
    if holds_counts(study):
        refuse_options(o.to(TableOptions), f"{study} is a total of counts")
        text = table_of_counts(study, o.format)
    else:
        made = table(o)
        text = FORMATS[o.format](made)
    if o.out is None:
        say_lines(text)
    else:
        say(write_text(text, o.out, o.overwrite))


def _list(cells: list[dict[str, Any]]) -> str:
    """What is said of each study."""
    lines = []
    for one in cells:
        lines += [f"{one['name']}: {one['cells']} cells. {one['shows']}"]
        lines += [f"    needs {one['needs']}"] if one["needs"] else []
    return "\n".join(lines) + "\n"
