"""The public functions as Python shows them: signatures and docstrings of `afltool.__all__`."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import griffe

import afltool


class Signatures(griffe.Extension):
    """Each public function with its signature, which is not in the source: it is of its options."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for name in afltool.__all__:
            found = getattr(afltool, name)
            if inspect.isfunction(found):
                pkg.set_member(name, function(name, found, pkg))


def function(name: str, found: Any, pkg: griffe.Module) -> griffe.Function:
    """What griffe knows of a function of the source, from the function itself."""
    signature = inspect.signature(found)
    parameters = (
        griffe.Parameter(
            p.name,
            annotation=text_of(p.annotation),
            kind=getattr(griffe.ParameterKind, p.kind.name.lower()),
            default=None if p.default is p.empty else repr(p.default),
        )
        for p in signature.parameters.values()
    )
    made = griffe.Function(
        name,
        parameters=griffe.Parameters(*parameters),
        returns=text_of(signature.return_annotation),
        parent=pkg,
    )
    made.docstring = griffe.Docstring(markdown(inspect.getdoc(found) or ""), parent=made)
    return made


def text_of(annotation: Any) -> str | None:
    """A type as the source would have it."""
    if annotation is inspect.Signature.empty:
        return None
    text = inspect.formatannotation(annotation)
    return re.sub(r"\b(?:pathlib|typing)\.", "", text)


def markdown(text: str) -> str:
    """Blocks after `::` in fences."""

    def fenced(found: re.Match[str]) -> str:
        return f":\n\n```python\n{textwrap.dedent(found[1]).strip()}\n```\n\n"

    return re.sub(r"::\n\n((?:    .*\n?|\n)+)", fenced, text)
