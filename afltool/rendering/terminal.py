"""Tables on a terminal: the only functions that turn a value into a cell, as plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..values.text import escape_line

_WIDEST = 1000  # columns of a table


def stdout_console() -> Console:
    return Console(highlight=False)


def stderr_console() -> Console:
    return Console(stderr=True, highlight=False)


def print_whole(console: Console, table: Table) -> None:
    """A table of figures, none of them cut; lines wider than the terminal go on in the next one."""
    narrow, options = console.width, console.options.update(max_width=_WIDEST)
    console.width = max(narrow, console.measure(table, options=options).maximum)
    console.print(table)
    console.width = narrow


def print_words(console: Console, rows: Iterable[Sequence[object]], bold: bool = False) -> None:
    """Texts in columns, one line a row: the terminal breaks it, and digests can be copied."""
    texts = [[escape_line(value) for value in row] for row in rows]
    wide = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for first, *rest in texts:
        name = escape(first.ljust(wide[0]))
        cells = [escape(t.ljust(w)) for t, w in zip(rest, wide[1:], strict=True)]
        line = "  ".join([f"[bold]{name}[/bold]" if bold else name, *cells]).rstrip()
        console.print(line, soft_wrap=True)


def cell(value: object) -> str:
    """A value as a cell or a title: escape sequences, newlines and rich's markup are plain text."""
    return escape(escape_line(value))


def add_row(table: Table, *values: object) -> None:
    table.add_row(*map(cell, values))
