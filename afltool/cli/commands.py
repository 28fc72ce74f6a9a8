"""A command from the class of its options: arguments, options, help, errors.

Each field of the class is a parameter of the shell; ``head_options`` stands for the options of the
head that the command line names, each by its own name.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic import WrapValidator
from typer.core import TyperCommand
from typer.main import get_command_from_info
from typer.models import CommandInfo

from ..errors import InputError, UsageError
from ..heads import HEADS, OPTIONS, options_class
from ..heads.options import OF_MODULES, HeadOptions
from ..inputs import lines_of
from ..options.base import (
    LINES,
    STREAM,
    OptionsT,
    Reads,
    choices_of,
    fields_of,
    flag,
    help_of,
    holds_options,
    kinds_of,
    positional,
    role_of,
)
from ..options.common import FROZEN, Printed
from ..plugins import located
from ._console import command as errors_as_exit
from ._console import is_quiet, print_json, say, say_lines

OF_HEAD = "Options of the head"
IN_HEAD = "in_head_"  # begins their names in Python, where a command has an argument of that name
KEYWORD = inspect.Parameter.KEYWORD_ONLY
HELP = {"help_option_names": ["-h", "--help"]}
Call = Callable[..., Any]


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        about: one line, for the list of all commands.
        panel: its heading there.
        options: the class whose fields are its parameters; a text, MODULE:NAME, is below `afltool`.
            The class's `Options.PRINTS` takes such an object and prints. Otherwise ``stage``, or
            its `Options.STAGE`, takes it, and what that returns, a path or several, is shown.
        make: instead of these, what makes Typer's command of the words behind its name; a text is
            as above.
    """

    about: str
    panel: str
    options: str | type[Any] = ""
    stage: Call | None = None
    make: str | Call | None = None

    def build(self, name: str, words: Sequence[str]) -> Any:
        """Typer's command; ``words`` behind its name say which head's options it takes."""
        if self.make is not None:
            return _of(self.make)(words)
        cls = _of(self.options)
        given = parameters(cls) + ([] if cls.PRINTS else parameters(Printed))
        names = [p.name for p in given]
        of_head = head_parameters(name, words, names) if "head_options" in fields_of(cls) else []
        of_head = [p.replace(name=IN_HEAD + p.name) for p in of_head]  # FEATURES, --features

        def call(**values: Any) -> None:
            as_json = False if cls.PRINTS else bool(values.pop("as_json"))
            o = cls(**apart(piped(inputs_of(cls), values), of_head, "head_options"))
            if cls.PRINTS:
                _of(cls.PRINTS)(o)
                return
            made = (self.stage or _of(cls.STAGE))(o)
            if cls.TELLS and not as_json:
                _of(cls.TELLS)(made)
            show(made, as_json)

        shown = {IN_HEAD + name for name in HeadOptions.COMMON} | {*names}
        return typer_command(
            name, cls.__doc__, call, [*given, *of_head], cls.COMMON or frozenset(shown)
        )


def _of(what: Any) -> Any:
    """What a text stands for, MODULE:NAME below `afltool`; what is no text is itself."""
    return located(f"...{what}", __name__) if isinstance(what, str) else what


def inputs_of(cls: Any) -> list[str]:
    """The fields that name input files; of one of `LINES` the stage reads stdin."""
    roles = {name: role_of(info) for name, info in fields_of(cls).items()}
    return [name for name, role in roles.items() if isinstance(role, Reads) and role.kind != LINES]


def piped(names: Iterable[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values; '-' in one of these is what the command before has printed, a path a line.

    Raises `UsageError` where two inputs are '-', `InputError` where no path comes, or several come
    for a single file.
    """
    given = {name: values[name] for name in names if values.get(name) is not None}
    several = {name: one if isinstance(one, list) else [one] for name, one in given.items()}
    if not (asked := [name for name, paths in several.items() for p in paths if str(p) == STREAM]):
        return {**values}
    if len(asked) > 1:
        raise UsageError("- is what the command before has printed: give it once")
    [name], found = asked, list(lines_of(sys.stdin))
    if not found:
        raise InputError(f"stdin: expected a path for {name}, found none: see what was said before")
    if isinstance(given[name], list):
        at = [str(path) for path in given[name]].index(STREAM)
        return {**values, name: [*given[name][:at], *map(Path, found), *given[name][at + 1 :]]}
    if len(found) > 1:
        raise InputError(f"stdin: expected one path for {name}, found {len(found)}")
    return {**values, name: type(given[name])(found[0])}


def apart(
    values: Mapping[str, Any], some: Iterable[inspect.Parameter], name: str
) -> dict[str, Any]:
    """The values that were given, those of ``some`` parameters in a dictionary of this name."""
    found = {k: v for k, v in values.items() if v is not None and v != []}
    inner = {p.name.removeprefix(IN_HEAD): found.pop(p.name) for p in some if p.name in found}
    return {**found, name: inner} if some or inner else found


def divided(cls: type[OptionsT], values: Mapping[str, Any]) -> tuple[OptionsT, dict[str, Any]]:
    """The options of a class that were given, as an object, and the others by name."""
    given = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if v is not None}
    own = {name: given.pop(name) for name in fields_of(cls) if name in given}
    return cls(**own), {k: v for k, v in given.items() if v != ()}


def head_parameters(
    command: str, words: Sequence[str], taken: Iterable[str] = ()
) -> list[inspect.Parameter]:
    """The options of the head that the words name; of `solve` all that any head lets it change."""
    if command == "solve":
        return of_heads(words, taken, at_solve=True)
    named = _after("--head", words) or "linear"
    if named not in HEADS.data and named not in OPTIONS:  # a file
        return of_heads(words, taken)
    return parameters(options_class(named), f"{OF_HEAD} {named}")


def of_heads(
    words: Sequence[str], taken: Iterable[str] = (), at_solve: bool = False
) -> list[inspect.Parameter]:
    """One parameter for each option that some head has; ``at_solve``: that `solve` may change.

    Heads whose module is heavy are looked at for words that no other option explains. ``taken``:
    options that the command has itself.
    """
    found: dict[str, inspect.Parameter] = {}
    flags = {word.partition("=")[0] for word in words if word.startswith("-")} - {"-o"}
    for names in ([name for name in OF_MODULES if name in HEADS.data], OPTIONS):
        for name in names:
            cls = options_class(name)
            only = cls.changeable() if at_solve else fields_of(cls).keys()
            skip = fields_of(cls).keys() - only
            said = dict.fromkeys(fields_of(cls), "default: by the head")
            for p in parameters(cls, OF_HEAD, skip=skip, defaults=said):
                found.setdefault(p.name, p)
        if flags <= {*map(flag, found), *map(flag, taken)}:
            break
    return list(found.values())


def _after(option: str, words: Sequence[str]) -> str:
    for word, follows in pairwise([*words, ""]):
        if word == option or word.startswith(f"{option}="):
            return follows if word == option else word.partition("=")[2]
    return ""


# ---------------------------------------------------------------- Typer's parameters


def typer_command(
    name: str,
    about: str | None,
    call: Call,
    given: Iterable[inspect.Parameter],
    common: frozenset[str] = frozenset(),
) -> TyperCommand:
    """A command of Typer whose parameters are these, with --help-all.

    ``common``: what ``-h`` shows of the options that a command has in its own class.
    """

    def command(help_all: bool, **values: Any) -> None:
        with errors_as_exit():
            call(**values)

    shows = typer.Option(
        "--help-all", is_eager=True, callback=show_every_option, help="show every option"
    )
    every_option = inspect.Parameter(
        "help_all", KEYWORD, default=False, annotation=Annotated[bool, shows]
    )
    every = sorted([*given, every_option], key=lambda p: p.default is not p.empty)
    for p in given if common else ():
        if not isinstance(described := get_args(p.annotation)[1], typer.models.ArgumentInfo):
            described.hidden = p.name not in common
    made: Any = command  # to mypy a function has no such attribute; Typer reads it
    made.__signature__ = inspect.Signature(every)
    made.__annotations__ = {p.name: p.annotation for p in every}
    info = CommandInfo(name, cls=_Command, callback=made, help=about, context_settings=HELP)
    found = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    assert isinstance(found, TyperCommand)
    return found


class _Command(TyperCommand):
    """Its help shows options by their headings, and says how many it does not show."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for p in self.get_params(ctx):
            if (record := p.get_help_record(ctx)) is not None:
                of = "Arguments" if p.param_type_name == "argument" else "Options"
                of = getattr(p, "rich_help_panel", None) or of
                sections.setdefault(of, []).append(record)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        if more := sum(bool(getattr(p, "hidden", False)) for p in self.params):
            formatter.write(f"\n{more} more options: {ctx.command_path} --help-all\n")


def show_every_option(ctx: typer.Context, wanted: bool) -> None:
    """The callback of --help-all."""
    if wanted:
        for one in ctx.command.params:
            one.hidden = False  # type: ignore[attr-defined]  # Typer's have it
        say_lines(f"{ctx.get_help()}\n")
        raise typer.Exit


def parameters(
    cls: Any,
    panel: str | None = None,
    *,
    skip: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    required: bool = True,
    defaults: Mapping[str, str] | None = None,
) -> list[inspect.Parameter]:
    """A parameter for each field of a class; None stands for "not given".

    ``rename``: other names, where two classes have a field of one name; ``required``: a field
    without a default has to be given; ``defaults``: what the help says of others here.
    """
    found, first = [], positional(cls)
    every = fields_of(cls)
    for own in _leaf_first(cls):
        info = every[own]
        if own in skip or holds_options(info):
            continue
        name, hint = (rename or {}).get(own, own), shell_type(info)
        needed = required and info.is_required()
        text = help_of(info, (defaults or {}).get(name))
        if own in first:
            metavar = name.upper() + ("..." if get_origin(hint) is list else "")
            described: Any = typer.Argument(help=info.description, metavar=metavar)
        else:
            described = typer.Option(
                flag(name), *["-o"] * (name == "out"), help=text, rich_help_panel=panel,
                autocompletion=_completion(info),
            )  # fmt: skip
        default = inspect.Parameter.empty if needed else None
        shown: Any = Annotated[hint if needed else hint | None, described]
        found.append(inspect.Parameter(name, KEYWORD, default=default, annotation=shown))
    return found


def _leaf_first(cls: Any) -> list[str]:
    """The fields of a class, those of its bases after its own."""
    own = (vars(one).get("__annotations__", {}) for one in cls.__mro__)
    return [
        name for name in dict.fromkeys(n for names in own for n in names) if name in fields_of(cls)
    ]


def shell_type(info: Any) -> Any:
    """What Typer makes of a word; a value with a grammar, or of several types, is text."""
    kinds = kinds_of(info)
    if get_origin(kinds[0]) is tuple:
        inner = get_args(kinds[0])[0]
        return list[inner]  # type: ignore[valid-type]  # for Typer alone
    parsed = any(isinstance(m, WrapValidator) for m in info.metadata)
    plain = len(kinds) == 1 and kinds[0] in (bool, int, float, Path)
    return kinds[0] if plain and not parsed else str


def _completion(info: Any) -> Callable[[str], list[str]] | None:
    """The values of a field that the shell completes; none unless they are words."""
    if not choices_of(info) and not info.examples:
        return None
    return lambda incomplete: [
        word for word in choices_of(info) or info.examples if word.startswith(incomplete)
    ]


# ---------------------------------------------------------------- results


def show(made: Any, as_json: bool) -> None:
    """The result of a stage, a file or several: a path a line, or what is in them as JSON."""
    if isinstance(made, dict):
        print_json(made)
        return
    if not as_json:
        for path in [made] if isinstance(made, Path) else made:
            say(path)
    elif isinstance(made, Path) and not made.is_dir():
        print_json(_facts(made))
    else:
        paths = sorted(made.glob("*.h5")) if isinstance(made, Path) else made
        print_json([_facts(path) for path in paths])


def _facts(path: Path) -> dict[str, Any]:
    """What is in a file of afltool; of another one, such as a picture, its size and SHA-256."""
    from ..stages.inspect import info
    from ..values.arrays import file_sha256

    if path.suffix in (".h5", FROZEN):
        return info(path)
    return {"path": str(path), "bytes": path.stat().st_size, "sha256": file_sha256(path)}


def tracking(where: str | None) -> AbstractContextManager[None]:
    """In this block runs, studies and baselines are logged; what logs is loaded only for that."""
    if where is None:
        return nullcontext()
    from ..plans.tracking import tracked

    return tracked(where)


def show_folder(
    folder: Path, summary: str, as_json: bool, print_summary: Callable[[dict[str, Any]], None]
) -> None:
    """The result of a command that fills a folder, and on stderr what its summary says."""
    facts = json.loads((folder / summary).read_text())
    if as_json:
        print_json({"path": str(folder), **facts})
        return
    if not is_quiet():
        print_summary(facts)
    say(folder)
