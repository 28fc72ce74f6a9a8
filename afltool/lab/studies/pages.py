"""Pages: one HTML file that asks no network, of a study, a run or a baseline, made of a template.

The page's own rules (its content security policy) forbid every request. All text from outside is
escaped by the template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import CorruptFileError, UsageError
from ...files.atomic import write_text
from ...files.outputs import check_output
from ...files.schema import SUMMARY
from ...inputs import read_json
from ...options.look import Picture
from ...runs.folder import RunFolder
from ...stages.plot import plot
from . import frames
from .cells import StudyFolder, line
from .options import FIGURES, Report, TableOptions, names_of, numbers_of, refuse_options
from .plots import are_numbers, lines_of, plot_series, points_of, words
from .published import options_in, published
from .result_table import Crosstab, crosstab, spreads
from .results import Result, Results, duration, is_whole, results_of
from .tables import SHARED, of_results, told, varied
from .trial import LISTED, MANY, Drawn, of_trial, picture, templates


def report(o: Report) -> Path:
    """Write the page of a study: one HTML file that needs no network; returns it.

    Of the folder of a run or a baseline it is the page of that; of another one with our files that
    of a trial, see `trial.trial`.
    """
    root, out = o.study, o.out
    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out}: a page is an .html file; give such a name")
    check_output(out)
    if StudyFolder.is_one(root) or not any(root.rglob("*.h5")):
        template, facts = "study.html", of_study(results_of(root), o.to(TableOptions))
    else:
        refuse_options(o.to(TableOptions), f"{root} is no study")
        if (root / SUMMARY).is_file():
            template, facts = "run.html", of_run(root)
        else:
            template, facts = "trial.html", of_trial(root)
    page = templates().get_template(template).render(**facts)
    return write_text(page, out, o.overwrite)


# ---------------------------------------------------------------- a study


def of_study(results: Results, options: TableOptions) -> dict[str, Any]:
    """What the page says of a study."""
    study, asked = results.study, told(results.study, options)
    lines = frames.frame(results, numbers_of(asked.layers))
    weighed = lines[lines["state"].eq("done")].get("file_bytes")  # else there is only a bound
    sent = "upload_bytes" if weighed is None or weighed.isna().any() else "file_bytes"
    papers = None if asked.published in (None, "none") else str(asked.published)
    seconds = duration(sum(summary["seconds"] for _, summary in results.done))
    versions = results.done[0][1]["versions"] if results.done else {}
    drawn = _pictures(results, lines, asked, sent) if results.done else ()
    return {
        "title": study.title,
        "shows": study.texts.get("shows", ""),
        "counts": f"{len(results.done)} of {len(study.cells)} cells done, {seconds} in all",
        "tables": [_table(made) for made in _tables(results, lines, options, sent)],
        "drawn": list(drawn),
        "published": papers and _published(papers),
        "commands": [line([name, str(results.folder.root)]) for name in ("study", "table")],
        "cells": [_cell(one, results.folder) for one in results.each],
        "versions": versions,
    }


def _tables(results: Results, lines: Any, given: TableOptions, sent: str) -> Iterator[Crosstab]:
    """The study's table, and one of costs, by the options that our cells have."""
    first = of_results(results, given)
    first.title = "Results"
    yield first
    value = told(results.study, given).value
    if not {"seconds", "file_bytes", "upload_bytes"} & set(names_of(value)):
        known = set(options_in(lines))
        rows, columns = (
            ",".join(one for one in names_of(names) if one in known) or None
            for names in (given.rows, given.columns)
        )
        costs = TableOptions(
            rows=rows, columns=columns, value=f"seconds,{sent}", stat="mean", layers=given.layers,
            where=given.where, published="none",
        )  # fmt: skip
        second = of_results(results, costs)
        second.title, second.notes = "Costs", [SHARED]
        yield second


def _table(made: Crosstab) -> dict[str, Any]:
    """A table as the template takes it: numbers, by which the page sorts, beside texts."""
    both = zip(made.texts.itertuples(name=None), made.numbers.to_numpy(), strict=True)
    rows = [
        (*name, [*zip(("" if n != n else f"{n:.12g}" for n in numbers), texts, strict=True)])
        for (name, *texts), numbers in both
    ]
    named = {"title": made.title, "shows": made.shows, "notes": made.notes}
    return {**named, "names": [made.corner, *made.headings], "rows": rows}


def _published(name: str) -> dict[str, Any]:
    """The figures of a paper's table, all of them or those of the data set that is named."""
    found, data = published(name), name.partition(":")[2]
    found = found[found["data"] == data] if data else found
    axes = dict.fromkeys(("head", "data", *options_in(found)))
    made = crosstab(found, [*axes], [], [one for one in FIGURES if one in found], "mean±sd", [])
    each = made.entries[["row", "figure", "text"]].itertuples(index=False, name=None)
    rows = [(row.removesuffix(" (published)"), FIGURES[k].label, text) for row, k, text in each]
    behind = ", ± are ".join(filter(None, ("as published", spreads(found))))
    return {"name": name, "rows": rows, "behind": behind}


def _pictures(results: Results, lines: Any, o: TableOptions, sent: str) -> Iterator[Drawn]:
    """Top-1 against every option of the table that is a number, and against bytes."""
    lines = frames.chosen(lines, o.where)
    names = [*names_of(o.columns), *names_of(o.rows), *varied(results.study)]
    for x in [*(one for one in dict.fromkeys(names) if one in lines and one != "head"), sent]:
        known = lines[lines["state"].eq("done")].get(x)
        numbers = [] if known is None else known.dropna().tolist()
        if x not in FIGURES and (len(set(map(str, numbers))) < 2 or not are_numbers(numbers)):
            continue
        by = ["head"] if x in FIGURES else lines_of(lines, x)
        points = points_of(lines, x, "top1", by)
        if 0 < points["name"].nunique() <= 12:
            yield f"top-1 against {words(x)}", picture(partial(plot_series, points, x, "top1"))


def _cell(one: Result, folder: StudyFolder) -> dict[str, Any]:
    """A cell: its name, its state, its command lines, and what it found or why it failed."""
    typed = " && ".join(map(line, one.cell.commands(folder)))
    facts = {"why": one.why} if one.why else {}
    facts = facts if one.found is None else _facts(one.found)
    return {"name": one.name, "state": one.state, "typed": typed, "facts": facts}


def _facts(summary: Mapping[str, Any]) -> dict[str, str]:
    names = {"train": "training features", "test": "test features", "first_head": "first head"}
    sent = f"a client sends {summary['upload_bytes']:,} and gets {summary['download_bytes']:,}"
    return {
        "top-1": f"{summary['top1']:.2%} of {summary['n']:,} rows",
        "seconds": f"{summary['seconds']:.2f}",
        "bytes": sent,
        **{f"digest: {names.get(k, k)}": v for k, v in summary["digests"].items()},
    }


# ---------------------------------------------------------------- a run


def of_run(root: Path) -> dict[str, Any]:
    """What the page says of a run or of a baseline that has ended."""
    summary = read_json(root / SUMMARY, "a summary")
    if not is_whole(summary):
        raise CorruptFileError(f"{root / SUMMARY} is not what a run writes: run it again")
    metrics = root / RunFolder.METRICS
    classes = read_json(metrics, "the metrics")["per_class"] if metrics.is_file() else {}
    drawn: list[Drawn] = []
    if summary["rounds"][1:]:
        svg = picture(lambda out: plot(Picture("rounds", (root,), out)))
        drawn.append(("error, accuracy, seconds and bytes of each round", svg))
    if 0 < len(classes) <= MANY:
        svg = picture(lambda out: plot(Picture("confusion", metrics, out)))
        drawn.append(("what it takes for what", svg))
    options = {**summary.get("options", {}), **summary.get("settings", {})}
    run = [["run", str(root / RunFolder.OPTIONS), "-o", str(root)], ["status", str(root)]]
    return {
        "title": root.resolve().name,
        "shows": f"top-1 {summary['top1']:.2%} of {summary['n']:,} test rows",
        "counts": f"{options.get('head') or summary.get('method')}, {duration(summary['seconds'])}",
        "facts": _facts(summary),
        "classes": [
            (k, "–" if v is None else f"{v:.2%}") for k, v in list(classes.items())[:LISTED]
        ],
        "drawn": drawn,
        "options": [(k.replace("_", "-"), v) for k, v in options.items() if v is not None],
        "steps": [
            (s["stage"], s["file"], f"{s['seconds']:.2f}") for s in summary.get("stages", ())
        ],
        "commands": [line(one) for one in run] if "stages" in summary else [],
        "versions": summary["versions"],
    }
