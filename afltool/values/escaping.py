"""Text from outside, made fit to be printed: the one place where it is escaped.

Names of clients, classes and backbones, digests, phases and paths come from files that others
wrote. An escape sequence in them would change the terminal, a newline would forge a second message,
a right-to-left mark would turn a line round, and half a character cannot be encoded.
"""

from __future__ import annotations

import re
from typing import Any

from .json_text import json_text


def shown(text: object) -> str:
    r"""``str(text)`` on one line: what cannot be printed is written as Python writes it.

    >>> shown("a\x1b[31m\nerror: b")
    'a\\x1b[31m\\nerror: b'
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in str(text))


def in_markdown(text: object) -> str:
    r"""`shown` as Markdown that says it and does nothing else: no tag, no cell, no link.

    >>> in_markdown("a|b <script>\n")
    'a\\|b \\<script\\>\\\\n'
    """
    return re.sub(r"([\\`*\[\]<>|&~])", r"\\\1", shown(text))


def shown_lines(text: str) -> str:
    """The same for a text of several lines that afltool itself has laid out, such as a script."""
    return "\n".join(shown(line) for line in text.split("\n"))


def shown_json(value: Any, indent: int | None = 2, ascii_only: bool = False) -> str:
    """``value`` as JSON for a terminal or a program; what cannot be printed is a JSON escape."""
    text = json_text(value, indent=indent, ensure_ascii=ascii_only)
    return "".join(c if c.isprintable() or c == "\n" else json_text(c)[1:-1] for c in text)


def byte_text(size: float) -> str:
    """A number of bytes for a person.

    >>> byte_text(512), byte_text(21_400), byte_text(4_280_000), byte_text(2.5e9)
    ('512 bytes', '21.4 kB', '4.28 MB', '2.50 GB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            digits = 0 if size >= 100 * unit else 1 if size >= 10 * unit else 2
            return f"{size / unit:.{digits}f} {name}"
    return f"{size:.0f} bytes"


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8, as Python keeps it in a text
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")
