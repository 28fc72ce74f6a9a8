"""The page of a study: collects its results for `papers.page`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..files.atomic import write_text
from ..files.outputs import check_output
from ..inputs import distinct_files
from . import records as found_by
from .cells import Cell, line
from .crosstab import UNITS, Crosstab
from .description import Study, of_folder
from .layout import StudyFolder
from .options import TableOptions, names_of, parse_figures
from .page import CellFacts, Page, page
from .plots import lines_of, series_of, words
from .published import published
from .results import failure, finished, names_of_cells
from .series import plot_series
from .tables import SHARED, table, told
from .times import duration


def report(
    root: Path, out: Path, options: TableOptions = TableOptions(), *, overwrite: bool = False
) -> Path:
    """Write the page of the study in ``root``: one HTML file that needs no network; returns it.

    ``options`` are those of its table, see `table`.
    """
    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out}: a page is an .html file; give such a name")
    check_output(out)
    folder, study = StudyFolder(root), of_folder(root)
    shown = told(study, options)
    summaries = {cell.key: finished(folder, cell) for cell in study.cells}
    done = [found for found in summaries.values() if found is not None]
    seconds = sum(found["seconds"] for found in done)
    counts = f"{len(done)} of {len(study.cells)} cells done, {duration(seconds)} in all"
    paper = shown.published if shown.published not in (None, "none") else None
    found = Page(
        title=study.title,
        shows=study.texts.get("shows", ""),
        counts=counts,
        tables=list(_tables(root, options, shown)),
        pictures=_pictures(study, folder, shown) if done else {},
        published=[] if paper is None else _published(paper),
        published_name=paper or "",
        commands=[line(["study", str(root)]), line(["table", str(root)])],
        cells=list(_cells(study, folder, summaries)),
        versions=done[0]["versions"] if done else {},
    )
    return write_text(page(found), out, overwrite)


def _tables(root: Path, given: TableOptions, shown: TableOptions) -> Iterator[Crosstab]:
    """The study's table, and one of costs."""
    first = table(root, given)
    first.title = "Results"
    yield first
    if not {"seconds", "upload_bytes"} & set(names_of(shown.value)):
        value = parse_figures("seconds,upload_bytes")
        costs = replace(given, value=value, stat="mean", published="none", test=None, also=())
        second = table(root, costs)
        second.title = "Costs"
        second.notes = [SHARED]
        yield second


def _pictures(study: Study, folder: StudyFolder, shown: TableOptions) -> dict[str, bytes]:
    """Top-1 against every option of the table that is a number, and against bytes."""
    layers = shown.layers.numbers if shown.layers else ()
    found = found_by.chosen(found_by.records(study, folder, layers), shown.where)
    names = [*names_of(shown.columns), *names_of(shown.rows), *found_by.varied(study)]
    options = [one for one in dict.fromkeys(names) if one != "head"]
    drawn: dict[str, bytes] = {}
    for x in [*options, "upload_bytes"]:
        if x not in UNITS and len(_numbers(found, x)) < 2:
            continue
        there = [one for one in found if x in UNITS or one.axes.get(x) is not None]
        series = series_of(there, x, "top1", ["head"] if x in UNITS else lines_of(there, x))
        if any(one.x for one in series) and len(series) <= 12:
            drawn[f"top-1 against {words(x)}"] = _svg(series, x)
    return drawn


def _numbers(found: Any, x: str) -> set[float]:
    values = (one.axes.get(x) for one in found if one.figures)
    return {v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _svg(series: Any, x: str) -> bytes:
    with tempfile.TemporaryDirectory() as scratch, distinct_files():
        return plot_series(series, words(x), "top1", Path(scratch) / "p.svg").read_bytes()


def _published(name: str) -> list[list[str]]:
    rows = [["method", "data", "setting", "figure", "value"]]
    of = name.partition(":")[2]  # the data set, where it is said
    for one in (one for one in published(name) if of in ("", one.axes["data"])):
        rest = {k: v for k, v in one.axes.items() if k not in ("head", "data")}
        setting = ", ".join(f"{k.replace('_', '-')} = {v}" for k, v in rest.items())
        for figure, value in one.figures.items() or [("", 0.0)]:
            unit, factor, digits = UNITS.get(figure, (figure, 1.0, -3))
            shown = f"{value * factor:.{abs(digits)}{'f' if digits >= 0 else 'g'}}"
            spread = f" ± {one.spread * factor:.2f}" if one.spread is not None else ""
            told_value = one.hole or shown + spread
            rows.append([one.axes["head"], one.axes["data"], setting, unit, told_value])
    return rows


def _cells(study: Study, folder: StudyFolder, summaries: Mapping[str, Any]) -> Iterator[CellFacts]:
    names = names_of_cells(study.cells)
    for cell in study.cells:
        found, why = summaries[cell.key], failure(folder, cell)
        state = "done" if found is not None else "failed" if why else "missing"
        facts = {} if found is None else _facts(found)
        if why and found is None:
            facts = {"why": why}
        yield CellFacts(names[cell.key], state, _command(cell, folder), facts)


def _command(cell: Cell, folder: StudyFolder) -> str:
    before, own = cell.commands(folder)
    return " && ".join(line(one) for one in [*before, own])


def _facts(found: Mapping[str, Any]) -> dict[str, str]:
    facts = {"top-1": f"{found['top1']:.2%} of {found['n']:,} rows"}
    facts["seconds"] = f"{found['seconds']:.2f}"
    facts["bytes"] = (
        f"a client sends {found['upload_bytes']:,} and gets {found['download_bytes']:,}"
    )
    names = {"train": "training features", "test": "test features", "first_head": "first head"}
    facts |= {f"digest: {names.get(k, k)}": v for k, v in found["digests"].items()}
    return facts
