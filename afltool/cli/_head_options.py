"""Command-line options made from option classes, so a new head needs no change here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import Field, fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ..heads import OPTIONS


def head_parameters(
    names: Iterable[str], skip: Iterable[str] = (), at_solve: bool = False
) -> list[inspect.Parameter]:
    """One keyword parameter for each option of these heads; None stands for 'not given'.

    ``at_solve``: only those that `solve` may still change, without their defaults. Where heads say
    different things of an option, its help says which head says what.
    """
    found: dict[str, inspect.Parameter] = {}
    texts: dict[str, dict[str, list[str]]] = {}
    for name in names:
        for parameter in parameters_of(OPTIONS[name], "Head", at_solve):
            if parameter.name not in skip:
                first = found.setdefault(parameter.name, parameter)
                said = texts.setdefault(first.name, {})
                said.setdefault(_option_of(parameter).help, []).append(name)
    for name, said in texts.items():
        if len(said) > 1:
            each = (f"{', '.join(heads)}: {text}" for text, heads in said.items())
            _option_of(found[name]).help = "; ".join(each)
    return list(found.values())


def _option_of(parameter: inspect.Parameter) -> Any:
    """Typer's description inside ``Annotated[type, description]``."""
    return parameter.annotation.__metadata__[0]


def parameters_of(cls: Any, panel: str, at_solve: bool = False) -> list[inspect.Parameter]:
    """A keyword parameter for every field of an options class that has a help text."""
    hints = get_type_hints(cls)
    shown = [f for f in fields(cls) if "help" in f.metadata]
    if at_solve:
        shown = [f for f in shown if f.metadata.get("at_solve")]
    return [_parameter(f, hints[f.name], panel, not at_solve) for f in shown]


def _parameter(f: Field[Any], hint: Any, panel: str, with_default: bool) -> inspect.Parameter:
    option = typer.Option(
        "--" + f.name.replace("_", "-"),
        help=f.metadata["help"] + (_default(f.default) if with_default else ""),
        rich_help_panel=panel,
    )
    return inspect.Parameter(
        f.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[_simple(hint) | None, option],
    )


def _simple(hint: Any) -> Any:
    """The type that the shell gives: a number or 'auto' is text."""
    for kind in (bool, int, float, Path):
        if hint in (kind, kind | None):
            return kind
    return str


def _default(value: Any) -> str:
    if value is None or value is False:
        return ""
    return f" (default: {value:g})" if isinstance(value, (int, float)) else f" (default: {value})"


def with_head_options(
    function: Callable[..., Any],
    names: Iterable[str],
    skip: Iterable[str] = (),
    more: Iterable[inspect.Parameter] = (),
    at_solve: bool = False,
) -> Callable[..., Any]:
    """``function(…, head_options: dict)`` as a command with each option spelled out.

    ``more`` are further parameters that end in the same dict; they win over options of the same
    name. Where the function has a parameter of that name, an argument's, both are kept.
    ``at_solve`` as `head_parameters`.
    """
    further = list(more)
    skipped = {*skip, *(p.name for p in further)}
    theirs = [*further, *head_parameters(names, skipped, at_solve)]
    own = inspect.signature(function, eval_str=True)
    kept = [p for p in own.parameters.values() if p.name != "head_options"]
    taken = {p.name for p in kept}
    inner = {p.name + "_" * (p.name in taken): p for p in theirs}
    added = [p.replace(name=name) for name, p in inner.items()]

    def wrapper(**given: Any) -> Any:
        chosen = {p.name: given.pop(name) for name, p in inner.items()}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        return function(**given, head_options=chosen)

    wrapper.__name__, wrapper.__doc__ = function.__name__, function.__doc__
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept] + added
    wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper
