"""The figures of a head's rounds: those of its report, with accuracies and measured bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..math.metrics.counting import Metrics
from ..values.names import MEASURES

Round = dict[str, Any]
#: What `evaluate` finds after a round; ``kept`` says that it is the head's own.
FOUND = ("top1", "top5", "kept", "train_top1", *MEASURES, *(f"train_{one}" for one in MEASURES))


def rounds_of(
    rounds: Sequence[Round],
    more: Mapping[str, Mapping[str, Any]],
    apart: Sequence[Mapping[str, Any]] = (),
) -> list[Round]:
    """The rounds of a head's file, single figures only; ``more`` adds figures by phase.

    ``apart``: measures of the features of some phases, as `evaluate` has them.
    """
    measured = {one["features"]: {name: one[name] for name in MEASURES} for one in apart}
    return [
        {**_figures(entry), **more.get(entry["phase"], {}), **measured.get(entry["phase"], {})}
        for entry in rounds
    ]


def last_separability(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The measures of the last layer, of the test rows and of the training rows (``train_csr``)."""
    figures: dict[str, float] = {}
    for start, part in (("", metrics), ("train_", metrics.get("train", {}))):
        for one in part.get("separability", [])[-1:]:
            figures |= {f"{start}{name}": one[name] for name in MEASURES}
    return figures


def accuracies(counted: Mapping[str, Metrics]) -> dict[str, Round]:
    """Accuracies by phase, for `rounds_of`, from the metrics after each phase.

    The last metrics are those of the head itself.
    """
    last = list(counted)[-1]
    return {name: {**metrics.tops, "kept": name == last} for name, metrics in counted.items()}


def after_each_round(
    heads: Mapping[Path, Sequence[Round]],
    ask: Callable[[Path], dict[str, Any]],
    rounds_in: Callable[[Path], set[str]],
) -> dict[str, Any]:
    """Metrics of the last head, with the accuracies after every round.

    ``heads``: the rounds of each head file. ``ask`` evaluates a file with the rounds that it holds,
    which ``rounds_in`` names. The last file may hold all rounds or only its own. Another file, in
    any order, is evaluated if it holds a round whose accuracy is not known yet.
    """
    *others, last = heads
    metrics = ask(last)
    known = _known(metrics["rounds"])
    for path in sorted(others, key=lambda path: -len(heads[path])):
        if rounds_in(path) <= known.keys():
            continue
        earlier = _known(ask(path)["rounds"])
        known = {**{name: {**one, "kept": False} for name, one in earlier.items()}, **known}
    return {**metrics, "rounds": rounds_of(heads[last], known)}


def told(
    recorded: Sequence[Round], evaluated: Sequence[Round], uploads: Sequence[dict[str, Any]]
) -> list[Round]:
    """The rounds of a run: those of the head's file, with accuracies and measured figures.

    ``uploads`` are the run's entries of the bytes that a client sends; each gets ``download``, the
    bytes that it receives.
    """
    more = _known(evaluated)
    for one in uploads:
        measured = {"gather_seconds": one["gather_seconds"], "upload_bytes": one["arrays_at_most"]}
        measured |= {"file_bytes": one["mean_file"]} if "mean_file" in one else {}
        more[one["phase"]] = {**measured, **more.get(one["phase"], {})}
    rounds = rounds_of(recorded, more)
    download = {one["phase"]: one["download_bytes"] for one in rounds}
    for one in uploads:
        one["download"] = download.get(one["phase"])
    return rounds


def with_training(facts: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics on test rows, with the accuracies on training rows ``theirs`` beside them."""
    kept = ("top1", "top5", "n", "features", "separability")
    own = {key: theirs[key] for key in kept if key in theirs}
    after = {one["phase"]: one for one in theirs.get("rounds", []) if "top1" in one}
    rounds = [
        {**one, **_of_training(after.get(one["phase"], {}))} for one in facts.get("rounds", [])
    ]
    return {**facts, "train": own, **({"rounds": rounds} if "rounds" in facts else {})}


def _of_training(one: Round) -> Round:
    """Figures of a round on training rows, by the names that they have beside those of the test."""
    return {f"train_{name}": one[name] for name in ("top1", *MEASURES) if name in one}


def _known(rounds: Sequence[Round]) -> dict[str, Round]:
    return {one["phase"]: {k: one[k] for k in FOUND if k in one} for one in rounds if "top1" in one}


def _figures(entry: Mapping[str, Any]) -> Round:
    return {k: v for k, v in entry.items() if not isinstance(v, (list, dict))}
