"""The command `afltool` and its global options; `_parts` finds its commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from . import _console, _summary
from ._console import Commands
from ._streams import say

app = typer.Typer(
    name="afltool",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        say(f"afltool {__version__}")
        raise typer.Exit


_HELP = (
    "Analytic federated learning over files: frozen features, one round, no gradients.\n\n"
    "Stages: extract → partition → local-stats → aggregate → solve → evaluate. run carries all of "
    "them out on one machine. Every stage reads files and writes one. stdout has only the "
    "result.\n\n"
    "Exit codes: 0 done, 2 usage, 3 input missing, invalid or corrupt, 4 inputs that do not belong "
    "together, 5 numerical failure or "
    "failed cells of a study, 75 interrupted but resumable, 130 Ctrl-C."
)


@app.callback(help=_HELP)
def afltool(
    context: typer.Context,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="only errors and results")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="say more")] = False,
    summary: Annotated[
        bool,
        typer.Option("--summary", help="end with one line of JSON on stderr: seconds, memory …"),
    ] = False,
    events: Annotated[
        Path | None,
        typer.Option(
            "--events",
            help="append what happens to this file, a line of JSON an event; - is stderr",
        ),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")
    ] = False,
) -> None:
    _console.set_up(quiet, verbose)
    if summary:
        _summary.begin(str(context.invoked_subcommand))
    if events is not None:
        from ._events import writing

        lines = writing(events, str(context.invoked_subcommand))
        _console.command(context.with_resource)(lines)
