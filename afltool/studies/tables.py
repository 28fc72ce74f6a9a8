"""The tables of a study: its results, published figures beside them, and tests of rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..options.study import TableOptions, names_of, numbers_of
from ..report.crosstab import Crosstab, Entry, Key, Record, crosstab
from ..report.published import NOT_STATED, beside, published
from ..runs.layout import RunFolder
from ..stages.evaluate import evaluate
from ..store.folders import BaselineFolder
from . import records as found_by
from .axes import axes_of
from .cells import SEEDS
from .description import Study, of_folder
from .layout import StudyFolder
from .results import by_reason, failure, finished, names_of_cells


def told(study: Study, given: TableOptions) -> TableOptions:
    """The options of a table: the given ones, then those of the study."""
    theirs: dict[str, Any] = {k: v for k, v in study.shown.items() if getattr(given, k) is None}
    return replace(given, **theirs)


def table(root: str | Path, given: TableOptions | None = None) -> Crosstab:
    """The table of the study in the folder ``root``.

    Equal results give equal tables, byte for byte, even if cells were run again in between.
    """
    folder, study = StudyFolder(root), of_folder(Path(root))
    o = told(study, given or TableOptions())
    ours = found_by.chosen(found_by.records(study, folder, numbers_of(o.layers)), o.where)
    rows, columns = axes(study, given or TableOptions(), ours)
    others = [one for text in o.also for one in found_by.also(text)]
    papers = [] if o.published in (None, "none") else beside(str(o.published), ours, columns)
    values = names_of(o.value) or ["top1"]
    stat = o.stat or "mean±sd"
    made = crosstab([*ours, *others, *papers], rows, columns, values, stat, SEEDS, study.title)
    made.notes += notes(study, folder, o, papers)
    if o.test is not None:
        made.notes += tests(made, o.test, _heads(study, folder))
    return made


def axes(study: Study, given: TableOptions, ours: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Names of the rows' and the columns' options; a given name that no cell has is refused.

    Names from the study that no cell has are left out, because the study may run on other data.
    """
    known = {name for record in ours for name in record.axes}
    of_rows = known | _of_papers(told(study, given).published or "")
    shown = study.shown.get("columns")
    wanted = found_by.varied(study) if shown is None else names_of(shown)
    rows = names_of(given.rows) or [
        one for one in names_of(study.shown.get("rows")) if one in of_rows
    ]
    rows = rows or ["head"]
    columns = names_of(given.columns)
    if given.columns is None:
        columns = [name for name in wanted if name in known and name not in rows]
    for name in (*rows, *columns):
        if name not in of_rows:
            raise UsageError(
                f"no cell has the option {name.replace('_', '-')!r}; there are "
                f"{', '.join(sorted(one.replace('_', '-') for one in known))}"
            )
    return rows, columns


def _of_papers(name: str) -> set[str]:
    """Options of the published figures that stand beside given features, as ``safle-3:cifar10``."""
    return {axis for one in published(name) for axis in one.axes} if ":" in name else set()


def notes(
    study: Study, folder: StudyFolder, o: TableOptions, papers: Sequence[Record]
) -> list[str]:
    """Notes for the reader: equal totals, missing results, the source of published figures."""
    found = found_by.equal_totals(study, folder)
    names = names_of_cells(study.cells)
    whys = [
        (names[cell.key], failure(folder, cell))
        for cell in study.cells
        if finished(folder, cell) is None
    ]
    failed = [(name, why) for name, why in whys if why is not None]
    missing = len(whys) - len(failed)
    if failed:
        found.append(f"{len(failed)} of {len(study.cells)} cells failed: {by_reason(failed)}.")
    if missing:
        found.append(f"{missing} of {len(study.cells)} cells have not been run.")
    if papers:
        unknown = any(one.axes["data"] == NOT_STATED for one in papers)
        which = ", on data that the paper does not name" if unknown else ""
        found.append(
            f"Published: {o.published}{which}; other backbone, weights or splits than ours."
        )
    elif o.published not in (None, "none"):
        theirs = sorted({str(one.axes["data"]) for one in published(str(o.published))})
        found.append(f"Published figures ({o.published}) are of {', '.join(theirs)}: none beside.")
    return found


# ------------------------------------------------------------ tests


Pair = tuple[Record, Record]


def tests(made: Crosstab, name: str, heads: Mapping[Key, tuple[Path, Path]]) -> list[str]:
    """The p-value of every row against the first one, column by column."""
    rows = [row for row in made.rows if row[0] != "published"]
    if len(rows) < 2:
        raise UsageError("--test compares every row with the first; the table has one row")
    first, lines = rows[0], []
    ask: dict[str, Callable[[Entry, Entry], float | None]] = {
        "chi2": _chi2, "t": _paired_t, "mcnemar": lambda a, b: _mcnemar(a, b, heads),
    }  # fmt: skip
    for column in made.columns:
        if column[0] != "top1":
            raise UsageError("--test is of top1")
        for row in rows[1:]:
            pair = [made.entries.get((key, column), Entry()) for key in (first, row)]
            p = ask[name](*pair) if all(one.values for one in pair) else None
            shown = "not defined" if p is None else f"{p:.3g}"
            lines.append(
                f"{_WORDS[name]}, {made.column_names[column]}: {made.row_names[row]} against "
                f"{made.row_names[first]}: p = {shown}"
            )
    return lines


_WORDS = {"chi2": "χ² of pooled counts", "t": "paired t over seeds", "mcnemar": "McNemar"}


def _chi2(a: Entry, b: Entry) -> float | None:
    """Pearson's χ² of right and wrong rows, pooled over seeds, without correction."""
    from scipy.stats import chi2_contingency

    counts = []
    for entry in (a, b):
        n = sum(round(one.figures["n"]) for one in entry.records if "n" in one.figures)
        if not n:
            return None
        right = sum(round(one.figures["top1"] * one.figures["n"]) for one in entry.records
                    if "n" in one.figures)  # fmt: skip
        counts.append([right, n - right])
    if not (counts[0][0] + counts[1][0]) or not (counts[0][1] + counts[1][1]):
        return None
    return float(chi2_contingency(counts, correction=False).pvalue)


def _paired(a: Entry, b: Entry) -> list[Pair]:
    """Records of equal seeds, in order."""
    by = {_seeds(one): one for one in b.records if one.figures}
    return [(one, by[_seeds(one)]) for one in a.records if one.figures and _seeds(one) in by]


def _seeds(record: Record) -> Key:
    return (str(record.axes.get("partition_seed", record.axes.get("seed"))),)


def _paired_t(a: Entry, b: Entry) -> float | None:
    """Student's t of the differences of equal seeds; None below two pairs or without deviation."""
    from scipy.stats import ttest_rel

    pairs = _paired(a, b)
    x, y = ([pair[i].figures["top1"] for pair in pairs] for i in (0, 1))
    if len(pairs) < 2 or len({u - v for u, v in zip(x, y, strict=True)}) == 1:
        return None
    return float(ttest_rel(x, y).pvalue)


def _mcnemar(a: Entry, b: Entry, heads: Mapping[Key, tuple[Path, Path]]) -> float | None:
    """McNemar's exact test; rows of all pairs of seeds together."""
    from scipy.stats import binomtest

    only_first = only_second = 0
    for pair in _paired(a, b):
        places = [heads.get(_identity(one)) for one in pair]
        if places[0] is None or places[1] is None:
            return None
        found = evaluate(places[0][0], places[0][1], against=places[1][0])["against"]
        only_first += found["only_this"]
        only_second += found["only_other"]
    differ = only_first + only_second
    return float(binomtest(only_first, differ).pvalue) if differ else 1.0


def _heads(study: Study, folder: StudyFolder) -> dict[Key, tuple[Path, Path]]:
    """Head and test features of every cell that is done, by the axes of its record."""
    found: dict[Key, tuple[Path, Path]] = {}
    for cell in study.cells:
        summary = finished(folder, cell)
        if summary is None:
            continue
        place = folder.cell(cell.key)
        key = _identity(Record(axes_of(cell), {}))
        if cell.method is None:
            run = RunFolder(place)
            found[key] = run.head(len(summary["bytes_per_client"])), run.features("test")
        else:
            found[key] = place / BaselineFolder.HEAD, cell.files(folder)[1]
    return found


def _identity(record: Record) -> Key:
    return tuple(sorted((k, str(v)) for k, v in record.axes.items()))
