"""Records as a table for people and papers: rows and columns by options, a statistic over seeds.

A record is one result: options by name (its axes) and figures. Records that fall into one cell of
the table are averaged; they may differ in seeds only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, stdev
from typing import Any

from ..errors import UsageError
from ..files.csv_text import csv_of_frame
from ..options import flag
from ..options.csv_files import KEEP
from ..values.escaping import in_markdown, shown
from ..values.json_text import json_text

Key = tuple[Any, ...]
#: Figure → its name in a table, the factor to its unit, digits behind the point.
UNITS: dict[str, tuple[str, float, int]] = {
    "top1": ("top-1, %", 100, 2),
    "top5": ("top-5, %", 100, 2),
    "train_top1": ("training top-1, %", 100, 2),
    "csr": ("CSR", 1, 3),
    "ifs": ("IFS", 1, 3),
    "dm": ("DM", 1, 3),
    "train_csr": ("training CSR", 1, 3),
    "train_ifs": ("training IFS", 1, 3),
    "train_dm": ("training DM", 1, 3),
    "seconds": ("seconds", 1, 1),
    "upload_bytes": ("MB sent by a client, at most", 1e-6, -3),
    "download_bytes": ("MB sent to a client", 1e-6, -3),
    "file_bytes": ("MB in a client's files", 1e-6, -3),
    "exchanges": ("rounds of communication", 1, 0),
    "density": ("entries of the sums that are not 0, %", 100, 2),
    "n": ("test rows", 1, 0),
    "deviation": ("sum of absolute deviations", 1, -3),
}
#: Units of the figures in CSV and JSON, where they are as the program measures them.
PLAIN_UNITS = {
    **dict.fromkeys(("top1", "top5", "train_top1", "density"), "fraction"),
    **dict.fromkeys(("upload_bytes", "download_bytes", "file_bytes"), "bytes"),
    "seconds": "seconds", "n": "rows", "exchanges": "rounds",
}  # fmt: skip
_EXACT = 12  # digits of a number in CSV, which keep bytes and fractions whole
HOLE = "–"


@dataclass(frozen=True)
class Record:
    """One result. ``figures`` is empty for a hole, and ``hole`` says why: missing, failed, "<5".

    ``spread``: a deviation that was published with the figure. ``kind``: ours, also or published.
    ``source``: what was measured, by digests; equal sources are one measurement, () is unknown.
    """

    axes: Mapping[str, Any]
    figures: Mapping[str, float]
    hole: str = ""
    spread: float | None = None
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
            row = (record.kind, *(plain(record.axes.get(name)) for name in rows))
            column = (value, *(plain(record.axes.get(name)) for name in columns))
            row_keys.setdefault(row, _row_name(record, rows))
            told = [_named(name, record.axes.get(name)) for name in columns]
            settings.setdefault(column, ", ".join(filter(None, told)))
            figure = [UNITS[value][0]] if len(values) > 1 or not settings[column] else []
            column_keys.setdefault(column, ", ".join(filter(None, [settings[column], *figure])))
            _enter(entries.setdefault((row, column), Entry()), record, value)
    for entry in entries.values():
        _check_alike(entry.records, {*rows, *columns, *seeds})
    order = {"ours": 0, "also": 1, "published": 2}
    ranked = sorted(row_keys, key=lambda key: order[key[0]])
    used = [
        column
        for column in column_keys
        if any(e.values or e.holes for (_, c), e in entries.items() if c == column)
    ]
    corner = UNITS[values[0]][0] if len(values) == 1 else ", ".join(rows)
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
        found = {plain(record.axes.get(name)) for record in records}
        if len(found) > 1:
            told = ", ".join(sorted(map(str, found))[:5])
            raise UsageError(
                f"a cell of the table would average over {name.replace('_', '-')} ({told}): add it "
                f"to --rows or --columns, or choose one with --where {name.replace('_', '-')}=VALUE"
            )


def plain(value: Any) -> Any:
    """A value that compares: 1 and 1.0 are equal, and so are 0.1 and '0.1'."""
    if isinstance(value, bool) or value is None:
        return value
    try:
        return f"{float(value):g}"
    except (TypeError, ValueError):
        return str(value)


def _named(name: str, value: Any) -> str:
    """An option and its value; those whose value tells enough are named by it alone."""
    if value is None or value is False:
        return ""
    if name in ("head", "data", "backbone", "scheme"):
        return str(value)
    shown = plain(value)
    return flag(name)[2:] if value is True else f"{flag(name)[2:]} = {shown}"


def _row_name(record: Record, rows: Sequence[str]) -> str:
    told = ", ".join(filter(None, (_named(name, record.axes.get(name)) for name in rows)))
    return f"{told or 'all'} (published)" if record.kind == "published" else told or "all"


def shown_entry(entry: Entry, value: str, stat: str, pm: str = " ± ") -> str:
    """The statistic of an entry as text: the mean and the deviation, and what is lacking."""
    if not entry.values:
        told = [one for one in entry.holes if one != "missing"]  # failed, or a published "<5"
        return told[0] if told else HOLE
    _, factor, digits = UNITS[value]
    middle, spread = statistic(entry, stat)
    text = digits_of(middle * factor, digits)
    if spread is not None:
        text += pm + digits_of(spread * factor, digits)
    if entry.holes:
        total = len(entry.values) + len(entry.holes)
        why = ", failed" if "failed" in entry.holes else ""
        text += f" ({len(entry.values)} of {total}{why})"
    return text


def digits_of(value: float, digits: int) -> str:
    """A number with this many digits behind the point; -n: with n digits in all."""
    return f"{value:.{digits}f}" if digits >= 0 else f"{value:.{-digits}g}"


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


# ------------------------------------------------------------ formats


def as_markdown(table: Crosstab) -> str:
    """Pipes, padded so that the source reads as a table, too; notes below."""
    grid = [[table.corner, *(table.column_names[c] for c in table.columns)]]
    grid += [[table.row_names[r], *(table.text(r, c) for c in table.columns)] for r in table.rows]
    grid = [[in_markdown(cell) for cell in line] for line in grid]
    wide = [max(len(line[i]) for line in grid) for i in range(len(grid[0]))]
    lines = [_line(line, wide) for line in grid]
    rule = "| " + " | ".join("-" * wide[0] if i == 0 else "-" * (w - 1) + ":"
                             for i, w in enumerate(wide)) + " |"  # fmt: skip
    notes = [f"\n{in_markdown(note)}" for note in table.notes]
    title = (
        [f"**{in_markdown(table.title)}** ({stat_words(table.stat)})", ""] if table.title else []
    )
    return "\n".join([*title, lines[0], rule, *lines[1:], *notes]) + "\n"


def _line(cells: Sequence[str], wide: Sequence[int]) -> str:
    told = [cell.rjust(width) for cell, width in zip(cells, wide, strict=True)]
    told[0] = cells[0].ljust(wide[0])  # names to the left, figures to the right
    return "| " + " | ".join(told) + " |"


def stat_words(stat: str) -> str:
    """What the numbers of a table are, in words."""
    return {
        "mean±sd": "mean ± standard deviation over seeds",
        "mean±se": "mean ± standard error over seeds",
        "mean": "mean over seeds",
        "median": "median over seeds",
        "max": "largest over seeds",
    }[stat]


def as_latex(table: Crosstab) -> str:
    r"""A tabular that needs no package; notes are comments."""
    side = "l" + "r" * len(table.columns)
    lines = [rf"\begin{{tabular}}{{{side}}}", r"\hline"]
    head = [table.corner, *(table.column_names[c] for c in table.columns)]
    lines += [" & ".join(map(_tex, head)) + r" \\", r"\hline"]
    for row in table.rows:
        cells = [table.text(row, c) for c in table.columns]
        lines.append(" & ".join(_tex(one) for one in [table.row_names[row], *cells]) + r" \\")
    lines += [r"\hline", r"\end{tabular}", *(f"% {shown(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$",
    "–": "--", "χ": r"$\chi$", "²": r"$^2$", "α": r"$\alpha$", "γ": r"$\gamma$", "λ": r"$\lambda$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in shown(text))


def as_csv(table: Crosstab, formulas: str = KEEP) -> str:
    """One line per entry: row, column, figure, unit, middle, deviation, how many seeds."""
    import pandas as pd

    columns = ["kind", "row", "column", "figure", "unit", "statistic", "value", "spread", "count",
               "lacking"]  # fmt: skip
    frame = pd.DataFrame(as_records(table), columns=columns)
    return csv_of_frame(frame, formulas, index=False, float_format=f"%.{_EXACT}g")


def as_records(table: Crosstab) -> list[dict[str, Any]]:
    """Every entry with its numbers, in `PLAIN_UNITS`; ``column``: its options alone."""
    found = []
    for row in table.rows:
        for column in table.columns:
            entry = table.entries.get((row, column), Entry())
            middle, spread = statistic(entry, table.stat) if entry.values else (None, None)
            found.append({
                "kind": row[0], "row": table.row_names[row], "column": table.settings[column],
                "figure": column[0], "unit": PLAIN_UNITS.get(column[0], ""),
                "statistic": table.stat, "value": middle, "spread": spread,
                "count": len(entry.values), "lacking": len(entry.holes),
            })  # fmt: skip
    return found


def as_json(table: Crosstab) -> str:
    """Entries and notes."""
    found = {"title": table.title, "entries": as_records(table), "notes": table.notes}
    return json_text(found, indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Crosstab], str]] = {
    "md": as_markdown,
    "csv": as_csv,
    "latex": as_latex,
    "json": as_json,
}
