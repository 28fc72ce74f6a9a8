"""The command `afltool`: its global options, and its commands, each made when it is asked for.

Other parts and packages add commands by entry points of the group `afltool.commands`: a Typer app
or a `cli.commands.Command`, with the name of the entry point, or a module with any of these::

    commands()            `cli.commands.Command` by name; 'plot study' is one of a group
    status_of(folder)     for `status`: what it says as JSON, and a function that prints it
    runs_by_name(paths)   for `plot rounds`: its runs by name of a line, and the paths that are left

The last two answer None where nothing is theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
from typer.main import get_command_from_info, get_group_from_info
from typer.models import TyperInfo

from .. import __version__
from ..plugins import COMMANDS, behind, doors, left_out
from ..values.text import shown
from . import _console
from ._console import say
from .commands import Command

Builder = Callable[[Sequence[str]], Any]  # words behind the name → Typer's command
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not export it
PLAIN: dict[str, Any] = {"pretty_exceptions_short": True, "rich_markup_mode": None}
ROWS, SUMS, USES, RUNS, FILES = "Features", "Statistics", "Solved heads", "Runs", "Files"
OTHERS = "Plug-ins"
#: The commands of the main part, in the order of the help.
OWN: dict[str, Command] = {
    "extract": Command("run images through a network", ROWS, "features:ExtractNodes", "extract"),
    "backbone": Command("write a frozen network as one file", ROWS, "features:Backbone"),
    "import": Command("make features of embeddings or a table", ROWS, "features:Import"),
    "scale": Command("sum up features, so that all sites scale alike", ROWS, "features:Scale"),
    "convert": Command("write features in another number format", ROWS, "features:Convert"),
    "split": Command("cut features for training and testing", ROWS, "features:Split"),
    "merge": Command("put the shards of one extraction together", ROWS, "features:Merge"),
    "partition": Command("assign rows to clients", SUMS, "partition:PartitionOrLook", "partition"),
    "head": Command("write a head: what a federation agrees on", SUMS, make="heads:head_group"),
    "local-stats": Command("compute the statistics of clients", SUMS, "statistics:LocalStats"),
    "aggregate": Command("add statistics up", SUMS, "statistics:Aggregate"),
    "solve": Command("solve the head of a total", SUMS, "statistics:Solve"),
    "evaluate": Command("measure a head", USES, "evaluation:EvaluateOrCount", "evaluate"),
    "calibrate": Command("make probabilities of scores", USES, "evaluation:Calibrate"),
    "predict": Command("predict rows or images", USES, "evaluation:Predict", "predict"),
    "export": Command("write a head as .onnx or .pt2", USES, "evaluation:Export"),
    "run": Command("carry out every stage on this machine", RUNS, make="runs:run_command"),
    "slurm": Command("write and submit the jobs of a run", RUNS, make="runs:slurm_command"),
    "status": Command("what of a run or study is done", RUNS, make="runs:status_command"),
    "info": Command("what is in a file", FILES, make="look:info_command"),
    "verify": Command("compare every checksum and digest", FILES, make="look:verify_command"),
    "plot": Command("draw pictures", FILES, make="look:plot_group"),
}
_SESSION = "gone: a session does it, see afltool session new, serve and join"
_SCALED = "gone: solve makes the scaling of a total of what scale wrote"
_RATES = "gone: choose rates by an axis of a study, or as examples/rivals.py does"
#: Old command, or old option, or command and option → what stands in its place.
RENAMED: dict[str, str] = {
    "check-plugin": "gone: pytest tests a plug-in, with the checks of afltool.testing",
    "head evaluation": "gone: evaluate --counts; in a session, session new --evaluate",
    "keys lock": "gone: keys new --passphrase-file",
    "plot layers": "renamed: plot rounds",
    "session urls": "gone: sites share a directory, sftp://, s3:// or webdav://",
    **dict.fromkeys(("roster", "mask", "session countersign"), _SESSION),
    **dict.fromkeys(("--roster", "--mask", "--sign", "--offers", "--reveal", "--again"), _SESSION),
    **dict.fromkeys(("--dp-epsilon", "--dp-delta", "--clip"), _SESSION),
    **dict.fromkeys(("scale --from", "scale --method", "scale --bins"), _SCALED),
    **dict.fromkeys(("--lr-rounds", "--stack"), _RATES),
    "aggregate --add": "gone: list the files, afltool aggregate FILES",
    "evaluate --train": "gone: call evaluate for each file; run has --train-accuracy",
    "evaluate --earlier": "gone: call evaluate for each head; run evaluates each round itself",
    "evaluate --beside": "gone: call evaluate --counts for each head",
    "session join --features": "renamed: --data",
    "slurm --print": "renamed: --dry-run",
    "solve --ridge-path": "renamed: --ridge LO:HI:COUNT",
    "study --check": "gone: solve a total of a cell again, afltool solve",
    "--balance-cap": "gone: partition --scheme dirichlet --min-size N draws again instead",
    "--checksums": "gone: CIFAR is compared with torchvision's; read others by imagefolder:",
    "--fan-in": "gone: one task adds up the sums of all parts",
    "--formulas": "gone: CSV has texts as they are; a spreadsheet imports columns as text",
    "--plain": "gone: extract --engine torch is the nearest",
    "--single-round": "gone: head random-features solves in one round",
    "--summary": "gone: --events - has exit code and seconds",
}


@cache
def added(word: str = "") -> dict[str, Command]:
    """The commands of other parts and packages by name; what cannot be loaded is left out.

    ``word``: the part of this name comes first, and what comes after the one that has this command
    is not loaded.
    """
    found: dict[str, Command] = {}
    for name in sorted(doors(COMMANDS), key=lambda name: name != word):
        found = {**_of_part(name, behind(COMMANDS, name)), **found}
        if word in found:
            break
    return found


def _of_part(name: str, part: Any) -> dict[str, Command]:
    with left_out(name):
        if isinstance(part, typer.Typer):
            return {name: Command(_about(part), OTHERS, make=partial(of_app, name, part))}
        if isinstance(part, Command):
            return {name: part}
        found = dict(getattr(part, "commands", dict)())
        if strange := [key for key, one in found.items() if not isinstance(one, Command)]:
            raise TypeError(f"{strange[0]!r} of commands() is no Command of afltool.cli.commands")
        return found
    return {}


def _about(app: typer.Typer) -> str:
    """The first line of a Typer app's help, or of the only command that it has."""
    commands = app.registered_commands if not app.registered_groups else []
    alone = getattr(commands[0].callback, "__doc__", "") if len(commands) == 1 else ""
    return (app.info.help if isinstance(app.info.help, str) else alone or "").partition("\n")[0]


def of_app(name: str, app: typer.Typer, words: Sequence[str] = ()) -> Any:
    """The group, or the one command, of a Typer app."""
    if app.registered_groups or len(app.registered_commands) != 1:
        return group_of(name, app, words)
    return get_command_from_info(app.registered_commands[0], **PLAIN)


def group_of(name: str, app: typer.Typer, _: Sequence[str] = ()) -> Any:
    """The group of a Typer app."""
    return get_group_from_info(TyperInfo(app, name=name), suggest_commands=True, **PLAIN)


class Group(typer.core.TyperGroup):
    """Commands that are built when they are asked for, with the words behind their names."""

    builders: Callable[[], Mapping[str, Builder]]

    @property  # type: ignore[override]  # an attribute of Typer's
    def commands(self) -> dict[str, Any]:
        """Every command by name, built."""
        return {name: self.get_command(None, name) for name in self.list_commands(None)}

    @commands.setter
    def commands(self, known: Any) -> None:
        """What Typer knows of: nothing."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.builders()]

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        ctx.meta["words"] = args[1:]
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, name: str) -> Any:
        words = [] if ctx is None else ctx.meta.get("words", [])
        build = self.builders().get(name)
        return None if build is None else build(words)


def group(name: str, about: str, builders: Callable[[], Mapping[str, Builder]]) -> Group:
    """A command with commands of its own."""
    made = Group(
        name=name,
        help=about,
        no_args_is_help=True,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.builders = builders
    return made


class Commands(Group):
    """All commands. Typer's messages about a wrong command line are escaped like all others."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in {**OWN, **added()} if " " not in name]

    def get_command(self, ctx: Any, name: str) -> Any:
        words = [] if ctx is None else ctx.meta.get("words", [])
        found = OWN.get(name) or added(name).get(name)
        return None if found is None else found.build(name, words)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Names with a line each, by panels; none is built for it."""
        every = {**added(), **OWN}
        for panel in dict.fromkeys(one.panel for one in (*OWN.values(), *every.values())):
            shown_here = [name for name in self.list_commands(ctx) if every[name].panel == panel]
            if shown_here:
                with formatter.section(panel):
                    formatter.write_dl([(name, every[name].about) for name in shown_here])

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
            known = _instead(reported)
            reported.message = known or shown(reported.message)
            reported.possibilities = [] if known else getattr(error, "possibilities", None)
        raise


def _instead(error: Any) -> str | None:
    """What stands in the place of an unknown name, `RENAMED`; None where nothing does."""
    unknown = re.search("No such (?:command|option):? '?([\\w-]+)", error.message)
    if unknown is None:
        return None
    names, context = [unknown[1]], error.ctx
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name)
        context = context.parent
    return RENAMED.get(" ".join(names)) or RENAMED.get(unknown[1])


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
    if events is not None:
        from ._events import writing

        lines = writing(events, str(context.invoked_subcommand))
        with _console.command():
            context.with_resource(lines)
