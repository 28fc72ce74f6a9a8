"""The commands `run` and `slurm`, whose options are those of every stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..options.base import FileIn, Flat, Options, Writes, option
from ..options.common import Output, Printed, Tracked
from ._console import print_json, print_line, print_lines, print_message
from .commands import show_folder, tracking

#: What ``-h`` shows.
FEW = {"out", "data", "backbone", "train_features", "test_features", "alpha", "clients", "head"}


@dataclass(frozen=True)
class Configured(Printed):
    """Of every command that takes the options of a run, in a file and on the command line."""

    config: FileIn = option(None, "TOML file of run options; command-line options override it")
    _: KW_ONLY
    out: Annotated[Path, Writes()] = Field(description="run directory, writable by every node")
    options: Annotated[dict[str, Any], Flat("cli.flat:run_parameters")] = Field(
        default_factory=dict
    )

    def run(self) -> Any:
        """The run that the file and the options say."""
        from ..runs.config import RunConfig, read_config

        written = {} if self.config is None else read_config(self.config)
        return RunConfig(**{**written, **self.options})


@dataclass(frozen=True, kw_only=True)
class Run(Configured, Output, Tracked):
    """Carry out every stage on this machine; keep finished and valid files."""

    PRINTS: ClassVar = "cli.runs:run"
    COMMON: ClassVar = frozenset(FEW | {"ridge", "y"})

    step: str | None = option(None, "only make this file of the run, such as 04-total")
    part: str | None = option(None, "with --step: part I/N of it, I from 0")
    join: int | None = option(None, "with --step: merge this many parts", ge=1)

    def check(self) -> None:
        self.needs("part", "step")
        self.needs("join", "step")
        self.excludes("part", "join")


def run(o: Run) -> None:
    """Carry out a run, or one step of it, as a job of a cluster does."""
    config = o.run()
    if o.step is not None:
        from ..options.grammars import parse_part
        from ..runs.slurm.jobs import carry_out

        which = None if o.part is None else parse_part(o.part, "--part")
        print_line(carry_out(config, o.out, o.step, which, o.join or 0))
        return
    from ..rendering.tables import print_summary
    from ..runs.folder import RunFolder
    from ..runs.local import run as stage

    with tracking(o.track):
        folder = stage(config, o.out, overwrite=o.overwrite)
    show_folder(folder, RunFolder.SUMMARY, o.as_json, print_summary)


@dataclass(frozen=True, kw_only=True)
class JobsHow(Options):
    """How job scripts are written and started; ``settings``: of the cluster."""

    dry_run: bool = option(False, "print scripts and jobs without writing them")
    submit: bool = option(False, "submit the jobs")
    next_: bool = option(False, "print the lines of submit.sh for missing outputs")
    site: FileIn = option(None, "TOML file with the site's defaults ($AFLTOOL_SITE)")
    settings: Annotated[dict[str, Any], Flat("cli.flat:site_parameters")] = Field(
        default_factory=dict
    )

    def check(self) -> None:
        self.excludes("dry_run", "submit")
        if self.submit:
            from ..runs.slurm.jobs import check_submitting

            check_submitting()


@dataclass(frozen=True, kw_only=True)
class Slurm(Configured, JobsHow):
    """Write the job scripts of a run into RUN/slurm; --submit also starts them."""

    PRINTS: ClassVar = "cli.runs:slurm"
    COMMON: ClassVar = frozenset(
        (FEW | {"ridge", "dry_run", "submit", "site"}) - {"train_features", "test_features"}
    )

    options: Annotated[dict[str, Any], Flat("cli.flat:job_parameters")] = Field(
        default_factory=dict
    )


def slurm(o: Slurm) -> None:
    """Write the scripts of a run, print them, or start them."""
    from ..runs.slurm import jobs
    from ..runs.slurm.site import make_site

    if o.next_:
        print_lines(jobs.next_lines(o.out))
        return
    config, site = o.run(), make_site(o.settings, o.site)
    if o.dry_run:
        show_scripts(jobs.script_texts(config, site, o.out), o.as_json)
    else:
        submit_scripts(jobs.prepare(config, site, o.out), o.out, o.submit, o.as_json)


def submit_scripts(script: Path, out: Path, submit: bool, as_json: bool) -> None:
    """Say where the scripts of ``out`` are, or start them and say what sbatch answered."""
    from ..runs.slurm.jobs import submit as start

    answer = start(script) if submit else []
    if as_json:
        print_json({"path": str(out), "script": str(script), "submitted": answer})
        return
    for line in answer:
        print_message(line)
    print_line(out if submit else script)


def show_scripts(texts: Mapping[str, str], as_json: bool) -> None:
    """Scripts by name, one after the other."""
    whole = "\n".join(f"##### {name}\n{text}" for name, text in texts.items())
    print_json(texts) if as_json else print_lines(whole)
