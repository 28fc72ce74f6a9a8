"""Records as a table for people and papers: rows and columns by options, a statistic over seeds.

A record is one result: options by name (its axes) and figures. Records that fall into one cell of
the table are averaged; they may differ in seeds only.

The papers' published figures are records beside ours. They were measured with the papers' own
backbones and weights, which are not always the same as those here; every row says that it is
published. The file has the papers' numbers as they are printed, and their settings by the names of
our options.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import pandas as pd

from ..errors import UsageError
from ..files.tables import csv_of_frame
from ..options.base import flag
from ..values.text import in_markdown, json_text, shown
from .options import FIGURES, STATISTICS

Row = tuple[str, str]  # kind and name
Column = tuple[str, str]  # figure and options
_EXACT = 12  # digits of a number in CSV, which keep bytes and fractions whole
HOLE = "–"
SETTING = "setting"  # what a paper says of a figure that no option of ours has


@dataclass(frozen=True)
class Record:
    """One result. ``figures`` is empty for a hole, and ``hole`` says why: missing, failed, "<5".

    ``spread``: what was published behind ±, and ``spread_of`` what that is. ``kind``: ours, also or
    published.
    ``source``: what was measured, by digests; equal sources are one measurement, () is unknown.
    """

    axes: Mapping[str, Any]
    figures: Mapping[str, float]
    hole: str = ""
    spread: float | None = None
    spread_of: str = ""
    kind: str = "ours"
    source: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Entry:
    """A cell of a table: a figure of records that differ in seeds alone."""

    figure: str
    records: Sequence[Record] = ()

    @property
    def values(self) -> list[float]:
        return [float(r.figures[self.figure]) for r in self.records if self.figure in r.figures]

    @property
    def holes(self) -> list[str]:
        """Why results are lacking."""
        return [one.hole for one in self.records if one.hole]

    def statistic(self, stat: str) -> tuple[float | None, float | None]:
        """The middle of the values, and their deviation where the statistic has one.

        sd: √(Σ(x − mean)² / (n − 1)); se: sd / √n; neither for one value. Published figures have
        their own deviation, whatever is asked for.
        """
        values = self.values
        if not values or stat in ("median", "max"):
            return ((median if stat == "median" else max)(values) if values else None), None
        middle, spread = fmean(values), self.records[-1].spread
        if "±" not in stat or spread is not None or len(values) < 2:
            return middle, spread if "±" in stat else None
        return middle, stdev(values) / (math.sqrt(len(values)) if stat == "mean±se" else 1)

    def text(self, stat: str) -> str:
        """The statistic for people: the mean and the deviation, and what is lacking."""
        (middle, spread), holes = self.statistic(stat), self.holes
        if middle is None:
            return next((one for one in holes if one != "missing"), HOLE)  # failed, or "<5"
        text = FIGURES[self.figure].text(middle)
        text += "" if spread is None else f" ± {FIGURES[self.figure].text(spread)}"
        if holes:
            found = len(self.values)
            why = ", failed" if "failed" in holes else ""
            text += f" ({found} of {found + len(holes)}{why})"
        return text


@dataclass
class Crosstab:
    """Rows × columns of entries, and notes below.

    ``corner``: what stands above the rows; ``several``: whether it is asked for several figures.
    """

    title: str
    corner: str
    several: bool
    entries: dict[tuple[Row, Column], Entry]
    stat: str
    notes: list[str] = field(default_factory=list)

    @cached_property
    def rows(self) -> list[Row]:
        """Kinds and names: ours first, published ones last."""
        order = {"ours": 0, "also": 1, "published": 2}
        return sorted(dict.fromkeys(row for row, _ in self.entries), key=lambda row: order[row[0]])

    @cached_property
    def columns(self) -> list[Column]:
        """Figures and options, where an entry has something to say."""
        told = (column for (_, column), one in self.entries.items() if one.values or one.holes)
        there = set(told)
        return [c for c in dict.fromkeys(column for _, column in self.entries) if c in there]

    def heading(self, column: Column) -> str:
        """The name of a column."""
        figure, setting = column
        label = FIGURES[figure].label if self.several or not setting else ""
        return ", ".join(filter(None, [setting, label]))

    def entry(self, row: Row, column: Column) -> Entry:
        return self.entries.get((row, column), Entry(column[0]))

    def text(self, row: Row, column: Column) -> str:
        """A cell of the table as people read it."""
        return self.entry(row, column).text(self.stat)

    def number(self, row: Row, column: Column) -> str:
        """The number of a cell by which a page sorts."""
        middle, _ = self.entry(row, column).statistic(self.stat)
        return "" if middle is None else f"{middle:.12g}"

    @property
    def shows(self) -> str:
        """What a figure of ours is, and what papers have behind ±."""
        theirs = spreads(one for entry in self.entries.values() for one in entry.records)
        published = f"; published ± are {theirs}" if theirs and "±" in self.stat else ""
        return STATISTICS[self.stat] + published

    def __str__(self) -> str:
        """The table in Markdown, with its notes."""
        return as_markdown(self)

    def grid(self) -> list[list[str]]:
        """The texts of a table, names of columns first."""
        lines = [[row[1], *(self.text(row, c) for c in self.columns)] for row in self.rows]
        return [[self.corner, *map(self.heading, self.columns)], *lines]

    def records(self) -> list[dict[str, Any]]:
        """An entry a line with its plain numbers, as ``--format json`` has them."""
        lines = []
        for row, column in product(self.rows, self.columns):
            one = self.entry(row, column)
            names = (*row, column[1], column[0], FIGURES[column[0]].unit, self.stat)
            line = (*names, *one.statistic(self.stat), len(one.values), len(one.holes))
            lines.append(dict(zip(ENTRY, line, strict=True)))
        return lines


def crosstab(
    records: Sequence[Record],
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[str],
    stat: str,
    seeds: Sequence[str],
    title: str = "",
) -> Crosstab:
    """The table of ``records``; raises `UsageError` where a cell would average unequal settings."""
    found: dict[tuple[Row, Column], list[Record]] = {}
    for value, one in product(values, records):
        published = one.kind == "published"
        name = _label(one, (*rows, SETTING) if published else rows) or "all"
        row = one.kind, name + " (published)" * published
        found.setdefault((row, (value, _label(one, columns))), []).append(one)
    entries = {key: Entry(key[1][0], those) for key, those in found.items()}
    for (row, _), entry in entries.items():
        _check_alike(entry.records, {*rows, *columns, *seeds, SETTING})
        if row[0] == "published" and len(entry.values) > 1:
            raise UsageError(
                f"a cell of the table would average {len(entry.values)} published figures of "
                f"{row[1]}: add an option that differs to --rows or --columns"
            )
    corner = FIGURES[values[0]].label if len(values) == 1 else ", ".join(rows)
    return Crosstab(title, corner, len(values) > 1, entries, stat)


def _label(one: Record, names: Sequence[str]) -> str:
    return ", ".join(filter(None, (_named(name, one.axes.get(name)) for name in names)))


def _check_alike(records: Sequence[Record], averaged: set[str]) -> None:
    """Records of one cell may differ in seeds alone."""
    names = dict.fromkeys(["head", *(name for record in records for name in record.axes)])
    for name in (name for name in names if name not in averaged):
        values = {plain(record.axes.get(name)) for record in records}
        if len(values) > 1:
            listed, called = ", ".join(sorted(map(str, values))[:5]), name.replace("_", "-")
            raise UsageError(
                f"a cell of the table would average over {called} ({listed}): add it to --rows or "
                f"--columns, or choose one with --where {called}=VALUE"
            )


def plain(value: Any) -> Any:
    """A value that compares: 1 and 1.0 are equal, and so are 0.1 and '0.1'."""
    if isinstance(value, bool) or value is None:
        return value
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def spreads(records: Iterable[Record]) -> str:
    """What papers have behind the ± of these records, such as "standard errors"; or nothing."""
    return " and ".join(sorted({f"{one.spread_of}s" for one in records if one.spread_of}))


def _named(name: str, value: Any) -> str:
    """An option and its value; those whose value tells enough are named by it alone."""
    if value is None or value is False:
        return ""
    if name in ("head", "data", "backbone", "scheme", SETTING):
        return str(value)
    shown = plain(value)
    return flag(name)[2:] if value is True else f"{flag(name)[2:]} = {shown}"


def as_markdown(table: Crosstab) -> str:
    """Pipes, padded so that the source reads as a table, too; notes below."""
    notes = [f"\n{in_markdown(note)}" for note in table.notes]
    title = [f"**{in_markdown(table.title)}** ({table.shows})", ""] if table.title else []
    return "\n".join([*title, *markdown_lines(table.grid()), *notes]) + "\n"


def markdown_lines(texts: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with pipes; the first one has the names of the columns."""
    grid = [[in_markdown(cell) for cell in line] for line in texts]
    wide = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
    grid.insert(1, ["-" * wide[0], *("-" * (width - 1) + ":" for width in wide[1:])])
    for line in grid:  # names to the left, figures to the right
        line[:] = [line[0].ljust(wide[0]), *map(str.rjust, line[1:], wide[1:])]
    return [f"| {' | '.join(line)} |" for line in grid]


def as_latex(table: Crosstab) -> str:
    """A tabular with the rules of booktabs; notes are comments."""
    notes = [f"% {shown(note)}" for note in (table.shows, *table.notes)]
    return latex_text(table.grid()) + "\n".join(notes) + "\n"


def latex_text(texts: Sequence[Sequence[str]]) -> str:
    """A tabular; the first text of each line is a name."""
    head, *rows = ([shown(cell) for cell in line] for line in texts)
    made = pd.DataFrame(rows, columns=head)
    text = made.to_latex(index=False, escape=True, column_format="l" + "r" * (len(head) - 1))
    return str(text).translate(_TEX)


#: What pandas leaves as it is, and not every TeX knows.
_TEX = {ord(c): f"${tex}$" for c, tex in {"±": r"\pm", "χ": r"\chi", "α": r"\alpha"}.items()}
_TEX |= {ord("γ"): r"$\gamma$", ord("λ"): r"$\lambda$", ord("²"): "$^2$", ord("–"): "--"}


def as_csv(table: Crosstab) -> str:
    """One line per entry: row, column, figure, unit, middle, deviation, how many seeds."""
    return csv_of_records(table.records(), ENTRY)


def csv_of_records(records: Sequence[Any], columns: Sequence[str]) -> str:
    """A line for each record, its numbers with `_EXACT` digits."""
    frame = pd.DataFrame(records, columns=list(columns))
    return csv_of_frame(frame, index=False, float_format=f"%.{_EXACT}g")


#: An entry as CSV and JSON have it; ``column``: its options, without the figure.
_NAMES = ("kind", "row", "column", "figure", "unit", "statistic")
ENTRY = (*_NAMES, "value", "spread", "count", "lacking")


def as_json(table: Crosstab) -> str:
    """Entries and notes."""
    head = {"title": table.title, "shows": table.shows}
    value = {**head, "entries": table.records(), "notes": table.notes}
    return json_text(value, indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Crosstab], str]] = {
    "md": as_markdown,
    "csv": as_csv,
    "latex": as_latex,
    "json": as_json,
}


TABLE = Path(__file__).with_name("published.csv")
NOT_STATED = "not stated"  # the data set of a table whose paper does not name it


@lru_cache(maxsize=1)
def _tables() -> dict[str, list[Record]]:
    """The figures by PAPER-TABLE."""
    lines = pd.read_csv(TABLE, dtype=str, keep_default_na=False)
    tables = lines.groupby(lines["paper"] + "-" + lines["table"], sort=False)
    return {str(name): [_record(one) for one in part.to_dict("records")] for name, part in tables}


def names() -> list[str]:
    """PAPER-TABLE of every table that has figures."""
    return list(_tables())


def published(name: str) -> list[Record]:
    """The figures of one table of a paper, such as afl-1 or deepafl-12; a data set may follow."""
    wanted = name.partition(":")[0].replace("table", "")
    if wanted not in _tables():
        raise UsageError(f"there are no published figures {name!r}; known are {', '.join(names())}")
    return list(_tables()[wanted])


def _record(one: Mapping[Any, str]) -> Record:
    axes = {"data": one["data"], **dict(_options(one["options"])), "head": one["head"]}
    factor = FIGURES[one["figure"]].factor
    try:
        figures = {one["figure"]: float(one["value"]) / factor}
    except ValueError:  # such as "<5"
        return Record(axes, {}, one["value"], kind="published")
    spread = float(one["spread"]) / factor if one["spread"] else None
    return Record(axes, figures, spread=spread, spread_of=one["spread_of"], kind="published")


def _options(text: str) -> Iterator[tuple[str, Any]]:
    """Names and values of ``alpha = 0.1; scheme = iid``."""
    for option in filter(None, text.split("; ")):
        name, value = option.split(" = ")
        yield name.replace("-", "_"), _number(value)


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


def beside(name: str, ours: Sequence[Record], columns: Sequence[str]) -> list[Record]:
    """Published records that have a column in our table: our data, and settings that we have.

    Given feature files do not tell their data set: ``afl-1:cifar10`` says that ours is that one.
    Figures of a data set that the paper does not name stand beside any.
    """
    name, _, label = name.partition(":")
    there = {NOT_STATED, *(label or record.axes.get("data") for record in ours)}
    keys = {tuple(plain(r.axes.get(c)) for c in columns) for r in ours}
    return [
        one
        for one in published(name)
        if one.axes["data"] in there and tuple(plain(one.axes.get(c)) for c in columns) in keys
    ]
