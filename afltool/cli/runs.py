"""The commands `run`, `slurm` and `status`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..options.common import files_in, refuse_files
from ..plugins import asked
from ._console import print_json, say, say_lines, tell
from .commands import (
    FIELD,
    JSON,
    OVERWRITE,
    TRACK,
    apart,
    argument,
    head_parameters,
    of_heads,
    option,
    parameters,
    show_folder,
    show_found,
    switch,
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
OWN = {
    "out",
    "overwrite",
    "json",
    "track",
    "submit",
    "site",
    "step",
    "part",
    "join",
}  # options of the commands
CONFIG = argument("config", Path, "TOML with options of a run; options given here win", False)


def of_run(
    words: Sequence[str], here: bool = True, taken: Iterable[str] | None = None
) -> list[Parameter]:
    """Every option of a run, and those of the head that the words name.

    ``taken``: options beside; then those of any head that the words name. ``here``: also those of
    this machine, which jobs on a cluster do not have.
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
    of_head = (
        head_parameters("run", words, known | OWN)
        if taken is None
        else of_heads(words, known | {*taken})
    )
    return [*found, *(p for p in of_head if p.name not in known | {"seed"})]


def out_option(text: str) -> Parameter:
    found: Parameter = option("out", Path, text)
    return found.replace(default=Parameter.empty)


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
    def call(
        config: Path | None, out: Path, step: str | None, part: str | None, join: int | None,
        track: str | None, overwrite: bool, as_json: bool, **values: Any,
    ) -> None:  # fmt: skip
        from ..plans.here import run
        from ..plans.layout import RunFolder
        from ..show.tables import print_summary

        given = given_of(values)
        if step is not None or part is not None or join:
            _one_step(configured(config, given, out), out, step, part, join)
            return
        with tracking(track):
            folder = run(configured(config, given, out), out, overwrite=overwrite)
        show_folder(folder, RunFolder.SUMMARY, as_json, print_summary)

    about = "Carry out every stage on this machine; keep finished and valid files."
    own = [CONFIG, out_option("run folder"), *STEP, TRACK, OVERWRITE, JSON]
    return typer_command("run", about, call, [*own, *of_run(words)], COMMON)


STEP = (
    option("step", str, "only make this file, such as 04-total, of what is there"),
    option("part", str, "with --step: part I/N of it, I from 0"),
    option("join", int, "with --step: put so many parts of it together"),
)


def _one_step(config: Any, out: Path, step: str | None, part: str | None, join: int | None) -> None:
    """What a job of a cluster does."""
    from ..options.grammars import parse_part
    from ..plans.slurm.jobs import carry_out

    if step is None:
        raise UsageError("--part and --join are used only with --step: give that one, too")
    if part is not None and join:
        raise UsageError("give --part or --join, not both")
    which = None if part is None else parse_part(part, "--part")
    say(carry_out(config, out, step, which, join or 0))


def given_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that were given; several of one option are a tuple."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in apart(values, (), "").items()}


def slurm_command(words: Sequence[str]) -> Any:
    from ..plans.slurm.site import Site

    of_site = parameters(Site, "Slurm", skip={"setup", "stages"})

    def call(
        config: Path | None, out: Path, dry_run: bool, submit: bool, next_: bool,
        site: Path | None, as_json: bool, **values: Any,
    ) -> None:  # fmt: skip
        from ..plans.slurm import jobs as engine
        from ..plans.slurm.site import make_site

        if next_:
            say_lines(engine.next_lines(out))
            return
        given = given_of(values)
        own = {p.name: given.pop(p.name) for p in of_site if p.name in given}
        check_submit(dry_run, submit)
        run, where = configured(config, given, out, site, own), make_site(own, site)
        if dry_run:
            show_scripts(engine.script_texts(run, where, out), as_json)
        else:
            submitted(engine.prepare(run, where, out), out, submit, as_json)

    about = "Write the job scripts of a run into RUN/slurm; --submit also starts them."
    own = [CONFIG, out_option("run folder, which every node can read and write"), *SLURM, JSON]
    common = (COMMON | {"dry_run", "submit", "site"}) - {"train_features", "test_features"}
    return typer_command("slurm", about, call, [*own, *of_site, *of_run(words, False)], common)


SLURM = (
    switch("dry_run", "print the scripts and the jobs, and write nothing"),
    switch("submit", "also submit the jobs"),
    switch("next_", "print what submit.sh asks for: its lines for what is missing now", "--next"),
    option("site", Path, "TOML of the site's defaults ($AFLTOOL_SITE)"),
)


def check_submit(dry_run: bool, submit: bool) -> None:
    """Refuse both, and jobs where they cannot be started."""
    from ..plans.slurm.jobs import check_submitting

    if dry_run and submit:
        raise UsageError("give --dry-run or --submit, not both")
    if submit:
        check_submitting()


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


def status_command(_: Sequence[str]) -> Any:
    def call(folder: Path, name: str | None, as_json: bool) -> None:
        from ..plans.slurm.states import status as look
        from ..show.tables import print_status

        facts, print_it = asked("status_of", folder) or (look(folder), print_status)
        show_found(facts, name, as_json, folder, print_it)

    about = "Show what of a run or study is done, running, failed or stale, and how to continue it."
    first = argument("folder", Path, "the folder of a run or a study")
    return typer_command("status", about, call, [first, FIELD, JSON])
