"""The command `afltool`: its global options, and its commands, each made when it is asked for.

Other parts and packages add commands by entry points of the group `afltool.commands`, each a module
with any of these::

    commands()            `cli.commands.Command` by name; 'plot study' is one of a group
    status_of(folder)     for `status`: what it says as JSON, and a function that prints it, or None
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
import typer.core

from .. import __version__
from ..plugins import Registry
from ..renamed import RENAMED
from ..values.text import escape_line
from . import _console
from ._console import print_line, print_lines
from .commands import HELP, Command, resolve

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not export it
PANELS = ("Start here", "Stages", "Studies", "Federation", "Files")  # of the help, in order
#: The commands of the main part by panel: name, what it does, the class of its options.
_TABLE: dict[str, list[tuple[str, str, str]]] = {
    "Start here": [
        ("run", "run the whole pipeline on this machine", "cli.runs:Run"),
        ("import", "import embeddings or a table", "options.features:Import"),
        ("extract", "extract features with a frozen backbone", "options.features:ExtractOptions"),
        ("evaluate", "evaluate a head on labeled features", "options.evaluation:EvaluateOrCount"),
        ("predict", "predict classes of images or feature rows", "options.evaluation:Predict"),
        ("export", "export a head to ONNX or PT2", "options.evaluation:Export"),
    ],
    "Stages": [
        ("partition", "partition feature rows among clients", "options.partition:Partition"),
        ("head", "create an unsolved head to share with all clients", ""),
        ("local-stats", "compute each client's statistics", "options.statistics:LocalStats"),
        ("aggregate", "sum statistics; add or remove clients", "options.statistics:Aggregate"),
        ("solve", "solve for the head from summed statistics", "options.statistics:Solve"),
        ("calibrate", "calibrate a head's scores to probabilities", "options.evaluation:Calibrate"),
        ("backbone", "export a frozen backbone to a portable file", "options.features:Backbone"),
        ("scale", "compute feature scaling across sites", "options.features:Scale"),
        ("convert", "convert features to another number format", "options.features:Convert"),
        ("split", "split a feature file into train and test sets", "options.features:Split"),
        ("merge", "merge the shards of an extraction", "options.features:Merge"),
    ],
    "Studies": [
        ("slurm", "write and submit Slurm jobs for a run", "cli.runs:Slurm"),
        ("status", "show the progress of a run or study", "options.look:StatusOf"),
        ("plot", "plot partitions, metrics, rounds or studies", ""),
    ],
    "Files": [
        ("info", "show the contents and digest of a file", "options.look:Info"),
        ("diff", "show the differences between two files", "options.look:Diff"),
        ("verify", "verify the checksums and digests of files", "options.look:Verify"),
        ("store", "list and prune the store", "options.look:Store"),
    ],
}
OWN = {
    name: Command(about, panel, of, inside="" if of else f"cli.flat:{name}_commands")
    for panel, rows in _TABLE.items()
    for name, about, of in rows
}


def _part(text: str, module: Any) -> tuple[dict[str, Command], Callable[[Path], Any]]:
    """The commands of another part by name, and its `status_of`."""
    theirs = dict(getattr(module, "commands", dict)())
    if strange := [key for key, one in theirs.items() if not isinstance(one, Command)]:
        raise TypeError(f"{strange[0]!r} of commands() is no Command of `cli.commands`")
    return theirs, getattr(module, "status_of", lambda folder: None)


PARTS = Registry("afltool.commands", dict[str, Any](), _part)


def load_added_commands() -> dict[str, Command]:
    """The commands of other parts and packages by name; of two of one name the first."""
    return {k: one for theirs, _ in reversed([*PARTS.values()]) for k, one in theirs.items()}


class Group(typer.core.TyperGroup):
    """Commands that are built when they are asked for, with the words behind their names.

    ``known(word)`` has them by name; where it has ``word`` itself, it loads no other part.
    """

    known: Callable[[str], Mapping[str, Command]]

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.known("")]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] == "help":
            if len(args) == 1:
                print_lines(f"{ctx.get_help()}\n")
                raise typer.Exit
            args = [*args[1:], "--help"]
        if args == ["version"]:
            _version(True)
        ctx.meta["words"] = args[1:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, name: str) -> Any:
        words = [] if ctx is None else ctx.meta.get("words", [])
        found = self.known(name).get(name)
        return None if found is None else built(found, name, words)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Names with a line each, by panels; none is built for it."""
        every = self.known("")
        for panel in dict.fromkeys((*PANELS, *(one.panel for one in every.values()))):
            rows = [(name, one.about) for name, one in every.items() if one.panel == panel]
            if rows:
                with formatter.section(panel):
                    formatter.write_dl(rows)


def built(command: Command, name: str, words: Sequence[str]) -> Any:
    """Typer's command, or its group of commands; ``words`` are those behind its name."""
    if not command.inside:
        return command.build(name, words)
    how: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": None}
    about = f"{command.about[:1].upper()}{command.about[1:]}."
    made = Group(name=name, help=about, context_settings=HELP, **how)
    made.known = resolve(command.inside)
    return made


def _find_command(word: str) -> dict[str, Command]:
    every = OWN if word in OWN else {**OWN, **load_added_commands(), **OWN}
    return {name: one for name, one in every.items() if " " not in name}


class Commands(Group):
    """All commands. Typer's messages about a wrong command line are escaped like all others."""

    known = staticmethod(_find_command)

    def make_context(self, *args: Any, **options: Any) -> Any:
        with _usage_errors():
            context = super().make_context(*args, **options)
        context.with_resource(_usage_errors())  # of all that is done in it
        return context


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        reported: Any = error  # its class is typer's own, with a message
        if type(error).__name__ != "NoArgsIsHelpError":  # that is the help itself
            unknown = re.search("No such (?:command|option):? '?([\\w-]+)", reported.message)
            path = reported.ctx.command_path.split() if reported.ctx else []
            words = [*path, unknown[1]] if unknown else []
            instead = (RENAMED.get(" ".join(words[-n:])) for n in (3, 2, 1))
            found = next(filter(None, instead), None)
            reported.message = f"{words[-1]} is {found}" if found else escape_line(reported.message)
            reported.possibilities = None
        raise


app = typer.Typer(
    name="afltool",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings=HELP,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        print_line(f"afltool {__version__}")
        raise typer.Exit


_HELP = """Analytic federated learning over files: frozen features, one round, no gradients.

Stages: extract → partition → local-stats → aggregate → solve → evaluate. run carries all of them
out on one machine. Every stage reads files and writes one. stdout has only the result; an input
that is - is the path that the command before has printed.

Exit codes: 0 done, 2 usage, 3 input missing, invalid or corrupt, 4 inputs that do not belong
together, 5 numerical failure or failed cells of a study, 75 interrupted but resumable, 130 Ctrl-C.
"""


@app.callback(help=_HELP)
def afltool(
    context: typer.Context,
    quiet: bool = typer.Option(False, "--quiet", "-q", help="only errors and results"),
    verbose: bool = typer.Option(False, "--verbose", "-v", help="say more"),
    events: Path = typer.Option(None, help="append what happens to a file, as JSON; - is stderr"),
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="print the version"
    ),
) -> None:
    _console.setup_console(quiet, verbose)
    if events is not None:
        from ._events import writing

        with _console.command():
            context.with_resource(writing(events, str(context.invoked_subcommand)))
