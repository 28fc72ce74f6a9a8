"""Commands for batch systems: slurm, and status for any run."""

from __future__ import annotations

from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UsageError
from ._console import say, say_lines, tell
from ._options import FieldName, Json, JsonOfAll, add, of_run, parameters, print_json, show_found
from .app import ask


def add_to(app: typer.Typer) -> None:
    add(app, "slurm", slurm, of_site=_of_site, options=partial(of_run, here=False))
    add(app, "status", status)


def _of_site() -> list[Parameter]:
    from ..plans.slurm.site import Site

    return parameters(Site, "Slurm", rare=True)


def slurm(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="run folder, which every node can read and write")
    ],
    of_site: dict[str, Any],
    options: dict[str, Any],
    config: Annotated[
        Path | None, typer.Argument(help="TOML with options of a run; options given here win")
    ] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="print the scripts and write nothing")
    ] = False,
    submit: Annotated[bool, typer.Option("--submit", help="also submit the scripts")] = False,
    site: Annotated[
        Path | None, typer.Option("--site", help="TOML of the site's defaults ($AFLTOOL_SITE)")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the job scripts of a run into RUN/slurm; --submit also starts them."""
    from ..plans.config import RunConfig, read_config
    from ..plans.slurm.site import make_site

    check_submit(print_, submit)
    where = make_site(of_site, site)
    run = RunConfig(**{**({} if config is None else read_config(config)), **options})
    from ..plans.slurm import jobs as engine

    if print_:
        show_scripts(engine.script_texts(run, where, out), as_json)
    else:
        submitted(engine.prepare(run, where, out), out, submit, as_json)


def check_submit(print_: bool, submit: bool) -> None:
    """Refuse both, and jobs where they cannot be started."""
    from ..plans.slurm.jobs import check_submitting

    if print_ and submit:
        raise UsageError("give --print or --submit, not both")
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


def status(
    folder: Annotated[Path, typer.Argument(help="the folder of a run or a study")],
    name: FieldName = None,
    as_json: JsonOfAll = False,
) -> None:
    """Show what of a run or study is done, running, failed or stale, and how to continue it."""
    from ..plans.slurm.states import status as look
    from ..show.tables import print_status

    facts, print_it = ask("status_of", folder) or (look(folder), print_status)
    show_found(facts, name, as_json, folder, print_it)
