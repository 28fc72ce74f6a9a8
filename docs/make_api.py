"""Writes docs/api.md, the public Python names: what `afltool.__all__` has, by their docstrings.

python docs/make_api.py
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from inspect import Parameter
from pathlib import Path
from typing import Any

import afltool

PAGE = Path(__file__).with_name("api.md")
START = """# Python

Made by `python docs/make_api.py` from docstrings; do not edit.

**These names are the public ones**, what `afltool.__all__` has.
[compatibility.md](compatibility.md) says what is promised of them; everything else in the package
may change with any version. Every function is a stage of the command line under the same name:
its options are keywords, listed after `*`, with the defaults and the meaning of
[commands.md](commands.md). A path may be a text. Options of a head are
`head_options={"ridge": "auto"}`. Errors are `afltool.errors.AflError`, one class for each kind.
"""


def page() -> str:
    return START + "".join(one for name in afltool.__all__ for one in entry(name))


def entry(name: str) -> Iterator[str]:
    """The heading, the call and the docstring of one name."""
    found = getattr(afltool, name)
    yield f"\n## {name}\n\n```python\n{call(name, found)}\n```\n\n{prose(found)}\n"


def call(name: str, found: Any) -> str:
    shown = [] if isinstance(found, type) else [*inspect.signature(found).parameters.values()]
    parts, keywords = [], False
    for p in shown:
        if p.kind is Parameter.KEYWORD_ONLY and not keywords:
            parts.append("*")
            keywords = True
        more = p.kind is Parameter.VAR_KEYWORD
        parts.append("**options" if more else p.name if p.default is p.empty else f"{p.name}=…")
    lines = textwrap.wrap(", ".join(parts), 92)
    inside = "".join(lines) if len(lines) < 2 else "\n    " + "\n    ".join(lines) + "\n"
    return f"afltool.{name}({inside})" if lines else f"afltool.{name}(…)"


def prose(found: Any) -> str:
    """A docstring as Markdown: code between single backticks, the lines of examples as they are."""
    text = re.sub(r"``(.+?)``", r"`\1`", inspect.getdoc(found) or "")
    text = re.sub(r"::\n\n((?:    .*\n?|\n)+)", as_code, text)
    text = re.sub(r"^((?:>>>|\.\.\.) .*\n(?:.+\n?)*)", r"```python\n\1\n```\n", text, flags=re.M)
    return re.sub(r"^(\w+):\n((?:    .*\n?)+)", as_list, text, flags=re.M).replace(
        "\n\n```\n", "\n```\n"
    )


def as_list(found: re.Match[str]) -> str:
    """Args, Raises and Attributes of a docstring."""
    rows = re.sub(r"^    (\S[^:\n]*):", r"- `\1`:", found[2], flags=re.M)
    return f"{found[1]}:\n\n{re.sub(r'^    +', '  ', rows, flags=re.M)}"


def as_code(found: re.Match[str]) -> str:
    return f":\n\n```python\n{textwrap.dedent(found[1]).strip()}\n```\n\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
