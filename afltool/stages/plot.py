"""Stage `plot`: files → pictures."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import inputs
from ..errors import CorruptFileError, InputError, UsageError
from ..files.counts import holds_counts, read_counts
from ..files.evaluations import (
    Bins,
    Confusion,
    Curve,
    Figure,
    Rounds,
    check_evaluation,
)
from ..files.headers import misfit
from ..files.heads import load_head
from ..files.partitions import load_partition
from ..files.schema import SUMMARY
from ..math.calibration import accuracy_by_coverage
from ..math.metrics.counting import CELLS
from ..math.metrics.figures import MANY
from ..options.look import (
    ConfusionPicture,
    CoveragePicture,
    PartitionPicture,
    ReliabilityPicture,
    RidgePathPicture,
    RocPicture,
    RoundsPicture,
)
from ..partitions import Partition, summary
from ..plugins import asked
from ..show import classes, curves
from ..show.style import Name, check_picture
from ..values.arrays import I64
from ._counted import evaluation

MOST_BYTES = 256 << 20  # of what evaluate writes: a confusion matrix of 10 million cells


def partition_picture(o: PartitionPicture) -> Path:
    """Clients × classes, sizes, cumulative share of a partition; those of several side by side.

    One file without ``width_mm`` is drawn 305 mm wide, with more about it.
    """
    path, out, overwrite = o.files, o.out, o.overwrite
    check_picture(out, o)
    partitions = [load_partition(one) for one in path]
    panels = [_panel(one, _told(partitions)) for one in partitions]
    if len(panels) == 1 and o.width_mm is None:
        (one,) = panels
        return classes.plot_partition(one.counts, one.class_names, out, one.title, overwrite, o.dpi)
    return classes.plot_partitions(panels, out, overwrite, o)


def _told(partitions: Sequence[Partition]) -> set[str]:
    """Settings for the titles: all of a partition alone, of several those that differ."""
    names = {name for p in partitions for name in p.scheme} - {"scheme"}
    return {
        n
        for n in names
        if len(partitions) == 1 or len({str(p.scheme.get(n)) for p in partitions}) > 1
    }


def _panel(p: Partition, names: Collection[str]) -> classes.Panel:
    counts = summary(p.client, p.effective_labels, len(p.names), len(p.classes)).counts
    chosen = {k.replace("_", " "): v for k, v in sorted(p.scheme.items()) if k in names}
    settings = ", ".join(f"{k} {v}" for k, v in chosen.items())
    title = f"{p.scheme['scheme']} ({settings})" if settings else str(p.scheme["scheme"])
    return classes.Panel(counts, list(p.classes), title)


def confusion_picture(o: ConfusionPicture) -> Path:
    """The confusion matrix of an evaluation's JSON file."""
    path, out, overwrite = o.file, o.out, o.overwrite
    check_picture(out, o)
    metrics = _metrics(path, o.number)
    if "confusion" not in metrics:
        raise UsageError(
            f"{path} counts {len(metrics['per_class'])} classes, and no confusion matrix of so "
            "many: draw what afltool evaluate … -o writes, which has its cells"
        )
    names = list(metrics["per_class"])
    true, predicted, rows = _cells(path, metrics["confusion"], len(names))
    each = -(-len(names) // MANY)  # neighbouring classes that are drawn as one
    confusion = np.zeros((-(-len(names) // each),) * 2, np.int64)
    np.add.at(confusion, (true // each, predicted // each), rows)
    title = f"{metrics['head']['name']} head" + f", {each} classes in a line" * (each > 1)
    hits = rows[true == predicted].sum() / max(rows.sum(), 1)
    note = f"top-1 {hits:.2%} of {rows.sum():,} rows"
    return classes.plot_confusion(confusion, names[::each], out, title, overwrite, o, note)


def _cells(path: Path, confusion: Any, classes: int) -> tuple[I64, I64, I64]:
    """The true class, the predicted one and the rows of each cell that is not 0."""
    if isinstance(confusion, dict):
        true, predicted, rows = (np.array(confusion[name], np.int64) for name in CELLS)
        if max(true.max(initial=0), predicted.max(initial=0)) >= classes:
            raise CorruptFileError(f"{path} has a cell of a class beyond its {classes} classes")
        return true, predicted, rows
    matrix = np.array(confusion, dtype=np.int64)
    true, predicted = matrix.nonzero()
    return true, predicted, matrix[true, predicted]


def reliability_picture(o: ReliabilityPicture) -> Path:
    """Accuracy by confidence, from what ``evaluate --metrics ece -o`` wrote."""
    path, out, overwrite = o.file, o.out, o.overwrite
    check_picture(out, o)
    metrics = _metrics(path, o.number)
    bins = _entry(metrics, path, "reliability", "ece", Bins)
    ece = metrics["metrics"]["ece"]["value"]
    text = "undetermined" if ece is None else f"{ece:.4f}"
    note = f"expected calibration error {text}"
    return curves.plot_reliability(bins, out, _who(metrics), note, overwrite, o)


def roc_picture(o: RocPicture) -> Path:
    """ROC curves, from what ``evaluate --metrics auc -o`` wrote.

    Each class in ``positive`` against the rest; by default the positive class of the file, of two
    classes without one the second, else every class.
    """
    path, out, overwrite = o.file, o.out, o.overwrite
    check_picture(out, o)
    metrics = _metrics(path, o.number, o.positive)
    every = _entry(metrics, path, "roc", "auc", dict[str, Curve])
    theirs = metrics["metrics"]["auc"].get("positive")
    last = list(every)[1:] if len(every) == 2 else list(every)
    names = o.positive or ([theirs] if isinstance(theirs, str) and theirs in every else last)
    unknown = [name for name in names if name not in every]
    if unknown:
        raise UsageError(
            f"--positive is a class of {path}: {', '.join(list(every)[:20])}; found {unknown[0]!r}"
        )
    chosen, note = {name: every[name] for name in names}, _against(names, list(every))
    return curves.plot_roc(chosen, out, _who(metrics), note, overwrite, o)


def coverage_picture(o: CoveragePicture) -> Path:
    """Accuracy against coverage of each head in a total of counts."""
    path, out, overwrite = o.file, o.out, o.overwrite
    check_picture(out, o)
    counts = read_counts(path)
    if not counts.rows:
        raise UsageError(f"{path} counts no rows: there is nothing to draw")
    lines = {
        f"{one.name} {one.digest[:8]}": accuracy_by_coverage(one.confidence) for one in counts.heads
    }
    return curves.plot_coverage(lines, out, f"{counts.rows:,} rows", overwrite, o)


def _who(facts: dict[str, Any]) -> str:
    return f"{facts['head']['name']} head, {facts['n']:,} rows"


def _against(names: Sequence[str], classes: Sequence[str]) -> str:
    """What is told from what, for the title."""
    if len(names) == 1:
        others = [name for name in classes if name != names[0]]
        rest = others[0] if len(others) == 1 else f"the other {len(others)} classes"
        return f"positive class: {names[0]} against {rest}"
    return f"{len(names)} of {len(classes)} classes, each against the rest"


def _entry(facts: dict[str, Any], path: Path, name: str, metric: str, kind: Any) -> dict[str, Any]:
    """An entry that evaluate writes for a metric."""
    if name not in facts and "total" in facts:
        raise UsageError(
            f"{path} has no {name}: scores of a {facts['head']['name']} head are no probabilities. "
            "Make some with afltool calibrate, and count the rows of that head"
        )
    if name not in facts:
        raise UsageError(
            f"{path} has no {name}: write it with afltool evaluate … --metrics {metric} -o {path}"
        )
    check_evaluation(path, facts[name], kind)
    check_evaluation(path, facts.get("metrics"), dict[str, Any])
    check_evaluation(path, facts["metrics"].get(metric), Figure)
    return dict(facts[name])


def _metrics(path: Path, number: int, positive: Sequence[str] = ()) -> dict[str, Any]:
    """What `evaluate` wrote, or the evaluation of a head from a total of counts."""
    if holds_counts(path):
        return evaluation(read_counts(path), number, positive)
    if number:
        raise UsageError(f"--number is for a total of counts; {path} is of one head: leave it out")
    metrics = _json(path, f"write it with afltool evaluate … -o {path}")
    check_evaluation(path, metrics, Confusion)
    return metrics


def _json(path: Path, hint: str) -> dict[str, Any]:
    """A JSON object from a file; ``hint`` says where one comes from."""
    if not path.exists():
        raise InputError(f"there is no file {path}: {hint}")
    value = inputs.read_json(path, "what evaluate -o wrote", MOST_BYTES)
    if not isinstance(value, dict):
        raise CorruptFileError(f"{path} is not JSON that afltool wrote: {hint}")
    return value


def ridge_path_picture(o: RidgePathPicture) -> Path:
    """Error estimates along the path that a head's ridge was chosen from."""
    path, out, overwrite = o.file, o.out, o.overwrite
    check_picture(out, o)
    report = load_head(path).report
    points = report.get("ridge_path")
    if not points:
        raise UsageError(
            f"{path} was solved with one given ridge and has no path: solve with --ridge auto or "
            "--ridge LO:HI:COUNT"
        )
    lambdas = np.array([p["ridge"] for p in points])
    series = {
        label: np.array([np.nan if p[name] is None else p[name] for p in points])
        for name, label in _CURVES.items()
        if name in points[0]
    }
    by = "validation_mse" if "validation_mse" in points[0] else "gcv"
    chosen = {_CURVES[by]: report["ridge"]}
    return curves.plot_ridge_path(lambdas, series, chosen, out, overwrite, o)


def rounds_picture(o: RoundsPicture) -> Path:
    """Error, accuracies, seconds and bytes of every round.

    ``files``: a run folder, what ``evaluate --each-round -o`` wrote, or a head (no accuracies). Of
    several: accuracy by round, and by the bytes that a client has sent.
    """
    path, out, overwrite = o.files[0], o.out, o.overwrite
    check_picture(out, o)
    if len(o.files) > 1:
        runs = {name: [_run(one) for one in of] for name, of in runs_by_name(o.files).items()}
        return curves.plot_compared(runs, out, overwrite, o)
    if _is_json(path):
        facts = _with_rounds(path)
        rounds, title = facts["rounds"], f"top-1 {facts['top1']:.2%} of {facts['n']:,} rows"
    else:
        head = load_head(path)
        rounds, title = head.rounds, f"{head.head.name} head"
    if not rounds:
        raise UsageError(f"{path} has no solved round yet: there is nothing to draw")
    return curves.plot_rounds(rounds, out, title, overwrite, o)


def runs_by_name(paths: Sequence[Path]) -> dict[Name, list[Path]]:
    """Runs by the names of their files or folders; those of another part as it names them, such as
    seeds, of whose runs a line is the mean."""
    theirs, left = asked("runs_by_name", paths) or ({}, paths)
    named: dict[Name, list[Path]] = {}
    for path in left:
        name = path.resolve().stem if path.is_file() else path.resolve().name
        named[str(path) if (name,) in named else name,] = [path]
    for line, alike in theirs.items():
        named.setdefault(line, []).extend(alike)
    return named


def _run(path: Path) -> curves.Run:
    """The rounds of a run and its accuracy at the end."""
    if not _is_json(path):
        raise UsageError(
            f"{path} holds no accuracy: beside others give a run folder, or what "
            "afltool evaluate … --each-round -o wrote"
        )
    facts = _with_rounds(path)
    # The report of a head of one round has none; what it sent is a run's entry of uploads.
    uploads = (facts.get("bytes_per_client") or [{}])[0]
    sent = uploads.get("mean_file", uploads.get("arrays_at_most", 0))
    return facts["rounds"] or [{"phase": "last", "upload_bytes": sent}], float(facts["top1"])


def _is_json(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".json"


def _with_rounds(path: Path) -> dict[str, Any]:
    """The summary of a run, or an evaluation of every round."""
    place = path / SUMMARY if path.is_dir() else path
    hint = "is the run finished?" if path.is_dir() else "evaluate --each-round -o writes one"
    facts = _json(place, hint)
    if wrong := misfit(facts, Rounds):
        raise CorruptFileError(
            f"{place} holds no rounds: expected a run's {SUMMARY}, or what "
            f"afltool evaluate … --each-round -o writes: {wrong}"
        )
    return facts


_CURVES = {
    "gcv": "generalised cross-validation",
    "validation_mse": "squared error per row, held-out clients",
    "training_mse": "squared error per row, training",
}
