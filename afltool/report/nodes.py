"""The table of the places that `extract --node` can name."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from .terminal import add_row, on_stdout


def print_nodes(rows: list[dict[str, Any]]) -> None:
    """One line a node, in the order in which they run; what `stages` takes is marked."""
    table = Table(box=None, pad_edge=False)
    for name in ("node", "layer", "width", "output", "place", "in stages"):
        table.add_column(name, justify="right" if name == "width" else "left", no_wrap=True)
    for row in rows:
        taken = "–" if row["stages"] is None else f"as {row['stages']}"
        add_row(table, row["name"], row["layer"], row["width"], row["output"], row["place"], taken)
    on_stdout().print(table, soft_wrap=True)
