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
from functools import lru_cache
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

Key = tuple[Any, ...]
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
    source: Key = ()


@dataclass
class Entry:
    """What a cell of a table holds: the values over seeds, and how many are lacking and why."""

    values: list[float] = field(default_factory=list)
    holes: list[str] = field(default_factory=list)
    spread: float | None = None
    records: list[Record] = field(default_factory=list)


@dataclass
class Crosstab:
    """Rows × columns of entries, their titles, and notes below.

    ``settings``: the options of each column, without the figure and its unit.
    """

    title: str
    corner: str
    rows: list[Key]
    columns: list[Key]
    row_names: dict[Key, str]
    column_names: dict[Key, str]
    settings: dict[Key, str]
    entries: dict[tuple[Key, Key], Entry]
    stat: str
    notes: list[str]

    def text(self, row: Key, column: Key, pm: str = " ± ") -> str:
        """A cell of the table as people read it."""
        entry = self.entries.get((row, column))
        return HOLE if entry is None else shown_entry(entry, column[0], self.stat, pm)

    def number(self, row: Key, column: Key) -> str:
        """The number of a cell by which a page sorts."""
        entry = self.entries.get((row, column))
        return f"{statistic(entry, self.stat)[0]:.12g}" if entry and entry.values else ""

    @property
    def headings(self) -> list[str]:
        """The names of the columns."""
        return [self.column_names[column] for column in self.columns]

    @property
    def shows(self) -> str:
        """What a figure of ours is, and what papers have behind ±."""
        theirs = spreads(one for entry in self.entries.values() for one in entry.records)
        published = f"; published ± are {theirs}" if theirs and "±" in self.stat else ""
        return STATISTICS[self.stat] + published

    def __str__(self) -> str:
        """The table in Markdown, with its notes."""
        return as_markdown(self)

    def records(self) -> list[dict[str, Any]]:
        """An entry a line, with plain numbers, as ``--format json`` has them."""
        return as_records(self)


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
    entries: dict[tuple[Key, Key], Entry] = {}
    row_keys: dict[Key, str] = {}
    column_keys: dict[Key, str] = {}
    settings: dict[Key, str] = {}
    for value in values:
        for record in records:
            own = (*rows, SETTING) if record.kind == "published" else rows
            row = (record.kind, *(plain(record.axes.get(name)) for name in own))
            column = (value, *(plain(record.axes.get(name)) for name in columns))
            names = filter(None, (_named(name, record.axes.get(name)) for name in own))
            published = " (published)" if record.kind == "published" else ""
            row_keys.setdefault(row, (", ".join(names) or "all") + published)
            names = filter(None, (_named(name, record.axes.get(name)) for name in columns))
            settings.setdefault(column, ", ".join(names))
            figure = [FIGURES[value].label] if len(values) > 1 or not settings[column] else []
            column_keys.setdefault(column, ", ".join(filter(None, [settings[column], *figure])))
            _enter(entries.setdefault((row, column), Entry()), record, value)
    for (row, _), entry in entries.items():
        _check_alike(entry.records, {*rows, *columns, *seeds, SETTING})
        if row[0] == "published" and len(entry.values) > 1:
            raise UsageError(
                f"a cell of the table would average {len(entry.values)} published figures of "
                f"{row_keys[row]}: add an option that differs to --rows or --columns"
            )
    order = {"ours": 0, "also": 1, "published": 2}
    ranked = sorted(row_keys, key=lambda key: order[key[0]])
    filled = {column for (_, column), one in entries.items() if one.values or one.holes}
    used = [column for column in column_keys if column in filled]
    corner = FIGURES[values[0]].label if len(values) == 1 else ", ".join(rows)
    return Crosstab(title, corner, ranked, used, row_keys, column_keys, settings, entries, stat, [])


def _enter(entry: Entry, record: Record, value: str) -> None:
    entry.records.append(record)
    if record.hole:
        entry.holes.append(record.hole)
    elif value in record.figures:
        entry.values.append(float(record.figures[value]))
        entry.spread = record.spread


def _check_alike(records: Sequence[Record], averaged: set[str]) -> None:
    """Records of one cell may differ in seeds alone."""
    names = dict.fromkeys(["head", *(name for record in records for name in record.axes)])
    for name in names:
        if name in averaged:
            continue
        values = {plain(record.axes.get(name)) for record in records}
        if len(values) > 1:
            listed = ", ".join(sorted(map(str, values))[:5])
            raise UsageError(
                f"a cell of the table would average over {name.replace('_', '-')} ({listed}): add "
                "it to --rows or --columns, or choose one with --where "
                f"{name.replace('_', '-')}=VALUE"
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


def shown_entry(entry: Entry, value: str, stat: str, pm: str = " ± ") -> str:
    """The statistic of an entry as text: the mean and the deviation, and what is lacking."""
    if not entry.values:
        holes = [one for one in entry.holes if one != "missing"]  # failed, or a published "<5"
        return holes[0] if holes else HOLE
    middle, spread = statistic(entry, stat)
    text = FIGURES[value].text(middle)
    if spread is not None:
        text += pm + FIGURES[value].text(spread)
    if entry.holes:
        total = len(entry.values) + len(entry.holes)
        why = ", failed" if "failed" in entry.holes else ""
        text += f" ({len(entry.values)} of {total}{why})"
    return text


def statistic(entry: Entry, stat: str) -> tuple[float, float | None]:
    """The middle of an entry's values, and their deviation where the statistic has one.

    sd: √(Σ(x − mean)² / (n − 1)); se: sd / √n; neither for one value. Published figures have their
    own deviation, whatever is asked for.
    """
    values = entry.values
    simple: dict[str, Callable[[Sequence[float]], float]] = {"median": median, "max": max}
    if stat in simple:
        return simple[stat](values), None
    middle = fmean(values)
    if "±" not in stat or entry.spread is not None:
        return middle, entry.spread if "±" in stat else None
    if len(values) < 2:
        return middle, None
    sd = stdev(values)
    return middle, sd / math.sqrt(len(values)) if stat == "mean±se" else sd


def as_markdown(table: Crosstab) -> str:
    """Pipes, padded so that the source reads as a table, too; notes below."""
    notes = [f"\n{in_markdown(note)}" for note in table.notes]
    title = [f"**{in_markdown(table.title)}** ({table.shows})", ""] if table.title else []
    return "\n".join([*title, *markdown_lines(_grid(table)), *notes]) + "\n"


def _grid(table: Crosstab) -> list[list[str]]:
    """The texts of a table, names of columns first."""
    grid = [[table.corner, *(table.column_names[c] for c in table.columns)]]
    grid += [[table.row_names[r], *(table.text(r, c) for c in table.columns)] for r in table.rows]
    return grid


def markdown_lines(texts: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table with pipes; the first one has the names of the columns."""
    grid = [[in_markdown(cell) for cell in line] for line in texts]
    wide = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
    lines = [_line(line, wide) for line in grid]
    rule = _line(["-" * wide[0], *("-" * (width - 1) + ":" for width in wide[1:])], wide)
    return [lines[0], rule, *lines[1:]]


def _line(cells: Sequence[str], wide: Sequence[int]) -> str:
    told = [cell.rjust(width) for cell, width in zip(cells, wide, strict=True)]
    told[0] = cells[0].ljust(wide[0])  # names to the left, figures to the right
    return "| " + " | ".join(told) + " |"


def as_latex(table: Crosstab) -> str:
    r"""A tabular that needs no package; notes are comments."""
    notes = [f"% {shown(note)}" for note in (table.shows, *table.notes)]
    return "\n".join([*latex_lines(_grid(table)), *notes]) + "\n"


def latex_lines(texts: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a tabular; the first text of each line is a name."""
    side = "l" + "r" * (len(texts[0]) - 1)
    head, *rows = (" & ".join(map(_tex, line)) + r" \\" for line in texts)
    begin, end = rf"\begin{{tabular}}{{{side}}}", r"\end{tabular}"
    return [begin, r"\hline", head, r"\hline", *rows, r"\hline", end]


_TEX = {c: f"\\{c}" for c in "&%$#_{}"}
_TEX |= {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_TEX |= {"±": r"$\pm$", "–": "--", "χ": r"$\chi$", "²": r"$^2$"}
_TEX |= {"α": r"$\alpha$", "γ": r"$\gamma$", "λ": r"$\lambda$"}


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in shown(text))


def as_csv(table: Crosstab) -> str:
    """One line per entry: row, column, figure, unit, middle, deviation, how many seeds."""
    return csv_of_records(as_records(table), ENTRY)


def csv_of_records(records: Sequence[Any], columns: Sequence[str]) -> str:
    """A line for each record, its numbers with `_EXACT` digits."""
    frame = pd.DataFrame(records, columns=list(columns))
    return csv_of_frame(frame, index=False, float_format=f"%.{_EXACT}g")


#: An entry as CSV and JSON have it; ``column``: its options, without the figure.
ENTRY = (
    "kind",
    "row",
    "column",
    "figure",
    "unit",
    "statistic",
    "value",
    "spread",
    "count",
    "lacking",
)


def as_records(table: Crosstab) -> list[dict[str, Any]]:
    """Every entry with its numbers, as the program measures them."""
    records = []
    for row, column in product(table.rows, table.columns):
        entry = table.entries.get((row, column), Entry())
        numbers = statistic(entry, table.stat) if entry.values else (None, None)
        names = row[0], table.row_names[row], table.settings[column], column[0]
        units = FIGURES[column[0]].unit, table.stat
        line = (*names, *units, *numbers, len(entry.values), len(entry.holes))
        records.append(dict(zip(ENTRY, line, strict=True)))
    return records


def as_json(table: Crosstab) -> str:
    """Entries and notes."""
    head = {"title": table.title, "shows": table.shows}
    value = {**head, "entries": as_records(table), "notes": table.notes}
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
