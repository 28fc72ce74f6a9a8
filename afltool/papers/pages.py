"""The page of a study: tables, pictures, commands, digests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError
from ..files.schema import SUMMARY
from ..inputs import read_json
from ..options.look import ConfusionPicture, RoundsPicture
from ..plans.layout import RunFolder
from ..stages.plot import confusion_picture, rounds_picture
from . import records as found_by
from .cells import StudyFolder, line
from .crosstab import Crosstab, Record, published, spreads
from .options import (
    FIGURES,
    Report,
    TableOptions,
    names_of,
    numbers_of,
    refuse_options,
)
from .page import check_page, picture, write_page
from .plots import lines_of, plot_series, series_of, words
from .results import Result, Results, duration, is_whole, results_of
from .tables import SHARED, of_results, told
from .trial import LISTED, MANY, trial


def report(o: Report) -> Path:
    """Write the page of a study: one HTML file that needs no network; returns it.

    Of the folder of a run or a baseline it is the page of that; of another one with our files that
    of a trial, see `trial.trial`.
    """
    root, out, overwrite, options = o.study, o.out, o.overwrite, o.to(TableOptions)
    if not StudyFolder.is_one(root) and any(root.rglob("*.h5")):
        refuse_options(options, f"{root} is no study")
        page = of_run if (root / SUMMARY).is_file() else trial
        return page(root, out, overwrite)
    check_page(out)
    results = results_of(root)
    study, shown = results.study, told(results.study, options)
    seconds = duration(sum(summary["seconds"] for _, summary in results.done))
    versions = results.done[0][1]["versions"] if results.done else {}
    papers = None if shown.published in (None, "none") else str(shown.published)
    return write_page(
        "study.html",
        out,
        overwrite,
        title=study.title,
        shows=study.texts.get("shows", ""),
        counts=f"{len(results.done)} of {len(study.cells)} cells done, {seconds} in all",
        tables=list(_tables(results, options, shown)),
        drawn=list(_pictures(results, shown)) if results.done else [],
        published=papers and _published(papers),
        commands=[line([name, str(root)]) for name in ("study", "table")],
        cells=[_cell(one, results.folder) for one in results.each],
        versions=", ".join(f"{k} {v}" for k, v in versions.items()),
    )


def of_run(root: Path, out: Path, overwrite: bool) -> Path:
    """Write the page of a run or of a baseline that has ended."""
    check_page(out)
    summary = read_json(root / SUMMARY, "a summary")
    if not is_whole(summary):
        raise CorruptFileError(f"{root / SUMMARY} is not what a run writes: run it again")
    metrics = root / RunFolder.METRICS
    classes = read_json(metrics, "the metrics")["per_class"] if metrics.is_file() else {}
    shares = [(k, "–" if v is None else f"{v:.2%}") for k, v in list(classes.items())[:LISTED]]
    drawn = []
    if summary["rounds"][1:]:
        rounds = partial(_rounds_picture, root)
        drawn.append(("error, accuracy, seconds and bytes of each round", picture(rounds)))
    if classes and len(classes) <= MANY:
        drawn.append(("what it takes for what", picture(partial(_confusion_picture, metrics))))
    options = {**summary.get("options", {}), **summary.get("settings", {})}
    steps = [(s["stage"], s["file"], f"{s['seconds']:.2f}") for s in summary.get("stages", [])]
    run = [line(["run", str(root / RunFolder.OPTIONS), "-o", str(root)])]
    return write_page(
        "run.html",
        out,
        overwrite,
        title=root.resolve().name,
        shows=f"top-1 {summary['top1']:.2%} of {summary['n']:,} test rows",
        counts=f"{options.get('head') or summary.get('method')}, {duration(summary['seconds'])}",
        facts=_facts(summary),
        classes=shares,
        drawn=drawn,
        options=[(k.replace("_", "-"), v) for k, v in options.items() if v is not None],
        steps=steps,
        commands=(run if summary.get("stages") else []) + [line(["status", str(root)])],
        versions=", ".join(f"{k} {v}" for k, v in summary["versions"].items()),
    )


def _rounds_picture(root: Path, out: Path) -> Path:
    return rounds_picture(RoundsPicture((root,), out))


def _confusion_picture(metrics: Path, out: Path) -> Path:
    return confusion_picture(ConfusionPicture(metrics, out))


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


def _published(name: str) -> dict[str, Any]:
    """The figures of a paper's table, all of them or those of the data set that is named."""
    of = name.partition(":")[2]
    found = [one for one in published(name) if of in ("", one.axes["data"])]
    behind = ", ± are ".join(filter(None, ("as published", spreads(found))))
    return {"name": name, "rows": [row for one in found for row in _rows(one)], "behind": behind}


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


def _pictures(results: Results, shown: TableOptions) -> Iterator[tuple[str, str]]:
    """Top-1 against every option of the table that is a number, and against bytes."""
    records = found_by.chosen(found_by.records(results, numbers_of(shown.layers)), shown.where)
    names = [*names_of(shown.columns), *names_of(shown.rows), *found_by.varied(results.study)]
    for x in [*(one for one in dict.fromkeys(names) if one != "head"), _sent(records)]:
        if x not in FIGURES and len(_numbers(records, x)) < 2:
            continue
        there = [one for one in records if x in FIGURES or one.axes.get(x) is not None]
        series = series_of(there, x, "top1", ["head"] if x in FIGURES else lines_of(there, x))
        if any(one.x for one in series) and len(series) <= 12:
            drawn = picture(partial(plot_series, series, words(x), "top1"))
            yield f"top-1 against {words(x)}", drawn


def _numbers(records: Iterable[Record], x: str) -> set[float]:
    values = (one.axes.get(x) for one in records if one.figures)
    return {v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)}


def _cell(one: Result, folder: StudyFolder) -> dict[str, Any]:
    """A cell: its name, its state, its command line, and what it found or why it failed."""
    before, own = one.cell.commands(folder)
    facts = {"why": one.why} if one.why else {}
    return {
        "name": one.name,
        "state": one.state,
        "typed": " && ".join(map(line, [*before, own])),
        "facts": facts if one.found is None else _facts(one.found),
    }


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    names = {"train": "training features", "test": "test features", "first_head": "first head"}
    sent = f"a client sends {summary['upload_bytes']:,} and gets {summary['download_bytes']:,}"
    return {
        "top-1": f"{summary['top1']:.2%} of {summary['n']:,} rows",
        "seconds": f"{summary['seconds']:.2f}",
        "bytes": sent,
        **{f"digest: {names.get(k, k)}": v for k, v in summary["digests"].items()},
    }
