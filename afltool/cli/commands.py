"""A command from the class of its options: arguments, options, help, errors.

Each field of the class is a parameter of the shell. A dictionary with options of something else,
such as the head that the command line names, stands for these options, each by its own name.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic import WrapValidator
from typer.core import TyperCommand
from typer.main import get_command_from_info
from typer.models import ArgumentInfo, CommandInfo

from ..errors import InputError, UsageError
from ..inputs import iter_lines
from ..options import base
from ..options.base import STREAM, files_in, flag, get_fields, get_types, get_word
from ..options.common import refuse_files
from ..plugins import import_object
from ..progress import log
from ._console import command as errors_as_exit
from ._console import print_json, print_line, print_lines

HELP = {"help_option_names": ["-h", "--help"]}
WITHIN = "__"  # between a dictionary's name and an option's, in a parameter's name in Python
FEW = 10  # options that -h shows if nothing is said of it
Call = Callable[..., Any]


@dataclass(frozen=True)
class Parameter:
    """A parameter of the shell, ``name`` in Python: the field ``own`` of a class of options."""

    name: str
    cls: Any
    own: str
    kind: Any  # what Typer makes of a word; None stands for "not given", where it need not be
    described: Any  # Typer's argument or option


@dataclass(frozen=True)
class Command:
    """A command; what is a text, MODULE:NAME, is below `afltool`.

    ``about``: one line, for the list of all commands; ``panel``: its heading there. ``options``:
    the class whose fields are its parameters. Its `Options.PRINTS` takes such an object and prints;
    otherwise what ``stage``, or its `Options.STAGE`, returns, a path or several, is shown. The
    function of a `Flat` field gets (words, names that are taken, ``given``) and gives `Parameter`s.
    ``inside``, for a group: its commands by name, of the word behind its own; of a word that is
    none of them, or empty, all. ``says``: its help, if that is not the text of the class;
    ``given``: fields that its name decides.
    """

    about: str
    panel: str
    options: str | type[Any] = ""
    stage: Call | None = None
    inside: str | Call = ""
    says: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)

    def build(self, name: str, words: Sequence[str]) -> Any:
        """Typer's command; ``words`` behind its name say which head's options it takes."""
        cls = resolve(self.options)
        every = parameters(cls, skip=self.given)
        taken = {p.name for p in every}
        for within, info in get_fields(cls).items():
            if (flat := get_word(info, base.Flat)) is not None:
                found = resolve(flat)(words, taken, self.given)
                taken |= {p.name for p in found}
                every += [replace(p, name=f"{within}{WITHIN}{p.name}") for p in found]

        def call(**values: Any) -> None:
            found = {k: v for k, v in expand_piped(cls, values).items() if v not in (None, [])}
            nested: dict[str, Any] = {}
            for key, value in found.items():
                within, _, own = key.rpartition(WITHIN)
                inner = nested.setdefault(within, {}) if within else nested
                inner[own] = tuple(value) if isinstance(value, list) else value
            named = (files_in(p.cls, {p.own: found[p.name]}) for p in every if p.name in found)
            refuse_files(one for files in named for one in files)
            o = cls(**self.given, **nested)
            if cls.PRINTS:
                resolve(cls.PRINTS)(o)
                return
            made = (self.stage or resolve(cls.STAGE))(o)
            if cls.TELLS:
                resolve(cls.TELLS)(made)
            show(made)

        return typer_command(name, self.says or cls.__doc__, call, every, cls.COMMON)


def first_line(text: str | None) -> str:
    """What the list of all commands says of one."""
    return (text or "").partition("\n")[0]


def resolve(what: Any) -> Any:
    """What a text MODULE:NAME stands for, below `afltool`."""
    return import_object(f"...{what}", __name__) if isinstance(what, str) else what


def expand_piped(cls: Any, values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values; '-' in one of the inputs is what the command before has printed, a path a line.

    `UsageError` where two inputs are '-'; `InputError` where no path comes, or several for one.
    """
    roles = ((name, get_word(info, base.Reads)) for name, info in get_fields(cls).items())
    given = ((name, values.get(name)) for name, role in roles if role not in (None, base.LINES))
    each = [(name, one) for name, v in given for one in (v if isinstance(v, list) else [v])]
    asked = [name for name, one in each if str(one) == STREAM]
    if not asked:
        return values
    if len(asked) > 1:
        raise UsageError("- is what the command before has printed: give it once")
    [name], found = asked, [Path(line) for line in iter_lines(sys.stdin)]
    several = isinstance(values[name], list)
    if not found or (len(found) > 1 and not several):
        wanted = "one path" if found else "a path"
        raise InputError(f"stdin: expected {wanted} for {name}, found {len(found) or 'none'}")
    every = [found if str(p) == STREAM else [p] for p in values[name]] if several else []
    return {**values, name: [p for paths in every for p in paths] if several else found[0]}


# ---------------------------------------------------------------- Typer's parameters


def typer_command(
    name: str, about: str | None, call: Call, every: Sequence[Parameter], common: frozenset[str]
) -> TyperCommand:
    """A command of Typer whose parameters are these, with --help-all.

    ``common``: what ``-h`` shows; if it is empty, the first, or what is common in their classes.
    """

    def command(help_all: bool | None, **values: Any) -> None:
        with errors_as_exit():
            call(**values)

    options = [p for p in every if not isinstance(p.described, ArgumentInfo)]
    left = len(options) if common else FEW
    for p in options if common or len(options) > FEW else ():
        shown, own = common or p.cls.COMMON, p.name.rpartition(WITHIN)[2]
        p.described.hidden = not left or (bool(shown) and own not in shown)
        left -= not p.described.hidden
    more = sum(p.described.hidden for p in options)
    shows = typer.Option(
        "--help-all",
        is_eager=True,
        callback=show_every_option,
        help=f"show every option: {more} more",
        hidden=not more,
    )
    whole, named = [*every, Parameter("help_all", None, "", bool | None, shows)], inspect.Parameter
    hints = {p.name: Annotated[p.kind, p.described] for p in whole}
    none = {p.name: None if type(None) in get_args(p.kind) else named.empty for p in whole}
    made: Any = command  # to mypy a function has no such attributes; Typer reads them
    made.__annotations__ = hints
    made.__signature__ = inspect.Signature(
        [named(n, named.KEYWORD_ONLY, default=none[n], annotation=hints[n]) for n in hints]
    )
    info = CommandInfo(name, cls=TyperCommand, callback=made, help=about, context_settings=HELP)
    found = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    assert isinstance(found, TyperCommand)
    return found


def show_every_option(ctx: typer.Context, wanted: bool) -> None:
    """The callback of --help-all."""
    if wanted:
        for one in ctx.command.params:
            one.hidden = False  # type: ignore[attr-defined]  # Typer's have it
        print_lines(f"{ctx.get_help()}\n")
        raise typer.Exit


def parameters(
    cls: Any,
    *,
    skip: Iterable[str] = (),
    rename: Mapping[str, str] | None = None,
    required: bool = True,
    defaults: Mapping[str, str] | None = None,
) -> list[Parameter]:
    """A parameter for each field of a class, its own before those of its bases.

    A value with a grammar, or of several types, is text.

    ``rename``: other names, where two classes have a field of one name; ``required``: a field
    without a default has to be given; ``defaults``: what the help says of others here.
    """
    found, every, first = [], get_fields(cls), base.positional(cls)
    names = dict.fromkeys(n for one in cls.__mro__ for n in vars(one).get("__annotations__", ()))
    for own in (name for name in names if name in every and name not in skip):
        info, name = every[own], (rename or {}).get(own, own)
        if get_word(info, base.Flat):
            continue
        kinds = get_types(info)
        plain = len(kinds) == 1 and kinds[0] in (bool, int, float, Path)
        kind: Any = kinds[0] if plain and get_word(info, WrapValidator) is None else str
        if get_origin(kinds[0]) is tuple:
            kind = list[get_args(kinds[0])[0]]  # type: ignore[misc]  # for Typer alone
        if own in first:
            described: Any = typer.Argument(help=info.description, metavar=name.upper())
        else:
            says = base.make_help(info, (defaults or {}).get(name))
            described = typer.Option(flag(name), *["-o"] * (name == "out"), help=says)
        kind = kind if required and info.is_required() else kind | None
        found.append(Parameter(name, cls, own, kind, described))
    return found


# ---------------------------------------------------------------- results


def show(made: Any) -> None:
    """The result of a stage, a file or several: a path a line; facts as JSON."""
    if isinstance(made, dict):
        print_json(made)
        return
    for path in [made] if isinstance(made, Path) else made:
        print_line(path)


def tracking(where: str | None) -> AbstractContextManager[None]:
    """In this block runs, studies and baselines are logged; what logs is loaded only for that."""
    if where is None:
        return nullcontext()
    from ..runs.tracking import tracking

    return tracking(where)


def show_folder(
    folder: Path, summary: str, as_json: bool, print_summary: Callable[[dict[str, Any]], None]
) -> None:
    """The result of a command that fills a folder, and on stderr what its summary says."""
    facts = json.loads((folder / summary).read_text())
    if as_json:
        print_json({"path": str(folder), **facts})
        return
    if log.isEnabledFor(logging.INFO):
        print_summary(facts)
    print_line(folder)
