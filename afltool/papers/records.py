"""The results of a study's cells as records: options by name, and figures or why there are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ..errors import InvalidDataError, UsageError
from ..files.tables import read_columns
from ..values.names import Phase
from .cells import OF_PARTITION, SEED, SEEDS, Cell
from .crosstab import Record
from .description import Study, option_names
from .options import MEASURED, VALUES, names_of, where_of
from .results import Result, Results, axes_of, own_seconds, varying


def records(results: Results, layers: Sequence[int] = ()) -> list[Record]:
    """A record for each cell, in the order of the study; with ``layers`` one for each of these.

    Cells without a result are records, too: holes, which a table marks.
    """
    return [record for one in results.each for record in _of_cell(one, layers)]


def _of_cell(one: Result, layers: Sequence[int]) -> Iterator[Record]:
    summary, axes, cell = one.found, axes_of(one.cell), one.cell
    deep = layers if "layers" in cell.config.head_options else ()
    if summary is None:
        each = [{**axes, "layers": number} for number in deep] or [axes]
        yield from (Record(its, {}, one.state) for its in each)
        return
    source = source_of(summary)
    measured = after_layers(summary) if deep else {}
    if not measured:
        yield Record(axes, figures(summary), source=source)
    for number in deep:
        if number in measured:
            its = {**axes, "layers": number}
            yield Record(its, measured[number], source=(*source, number))


def source_of(summary: Mapping[str, Any]) -> tuple[str, ...]:
    """What a summary is of: the digests of the head and of the test features."""
    return summary["head_digest"], summary["digests"]["test"]


def figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a summary that tables show; seconds without those of the features.

    ``best``: of all rounds on the test rows, as the papers count their rivals.
    """
    rounds = [summary, *summary["rounds"]]
    whole = {"best": _best(rounds), "top1_max": rounds[-1].get("top1_max"), **summary}
    own = {k: whole[k] for k in VALUES if isinstance(whole.get(k), (int, float))}
    sent = [
        one for one in summary["rounds"] if one.get("upload_bytes") or one.get("download_bytes")
    ]
    own["exchanges"] = len(summary.get("bytes_per_client") or sent)
    if "upload_bytes" in own and "bytes_per_client" not in summary:  # a rival's float32 arrays
        own["file_bytes"] = own["upload_bytes"]
    return {**own, "seconds": own_seconds(summary)}


def _best(rounds: Sequence[Mapping[str, Any]]) -> float | None:
    return max((one["top1"] for one in rounds if one.get("top1") is not None), default=None)


def after_layers(summary: Mapping[str, Any]) -> dict[int, dict[str, float]]:
    """Figures after each layer of a deep head that was evaluated after each round.

    Seconds and bytes are those up to that layer.
    """
    sent = ["upload_bytes", "download_bytes", *(["file_bytes"] if "file_bytes" in summary else [])]
    sums = dict.fromkeys(("seconds", *sent), 0.0)
    after: dict[int, dict[str, float]] = {}
    rounds = summary.get("rounds", [])
    for exchanges, one in enumerate(rounds, 1):
        sums["seconds"] += (one.get("gather_seconds") or 0) + (one.get("solve_seconds") or 0)
        for name in sent:
            sums[name] += one.get(name) or 0
        phase = Phase(one["phase"])
        if phase.kind == "weights" and phase.number is not None and one.get("top1") is not None:
            own = {k: one[k] for k in MEASURED if one.get(k) is not None}
            own |= {"best": _best(rounds[:exchanges]), "exchanges": exchanges, "n": summary["n"]}
            after[phase.number] = own | sums
    return after


def chosen(records: Sequence[Record], where: tuple[str, ...]) -> list[Record]:
    """The records whose options have the values of ``NAME=VALUE``."""
    kept = list(records)
    for text in where:
        called, value = where_of(text)
        names = names_of(called)
        if len(names) != 1 or not any(names[0] in one.axes for one in records):
            raise UsageError(f"--where {text}: no cell has the option {called!r}")
        kept = [one for one in kept if _equal(one.axes.get(names[0]), value.strip())]
    if not kept:
        raise UsageError(f"no cell fits --where {' --where '.join(where)}")
    return kept


def _equal(value: Any, text: str) -> bool:
    try:
        return float(value) == float(text)
    except (TypeError, ValueError):
        return str(value) == text


def also(method: str, file: str) -> list[Record]:
    """Results of another method from a CSV file: options and figures by column.

    A top-1 is a fraction, as everywhere in the program's files.
    """
    names = sorted(({*option_names({})} | {"scheme", *SEEDS}) - {"head", *VALUES})
    spelled = {name.replace("_", "-"): name for name in names} | {name: name for name in names}
    table = read_columns(Path(file), (), (*spelled, *VALUES))
    values = [one for one in VALUES if one in table]
    if not values:
        raise InvalidDataError(f"{file}: expected a column of figures: {', '.join(VALUES)}")
    lines = list(zip(*table.values(), strict=True))
    records = []
    for number, line in enumerate(lines, 2):
        cells = dict(zip(table, line, strict=True))
        axes = {spelled[k]: v for k, v in cells.items() if k not in VALUES and v is not None}
        figures = {k: _figure(file, number, k, cells[k]) for k in values if cells[k] is not None}
        records.append(Record({**axes, "head": method}, figures, kind="also"))
    return records


def _figure(file: str, line: int, name: str, text: str | None) -> float:
    try:
        value = float(str(text))
    except ValueError:
        raise InvalidDataError(f"{file}, line {line}: {name} is a number; found {text!r}") from None
    if name in ("top1", "top5", "train_top1") and not 0 <= value <= 1:
        raise InvalidDataError(
            f"{file}, line {line}: {name} is a fraction from 0 to 1; found {text}: divide "
            "percentages by 100"
        )
    return value


def equal_totals(results: Results) -> list[str]:
    """Which methods have equal totals for all partitions, and what their deviations come from.

    Over partitions such a deviation is 0. Where seeds of features or heads differ, too, what a
    table shows is the deviation over these alone. Digests tell something only where each client was
    summed apart: the sums of all rows are taken over from one partition to the next.
    """
    runs = pd.DataFrame([_totals(*one) for one in results.done if "total" in one[1]["digests"]])
    named: dict[tuple[bool, bool], list[str]] = {}  # whether clients are apart, and heads differ
    for label, alike in runs.groupby("label", sort=False) if len(runs) else ():
        different = alike.groupby(["setting", "start"])[["partition", "total"]].nunique()
        several = different[different["partition"] > 1]
        if len(several) and (several["total"] == 1).all():
            drawn = alike.groupby("setting")["start"].nunique().gt(1).any()
            named.setdefault((bool(alike["apart"].all()), bool(drawn)), []).append(str(label))
    return [
        f"Equal totals for all partitions, {BY_DIGESTS if apart else BY_CONSTRUCTION}: "
        f"{'; '.join(labels)}. {DRAWN if drawn else ALL_EQUAL}"
        for (apart, drawn), labels in sorted(named.items(), key=lambda one: one[0][1])
    ]


BY_DIGESTS = "by their digests"
BY_CONSTRUCTION = "by construction, since rows are summed whoever owns them"
ALL_EQUAL = (
    "Their deviation over partitions is 0 by construction. To get a spread, vary --weights-seed "
    "or, for random heads, --head-seed."
)
DRAWN = (
    "Partitions add nothing to their deviation: it is over the seeds of the features or the head "
    "alone."
)


def _totals(cell: Cell, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a run's total depends on, and the total, by digests; equal starts have equal rows."""
    given = {k: v for k, v in cell.config.given().items() if k not in (*SEEDS, *OF_PARTITION)}
    digests = summary["digests"]
    start = f"{digests['train']} {digests['first_head']}"
    setting = {"label": cell.label, "setting": str(given), "apart": cell.config.own.keep_clients}
    return {**setting, "start": start, "partition": digests["partition"], "total": digests["total"]}


def varied(study: Study) -> list[str]:
    """Options that differ between cells, without the seeds, in the order of the study."""
    names: dict[str, None] = {}
    for label in dict.fromkeys(cell.label for cell in study.cells):
        alike = [cell for cell in study.cells if cell.label == label]
        names |= dict.fromkeys(n for n in varying(alike) if n not in SEEDS and n != SEED)
    return list(names)
