"""Writes afltool/__init__.pyi, what editors and type checkers know of `afltool.solve(…)`.

python docs/make_stubs.py
"""

from __future__ import annotations

import inspect
from dataclasses import fields
from inspect import Parameter
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import afltool
from afltool.heads import OPTIONS
from afltool.keywords import HEAD, MORE
from afltool.options import input_type

STUB = Path(afltool.__file__).with_suffix(".pyi")
HEADER = '''"""Made by `python docs/make_stubs.py` from the options of the stages; do not edit."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
'''
PATH, PATHS, TEXTS = "str | Path", "str | Path | Sequence[str | Path]", "str | Sequence[str]"
GIVEN = {"Path": PATH, "tuple[Path, ...]": PATHS, "Sequence[Path]": PATHS, "tuple[str, ...]": TEXTS,
         "tuple[int, ...]": "Sequence[int]"}  # fmt: skip


def stub() -> str:
    """The text of the stub: every name of the package."""
    imports: set[str] = set()
    functions = []
    for name in afltool.__all__:
        found = getattr(afltool, name)
        module, own = afltool._WHERE[name].split(":")
        if isinstance(found, type):
            imports.add(f"from .{module} import {own} as {own}")
        else:
            functions.append(function(name, found, imports))
    return "\n".join([HEADER, *sorted(imports), "", "__version__: str", "", *functions, ""])


def function(name: str, found: Any, imports: set[str]) -> str:
    """One function: a line a parameter."""
    shown = inspect.signature(found)
    lines, keywords = [], False
    for p in every(name, shown):
        if p.kind is Parameter.KEYWORD_ONLY and not keywords:
            lines.append("    *,")
            keywords = True
        star = "**" if p.kind is Parameter.VAR_KEYWORD else ""
        default = "" if p.default is p.empty else " = ..."
        lines.append(f"    {star}{p.name}: {taken(p.annotation, imports)}{default},")
    returned = text(shown.return_annotation, imports)
    return "\n".join([f"def {name}(", *lines, f") -> {returned}: ..."])


def every(name: str, shown: inspect.Signature) -> list[Parameter]:
    """The parameters of a function; of a head the options of all heads."""
    found = dict(shown.parameters)
    more = [found.pop(MORE).replace(annotation=Any)] if MORE in found else []
    if HEAD not in found:
        return [*found.values(), *more]
    for one, kinds in of_heads(at_solve=name == "solve").items():
        kind = " | ".join(dict.fromkeys(" | ".join(kinds).split(" | ")))
        p = Parameter(one, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        found.setdefault(one, p)
    return list(found.values())


def of_heads(at_solve: bool) -> dict[str, list[str]]:
    """The options of all heads, with their types in each."""
    found: dict[str, list[str]] = {}
    for cls in OPTIONS.values():
        for f in fields(cls):
            if f.metadata["at_solve"] or not at_solve:
                found.setdefault(f.name, []).append(text(input_type(f), set()))
    return found


def taken(annotation: Any, imports: set[str]) -> str:
    """The type of what may be given for a parameter."""
    kinds = text(annotation, imports).split(" | ")
    given = [one for kind in kinds for one in GIVEN.get(kind, kind).split(" | ")]
    return " | ".join(dict.fromkeys(given))


def text(annotation: Any, imports: set[str]) -> str:
    """A type as a stub says it; classes of the package are imported."""
    if isinstance(annotation, str):
        return annotation
    if get_origin(annotation) is UnionType:
        return " | ".join(text(one, imports) for one in get_args(annotation))
    if annotation is Ellipsis:
        return "..."
    if inner := get_args(annotation):
        name = getattr(annotation, "__name__", str(annotation))
        return f"{name}[{', '.join(text(one, imports) for one in inner)}]"
    if annotation is NoneType:
        return "None"
    name: str = getattr(annotation, "__name__", str(annotation))
    module = getattr(annotation, "__module__", "")
    if module.startswith("afltool."):
        imports.add(f"from {module.removeprefix('afltool')} import {name} as {name}")
    return name


if __name__ == "__main__":
    STUB.write_text(stub())
    print(STUB)
