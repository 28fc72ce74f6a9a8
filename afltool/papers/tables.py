"""Tables of a study, with published figures and tests of rows; and of a total of counts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..files.counts import read_counts
from ..files.evaluations import figure_label, figure_text
from ..stages._counted import evaluations
from ..values.names import MEASURES
from ..values.text import json_text
from . import records as found_by
from .cells import SEEDS
from .crosstab import (
    NOT_STATED,
    Crosstab,
    Record,
    beside,
    crosstab,
    csv_of_records,
    latex_text,
    markdown_lines,
    published,
)
from .description import Study
from .options import TableOf, TableOptions, also_of, names_of, numbers_of
from .p_values import heads_of, tests
from .results import Results, by_reason, results_of

SHARED = (
    "Seconds were measured on this machine, without extraction. Work that cells share (sums of "
    "equal rows, equal heads) counts in the cell that came first: the sum over all cells is right, "
    "and one cell run alone may take longer."
)
AS_FILES = (
    "MB as files: the mean over clients, or over up to three of them where only sums were kept; of "
    "a rival the float32 numbers that its client sends."
)
_NEEDED = {
    "file_bytes": "fewer than 20 clients, and runs of earlier versions, are measured only with "
    "keep-clients = true",
    "density": "heads of codes (safle) have it",
    **dict.fromkeys(
        (*MEASURES, *(f"train_{one}" for one in MEASURES)), "separability = true measures it"
    ),
    "train_top1": "train-accuracy = true measures it",
}


def _whence(names: Sequence[str]) -> str:
    """Figures that no cell has, and what in the study would measure them."""
    hints = dict.fromkeys(_NEEDED[name] for name in names if name in _NEEDED)
    return ", ".join(names) + "".join(f"; {hint}" for hint in hints)


def told(study: Study, given: TableOptions) -> TableOptions:
    """The options of a table: the given ones, then those of the study."""
    theirs: dict[str, Any] = study.shown.changed()
    return replace(given, **{k: v for k, v in theirs.items() if getattr(given, k) is None})


def table(o: TableOf) -> Crosstab:
    """The table of the study in a folder; as a text it is Markdown.

    Of options that are not given the study has the defaults. Equal results give equal tables, byte
    for byte, even if cells were run again in between.

    Raises `UsageError` for names that no cell has, and where a cell would average unequal settings.
    """
    return of_results(results_of(o.study), o.to(TableOptions))


def of_results(results: Results, given: TableOptions) -> Crosstab:
    """The table that is asked for by ``given``."""
    study = results.study
    o = told(study, given)
    ours = found_by.chosen(found_by.records(results, numbers_of(o.layers)), o.where)
    rows, columns = axes(study, given, ours)
    others = [one for text in o.also for one in found_by.also(*also_of(text))]
    papers = [] if o.published in (None, "none") else beside(str(o.published), ours, columns)
    values = names_of(o.value) or ["top1"]
    done = [one.figures for one in (*ours, *others, *papers) if one.figures]
    lacking = [name for name in values if done and not any(name in one for one in done)]
    if lacking and len(lacking) == len(values):
        raise UsageError(f"no cell has the figure {_whence(lacking)}")
    stat = o.stat or "mean±sd"
    table = crosstab([*ours, *others, *papers], rows, columns, values, stat, SEEDS, study.title)
    table.notes += [f"No cell has the figure {_whence(lacking)}."] if lacking else []
    table.notes += [SHARED] if "seconds" in values else []
    table.notes += [AS_FILES] if "file_bytes" in values else []
    table.notes += notes(results, o, papers)
    if o.test is not None:
        table.notes += tests(table, o.test, heads_of(results))
    return table


def axes(study: Study, given: TableOptions, ours: Sequence[Record]) -> tuple[list[str], list[str]]:
    """Names of the rows' and the columns' options; a given name that no cell has is refused.

    Names from the study that no cell has are left out, because the study may run on other data.
    """
    known = {name for record in ours for name in record.axes}
    papers = told(study, given).published or ""
    beside_given = published(papers) if ":" in papers else ()  # such as safle-3:cifar10
    of_rows = known | {axis for one in beside_given for axis in one.axes}
    shown = study.shown
    wanted = found_by.varied(study) if shown.columns is None else names_of(shown.columns)
    rows = names_of(given.rows) or [one for one in names_of(shown.rows) if one in of_rows]
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


def notes(results: Results, o: TableOptions, papers: Sequence[Record]) -> list[str]:
    """Notes for the reader: equal totals, missing results, the source of published figures."""
    equal, of = found_by.equal_totals(results), f"of {len(results.each)} cells"
    failed = [(one.name, str(one.why)) for one in results.each if one.state == "failed"]
    missing = len(results.each) - len(results.done) - len(failed)
    if failed:
        equal.append(f"{len(failed)} {of} failed: {by_reason(failed)}.")
    if missing:
        equal.append(f"{missing} {of} have not been run.")
    if papers:
        unknown = any(one.axes["data"] == NOT_STATED for one in papers)
        which = ", on data that the paper does not name" if unknown else ""
        equal.append(
            f"Published: {o.published}{which}; other backbone, weights or splits than ours."
        )
    elif o.published not in (None, "none"):
        theirs = sorted({str(one.axes["data"]) for one in published(str(o.published))})
        equal.append(
            f"Published figures ({o.published}) are of {', '.join(theirs)}: none is shown."
        )
    return equal


COLUMNS = ("head", "digest", "of", "figure", "value", "low", "high", "least", "most", "is")


def figures_of(path: Path) -> list[dict[str, Any]]:
    """A line for each figure, by the names in `COLUMNS`; counts of rows are figures, too."""
    rows = []
    for one in evaluations(read_counts(path)):
        whose = {"head": one["head"]["name"], "digest": one["head"]["digest"]}
        for of, name, figure in _figures(one):
            entry = {**whose, "of": of, "figure": name, **figure}
            rows.append({column: entry.get(column) for column in COLUMNS})
    return rows


def _figures(one: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What a figure is of, its name, and the figure."""
    yield "all", "rows", _count(one["n"])
    for name, figure in one["metrics"].items():
        yield "all", name, figure
    parts = {"class": one["classes"], "group": one.get("by", {})}
    for kind, named in parts.items():
        for part, figures in named.items():
            for name, figure in figures.items():
                text = figure if isinstance(figure, dict) else _count(figure)
                yield f"{kind} {part}", {"n": "rows"}.get(name, name), text
    for other in one.get("others", ()):
        yield f"against {other['path']}", "McNemar p", _count(other["p_value"])


def _count(value: float | None) -> dict[str, Any]:
    return {"value": value, "is": "exact"}


def _grid(path: Path) -> list[list[str]]:
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


def table_of_counts(path: Path, form: str) -> str:
    """The table as Markdown, LaTeX, CSV or JSON; CSV and JSON also have the figures of classes."""
    if form == "csv":
        return csv_of_records(figures_of(path), COLUMNS)
    if form == "json":
        return json_text(figures_of(path), indent=2, ensure_ascii=False) + "\n"
    grid = _grid(path)
    return "\n".join(markdown_lines(grid)) + "\n" if form == "md" else latex_text(grid)
