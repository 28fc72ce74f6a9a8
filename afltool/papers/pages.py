"""The page of a study: tables, pictures, commands, digests in one file that asks no network.

The page's own rules (its content security policy) forbid every request. All text from outside is
escaped here, in one place.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..inputs import distinct_files
from . import records as found_by
from .cells import StudyFolder, line
from .crosstab import Crosstab, Entry, Record, published, spreads, statistic
from .hypertext import check_page, command, html_table, picture, text, write_page
from .options import (
    FIGURES,
    Report,
    TableOptions,
    names_of,
    numbers_of,
    refuse_options,
)
from .plots import lines_of, plot_series, series_of, words
from .results import Result, Results, duration, results_of
from .tables import SHARED, of_results, told
from .trial import trial


def report(o: Report) -> Path:
    """Write the page of a study: one HTML file that needs no network; returns it.

    Of another folder with our files it is the page of a trial, see `trial.trial`.
    """
    root, out, overwrite, options = o.study, o.out, o.overwrite, o.to(TableOptions)
    if not StudyFolder.is_one(root) and any(root.rglob("*.h5")):
        refuse_options(options, f"{root} is no study")
        return trial(root, out, overwrite)
    check_page(out)
    results = results_of(root)
    study, each = results.study, {cell.key: summary for cell, summary in results.done}
    seconds = duration(sum(summary["seconds"] for summary in each.values()))
    done = f"{len(results.done)} of {len(study.cells)} cells done, {seconds} in all"
    shows, body = study.texts.get("shows", ""), _body(results, options)
    return write_page(out, study.title, shows, done, body, overwrite)


def _body(results: Results, options: TableOptions) -> Iterator[str]:
    shown, root = told(results.study, options), str(results.folder.root)
    yield from (_crosstab(one) for one in _tables(results, options, shown))
    if results.done:
        yield from _pictures(results, shown)
    if shown.published not in (None, "none"):
        yield _published(str(shown.published))
    yield "<h2>Commands</h2>"
    yield from (command(line([name, root])) for name in ("study", "table"))
    yield "<h2>Cells</h2>"
    yield from (_cell(one, results.folder) for one in results.each)
    versions = results.done[0][1]["versions"] if results.done else {}
    named = ", ".join(f"{text(k)} {text(v)}" for k, v in versions.items())
    yield f'<h2>Versions</h2><p class="soft">{named}</p>'


def _tables(results: Results, given: TableOptions, shown: TableOptions) -> Iterator[Crosstab]:
    """The study's table, and one of costs."""
    first = of_results(results, given)
    first.title = "Results"
    yield first
    ours = found_by.records(results, numbers_of(shown.layers))
    sent = _sent(ours)
    if not {"seconds", "file_bytes", "upload_bytes"} & set(names_of(shown.value)):
        value, known = f"seconds,{sent}", {axis for one in ours for axis in one.axes}
        costs = replace(given, value=value, stat="mean", published="none", test=None, also=())
        rows, columns = _among(known, given.rows), _among(known, given.columns)
        costs = replace(costs, rows=rows, columns=columns)
        second = of_results(results, costs)
        second.title, second.notes = "Costs", [SHARED]
        yield second


def _among(known: set[str], names: str | None) -> str | None:
    """The names that our cells have; only published figures have the others."""
    return ",".join(one for one in names_of(names) if one in known) or None


def _sent(records: Iterable[Record]) -> str:
    """The figure of the bytes that a client sends; older runs know only a bound of them."""
    return "file_bytes" if any("file_bytes" in one.figures for one in records) else "upload_bytes"


def _crosstab(made: Crosstab) -> str:
    names = [made.corner, *(made.column_names[c] for c in made.columns)]
    lines = []
    for row in made.rows:
        cells = [f'<th scope="row">{text(made.row_names[row])}</th>']
        for column in made.columns:
            entry = made.entries.get((row, column), Entry())
            value = f"{statistic(entry, made.stat)[0]:.12g}" if entry.values else ""
            cells.append(f'<td data-value="{value}">{text(made.text(row, column))}</td>')
        kind = "published" if row[0] == "published" else ""
        lines.append(f'<tr class="{kind}">{"".join(cells)}</tr>')
    notes = "".join(f"<li>{text(note)}</li>" for note in made.notes)
    notes = f'<ul class="notes">{notes}</ul>' if notes else ""
    return f"<h2>{text(made.title)}</h2>{html_table(names, lines, made.shows)}{notes}"


def _published(name: str) -> str:
    """The figures of a paper's table, all of them or those of the data set that is named."""
    of = name.partition(":")[2]
    found = [one for one in published(name) if of in ("", one.axes["data"])]
    rows = [row for one in found for row in _rows(one)]
    texts = ("".join(f'<td class="text">{text(one)}</td>' for one in row) for row in rows)
    lines = [f'<tr class="published">{row}</tr>' for row in texts]
    behind = ", ± are ".join(filter(None, ("as published", spreads(found))))
    return (
        f"<h2>Published figures</h2><details><summary>{text(name)}: {len(rows)} figures as "
        "published, with other backbone, weights or splits than ours</summary>"
        f"{html_table(('method', 'data', 'setting', 'figure', 'value'), lines, behind)}"
        "</details>"
    )


def _rows(one: Record) -> Iterator[tuple[str, ...]]:
    rest = {k: v for k, v in one.axes.items() if k not in ("head", "data")}
    setting = ", ".join(f"{k.replace('_', '-')} = {v}" for k, v in rest.items())
    start = (one.axes["head"], one.axes["data"], setting)
    for figure, value in one.figures.items():
        its = FIGURES[figure]
        spread = f" ± {one.spread * its.factor:.2f}" if one.spread is not None else ""
        yield (*start, its.label, f"{its.text(value)}{spread}")
    if one.hole:
        yield (*start, "", one.hole)


def _pictures(results: Results, shown: TableOptions) -> list[str]:
    """Top-1 against every option of the table that is a number, and against bytes."""
    records = found_by.chosen(found_by.records(results, numbers_of(shown.layers)), shown.where)
    names = [*names_of(shown.columns), *names_of(shown.rows), *found_by.varied(results.study)]
    drawn = []
    for x in [*(one for one in dict.fromkeys(names) if one != "head"), _sent(records)]:
        if x not in FIGURES and len(_numbers(records, x)) < 2:
            continue
        there = [one for one in records if x in FIGURES or one.axes.get(x) is not None]
        series = series_of(there, x, "top1", ["head"] if x in FIGURES else lines_of(there, x))
        if any(one.x for one in series) and len(series) <= 12:
            drawn.append(picture(f"top-1 against {words(x)}", _svg(series, x)))
    return [f'<h2>Pictures</h2><div class="pictures">{"".join(drawn)}</div>'] if drawn else []


def _numbers(records: Iterable[Record], x: str) -> set[float]:
    values = (one.axes.get(x) for one in records if one.figures)
    return {v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _svg(series: Any, x: str) -> bytes:
    with tempfile.TemporaryDirectory() as scratch, distinct_files():
        return plot_series(series, words(x), "top1", Path(scratch) / "p.svg").read_bytes()


def _cell(one: Result, folder: StudyFolder) -> str:
    """A cell: its name, its state, its command line, and what it found or why it failed."""
    before, own = one.cell.commands(folder)
    facts = {"why": one.why} if one.why else {}
    rows = facts if one.found is None else _facts(one.found)
    listed = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in rows.items())
    return (
        f'<details class="cell"><summary><span class="state {one.state}">{one.state}</span> '
        f"{text(one.name)}</summary>{command(' && '.join(map(line, [*before, own])))}"
        f"<dl>{listed}</dl></details>"
    )


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    names = {"train": "training features", "test": "test features", "first_head": "first head"}
    sent = f"a client sends {summary['upload_bytes']:,} and gets {summary['download_bytes']:,}"
    return {
        "top-1": f"{summary['top1']:.2%} of {summary['n']:,} rows",
        "seconds": f"{summary['seconds']:.2f}",
        "bytes": sent,
        **{f"digest: {names.get(k, k)}": v for k, v in summary["digests"].items()},
    }
