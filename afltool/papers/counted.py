"""The table of a total of counts: figures by head, of all rows, of each class and each group."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..files.counts import read_counts
from ..files.evaluations import figure_label, figure_text
from ..options.csv_files import KEEP
from ..stages._counted import evaluations
from ..values.json_text import json_text
from .crosstab import csv_of_records, latex_lines, markdown_lines

COLUMNS = ("head", "digest", "of", "figure", "value", "low", "high", "least", "most", "is")


def records(path: Path) -> list[dict[str, Any]]:
    """A line for each figure, by the names in `COLUMNS`; counts of rows are figures, too."""
    found = []
    for one in evaluations(read_counts(path)):
        whose = {"head": one["head"]["name"], "digest": one["head"]["digest"]}
        for of, name, figure in _figures(one):
            entry = {**whose, "of": of, "figure": name, **figure}
            found.append({column: entry.get(column) for column in COLUMNS})
    return found


def _figures(one: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What a figure is of, its name, and the figure."""
    yield "all", "rows", _count(one["n"])
    for name, figure in one["metrics"].items():
        yield "all", name, figure
    parts = {"class": one["classes"], "group": one.get("by", {})}
    for kind, named in parts.items():
        for part, figures in named.items():
            for name, figure in figures.items():
                told = figure if isinstance(figure, dict) else _count(figure)
                yield f"{kind} {part}", {"n": "rows"}.get(name, name), told
    for other in one.get("others", ()):
        yield f"against {other['path']}", "McNemar p", _count(other["p_value"])


def _count(value: float | None) -> dict[str, Any]:
    return {"value": value, "is": "exact"}


def grid(path: Path) -> list[list[str]]:
    """Figures of all rows and of groups by head, as texts; the first line names the heads."""
    every = evaluations(read_counts(path))
    named = [f"{one['head']['name']} {one['head']['digest'][:12]}" for one in every]
    lines: dict[tuple[str, str], list[str]] = {}
    for one in every:
        for of, name, figure in _figures(one):
            if not of.startswith(("class ", "against ")):
                label = figure_label(name, figure) + ("" if of == "all" else f", {of}")
                whole = isinstance(figure["value"], int)
                text = f"{figure['value']:,}" if whole else figure_text(figure)
                lines.setdefault((of, label), []).append(text)
    return [["figure", *named], *([label, *texts] for (_, label), texts in lines.items())]


def table_of_counts(path: Path, form: str, formulas: str = KEEP) -> str:
    """The table as Markdown, LaTeX, CSV or JSON; CSV and JSON also have the figures of classes."""
    if form == "csv":
        return csv_of_records(records(path), COLUMNS, formulas)
    if form == "json":
        return json_text(records(path), indent=2, ensure_ascii=False) + "\n"
    lines = markdown_lines(grid(path)) if form == "md" else latex_lines(grid(path))
    return "\n".join(lines) + "\n"
