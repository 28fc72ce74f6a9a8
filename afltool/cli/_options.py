"""Command-line options made from option classes, where everything about them is declared.

A command is a function that takes its files by Typer's own declarations, and its options as an
object of their class. Where it is a dict instead, it holds only the options that the user gave::

    def solve(total: …, out: Out, options: SolveOptions, head_options: dict[str, Any]) -> None: ...

    add(app, "solve", solve, head_options=partial(of_heads, at_solve=True))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from ..heads import OPTIONS
from ..options import Options, flag, help_of, made
from ..options.fields import input_type, kinds_of
from ..options.files import Given, of_field, of_parameter, refuse_shared
from ..options.used_with import Only, OnlyWith, refuse_unused_words
from ._console import command
from ._help import OF_HEADS, RARE
from ._later import add_later

#: Headings of the options of `run` in its help, by stage.
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
#: Types that the shell converts to. If a field allows several, the first one counts; others are
#: text.
_TYPES = (bool, int, float, Path)
KEYWORD_ONLY = inspect.Parameter.KEYWORD_ONLY


def starting_with(words: Iterable[str]) -> Callable[[str], list[str]]:
    """What the shell offers for a value: those of ``words`` that begin so."""
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def parameters(
    cls: Any,
    panel: str | None = None,
    *,
    skip: Iterable[str] = (),
    only: Callable[[Field[Any]], bool] = lambda f: True,
    rename: Mapping[str, str] | None = None,
    rare: bool = False,
    text: Callable[[Field[Any]], str] = help_of,
) -> list[inspect.Parameter]:
    """A keyword parameter for each field of an options class; None stands for "not given".

    Args:
        panel: their heading in the help.
        skip, only: which fields are left out, or taken.
        rename: other names, where two classes have a field of one name.
        rare: options that are not common are shown by ``--help-all`` only.
        text: what the help says of a field.
    """
    names, found = rename or {}, []
    for f in _own_first(cls):
        if "help" in f.metadata and f.name not in set(skip) and only(f):
            name = names.get(f.name, f.name)
            hidden = rare and not f.metadata["common"]
            heading = f"{panel or 'Options'}{RARE}" if hidden else panel
            described = typer.Option(
                flag(name), help=text(f), rich_help_panel=heading, autocompletion=_completion(f)
            )
            kind: Any = Annotated[_from_shell(f) | None, described, of_field(f)]
            found += [inspect.Parameter(name, KEYWORD_ONLY, default=None, annotation=kind)]
    return found


def _own_first(cls: Any) -> list[Field[Any]]:
    """The fields of a class, those of its base classes last."""
    own = vars(cls).get("__annotations__", {})
    return sorted(fields(cls), key=lambda f: f.name not in own)


def _completion(f: Field[Any]) -> Callable[[str], list[str]] | None:
    """The values of a field that the shell completes; none unless they are words."""
    words = f.metadata.get("choices") or f.metadata.get("examples")
    return starting_with(words) if words else None


def _from_shell(f: Field[Any]) -> Any:
    """The type that the shell gives: a number or 'auto' is text, several values are a list."""
    kinds = kinds_of(input_type(f))
    if kinds[0].startswith("tuple"):
        return list[Path] if "Path" in kinds[0] else list[str]
    return str if "str" in kinds else next((t for t in _TYPES if t.__name__ in kinds), str)


def add(app: typer.Typer, name: str, function: Callable[..., Any], **groups: Any) -> None:
    """Make ``function`` a command; a group is an option class, parameters, or what makes them.

    A parameter of the function whose type is an option class is a group, too.
    """

    def make() -> Callable[..., Any]:
        own = inspect.signature(function, eval_str=True)
        every = {**_classes(own), **groups}
        ordered = {name: every[name] for name in own.parameters if name in every}
        found = {name: _parameters(group) for name, group in ordered.items()}
        return command(with_options(function, **found))

    add_later(app, name, function.__doc__, make)


def _parameters(group: Any) -> list[inspect.Parameter]:
    if isinstance(group, type):
        return parameters(group)
    found: list[inspect.Parameter] = group() if callable(group) else group
    return found


def _classes(own: inspect.Signature) -> dict[str, type[Options]]:
    """The parameters of a command that are objects of options, with their classes."""
    kinds = {name: p.annotation for name, p in own.parameters.items()}
    return {k: c for k, c in kinds.items() if isinstance(c, type) and issubclass(c, Options)}


def with_options(
    function: Callable[..., Any], **groups: Iterable[inspect.Parameter]
) -> Callable[..., Any]:
    """``function(…, NAME)`` as a command with each option of the group NAME as a parameter.

    NAME is an object of an option class, or a dict of the options that were given, by the names of
    the parameters. Two groups may not have an option of one name; the function's own parameters
    (its files) may. An output that is an input is refused before the function is called.
    """
    own = inspect.signature(function, eval_str=True)
    classes, listed = _classes(own), {group: [*found] for group, found in groups.items()}
    kept = [p for p in own.parameters.values() if p.name not in groups]
    first = [p for p in kept if p.default is p.empty]
    taken = {p.name for p in kept}
    inner = {
        f"{p.name}_" if p.name in taken else p.name: (group, p)
        for group, found in listed.items()
        for p in found
    }
    added = [p.replace(name=name) for name, (_, p) in inner.items()]
    if len(added) < sum(map(len, listed.values())):
        raise TypeError(f"{function.__name__}: two groups have an option of one name")

    def wrapper(**values: Any) -> Any:
        refuse_shared(_files(every, values))
        refuse_unused_words(_given(every, values), only_with(every))
        chosen: dict[str, Any] = {group: {} for group in groups}
        for name, (group, p) in inner.items():
            value = values.pop(name)
            if value is not None and value != []:
                chosen[group][p.name] = tuple(value) if isinstance(value, list) else value
        chosen |= {group: made(cls, chosen[group]) for group, cls in classes.items()}
        return function(**values, **chosen)

    wrapper.__name__, wrapper.__doc__ = function.__name__, function.__doc__
    last = [p for p in kept if p.default is not p.empty]
    every = [*(p.replace(kind=KEYWORD_ONLY) for p in first), *added]
    every += [p.replace(kind=KEYWORD_ONLY) for p in last]
    # To mypy a function has no such attribute; Typer reads it.
    wrapper.__signature__ = own.replace(parameters=every)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in every}
    return wrapper


def _files(every: Iterable[inspect.Parameter], values: Mapping[str, Any]) -> Iterator[Given]:
    """What the values of a command's parameters say of files, by the names that people see."""
    for p in every:
        told = of_parameter(p)
        if told is not None and values.get(p.name) is not None:
            yield _seen(p), told, values[p.name]


def used_with(
    found: Iterable[inspect.Parameter], only: Only, but: Iterable[str] = ()
) -> list[inspect.Parameter]:
    """The parameters, used only with other options of the command; ``but``: names of the others."""
    kept = set(but)
    return [
        p if p.name in kept else p.replace(annotation=Annotated[p.annotation, OnlyWith(only)])
        for p in found
    ]


def only_with(every: Iterable[inspect.Parameter]) -> dict[str, Only]:
    """What options of a command are used with beside what their classes say, by names as typed."""
    return {
        _typed(p): one.only
        for p in every
        for one in get_args(p.annotation)
        if isinstance(one, OnlyWith)
    }


def _given(every: Iterable[inspect.Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that are not what stands for "not given", by names as typed."""
    pairs = ((p, values.get(p.name)) for p in every)
    return {
        _typed(p): value
        for p, value in pairs
        if value is not None and value is not False and value != [] and value != p.default
    }


def _typed(p: inspect.Parameter) -> str:
    return _seen(p).removeprefix("--").replace("-", "_")


def _seen(p: inspect.Parameter) -> str:
    """What the help calls a parameter: --option or ARGUMENT."""
    typed = [one for one in get_args(p.annotation) if hasattr(one, "param_decls")]
    # Typer takes the first name of an option for its default.
    names = [name for one in typed for name in (one.default, *(one.param_decls or ()))]
    flags = [name for name in names if isinstance(name, str) and name.startswith("--")]
    metavars = [one.metavar for one in typed if one.metavar]
    return next(iter([*flags, *metavars]), p.name.upper())


def of_heads(skip: Iterable[str] = (), at_solve: bool = False) -> list[inspect.Parameter]:
    """One parameter for each option that some head has; the help shows them head by head.

    Those that are not common are shown by ``--help-all`` only.

    ``at_solve``: only those that `solve` may still change.
    """
    found: dict[str, inspect.Parameter] = {}
    for cls in OPTIONS.values():
        for p in parameters(
            cls,
            OF_HEADS,
            skip=skip,
            only=lambda f: not at_solve or bool(f.metadata["at_solve"]),
            rare=True,
            text=lambda f: f.metadata["of_any"] or help_of(f),
        ):
            found.setdefault(p.name, p)  # of one name all have one type, and one ``of_any``
    return list(found.values())


def of_run(here: bool = True) -> list[inspect.Parameter]:
    """Every option of `run`: those of its stages and of every head.

    ``here``: also those of this machine, which jobs on a cluster do not have.
    """
    from ..plans.config import DEFAULTS, HERE, PARTS  # and the options of every stage

    found = [
        p
        for part, (cls, names) in PARTS.items()
        if here or part != HERE
        for p in parameters(
            cls,
            PANELS.get(part, part.capitalize()),
            rename=names,
            only=lambda f: bool(f.metadata["in_run"]),
            rare=True,
            text=lambda f: help_of(f, DEFAULTS.get(f.name)),
        )
    ]
    return [*found, *of_heads(skip={"seed"})]
