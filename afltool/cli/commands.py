"""A command from the class of its options: arguments, options, help, errors.

Each field of the class is a parameter of the shell; ``head_options`` stands for the options of the
head that the command line names, each by its own name.
"""

from __future__ import annotations

import inspect
import json
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

from ..errors import UsageError
from ..heads import HEADS, OPTIONS, options_class
from ..heads.options import OF_MODULES, HeadOptions
from ..options.base import (
    choices_of,
    fields_of,
    flag,
    help_of,
    holds_options,
    kinds_of,
    positional,
)
from ..options.common import FROZEN
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
        options: the class whose fields are its parameters; a text, MODULE:NAME, is of
            `afltool.options`.
        call: what takes such an object and whether --json was given, and prints; a text names a
            function of `cli.calls`. Otherwise ``stage``, or the class's own `Options.STAGE`, takes
            the object, and what it returns, a path or several, is shown.
        make: instead of these, what makes Typer's command of the words behind its name; a text,
            MODULE:NAME, is of `afltool.cli`.
    """

    about: str
    panel: str
    options: str | type[Any] = ""
    call: str | Call | None = None
    stage: Call | None = None
    make: str | Call | None = None

    def build(self, name: str, words: Sequence[str]) -> Any:
        """Typer's command; ``words`` behind its name say which head's options it takes."""
        if self.make is not None:
            return _of("cli.", self.make)(words)
        cls = _of("options.", self.options)
        given = parameters(cls, skip={"as_json"})
        names = [p.name for p in (*given, JSON)]
        of_head = head_parameters(name, words, names) if "head_options" in fields_of(cls) else []
        of_head = [p.replace(name=IN_HEAD + p.name) for p in of_head]  # FEATURES, --features

        def call(as_json: bool, **values: Any) -> None:
            o = cls(**apart(values, of_head, "head_options"))
            if self.call is not None:
                _of("cli.calls:", self.call)(o, as_json)
                return
            made = (self.stage or _of("", cls.STAGE))(o)
            if cls.TELLS and not as_json:
                _of("", cls.TELLS)(made)
            show(made, as_json)

        shown = {IN_HEAD + name for name in HeadOptions.COMMON} | {*names}
        return typer_command(
            name, cls.__doc__, call, [*given, *of_head, JSON], cls.COMMON or frozenset(shown)
        )


def _of(place: str, what: Any) -> Any:
    """What a text stands for, MODULE:NAME below `afltool`; what is no text is itself."""
    return located(f"...{place}{what}", __name__) if isinstance(what, str) else what


def apart(
    values: Mapping[str, Any], some: Iterable[inspect.Parameter], name: str
) -> dict[str, Any]:
    """The values that were given, those of ``some`` parameters in a dictionary of this name."""
    found = {k: v for k, v in values.items() if v is not None and v != []}
    inner = {p.name.removeprefix(IN_HEAD): found.pop(p.name) for p in some if p.name in found}
    return {**found, name: inner} if some or inner else found


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
    hidden = [p for p in given if common and not _is_common(p, common)]

    def command(help_all: bool, **values: Any) -> None:
        with errors_as_exit():
            call(**values)

    every = sorted([*given, _HELP_ALL], key=lambda p: p.default is not p.empty)
    for p in hidden:
        get_args(p.annotation)[1].hidden = True
    made: Any = command  # to mypy a function has no such attribute; Typer reads it
    made.__signature__ = inspect.Signature(every)
    made.__annotations__ = {p.name: p.annotation for p in every}
    info = CommandInfo(name, cls=_Command, callback=made, help=about, context_settings=HELP)
    found = get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)
    assert isinstance(found, TyperCommand)
    return found


def _is_common(p: inspect.Parameter, common: frozenset[str]) -> bool:
    return p.name in common or isinstance(get_args(p.annotation)[1], typer.models.ArgumentInfo)


class _Command(TyperCommand):
    """Its help shows options by their headings, and says how many it does not show."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for p in self.get_params(ctx):
            if (record := p.get_help_record(ctx)) is not None:
                of = "Arguments" if p.param_type_name == "argument" else _heading(p)
                sections.setdefault(of, []).append(record)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)
        if more := sum(bool(getattr(p, "hidden", False)) for p in self.params):
            formatter.write(f"\n{more} more options: {ctx.command_path} --help-all\n")


def _heading(p: Any) -> str:
    return getattr(p, "rich_help_panel", None) or "Options"


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
                *_flags(name), help=text, rich_help_panel=panel,
                autocompletion=_completion(info), metavar=_metavar(hint),
            )  # fmt: skip
        found.append(_parameter(name, hint if needed else hint | None, described, needed))
    return found


def _leaf_first(cls: Any) -> list[str]:
    """The fields of a class, those of its bases after its own."""
    own = (vars(one).get("__annotations__", {}) for one in cls.__mro__)
    return [
        name for name in dict.fromkeys(n for names in own for n in names) if name in fields_of(cls)
    ]


def _flags(name: str) -> tuple[str, ...]:
    return ("--out", "-o") if name == "out" else (flag(name),)


def _parameter(name: str, hint: Any, described: Any, needed: bool) -> inspect.Parameter:
    default = inspect.Parameter.empty if needed else None
    return inspect.Parameter(name, KEYWORD, default=default, annotation=Annotated[hint, described])


def _metavar(hint: Any) -> str | None:
    """What stands for a value: None of a flag."""
    kind = next(iter(get_args(hint)), hint)
    return {bool: None, int: "N", float: "X", Path: "PATH"}.get(kind, "TEXT")


def switch(name: str, text: str, *flags: str) -> inspect.Parameter:
    """A flag of a command itself."""
    described = typer.Option(*(flags or (flag(name),)), help=text)
    return inspect.Parameter(name, KEYWORD, default=False, annotation=Annotated[bool, described])


def option(name: str, hint: Any, text: str, *flags: str, panel: str | None = None) -> Any:
    """An option of a command itself; None where it is not given."""
    described = typer.Option(
        *(flags or _flags(name)), help=text, rich_help_panel=panel, metavar=_metavar(hint)
    )
    return _parameter(name, hint | None, described, False)


def argument(name: str, hint: Any, text: str, needed: bool = True) -> inspect.Parameter:
    """An argument of a command itself."""
    described = typer.Argument(help=text, metavar=name.upper())
    return _parameter(name, hint if needed else hint | None, described, needed)


JSON = switch("as_json", "print JSON instead of a path or a table", "--json")
OVERWRITE = switch("overwrite", "replace an existing output")
FIELD = option("name", str, "print only this field, such as digest or report.ridge", "--field")
TRACK = option("track", str, "also log it to MLflow: mlflow:URI, such as mlflow:sqlite:///runs.db")
_HELP_ALL = inspect.Parameter(
    "help_all",
    KEYWORD,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option(
            "--help-all", is_eager=True, callback=show_every_option, help="show every option"
        ),
    ],
)


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


def show_found(
    facts: dict[str, Any],
    name: str | None,
    as_json: bool,
    source: Path,
    print_it: Callable[[dict[str, Any]], None],
) -> None:
    """What a command found: one field for a script (a text without quotes), JSON, or a table."""
    if name is not None and as_json:
        raise UsageError("--json is not used with --field: leave one of them out")
    if name is None:
        print_json(facts) if as_json else print_it(facts)
        return
    from ..stages.inspect import field

    value = field(facts, name, source)
    say(value) if isinstance(value, str) else print_json(value, indent=None)
