"""Command-line options made from the heads' option classes, so a new head needs no change here."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import Field, fields
from typing import Annotated, Any, get_type_hints

import typer

from ..heads import OPTIONS


def head_parameters(names: Iterable[str], skip: Iterable[str] = ()) -> list[inspect.Parameter]:
    """One keyword parameter for each option of these heads; None stands for 'not given'."""
    found: dict[str, inspect.Parameter] = {}
    for name in names:
        hints = get_type_hints(OPTIONS[name])
        for f in fields(OPTIONS[name]):
            if f.name not in found and f.name not in skip:
                found[f.name] = _parameter(f, hints[f.name])
    return list(found.values())


def _parameter(f: Field[Any], hint: Any) -> inspect.Parameter:
    simple = hint if hint in (int, float, bool, str) else str  # 'auto' or a number: text
    flag = "--" + f.name.replace("_", "-")
    default = "" if f.default in (False, None) else f"  [default: {f.default:g}]" if isinstance(
        f.default, (int, float)
    ) else f"  [default: {f.default}]"  # fmt: skip
    option = typer.Option(flag, help=f.metadata["help"] + default, rich_help_panel="Head")
    return inspect.Parameter(
        f.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[simple | None, option],
    )


def with_head_options(
    function: Callable[..., Any], names: Iterable[str], skip: Iterable[str] = ()
) -> Callable[..., Any]:
    """``function(…, head_options: dict)`` as a command with each option spelled out."""
    added = head_parameters(names, skip)
    own = inspect.signature(function, eval_str=True)
    kept = [p for p in own.parameters.values() if p.name != "head_options"]

    def wrapper(**given: Any) -> Any:
        chosen = {p.name: given.pop(p.name) for p in added}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        return function(**given, head_options=chosen)

    wrapper.__name__, wrapper.__doc__ = function.__name__, function.__doc__
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in kept] + added
    wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper
