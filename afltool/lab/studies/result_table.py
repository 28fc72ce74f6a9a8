"""Results as a table: rows and columns by options; lines of one cell are averaged over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pandas as pd

from ...errors import UsageError
from ...files.tables import csv_of_frame, writing_rows
from ...options.base import flag
from ...values.text import escape_line, escape_markdown, json_text
from .options import FIGURES
from .published import SETTING, options_in, plain

HOLE = "–"
ORDER = ["ours", "also", "published"]
#: An entry as CSV and JSON have it; ``column``: its options, without the figure.
ENTRY = ["kind", "row", "column", "figure", "unit", "value", "spread", "count", "lacking"]


@dataclass(repr=False)
class ResultTable:
    """Rows × columns of entries, and notes below.

    Attributes:
        corner: what stands above the rows.
        entries: a line an entry: `ENTRY`, its text for people, the heading of its column.
        lines: the results, each with the ``key`` of its entries: kind, row and column.
    """

    title: str
    corner: str
    entries: pd.DataFrame
    lines: pd.DataFrame
    notes: list[str] = field(default_factory=list)

    @cached_property
    def texts(self) -> pd.DataFrame:
        """The cells as people read them, by kind and row, and by heading; ours come first."""
        wide = self.entries.pivot(index=["kind", "row"], columns="heading", values="text")
        known = dict.fromkeys(key[:2] for key in self.lines["key"])
        rows = [one for one in known if one[0] != "published" or one in wide.index]
        rows.sort(key=lambda one: ORDER.index(str(one[0])))
        index = pd.MultiIndex.from_tuples(rows)
        return wide.reindex(index=index, columns=self.headings).fillna(HOLE)

    @property
    def headings(self) -> list[str]:
        return list(self.entries["heading"].unique())

    @property
    def shows(self) -> str:
        """What a figure of ours is, and what papers have behind ±."""
        theirs = spreads(self.lines)
        return f"mean ± standard deviation over seeds{f'; published ± are {theirs}' * bool(theirs)}"

    def __str__(self) -> str:
        return as_markdown(self)

    __repr__ = __str__

    def grid(self) -> list[list[str]]:
        rows = [[str(name), *texts] for (_, name), *texts in self.texts.itertuples(name=None)]
        return [[self.corner, *self.headings], *rows]

    def records(self) -> list[dict[str, Any]]:
        """An entry a line with its plain numbers, row by row, as ``--format json`` has them."""
        order = {row: number for number, row in enumerate(self.texts.index)}
        entries = self.entries[ENTRY].astype(object)
        lines: list[dict[Any, Any]] = entries.where(entries.notna(), None).to_dict("records")
        return sorted(lines, key=lambda one: order[one["kind"], one["row"]])


def crosstab(
    lines: pd.DataFrame,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[str],
    seeds: Sequence[str],
    title: str = "",
) -> ResultTable:
    """The table of a frame; raises `UsageError` where a cell would average unequal settings."""
    lines = lines.reset_index(drop=True)
    marks = ["" if kind != "published" else " (published)" for kind in lines["kind"]]
    named = (
        (label or "all") + mark
        for label, mark in zip(_labels(lines, [*rows, SETTING]), marks, strict=True)
    )
    keys: Any = [*zip(lines["kind"], named, _labels(lines, columns), strict=True)]
    lines = lines.assign(key=keys)
    key: Any
    _check_alike(lines, {*rows, *columns, *seeds, SETTING, "key"})
    several, entries = len(values) > 1, []
    for figure in (one for one in values if one in lines or (lines["state"] != "done").any()):
        of = lines.reindex(columns=["key", "state", "spread", figure])
        of = of[of[figure].notna() | of["state"].ne("done")]
        for key, part in of.groupby("key", sort=False):
            kind, row, column = key
            if kind == "published" and part[figure].count() > 1:
                raise UsageError(
                    f"a cell of the table would average {part[figure].count()} published figures "
                    f"of {row}: add an option that differs to --rows or --columns"
                )
            label = FIGURES[figure].label if several or not column else ""
            heading = ", ".join(filter(None, (column, label)))
            names = {"kind": kind, "row": row, "column": column, "heading": heading}
            entries.append({**names, "figure": figure, **_entry(part, figure)})
    corner = FIGURES[values[0]].label if len(values) == 1 else ", ".join(rows)
    frame = pd.DataFrame(entries, columns=[*ENTRY, "heading", "text"])
    return ResultTable(title, corner, frame, lines)


def _entry(part: pd.DataFrame, figure: str) -> dict[str, Any]:
    """Mean and deviation √(Σ(x − mean)² / (n − 1)), or the published one, of a cell; its text."""
    values = [float(one) for one in part[figure].dropna()]
    middle = fmean(values) if values else None
    spread = stdev(values) if len(values) > 1 else None
    if len(values) == 1 and part["spread"].notna().any():
        spread = float(part["spread"].dropna().iloc[-1])
    holes = [str(one) for one in part["state"] if one != "done"]
    numbers = {"value": middle, "spread": spread, "count": len(values), "lacking": len(holes)}
    how = FIGURES[figure]
    if middle is None:
        text = next((one for one in holes if one != "missing"), HOLE)  # failed, or "<5"
    else:
        text = how.text(middle) + ("" if spread is None else f" ± {how.text(spread)}")
        why = ", failed" if "failed" in holes else ""
        text += f" ({len(values)} of {len(values) + len(holes)}{why})" if holes else ""
    return {**numbers, "unit": how.unit, "text": text}


def _labels(lines: pd.DataFrame, names: Sequence[str]) -> list[str]:
    every = lines.reindex(columns=list(names)).itertuples(index=False, name=None)
    return [", ".join(filter(None, map(option_text, names, one))) for one in every]


def option_text(name: str, value: Any) -> str:
    """An option and its value; those whose value tells enough are named by it alone."""
    known = plain(value)
    if known is None or known is False:
        return ""
    if name in ("head", "data", "backbone", "scheme", "activation", SETTING):
        return str(value)
    return flag(name)[2:] if known is True else f"{flag(name)[2:]} = {known}"


def _check_alike(lines: pd.DataFrame, averaged: set[str]) -> None:
    for name in dict.fromkeys(("head", *options_in(lines))):
        if name in averaged or name not in lines:
            continue
        known = lines[name].map(plain).map(str)
        for _, values in known.groupby(lines["key"], sort=False):
            if values.nunique() > 1:
                listed, called = ", ".join(sorted(values.unique())[:5]), name.replace("_", "-")
                raise UsageError(
                    f"a cell of the table would average over {called} ({listed}): add it to --rows "
                    f"or --columns, or choose one with --where {called}=VALUE"
                )


def spreads(lines: pd.DataFrame) -> str:
    """What papers have behind the ± of these lines, such as "standard errors"; or nothing."""
    kinds = lines.get("spread_of", pd.Series(dtype=object)).dropna()
    return " and ".join(sorted(f"{one}s" for one in kinds.unique() if one))


# ---------------------------------------------------------------- forms


def as_markdown(table: ResultTable) -> str:
    """Pipes, padded so that the source reads as a table, too; notes below."""
    notes = [f"\n{escape_markdown(note)}" for note in table.notes]
    title = [f"**{escape_markdown(table.title)}** ({table.shows})", ""] if table.title else []
    return "\n".join([*title, *markdown_lines(table.grid()), *notes]) + "\n"


def markdown_lines(texts: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with pipes; pandas' `to_markdown` needs one more package."""
    grid = [[escape_markdown(cell) for cell in line] for line in texts]
    wide = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
    grid.insert(1, ["-" * wide[0], *("-" * (width - 1) + ":" for width in wide[1:])])
    for line in grid:  # names to the left, figures to the right
        line[:] = [line[0].ljust(wide[0]), *map(str.rjust, line[1:], wide[1:])]
    return [f"| {' | '.join(line)} |" for line in grid]


def as_latex(table: ResultTable) -> str:
    notes = [f"% {escape_line(note)}" for note in (table.shows, *table.notes)]
    return latex_text(table.grid()) + "\n".join(notes) + "\n"


def latex_text(texts: Sequence[Sequence[str]]) -> str:
    head, *rows = ([escape_line(cell) for cell in line] for line in texts)
    made = pd.DataFrame(rows, columns=head)
    text = made.to_latex(index=False, escape=True, column_format="l" + "r" * (len(head) - 1))
    return str(text).translate(_TEX)


#: What pandas leaves as it is, and not every TeX knows.
_TEX = {ord(c): f"${tex}$" for c, tex in {"±": r"\pm", "χ": r"\chi", "α": r"\alpha"}.items()}
_TEX |= {ord("γ"): r"$\gamma$", ord("λ"): r"$\lambda$", ord("²"): "$^2$", ord("–"): "--"}


def as_csv(table: ResultTable) -> str:
    """One line per entry: row, column, figure, unit, middle, deviation, how many seeds."""
    return csv_of_records(table.records(), ENTRY)


def csv_of_records(records: Sequence[Any], columns: Sequence[str]) -> str:
    """A line for each record; numbers have the digits that keep bytes and fractions whole."""
    frame = pd.DataFrame(records, columns=list(columns))
    return csv_of_frame(frame, index=False, float_format="%.12g")


def write_parquet(table: ResultTable, path: Path, overwrite: bool = False) -> Path:
    kinds = {name: float if name in ENTRY[-4:] else str for name in ENTRY}
    with writing_rows(path, kinds, overwrite) as write:
        write([one[name] for name in ENTRY] for one in table.records())
    return path


def as_json(table: ResultTable) -> str:
    head = {"title": table.title, "shows": table.shows}
    value = {**head, "entries": table.records(), "notes": table.notes}
    return json_text(value, indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[ResultTable], str]] = {
    "md": as_markdown,
    "csv": as_csv,
    "latex": as_latex,
    "json": as_json,
}
