"""The commands `run` and `slurm`, whose options are those of every stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..options.base import Options, Reads, Writes, fields_of
from ..options.common import Output, Printed, Tracked, files_in, refuse_files
from ._console import print_json, say, say_lines, tell
from .commands import (
    divided,
    head_parameters,
    of_heads,
    parameters,
    show_folder,
    tracking,
    typer_command,
)

#: Headings of the options of a run in its help, by part.
PANELS = {
    "extract": "Images and backbone",
    "partition": "Clients",
    "own": "Run",
    "here": "Run",
    "local_stats": "Statistics",
    "aggregate": "Statistics",
    "solve": "Solving",
    "evaluate": "Evaluation",
}
#: What ``-h`` shows.
COMMON = frozenset(
    {"out", "data", "backbone", "train_features", "test_features", "alpha", "clients", "head"}
    | {"ridge", "overwrite"}
)


@dataclass(frozen=True, kw_only=True)
class Configured(Printed):
    """Of every command that takes the options of a run, in a file and on the command line."""

    _config = "TOML with options of a run; options given here win"
    config: Annotated[Path | None, Reads()] = Field(
        default=None, kw_only=False, description=_config
    )


@dataclass(frozen=True)
class RunHow(Configured, Output, Tracked):
    """Carry out every stage on this machine; keep finished and valid files."""

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


@dataclass(frozen=True, kw_only=True)
class JobsHow(Options):
    """How job scripts are written and started."""

    _dry_run = "print the scripts and the jobs, and write nothing"
    dry_run: bool = Field(default=False, description=_dry_run)
    submit: bool = Field(default=False, description="also submit the jobs")
    _next = "print what submit.sh asks for: its lines for what is missing now"
    next_: bool = Field(default=False, description=_next)
    _site = "TOML of the site's defaults ($AFLTOOL_SITE)"
    site: Annotated[Path | None, Reads()] = Field(default=None, description=_site)

    def check(self) -> None:
        super().check()
        self.excludes("dry_run", "submit")
        if self.submit:
            from ..plans.slurm.jobs import check_submitting

            check_submitting()


@dataclass(frozen=True)
class SlurmHow(Configured, JobsHow):
    """Write the job scripts of a run into RUN/slurm; --submit also starts them."""

    _out = "run folder, which every node can read and write"
    out: Annotated[Path, Writes()] = Field(kw_only=True, description=_out)


def of_run(
    words: Sequence[str], taken: Iterable[str], here: bool = True, heads: bool = False
) -> list[Parameter]:
    """Every option of a run, and those of the head that the words name.

    ``taken``: options beside. ``here``: also those of this machine, which jobs on a cluster do not
    have. ``heads``: those of any head that the words name.
    """
    from ..plans.config import DEFAULTS, HERE, OMITTED, PARTS

    found = [
        p
        for part, (cls, names) in PARTS.items()
        if here or part != HERE
        for p in parameters(
            cls, PANELS[part], skip=OMITTED.get(part, ()), rename=names, required=False,
            defaults=DEFAULTS,
        )
    ]  # fmt: skip
    known = {p.name for p in found}
    every = known | {*taken}
    of_head = of_heads(words, every) if heads else head_parameters("run", words, every)
    return [*found, *(p for p in of_head if p.name not in known | {"seed"})]


def configured(
    config: Path | None,
    given: Mapping[str, Any],
    out: Path,
    site: Path | None = None,
    of_site: Mapping[str, Any] | None = None,
) -> Any:
    """A run from its TOML file, and options that win; refused where ``out`` is what it reads."""
    refuse_read(out, {"CONFIG": config, "--site": site}, given, of_site)
    from ..plans.config import RunConfig, read_config

    return RunConfig(**{**({} if config is None else read_config(config)), **given})


def refuse_read(
    out: Path, read: Mapping[str, Path | None], given: Mapping[str, Any], of_site: Any = None
) -> None:
    """Refuse a folder that is one of the files which are read, by the names of their options."""
    from ..plans.config import PARTS
    from ..plans.slurm.site import Site

    every = [(name, path, False) for name, path in read.items() if path and path.is_file()]
    every += [one for cls, _ in PARTS.values() for one in files_in(cls, given)]
    every += files_in(Site, of_site or {})
    refuse_files([*every, ("--out", out, True)])


def run_command(words: Sequence[str]) -> Any:
    def call(**values: Any) -> None:
        from ..plans.here import run
        from ..plans.layout import RunFolder
        from ..show.tables import print_summary

        o, given = divided(RunHow, values)
        config = configured(o.config, given, o.out)
        if o.step is not None:
            _one_step(config, o, o.step)
            return
        with tracking(o.track):
            folder = run(config, o.out, overwrite=o.overwrite)
        show_folder(folder, RunFolder.SUMMARY, o.as_json, print_summary)

    every = [*parameters(RunHow), *of_run(words, fields_of(RunHow))]
    return typer_command("run", RunHow.__doc__, call, every, COMMON)


def _one_step(config: Any, o: RunHow, step: str) -> None:
    """What a job of a cluster does."""
    from ..options.grammars import parse_part
    from ..plans.slurm.jobs import carry_out

    which = None if o.part is None else parse_part(o.part, "--part")
    say(carry_out(config, o.out, step, which, o.join or 0))


def slurm_command(words: Sequence[str]) -> Any:
    from ..plans.slurm.site import Site

    of_site = parameters(Site, "Slurm", skip={"setup", "stages"})

    def call(**values: Any) -> None:
        from ..plans.slurm import jobs as engine
        from ..plans.slurm.site import make_site

        o, given = divided(SlurmHow, values)
        if o.next_:
            say_lines(engine.next_lines(o.out))
            return
        own = {p.name: given.pop(p.name) for p in of_site if p.name in given}
        run, where = configured(o.config, given, o.out, o.site, own), make_site(own, o.site)
        if o.dry_run:
            show_scripts(engine.script_texts(run, where, o.out), o.as_json)
        else:
            submitted(engine.prepare(run, where, o.out), o.out, o.submit, o.as_json)

    every = [*parameters(SlurmHow), *of_site, *of_run(words, fields_of(SlurmHow), here=False)]
    common = (COMMON | {"dry_run", "submit", "site"}) - {"train_features", "test_features"}
    return typer_command("slurm", SlurmHow.__doc__, call, every, common)


def submitted(script: Path, out: Path, submit: bool, as_json: bool) -> None:
    """Say where the scripts of ``out`` are, or start them and say what sbatch answered."""
    from ..plans.slurm.jobs import submit as start

    answer = start(script) if submit else []
    if as_json:
        print_json({"path": str(out), "script": str(script), "submitted": answer})
        return
    for line in answer:
        tell(line)
    say(out if submit else script)


def show_scripts(texts: dict[str, str], as_json: bool) -> None:
    """Scripts by name, one after the other."""
    whole = "\n".join(f"##### {name}\n{text}" for name, text in texts.items())
    print_json(texts) if as_json else say_lines(whole)
