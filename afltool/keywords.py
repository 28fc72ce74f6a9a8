"""Stages as programs call them: options are keywords, paths may be texts.

Inside the package a stage takes one object of its options, ``solve(total, out, SolveOptions())``;
from outside it is ``afltool.solve("total.h5", "head.h5", threads=2, ridge="auto")``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from functools import cache, wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from .heads import OPTIONS
from .inputs import distinct_files, given_path
from .options import Options, input_type, made
from .options.shared import of_options, of_parameter, refuse_shared
from .values.parsed import text_form

TAKEN = "options"  # the parameter of a stage that is its options; outside, those of its head
HEAD = "head_options"  # another name for those of its head
AXES = "axes"  # the one of a study with options of its cells
MORE = "more"  # other keywords: options of its head, or of cells
#: What a run hands to a stage: programs have none, and `local_stats` an option of the name cache.
OF_RUNS = ("cache", "task")


@cache
def by_keywords(stage: Callable[..., Any]) -> Callable[..., Any]:
    """A stage whose options are keywords, and those of its head; a path may be a text.

    As its command does, it refuses to write a file that it reads. A keyword that is no option is a
    `TypeError` with the stage's name, a required option that is missing a `UsageError`.
    """
    own = inspect.signature(stage, eval_str=True)
    own = own.replace(parameters=[p for p in own.parameters.values() if p.name not in OF_RUNS])
    cls = options_class(own)
    shown = _shown(own, cls)

    @wraps(stage)
    def function(*args: Any, **given: Any) -> Any:
        bound = _bound(stage.__name__, shown, args, given)
        files = {p.name: p for p in own.parameters.values() if p.name in bound}
        paths = {k: _with_paths(p.annotation, bound.pop(k)) for k, p in files.items()}
        reads = [(k, one, paths[k]) for k, p in files.items() if (one := of_parameter(p))]
        with distinct_files():
            if cls is not None:
                paths[TAKEN] = made(cls, bound)
                reads += of_options(paths[TAKEN])
            refuse_shared(reads)
            return stage(**paths)

    # To mypy a function has no such attribute; `inspect.signature` reads it.
    function.__signature__ = shown  # type: ignore[attr-defined]
    return function


def options_class(own: Signature) -> type[Options] | None:
    """The class of the options that a stage takes; None for one without."""
    return own.parameters[TAKEN].annotation if TAKEN in own.parameters else None


def _shown(own: Signature, cls: type[Options] | None) -> Signature:
    """The signature of the keyword form."""
    of_class = [] if cls is None else [_parameter(cls, f) for f in fields(cls)]
    names = {TAKEN, *(p.name for p in of_class)}
    every = [*of_class, *(p for p in own.parameters.values() if p.name not in names)]
    if HEAD in own.parameters:
        every += [own.parameters[HEAD].replace(name=TAKEN)]
    if {HEAD, AXES} & own.parameters.keys():
        every += [Parameter(MORE, Parameter.VAR_KEYWORD)]
    return own.replace(parameters=sorted(every, key=lambda p: p.kind))


def _parameter(cls: type[Options], f: Field[Any]) -> Parameter:
    first = f.name in cls.POSITIONAL
    kind = Parameter.POSITIONAL_OR_KEYWORD if first else Parameter.KEYWORD_ONLY
    default = Parameter.empty if f.default is MISSING else text_form(f.default)
    return Parameter(f.name, kind, default=default, annotation=input_type(f))


def _bound(
    name: str, shown: Signature, args: tuple[Any, ...], given: Mapping[str, Any]
) -> dict[str, Any]:
    """What was given, by the names of the stage's parameters and options."""
    try:
        bound = shown.bind_partial(*args, **given).arguments
    except TypeError as error:
        raise TypeError(f"{name}() {error}") from None
    more = bound.pop(MORE, {})
    if AXES in shown.parameters:
        bound[AXES] = {**(bound.get(AXES) or {}), **more}
    if HEAD in shown.parameters:
        known = {f.name for cls in OPTIONS.values() for f in fields(cls)}
        if strangers := sorted(more.keys() - known):
            raise TypeError(f"{name}() got an unexpected keyword argument {strangers[0]!r}")
        mappings = (bound.pop(TAKEN, None), bound.pop(HEAD, None), more)
        bound[HEAD] = {k: v for one in mappings for k, v in (one or {}).items()}
    return bound


def _with_paths(annotation: Any, value: Any) -> Any:
    """The value of a parameter, with paths for texts; one path stands for a list of it."""
    kind = str(annotation)
    if "Path" not in kind or "str" in kind or value is None:
        return value
    if "Sequence[" in kind:
        several = [value] if isinstance(value, (str, Path)) else value
        return [given_path(one) for one in several]
    return given_path(value)
