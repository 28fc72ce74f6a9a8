"""Commands for batch systems: slurm, and status for any run."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ..engines.site import Site, make_site
from ..errors import UsageError
from ..heads import OPTIONS
from ..stages.run_config import RunConfig, make_config, read_config
from ._console import command
from ._head_options import parameters_of, with_head_options
from ._types import Json, print_json


def add_to(app: typer.Typer) -> None:
    options = [*parameters_of(Site, "Slurm"), *parameters_of(RunConfig, "Run")]
    app.command("slurm")(command(with_head_options(slurm, OPTIONS, {"seed"}, options)))
    app.command("status")(command(status))


def slurm(
    out: Annotated[Path, typer.Option("--out", "-o", help="Run folder, seen by every node.")],
    head_options: dict[str, Any],
    config: Annotated[
        Path | None, typer.Argument(help="TOML with options of a run; options given here win.")
    ] = None,
    print_: Annotated[
        bool, typer.Option("--print", help="Print the scripts and write nothing.")
    ] = False,
    submit: Annotated[bool, typer.Option("--submit", help="Also submit the scripts.")] = False,
    site: Annotated[
        Path | None, typer.Option("--site", help="TOML of the site's defaults ($AFLTOOL_SITE).")
    ] = None,
    as_json: Json = False,
) -> None:
    """A run as Slurm jobs: write its scripts into RUN/slurm, and with --submit start them."""
    from ..engines import slurm as engine

    if print_ and submit:
        raise UsageError("give --print or --submit, not both")
    names = {f.name for f in fields(Site)}
    of_site = {k: v for k, v in head_options.items() if k in names}
    of_run = {k: v for k, v in head_options.items() if k not in names}
    where = make_site(of_site, site)
    run = make_config({**({} if config is None else read_config(config)), **of_run})
    if print_:
        texts = engine.script_texts(run, where, out)
        print_json(texts) if as_json else typer.echo(_all_of(texts), nl=False)
        return
    script = engine.prepare(run, where, out)
    said = engine.submit(script) if submit else []
    if as_json:
        print_json({"path": str(out), "script": str(script), "submitted": said})
        return
    for line in said:
        typer.echo(line, err=True)
    typer.echo(str(out if submit else script))


def _all_of(texts: dict[str, str]) -> str:
    return "\n".join(f"##### {name}\n{text}" for name, text in texts.items())


def status(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    as_json: Json = False,
) -> None:
    """What a run has made, what runs, failed or is stale, and the command that continues it."""
    from ..engines.status import status as look
    from ..report.tables import print_status

    found = look(folder)
    print_json(found) if as_json else print_status(found)
