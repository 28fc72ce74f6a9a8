"""The stub has the keywords of `afltool.solve(…)`, the functions have the docstrings."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

import griffe

import afltool


class StubDocstrings(griffe.Extension):
    """Docstrings of the public names, as Markdown."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Of every name that the stub has, what Python shows as its help."""
        for name in afltool.__all__:
            one = pkg.members.get(name)
            if isinstance(one, griffe.Function) and one.docstring is None:
                text = inspect.getdoc(getattr(afltool, name)) or ""
                one.docstring = griffe.Docstring(markdown(text), parent=one)


def markdown(text: str) -> str:
    """Blocks after `::` in fences."""

    def fenced(found: re.Match[str]) -> str:
        return f":\n\n```python\n{textwrap.dedent(found[1]).strip()}\n```\n\n"

    return re.sub(r"::\n\n((?:    .*\n?|\n)+)", fenced, text)
