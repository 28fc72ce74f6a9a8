"""The commands of studies: study, table, report and plot study; what status says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ...cli._console import print_json, print_line, print_lines
from ...cli.commands import Command, Parameter, parameters, tracking
from ...cli.runs import JobsHow, show_scripts, submit_scripts
from ...errors import UsageError
from ...options.base import Flat, Holds, Writes, flag, option
from ...options.common import Printed, Tracked
from .options import PARQUET, StudyOptions

if TYPE_CHECKING:
    from .options import Table

PANEL = "Studies"


def commands() -> dict[str, Command]:
    return {
        "study": Command("run a grid of experiments and baselines", PANEL, Study),
        "table": Command("print a results table for a study", PANEL, "lab.studies.options:Table"),
        "report": Command(
            "write an HTML report for a study, run or session", PANEL, "lab.studies.options:Report"
        ),
        "plot study": Command(
            "draw a figure of a study", PANEL, "lab.studies.options:StudyPicture"
        ),
    }


def status_of(folder: Path) -> tuple[dict[str, Any], Callable[[dict[str, Any]], None]] | None:
    """For `status`: the state of a study's cells, and what prints it; None of another folder."""
    from .cells import StudyFolder

    if not StudyFolder.is_one(folder):
        return None
    from .execution import print_status, status

    return status(folder), print_status


_OF_RUNS = {"shards", "clients_per_task"}  # of a site: they divide the jobs of one run
_RENAMED = {"memory": "job_memory"}  # `run` has a --memory of its own


def site_parameters(words: Sequence[str], taken: Any, given: Mapping[str, Any]) -> list[Parameter]:
    from ...runs.slurm.site import Site

    return parameters(Site, skip={*_OF_RUNS, "setup", "stages"}, rename=_RENAMED)


@dataclass(frozen=True)
class Study(JobsHow, StudyOptions, Tracked, Printed):
    """Carry out a grid of runs and baselines; options given here replace those of the study."""

    PRINTS: ClassVar = "lab.studies.commands:study"
    COMMON: ClassVar = frozenset(
        {"out", "list_", "dry_run", "slurm", "submit", "seeds", "only", "jobs"}
    )

    _study = "a TOML file, a name of --list, or the folder of a study"
    study: Annotated[str | None, Holds()] = option(None, _study)
    out: Annotated[Path | None, Writes("study")] = option(None, "study directory", kw_only=True)
    _list = "the studies that are shipped"
    list_: bool = option(False, _list, kw_only=True)
    _slurm = "write job scripts: an array over cells; --dry-run shows them"
    slurm: bool = option(False, _slurm, kw_only=True)
    settings: Annotated[dict[str, Any], Flat("lab.studies.commands:site_parameters")] = Field(
        default_factory=dict, kw_only=True
    )
    axes: Annotated[dict[str, Any], Flat("cli.flat:cell_parameters")] = Field(
        default_factory=dict, kw_only=True
    )

    def check(self) -> None:
        super().check()
        self.excludes("list_", "out", "slurm", "track", "only", "jobs")
        for name in ("submit", "site", "dry_run", "next_"):
            self.needs(name, "slurm")
        self.excludes("slurm", "track", "only", "jobs")
        if self.settings and not self.slurm:
            raise UsageError(
                f"{flag(min(self.settings))} is used only with --slurm: give that, or leave it out"
            )


def study(o: Study) -> None:
    from . import execution
    from .spec import open_study

    if o.list_:
        found = execution.list_studies(o.axes, o.seeds)
        lines = (f"{one['name']} ({one['cells']} cells): {one['title']}\n" for one in found)
        print_json(found) if o.as_json else print_lines("".join(lines))
        return
    if o.study is None:
        raise UsageError("name a study: a TOML file, or one of afltool study --list")
    if o.next_:
        print_lines(execution.next_lines(o.study))
        return
    wanted, place = open_study(o.study, o.out, o.axes, o.seeds)
    if o.slurm:
        _jobs(o, wanted, place.root)
        return
    with tracking(o.track):
        folder = execution.carry_out(wanted, place, replace(o.to(StudyOptions), seeds=None))
    print_json({"path": str(folder), "cells": len(wanted.cells)}) if o.as_json else print_line(
        folder
    )


def _jobs(o: Study, wanted: Any, out: Path) -> None:
    """Write the job scripts of a study, or print them; with --submit also start them."""
    from ...runs.slurm.site import make_site
    from .execution import prepare, script_texts

    called = {name: own for own, name in _RENAMED.items()}
    site = make_site({called.get(name, name): value for name, value in o.settings.items()}, o.site)
    if o.dry_run:
        show_scripts(script_texts(wanted, site, out), o.as_json)
    else:
        submit_scripts(prepare(wanted, site, out), out, o.submit, o.as_json)


def print_table(o: Table) -> None:
    from ...files.atomic import write_text
    from ...files.counts import holds_counts
    from .options import TableOptions, refuse_options
    from .result_table import FORMATS, write_parquet
    from .tables import table, table_of_counts

    study = Path(o.study)
    if holds_counts(study):
        refuse_options(o.to(TableOptions), f"{study} is a total of counts")
        text = table_of_counts(study, o.format)
    elif o.out is not None and o.out.suffix == PARQUET:
        print_line(write_parquet(table(o), o.out, o.overwrite))
        return
    else:
        text = FORMATS[o.format](table(o))
    if o.out is None:
        print_lines(text)
    else:
        print_line(write_text(text, o.out, o.overwrite))
