"""The results of a study's cells as records: options by name, and figures or why there are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import InvalidDataError, UsageError
from ..files.columns import read_columns
from ..values.names import Phase
from .cells import OF_PARTITION, SEED, SEEDS
from .crosstab import Record
from .description import Study, option_names
from .options import MEASURED, VALUES, Pair, parse_names, parse_where
from .results import Result, Results, axes_of, own_seconds, varying


def records(results: Results, layers: Sequence[int] = ()) -> list[Record]:
    """A record for each cell, in the order of the study; with ``layers`` one for each of these.

    Cells without a result are records, too: holes, which a table marks.
    """
    return [record for one in results.each for record in _of_cell(one, layers)]


def _of_cell(one: Result, layers: Sequence[int]) -> Iterator[Record]:
    summary, axes, cell = one.found, axes_of(one.cell), one.cell
    deep = layers if cell.method is None and "layers" in cell.config.head_options else ()
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
    for pair in parse_where(where):
        words = parse_names(pair.name).words
        if len(words) != 1 or not any(words[0] in one.axes for one in records):
            raise UsageError(f"--where {pair}: no cell has the option {pair.name.strip()!r}")
        kept = [one for one in kept if _equal(one.axes.get(words[0]), pair.value.strip())]
    if not kept:
        raise UsageError(f"no cell fits --where {' --where '.join(map(str, where))} ")
    return kept


def _equal(value: Any, text: str) -> bool:
    try:
        return float(value) == float(text)
    except (TypeError, ValueError):
        return str(value) == text


def also(pair: Pair) -> list[Record]:
    """Results of another method from NAME=FILE.csv: options and figures by column.

    A top-1 is a fraction, as everywhere in the program's files.
    """
    file = pair.value
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
        records.append(Record({**axes, "head": pair.name.strip()}, figures, kind="also"))
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
    table shows is the deviation over these alone.
    """
    labels: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for cell, summary in results.done:
        if cell.method is None:
            options = cell.config.given().items()
            given = {k: v for k, v in options if k not in (*SEEDS, *OF_PARTITION)}
            labels.setdefault(cell.label, {}).setdefault(str(given), []).append(summary["digests"])
    equal, drawn = list[str](), list[str]()
    for label, settings in labels.items():
        apart = []  # of each setting: digests of cells with equal training rows and first head
        for alike in settings.values():
            starts: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
            for one in alike:
                starts.setdefault((one["train"], one["first_head"]), []).append(one)
            apart.append(list(starts.values()))
        several = [one for each in apart for one in each if len(_all(one, "partition")) > 1]
        if several and all(len(_all(one, "total")) == 1 for one in several):
            (drawn if any(len(each) > 1 for each in apart) else equal).append(label)
    start = "Equal totals for all partitions, by their digests"
    notes = []
    if equal:
        notes.append(
            f"{start}: {'; '.join(equal)}. Their deviation over partitions is 0 by construction. "
            "To get a spread, vary --weights-seed or, for random heads, --head-seed."
        )
    if drawn:
        notes.append(
            f"{start}: {'; '.join(drawn)}. Partitions add nothing to their deviation: it is "
            "over the seeds of the features or the head alone."
        )
    return notes


def _all(alike: Sequence[Mapping[str, Any]], name: str) -> set[str]:
    return {one[name] for one in alike}


def varied(study: Study) -> list[str]:
    """Options that differ between cells, without the seeds, in the order of the study."""
    names: dict[str, None] = {}
    for label in dict.fromkeys(cell.label for cell in study.cells):
        alike = [cell for cell in study.cells if cell.label == label]
        names |= dict.fromkeys(n for n in varying(alike) if n not in SEEDS and n != SEED)
    return list(names)
