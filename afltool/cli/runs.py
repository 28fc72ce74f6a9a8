"""The commands `run` and `slurm`, whose options are those of every stage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import InputError
from ..options.base import Flat, Options, Reads, Writes
from ..options.common import Output, Printed, Tracked
from ._console import print_json, say, say_lines, tell
from .commands import show_folder, tracking

#: What ``-h`` shows.
FEW = {"out", "data", "backbone", "train_features", "test_features", "alpha", "clients", "head"}


@dataclass(frozen=True, kw_only=True)
class Configured(Printed):
    """Of every command that takes the options of a run, in a file and on the command line."""

    _config = "TOML with options of a run; options given here win"
    config: Annotated[Path | None, Reads()] = Field(
        default=None, kw_only=False, description=_config
    )
    options: Annotated[dict[str, Any], Flat("cli.flat:of_run")] = Field(default_factory=dict)

    def run(self) -> Any:
        """The run that the file and the options say."""
        from ..runs.config import RunConfig, read_config

        written = {} if self.config is None else read_config(self.config)
        return RunConfig(**{**written, **self.options})


@dataclass(frozen=True)
class Run(Configured, Output, Tracked):
    """Carry out every stage on this machine; keep finished and valid files."""

    PRINTS: ClassVar = "cli.runs:run"
    COMMON: ClassVar = frozenset(FEW | {"ridge", "y"})

    out: Annotated[Path, Writes()] = Field(kw_only=True, description="run folder")
    _step = "only make this file, such as 04-total, of what is there"
    step: str | None = Field(default=None, kw_only=True, description=_step)
    _part = "with --step: part I/N of it, I from 0"
    part: str | None = Field(default=None, kw_only=True, description=_part)
    _join = "with --step: put so many parts of it together"
    join: int | None = Field(default=None, ge=1, kw_only=True, description=_join)

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
        say(carry_out(config, o.out, o.step, which, o.join or 0))
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

    _dry_run = "print the scripts and the jobs, and write nothing"
    dry_run: bool = Field(default=False, description=_dry_run)
    submit: bool = Field(default=False, description="also submit the jobs")
    _next = "print what submit.sh asks for: its lines for what is missing now"
    next_: bool = Field(default=False, description=_next)
    _site = "TOML of the site's defaults ($AFLTOOL_SITE)"
    site: Annotated[Path | None, Reads()] = Field(default=None, description=_site)
    settings: Annotated[dict[str, Any], Flat("cli.flat:of_site")] = Field(default_factory=dict)

    def check(self) -> None:
        super().check()
        self.excludes("dry_run", "submit")
        if self.submit:
            from ..runs.slurm.jobs import check_submitting

            check_submitting()


@dataclass(frozen=True)
class Slurm(Configured, JobsHow):
    """Write the job scripts of a run into RUN/slurm; --submit also starts them."""

    PRINTS: ClassVar = "cli.runs:slurm"
    COMMON: ClassVar = frozenset(
        (FEW | {"ridge", "dry_run", "submit", "site"}) - {"train_features", "test_features"}
    )

    _out = "run folder, which every node can read and write"
    out: Annotated[Path, Writes()] = Field(kw_only=True, description=_out)
    options: Annotated[dict[str, Any], Flat("cli.flat:of_jobs")] = Field(
        default_factory=dict, kw_only=True
    )

    def check(self) -> None:
        super().check()
        if (file := self.options.get("partition")) and not Path(file).exists():
            raise InputError(
                f"--partition is a file with clients, and there is none at {file}; the partition "
                "of the cluster is --partition-name"
            )


def slurm(o: Slurm) -> None:
    """Write the scripts of a run, print them, or start them."""
    from ..runs.slurm import jobs
    from ..runs.slurm.site import make_site

    if o.next_:
        say_lines(jobs.next_lines(o.out))
        return
    config, site = o.run(), make_site(o.settings, o.site)
    if o.dry_run:
        show_scripts(jobs.script_texts(config, site, o.out), o.as_json)
    else:
        submitted(jobs.prepare(config, site, o.out), o.out, o.submit, o.as_json)


def submitted(script: Path, out: Path, submit: bool, as_json: bool) -> None:
    """Say where the scripts of ``out`` are, or start them and say what sbatch answered."""
    from ..runs.slurm.jobs import submit as start

    answer = start(script) if submit else []
    if as_json:
        print_json({"path": str(out), "script": str(script), "submitted": answer})
        return
    for line in answer:
        tell(line)
    say(out if submit else script)


def show_scripts(texts: Mapping[str, str], as_json: bool) -> None:
    """Scripts by name, one after the other."""
    whole = "\n".join(f"##### {name}\n{text}" for name, text in texts.items())
    print_json(texts) if as_json else say_lines(whole)
