"""What `-h` and `--help-all` print: plain text, made without parsing the command line.

Typer's own help imports rich and pydantic, which takes longer than all other work of a short
command.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..heads import OPTIONS
from ..options import flag, help_of
from ._console import LONG, OF_HEADS, RARE

NAMES = 26  # columns for the name of an option

Lines = list[tuple[str, str]]


def text_of(command: Any, path: str, everything: bool) -> str:
    """The help of one command."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    names = " ".join(["[OPTIONS]", *map(_argument, arguments)])
    inner = getattr(command, "commands", None)
    usage = f"Usage: {path} {names}" if inner is None else f"Usage: {path} [OPTIONS] COMMAND …"
    parts = [usage, _paragraphs(command.help or "")]
    parts += [_section(title, rows) for title, rows in _sections(command, everything)]
    if inner is None and not everything:
        parts.append(_more(command, path))
    return "\n\n".join(filter(None, parts)) + "\n"


def _sections(command: Any, everything: bool) -> Iterator[tuple[str, Lines]]:
    """Headings with their rows: arguments, commands, options by their headings."""
    by_title: dict[str, Lines] = {"Arguments": []}
    for p in command.params:
        title = "Arguments" if p.param_type_name == "argument" else _heading(p)
        by_title.setdefault(title, []).append((_name(p), p.help or ""))
    own = by_title.pop("Options", [])
    heads = [*by_title.get(OF_HEADS, []), *by_title.pop(OF_HEADS + RARE, [])]
    if everything:
        by_title.pop(OF_HEADS, None)
    inner = getattr(command, "commands", {})
    first = {"Commands": [(name, _first_sentence(one.help)) for name, one in inner.items()]}
    last = [("-h, --help", "show this text")]
    if heads or any(title.endswith(RARE) for title in by_title):
        last.append((LONG, "show every option"))
    ordered = {**first, **by_title, "Options": [*own, *last]}
    if heads and everything:
        ordered |= _of_each_head([name for name, _ in heads])
    for title, rows in ordered.items():
        if rows and (everything or not title.endswith(RARE)):
            yield title, rows


def _of_each_head(shown: list[str]) -> dict[str, Lines]:
    """The options of each head, with its own ranges and defaults."""
    by_head = {}
    for name, cls in OPTIONS.items():
        own = {flag(f.name): help_of(f) for f in fields(cls)}
        rows = [(one, own[one.split()[0]]) for one in shown if one.split()[0] in own]
        by_head[f"{OF_HEADS} {name}"] = rows
    return by_head


def _more(command: Any, path: str) -> str:
    """The options that are not shown, and the commands that show them."""
    titles = [_heading(p) for p in command.params if p.param_type_name == "option"]
    lines = []
    if any(title.startswith(OF_HEADS) for title in titles):
        lines = [f"Options of a head: {path.split()[0]} head NAME -h"]
        lines += [f"  NAME is {', '.join(OPTIONS)}"]
    hidden = sum(title.endswith(RARE) for title in titles)
    if hidden:
        lines.append(f"{hidden} more options: {path} {LONG}")
    return "\n".join(lines)


def _heading(parameter: Any) -> str:
    return parameter.rich_help_panel or "Options"


def _argument(parameter: Any) -> str:
    name = parameter.name.upper() + ("…" if parameter.nargs == -1 else "")
    return name if parameter.required else f"[{name}]"


def _name(parameter: Any) -> str:
    """``-o, --out PATH``."""
    if parameter.param_type_name == "argument":
        return _argument(parameter)
    names = ", ".join(sorted(parameter.opts, key=len))
    return f"{names} {_value(parameter)}".rstrip()


def _value(parameter: Any) -> str:
    """The text after the name of an option."""
    if parameter.is_flag:
        return ""
    kind = parameter.type_descriptor.annotation
    kind = (getattr(kind, "__args__", None) or (kind,))[0]
    return {int: "N", float: "X", Path: "PATH"}.get(kind, "TEXT")


def _section(title: str, rows: Lines) -> str:
    """A heading and its rows, with the texts in their own column."""
    width, lines = _columns(), [f"{title}:"]
    for name, text in rows:
        start = f"  {name}".ljust(NAMES)
        if len(start) > NAMES or not start.endswith(" "):
            lines.append(start)
            start = " " * NAMES
        lines += textwrap.wrap(
            text, width, initial_indent=start, subsequent_indent=" " * NAMES, break_on_hyphens=False
        ) or [start.rstrip()]
    return "\n".join(lines)


def _columns() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 100))


def _paragraphs(text: str) -> str:
    parts = (" ".join(part.split()) for part in text.split("\n\n"))
    return "\n\n".join(textwrap.fill(part, _columns(), break_on_hyphens=False) for part in parts)


def _first_sentence(text: str | None) -> str:
    first = " ".join((text or "").split("\n\n")[0].split())
    return first if ". " not in first else first[: first.index(". ") + 1]
