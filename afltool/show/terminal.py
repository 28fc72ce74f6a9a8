"""Tables on a terminal: the only functions that turn a value into a cell, as plain text."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from ..values.text import shown

_WIDEST = 1000  # columns of a table


def on_stdout() -> Console:
    """The console for tables that are the result of a command."""
    return Console(highlight=False)


def on_stderr() -> Console:
    """The console for tables that a person reads beside the result."""
    return Console(stderr=True, highlight=False)


def print_whole(console: Console, table: Table) -> None:
    """A table of figures, none of them cut; lines wider than the terminal go on in the next one."""
    _print(console, table, _measured(console, table).maximum)


def print_words(console: Console, table: Table) -> None:
    """A table of texts, broken between words alone: digests and paths can be copied."""
    _print(console, table, _measured(console, table).minimum)


def _measured(console: Console, table: Table) -> Measurement:
    return console.measure(table, options=console.options.update(max_width=_WIDEST))


def _print(console: Console, table: Table, wide: int) -> None:
    """A table that has at least ``wide`` columns, whatever the terminal has."""
    narrow = console.width
    console.width = max(narrow, wide)
    console.print(table)
    console.width = narrow


def cell(value: object) -> str:
    """A value as a cell or a title: escape sequences, newlines and rich's markup are plain text."""
    return escape(shown(value))


def add_row(table: Table, *values: object) -> None:
    """A row of plain texts."""
    table.add_row(*map(cell, values))
