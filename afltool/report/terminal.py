"""Tables on a terminal: the one way from a value to a cell, which is then nothing but text."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..shown import shown


def on_stdout() -> Console:
    """Where tables go that are the result of a command."""
    return Console(highlight=False)


def on_stderr() -> Console:
    """Where tables go that go with a result."""
    return Console(stderr=True, highlight=False)


def cell(value: object) -> str:
    """A value as a cell or a title: escape sequences, newlines and rich's markup are plain text."""
    return escape(shown(value))


def add_row(table: Table, *values: object) -> None:
    """A row of plain texts."""
    table.add_row(*map(cell, values))
