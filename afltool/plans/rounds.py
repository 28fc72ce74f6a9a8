"""What a run measures: its last head, and the rounds of it, with accuracies and bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files.heads import HeadFile
from ..options.evaluation import Evaluate
from ..stages.runner import Files
from ..values.names import MEASURES
from .plan import Step

Round = dict[str, Any]
#: What `evaluate` finds after a round; ``kept`` says that it is the head's own.
FOUND = ("top1", "top5", "kept", "train_top1", *MEASURES, *(f"train_{one}" for one in MEASURES))


def evaluated(step: Step, files: Files) -> dict[str, Any]:
    """What `evaluate` finds of the last head of a run, and after each of its rounds.

    The step's inputs: ``head`` and ``features``; ``earlier``: the heads of the rounds before, in
    order, for the rounds that the last one does not hold; ``train``: training features, which add
    ``train`` (top-1, top-5, n) and ``train_top1`` of rounds.
    """
    inputs: Mapping[str, Any] = step.files()
    of_test = _evaluated(step, inputs["features"], files)
    if "train" not in inputs:
        return of_test
    return with_training(of_test, _evaluated(step, inputs["train"], files))


def _evaluated(step: Step, features: Path, files: Files) -> dict[str, Any]:
    """That of one file of rows; the last head says what it can, the others what is left."""
    inputs: Mapping[str, Any] = step.files()
    last, earlier = inputs["head"], inputs.get("earlier", ())
    o: Any = step.options
    metrics: dict[str, Any] = {}
    after: dict[str, Round] = {}
    for path in (last, *reversed(earlier)):
        if metrics:  # of the last head
            file, rows = files.head(path), files.features(features, again=True)
            scored = file.head.round_scores(rows.rows(0, 1))
            if {file.phase_of(name) for name, _ in scored} <= after.keys():
                continue
        apart = o.separability and path == last
        asked = Evaluate(path, features, each_round=o.each_round, separability=apart)
        one = step.stage.function.job(asked, files)
        known = measured(one.get("rounds", []))
        if metrics:
            known = {name: {**entry, "kept": False} for name, entry in known.items()}
        metrics, after = metrics or one, {**known, **after}
    if earlier:
        metrics["rounds"] = files.head(last).rounds_with(after)
    return metrics


def measured(rounds: Sequence[Round]) -> dict[str, Round]:
    """What `evaluate` found after rounds, by phase."""
    return {one["phase"]: {k: one[k] for k in FOUND if k in one} for one in rounds if "top1" in one}


def with_training(facts: dict[str, Any], theirs: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics on test rows, with the accuracies on training rows ``theirs`` beside them."""
    kept = ("top1", "top5", "n", "features", "separability")
    found = {**facts, "train": {key: theirs[key] for key in kept if key in theirs}}
    if "rounds" in facts:
        names, after = ("top1", *MEASURES), measured(theirs.get("rounds", []))
        of = {p: {f"train_{k}": v for k, v in a.items() if k in names} for p, a in after.items()}
        found["rounds"] = [{**one, **of.get(one["phase"], {})} for one in facts["rounds"]]
    return found


def told(
    head: HeadFile, evaluated: Sequence[Round], uploads: Sequence[dict[str, Any]]
) -> list[Round]:
    """The rounds of a run: those of the head's file, with accuracies and measured figures.

    ``uploads`` are the run's entries of the bytes that a client sends; each gets ``download``, the
    bytes that it receives.
    """
    more = measured(evaluated)
    for one in uploads:
        sent = {"gather_seconds": one["gather_seconds"], "upload_bytes": one["arrays_at_most"]}
        sent |= {"file_bytes": one["mean_file"]} if "mean_file" in one else {}
        more[one["phase"]] = {**sent, **more.get(one["phase"], {})}
    rounds = head.rounds_with(more)
    download = {one["phase"]: one["download_bytes"] for one in rounds}
    for one in uploads:
        one["download"] = download.get(one["phase"])
    return rounds


def last_separability(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The measures of the last layer, of the test rows and of the training rows (``train_csr``)."""
    figures: dict[str, float] = {}
    for start, part in (("", metrics), ("train_", metrics.get("train", {}))):
        for one in part.get("separability", [])[-1:]:
            figures |= {f"{start}{name}": one[name] for name in MEASURES}
    return figures
