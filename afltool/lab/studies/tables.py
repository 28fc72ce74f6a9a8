"""Tables of a study, with published figures; and of a total of counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ...errors import InvalidDataError, UsageError
from ...files.counts import evaluations, read_counts
from ...files.evaluations import figure_label, figure_text
from ...files.tables import read_columns
from ...values.names import Phase
from ...values.text import json_text
from .cells import OF_PARTITION, SEEDS
from .options import (
    FIGURES,
    MEASURED,
    VALUES,
    TableOf,
    TableOptions,
    parse_names,
    parse_numbers,
    parse_pair,
)
from .published import NOT_STATED, load_published, make_frame, options_in, plain
from .result_table import ResultTable, crosstab, csv_of_records, latex_text, markdown_lines
from .results import (
    Result,
    Results,
    compute_own_seconds,
    get_axes,
    group_failures,
    load_results,
    varying,
)
from .spec import Study, option_names

SHARED = (
    "Seconds were measured on this machine, without extraction. Work that cells share counts in "
    "the cell that came first."
)
EQUAL = (
    "Equal totals for all partitions, {}: {}. Partitions add nothing to their deviation; "
    "--weights-seed or, for random heads, --head-seed do."
)
HOW = {True: "by their digests", False: "by construction, since rows are summed whoever owns them"}


# ---------------------------------------------------------------- results as a frame


def frame(results: Results, layers: Sequence[int] = ()) -> pd.DataFrame:
    """A line for each cell, with ``layers`` for each of these; without a result it is a hole."""
    return make_frame([line for one in results.each for line in _lines(one, layers)])


def _lines(one: Result, layers: Sequence[int]) -> Iterator[dict[str, Any]]:
    options = {**get_axes(one.cell), "kind": "ours", "state": one.state}
    deep = layers if "layers" in one.cell.config.head_options else ()
    if one.found is None:
        yield from [{**options, "layers": number} for number in deep] or [options]
        return
    measured = after_layers(one.found) if deep else {}
    if not measured:
        yield {**options, **figures(one.found)}
    for number in (number for number in deep if number in measured):
        yield {**options, "layers": number, **measured[number]}


def make_round_lines(results: Results) -> pd.DataFrame:
    """A line for each round of each cell after which the accuracy was measured."""
    lines = []
    for one in results.each:
        options = {**get_axes(one.cell), "kind": "ours", "state": "done"}
        rounds = [] if one.found is None else one.found["rounds"] or [{}]
        for number, facts in enumerate(rounds, 1):
            last = one.found if number == len(rounds) else {}
            own = {k: v for k, v in {**facts, **(last or {})}.items() if k in MEASURED}
            lines += [{**options, "round": number, **own}] if own.get("top1") is not None else []
    return make_frame(lines)


def figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a summary; ``best``: of all rounds, as papers count their baselines."""
    rounds = [summary, *summary["rounds"]]
    whole = {"best": _mark_best(rounds), "top1_max": rounds[-1].get("top1_max"), **summary}
    own = {k: whole[k] for k in VALUES if isinstance(whole.get(k), (int, float))}
    sent = [r for r in summary["rounds"] if r.get("upload_bytes") or r.get("download_bytes")]
    own["exchanges"] = len(summary.get("bytes_per_client") or sent)
    if "upload_bytes" in own and "bytes_per_client" not in summary:  # a baseline's float32 arrays
        own["file_bytes"] = own["upload_bytes"]
    return {**own, "seconds": compute_own_seconds(summary)}


def _mark_best(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    return max((one["top1"] for one in rounds if one.get("top1") is not None), default=None)


def after_layers(summary: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Figures after each layer of a deep head; seconds and bytes are those up to that layer."""
    rounds = summary["rounds"]
    sent = ["upload_bytes", "download_bytes", *(["file_bytes"] if "file_bytes" in summary else [])]
    sums = pd.DataFrame(rounds).reindex(columns=["gather_seconds", "solve_seconds", *sent])
    sums = sums.astype(float).fillna(0).cumsum()
    sums.insert(0, "seconds", sums.pop("gather_seconds") + sums.pop("solve_seconds"))
    after = {}
    for i, one in enumerate(rounds):
        phase = Phase(one["phase"])
        if phase.kind == "weights" and phase.number is not None and one.get("top1") is not None:
            own = {k: one[k] for k in MEASURED if one.get(k) is not None}
            own |= {"best": _mark_best(rounds[: i + 1]), "exchanges": i + 1, "n": summary["n"]}
            after[phase.number] = own | {str(k): v for k, v in sums.iloc[i].items()}
    return after


def chosen(lines: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    for text in where:
        called, value = parse_pair(text)
        names = parse_names(called)
        if len(names) != 1 or names[0] not in options_in(lines):
            raise UsageError(f"--where {text}: no cell has the option {called!r}")
        lines = lines[[str(plain(one)) == str(plain(value)) for one in lines[names[0]]]]
    if lines.empty:
        raise UsageError(f"no cell fits --where {' --where '.join(where)}")
    return lines


# ---------------------------------------------------------------- figures of others


def add_published(name: str, ours: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Published figures of settings and data that we have; ``afl-1:cifar10``: given features are
    of that data set. Figures of a data set that the paper does not name stand beside any.
    """
    theirs, label = load_published(name), name.partition(":")[2]
    there = {NOT_STATED, *([label] if label else ours.get("data", []))}
    known = set(_settings(ours, columns))
    every = zip(theirs["data"], _settings(theirs, columns), strict=True)
    return theirs[[data in there and setting in known for data, setting in every]]


def _settings(lines: pd.DataFrame, names: Sequence[str]) -> list[tuple[Any, ...]]:
    every = lines.reindex(columns=list(names))
    return [tuple(map(plain, one)) for one in every.itertuples(index=False)]


def add_results(text: str) -> pd.DataFrame:
    """Results of another method from NAME=FILE.csv: options and figures by column."""
    method, file = parse_pair(text)
    names = sorted(({*option_names()} | {"scheme", *SEEDS}) - {"head", *VALUES})
    spelled = {name.replace("_", "-"): name for name in names} | {name: name for name in names}
    table = pd.DataFrame(read_columns(Path(file), (), (*spelled, *VALUES)), dtype=object)
    values = [one for one in VALUES if one in table]
    if not values:
        raise InvalidDataError(f"{file}: expected a column of figures: {', '.join(VALUES)}")
    for name in values:
        numbers = pd.to_numeric(table[name], errors="coerce")
        share = FIGURES[name].unit == "fraction"
        wrong = table[name].notna() & (numbers.isna() | (share & ~numbers.between(0, 1)))
        if len(bad := table.index[wrong]):
            kind = "a fraction from 0 to 1 (divide percentages by 100)" if share else "a number"
            raise InvalidDataError(
                f"{file}, line {bad[0] + 2}: {name} is {kind}; found {table[name][bad[0]]}"
            )
        table[name] = numbers
    return table.rename(columns=spelled).assign(head=method, kind="also", state="done")


# ---------------------------------------------------------------- a study's table


def resolve_options(study: Study, given: TableOptions) -> TableOptions:
    """The options of a table: the given ones, then those of the study."""
    theirs: dict[str, Any] = study.shown.changed_options()
    return replace(given, **{k: v for k, v in theirs.items() if getattr(given, k) is None})


def table(o: TableOf) -> ResultTable:
    """The table of the study in a folder; as a text it is Markdown.

    Of options that are not given the study has the defaults. Raises `UsageError` for names that no
    cell has, and where a cell would average unequal settings.
    """
    return make_table(load_results(o.study), o.to(TableOptions))


def make_table(results: Results, given: TableOptions) -> ResultTable:
    study, o = results.study, resolve_options(results.study, given)
    ours = chosen(frame(results, parse_numbers(o.layers)), o.where)
    rows, columns = axes(study, given, ours)
    papers = None if o.published in (None, "none") else str(o.published)
    theirs = [] if papers is None else [add_published(papers, ours, columns)]
    every = pd.concat([ours, *map(add_results, o.also), *theirs], ignore_index=True)
    values, known = parse_names(o.value) or ["top1"], {*every.dropna(axis="columns", how="all")}
    if strange := [name for name in values if name not in VALUES]:
        raise UsageError(f"--value is a list of {', '.join(VALUES)}; found {strange[0]!r}")
    lacking = [name for name in values if name not in known and (every["state"] == "done").any()]
    whence = f"cell has the figure {', '.join(lacking)}"
    if lacking and len(lacking) == len(values):
        raise UsageError(f"no {whence}; the study's options say what is measured")
    made = crosstab(every, rows, columns, values, SEEDS, study.title)
    made.notes += [f"No {whence}."] if lacking else []
    made.notes += [SHARED] if "seconds" in values else []
    made.notes += [*equal_totals(results), *_holes(results)]
    made.notes += [_paper_lines(papers, theirs[0])] if papers is not None else []
    return made


def axes(study: Study, given: TableOptions, ours: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Names of the rows' and the columns' options; of the study's those that some cell has."""
    known = set(options_in(ours))
    papers = resolve_options(study, given).published or ""
    named = options_in(load_published(papers)) if ":" in papers else []
    of_rows = known | {*named}  # such as the backbones of safle-3:cifar10
    rows = parse_names(given.rows) or [
        one for one in parse_names(study.shown.rows) if one in of_rows
    ]
    rows = rows or ["head"]
    columns = parse_names(given.columns)
    if given.columns is None:
        theirs = study.shown.columns
        wanted = varied_options(study) if theirs is None else parse_names(theirs)
        columns = [name for name in wanted if name in known and name not in rows]
    for name in (*rows, *columns):
        if name not in of_rows:
            there = ", ".join(sorted(one.replace("_", "-") for one in known))
            name = name.replace("_", "-")
            raise UsageError(f"no cell has the option {name!r}; there are {there}")
    return rows, columns


def varied_options(study: Study) -> list[str]:
    """Options that differ between cells, without the seeds, in the order of the study."""
    labels = dict.fromkeys(cell.label for cell in study.cells)
    alike = ([cell for cell in study.cells if cell.label == label] for label in labels)
    return [n for n in dict.fromkeys(n for one in alike for n in varying(one)) if n not in SEEDS]


def equal_totals(results: Results) -> list[str]:
    """Methods with equal totals for all partitions; digests tell only where clients were apart."""
    runs = []
    for cell, summary in results.done:
        digests, given = summary["digests"], cell.config.given_options().items()
        setting = {k: v for k, v in given if k not in (*SEEDS, *OF_PARTITION)}
        start = str([setting, digests["train"], digests.get("first_head")])
        facts = {"label": cell.label, "apart": cell.config.own.keep_clients, "start": start}
        runs += [{**facts, **digests}] if "total" in digests else []
    named: dict[bool, list[str]] = {}  # by whether clients were apart
    for label, alike in pd.DataFrame(runs).groupby("label", sort=False) if runs else ():
        found = alike.groupby("start")[["partition", "total"]].nunique()
        found = found[found["partition"] > 1]
        if len(found) and (found["total"] == 1).all():
            named.setdefault(bool(alike["apart"].all()), []).append(str(label))
    return [EQUAL.format(HOW[apart], "; ".join(labels)) for apart, labels in named.items()]


def _holes(results: Results) -> Iterator[str]:
    of = f"of {len(results.each)} cells"
    failed = [(one.name, str(one.why)) for one in results.each if one.state == "failed"]
    if failed:
        yield f"{len(failed)} {of} failed: {group_failures(failed)}."
    if missing := len(results.each) - len(results.done) - len(failed):
        yield f"{missing} {of} have not been run."


def _paper_lines(name: str, those: pd.DataFrame) -> str:
    if those.empty:
        theirs = sorted(load_published(name)["data"].unique())
        return f"Published figures ({name}) are of {', '.join(theirs)}: none is shown."
    unknown = (those["data"] == NOT_STATED).any()
    which = ", on data that the paper does not name" if unknown else ""
    return f"Published: {name}{which}; other backbone, weights or splits than ours."


# ---------------------------------------------------------------- a total of counts

COLUMNS = ("head", "digest", "of", "figure", "value", "low", "high", "least", "most", "is")


def table_of_counts(path: Path, form: str) -> str:
    """The table as Markdown, LaTeX, CSV or JSON; CSV and JSON also have the figures of classes."""
    every = evaluations(read_counts(path))
    if form in ("csv", "json"):
        rows = [
            {"head": one["head"]["name"], "digest": one["head"]["digest"], "of": of}
            | {"figure": name, **{end: figure.get(end) for end in COLUMNS[4:]}}
            for one in every
            for of, name, figure in _figures(one)
        ]
        json = json_text(rows, indent=2, ensure_ascii=False) + "\n"
        return csv_of_records(rows, COLUMNS) if form == "csv" else json
    lines: dict[str, list[str]] = {}
    for of, name, figure in (figure for one in every for figure in _figures(one)):
        if not of.startswith("class "):
            label = figure_label(name, figure) + ("" if of == "all" else f", {of}")
            whole = isinstance(figure["value"], int)
            text = f"{figure['value']:,}" if whole else figure_text(figure)
            lines.setdefault(label, []).append(text)
    named = [f"{one['head']['name']} {one['head']['digest'][:12]}" for one in every]
    grid = [["figure", *named], *([label, *texts] for label, texts in lines.items())]
    return "\n".join(markdown_lines(grid)) + "\n" if form == "md" else latex_text(grid)


def _figures(one: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """What a figure is of, its name, and the figure; counts of rows are figures, too."""
    parts = {"all": {"n": one["n"], **one["metrics"]}}
    for kind, named in (("class", one["classes"]), ("group", one.get("by", {}))):
        parts |= {f"{kind} {part}": figures for part, figures in named.items()}
    for of, figures in parts.items():
        for name, figure in figures.items():
            exact = figure if isinstance(figure, dict) else {"value": figure, "is": "exact"}
            yield of, "rows" if name == "n" else name, exact
