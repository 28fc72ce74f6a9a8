"""Results of a study as a frame, and those of others beside them; see `published`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ...errors import InvalidDataError, UsageError
from ...files.tables import read_columns
from ...values.names import Phase
from .cells import SEEDS
from .options import FIGURES, MEASURED, VALUES, names_of, pair_of
from .published import NOT_STATED, frame_of, options_in, plain, published
from .results import Result, Results, axes_of, own_seconds
from .spec import option_names


def frame(results: Results, layers: Sequence[int] = ()) -> pd.DataFrame:
    """A line for each cell, with ``layers`` for each of these; without a result it is a hole."""
    return frame_of([line for one in results.each for line in _lines(one, layers)])


def _lines(one: Result, layers: Sequence[int]) -> Iterator[dict[str, Any]]:
    options = {**axes_of(one.cell), "kind": "ours", "state": one.state}
    deep = layers if "layers" in one.cell.config.head_options else ()
    if one.found is None:
        yield from [{**options, "layers": number} for number in deep] or [options]
        return
    measured = after_layers(one.found) if deep else {}
    if not measured:
        yield {**options, **figures(one.found)}
    for number in (number for number in deep if number in measured):
        yield {**options, "layers": number, **measured[number]}


def of_rounds(results: Results) -> pd.DataFrame:
    """A line for each round of each cell after which the accuracy was measured."""
    lines = []
    for one in results.each:
        options = {**axes_of(one.cell), "kind": "ours", "state": "done"}
        rounds = [] if one.found is None else one.found["rounds"] or [{}]
        for number, facts in enumerate(rounds, 1):
            last = one.found if number == len(rounds) else {}
            own = {k: v for k, v in {**facts, **(last or {})}.items() if k in MEASURED}
            lines += [{**options, "round": number, **own}] if own.get("top1") is not None else []
    return frame_of(lines)


def figures(summary: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a summary; ``best``: of all rounds, as papers count their baselines."""
    rounds = [summary, *summary["rounds"]]
    whole = {"best": _best(rounds), "top1_max": rounds[-1].get("top1_max"), **summary}
    own = {k: whole[k] for k in VALUES if isinstance(whole.get(k), (int, float))}
    sent = [r for r in summary["rounds"] if r.get("upload_bytes") or r.get("download_bytes")]
    own["exchanges"] = len(summary.get("bytes_per_client") or sent)
    if "upload_bytes" in own and "bytes_per_client" not in summary:  # a baseline's float32 arrays
        own["file_bytes"] = own["upload_bytes"]
    return {**own, "seconds": own_seconds(summary)}


def _best(rounds: Sequence[Mapping[str, Any]]) -> float | None:
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
            own |= {"best": _best(rounds[: i + 1]), "exchanges": i + 1, "n": summary["n"]}
            after[phase.number] = own | {str(k): v for k, v in sums.iloc[i].items()}
    return after


def chosen(lines: pd.DataFrame, where: Sequence[str]) -> pd.DataFrame:
    for text in where:
        called, value = pair_of(text)
        names = names_of(called)
        if len(names) != 1 or names[0] not in options_in(lines):
            raise UsageError(f"--where {text}: no cell has the option {called!r}")
        lines = lines[[str(plain(one)) == str(plain(value)) for one in lines[names[0]]]]
    if lines.empty:
        raise UsageError(f"no cell fits --where {' --where '.join(where)}")
    return lines


# ---------------------------------------------------------------- figures of others


def beside(name: str, ours: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """Published figures of settings and data that we have; ``afl-1:cifar10``: given features are
    of that data set. Figures of a data set that the paper does not name stand beside any.
    """
    theirs, label = published(name), name.partition(":")[2]
    there = {NOT_STATED, *([label] if label else ours.get("data", []))}
    known = set(_settings(ours, columns))
    every = zip(theirs["data"], _settings(theirs, columns), strict=True)
    return theirs[[data in there and setting in known for data, setting in every]]


def _settings(lines: pd.DataFrame, names: Sequence[str]) -> list[tuple[Any, ...]]:
    every = lines.reindex(columns=list(names))
    return [tuple(map(plain, one)) for one in every.itertuples(index=False)]


def also(text: str) -> pd.DataFrame:
    """Results of another method from NAME=FILE.csv: options and figures by column."""
    method, file = pair_of(text)
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
