"""The command `afltool`: its global options, and its commands, each made when it is asked for.

What other parts and plug-ins add comes through the doors `afltool.commands`. Behind each door is a
module. Any of these functions may be missing::

    add_to(app)           adds commands to a Typer app; a group of a known name, as plot, is joined
    status_of(folder)     for `status`: what it says as JSON, and a function that prints it
    runs_by_name(paths)   for `plot rounds`: its runs by name of a line, and the paths that are left

The last two answer None where nothing is theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cache, cached_property, partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
import typer.core

from .. import __version__
from ..doors import STAGES, behind, doors, left_out, opened
from ..heads import OPTIONS
from ..values.text import shown
from . import _console
from ._console import LONG, SHORT, say, say_lines

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not export it


class Later(typer.core.TyperCommand):
    """A command of which only the name and the help are known until more is asked.

    ``make(heads)`` gives the function that Typer makes it of, with the options of these heads.
    """

    def __init__(self, **known: Any) -> None:
        super().__init__(**known)
        self.make = known["callback"].make
        del self.params, self.callback

    def __getattr__(self, name: str) -> Any:
        if name not in ("params", "callback"):
            raise AttributeError(f"a command has no {name!r}")
        self._take(OPTIONS)
        return getattr(self, name)

    def _take(self, heads: Iterable[str]) -> None:
        app = typer.Typer(add_completion=False)
        app.command(self.name)(self.make(heads))
        made = typer.main.get_command(app)
        self.params, self.callback = made.params, made.callback

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        """First with the options of the one head that is named; with those of all if that fails."""
        if "params" not in vars(self) and not (parent is not None and parent.resilient_parsing):
            light = copy(self)
            light._take(_named_heads(args))
            with suppress(_UsageError):
                return light.make_context(info_name, [*args], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def get_params(self, context: Any) -> list[Any]:
        return quick(super().get_params(context))


def _named_heads(words: Sequence[str]) -> list[str]:
    """The head that a command line names; linear, whose options are light, where it names none."""
    pairs = pairwise([*words, ""])
    given = (
        b if a == "--head" else a.removeprefix("--head=") for a, b in pairs if a[:6] == "--head"
    )
    return [word for word in given if word in OPTIONS] or ["linear"]


def quick(parameters: Iterable[Any]) -> list[Any]:
    """Parameters that take plain words as they are, as Typer would.

    Typer converts by pydantic, even what was not given; its import takes as long as NumPy's.
    """
    listed = [*parameters]
    for one in listed:
        if "process_value" not in vars(one):
            one.process_value = partial(_process, one, one.process_value)
    return listed


def _process(parameter: Any, checked: Callable[..., Any], context: Any, value: Any) -> Any:
    """What the value of a parameter becomes; ``checked``: how Typer converts it."""
    several = parameter.multiple or parameter.nargs == -1
    given = value if several else [value]
    kind = parameter.type_descriptor.annotation
    one = next(iter(get_args(kind)), kind)
    if (parameter.required and not value) or not all(_is_plain(x, one) for x in given or ()):
        return checked(context, value)
    made = [None if x is None else one(x) for x in given or ()]
    argument = (made if given else ()) if several else made[0]
    return parameter.callback(context, parameter, argument) if parameter.callback else argument


def _is_plain(word: Any, kind: Any) -> bool:
    """Whether a word, or None for no word, is of a kind that no check can refuse."""
    if word is None or kind is bool:
        return word is None or isinstance(word, bool)
    if kind is int:
        return str(word).isascii() and str(word).isdigit() and len(str(word)) < 10
    return kind in (str, Path) and (isinstance(word, Path) or word.isascii())


def add_later(
    app: typer.Typer, name: str, says: str | None, make: Callable[..., Callable[..., Any]]
) -> None:
    """Add a command to an app; ``make`` is that of `Later`."""

    def later() -> None:
        """Stands for the function until it is made."""

    later.__doc__ = says
    vars(later)["make"] = make  # Typer hands it on with the name and the text
    app.command(name, cls=Later)(later)


def made_later(make: Callable[[], typer.Typer]) -> type[typer.core.TyperGroup]:
    """A group whose commands are made when one of them, or all, are asked for."""

    class Group(typer.core.TyperGroup):
        @cached_property
        def _made(self) -> dict[str, Any]:
            made: Any = typer.main.get_command(make())  # a group, as there are several commands
            return dict(made.commands)

        @property
        def commands(self) -> Any:
            return self._made

        @commands.setter
        def commands(self, known: Any) -> None:
            """What Typer knows of: nothing."""

    return Group


COMMANDS = "afltool.commands"
#: The modules beside this one with their commands, as `-h` shows them: one is loaded for its words.
MODULES = {
    "data": "extract backbone import scale convert split merge partition",
    "road": "local-stats aggregate solve run head",
    "evaluation": "calibrate evaluate export predict",
    "look": "info verify plot",
    "batch": "slurm status",
    "plugins": "check-plugin",
}
Found = dict[str, Any]  # click's commands by name


def ask(question: str, about: Any) -> Any:
    """The first answer of another part to a question; None where no part has one."""
    answers_of = (getattr(part, question, None) for part in opened(COMMANDS).values())
    answers = (answer(about) for answer in answers_of if answer is not None)
    return next((reply for reply in answers if reply is not None), None)


class Group(typer.core.TyperGroup):
    """A group that opens the doors only for a word that is no command of the main part."""

    own: Found  # those of the main part

    @property
    def commands(self) -> Any:
        own = self.known()
        return {**own, **self.added(), **own}

    @commands.setter
    def commands(self, own: Any) -> None:
        self.own = own

    def get_command(self, context: Any, name: str) -> Any:
        return self.known(name).get(name) or self.added(name).get(name)

    def known(self, name: str | None = None) -> Found:
        """The commands of the main part; where one is asked for, at least that one."""
        return self.own

    def added(self, name: str | None = None) -> Mapping[str, Any]:
        """The commands that other parts add to the group of this name; at least that one."""
        return dict(getattr(added().get(self.name or ""), "commands", {}))


class Commands(Group):
    """All commands; a module with some is loaded for one of its words, other parts for others.

    Typer's messages about a wrong command line are escaped like all others.
    """

    def get_params(self, context: Any) -> list[Any]:
        return quick(super().get_params(context))

    def known(self, name: str | None = None) -> Found:
        if name is None:
            every = [one for module in MODULES for one in _of_module(module).items()]
            return dict(sorted(every, key=lambda one: hasattr(one[1], "commands")))  # groups last
        own = [module for module, words in MODULES.items() if name in words.split()]
        return _of_module(own[0]) if own else {}

    def added(self, name: str | None = None) -> Mapping[str, Any]:
        return added(name)

    def parse_args(self, context: Any, words: list[str]) -> list[str]:
        """Typer's command, unless help is asked for, which needs no parsing."""
        if context.resilient_parsing:  # the shell asks for words that begin so
            return super().parse_args(context, words)
        text = _asked_for(self, context.command_path, words)
        if text is not None:
            say_lines(text)
            context.exit(0 if _is_asked(words) else 2)
        return super().parse_args(context, words)

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
        reported.message = shown(reported.message)
        raise


def _asked_for(command: Any, path: str, words: Sequence[str]) -> str | None:
    """The help that a command line asks for; None if it asks for none.

    ``path``: how the command is called. A group of commands without a word behind it shows its
    help, too.
    """
    last = ""
    for word in words:
        if word in (*SHORT, LONG):
            return _help(command, path, word == LONG)
        if word == "--":
            return None
        inner = None if word.startswith("-") else _command(command, word)
        if inner is not None:
            command, path = inner, f"{path} {word}"
            last = word
    nothing_more = list(words[-1:]) == [last] or not words
    if nothing_more and getattr(command, "commands", {}):
        return _help(command, path, False)
    return None


def _command(group: Any, name: str) -> Any:
    """The command of this name in a group; None where there is none."""
    return group.get_command(None, name) if hasattr(group, "get_command") else None


def _help(command: Any, path: str, everything: bool) -> str:
    from ._help import text_of

    return text_of(command, path, everything)


def _is_asked(words: Sequence[str]) -> bool:
    """Whether help was asked for, rather than shown because a command is missing."""
    return any(word in (*SHORT, LONG) for word in words)


@cache
def _of_module(name: str) -> Found:
    return _made(import_module(f".{name}", __package__))


@cache
def added(word: str | None = None) -> Mapping[str, Any]:
    """Commands and groups of commands that other parts add, by name; those of stages first.

    ``word``: at least what has this name; the doors behind that of a command stay shut.
    """
    modules = dict(_of_module("outside") if doors(STAGES) else {})
    for name in doors(COMMANDS):
        if word in modules and not hasattr(modules[word], "commands"):
            break
        _join(modules, _of_door(name))
    return modules


@cache
def _of_door(name: str) -> Found:
    with left_out(name):
        return _made(behind(COMMANDS, name))
    return {}


def _made(part: Any) -> Found:
    """What a part adds to an app."""
    app = typer.Typer()
    getattr(part, "add_to", lambda app: None)(app)
    return dict(typer.main.get_group(app).commands)


def _join(facts: Any, more: Mapping[str, Any]) -> None:
    """Add commands; the first of a name stays, and groups of one name become one."""
    for name, command in more.items():
        known = facts.setdefault(name, command)
        if known is not command:
            _join(getattr(known, "commands", {}), getattr(command, "commands", {}))


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
