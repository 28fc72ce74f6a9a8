"""Stage `plot`: files → pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..files.counts import evaluations, holds_counts, read_counts
from ..files.evaluations import (
    Bins,
    Confusion,
    Curve,
    Figure,
    Rounds,
    check_evaluation,
    read_evaluation,
)
from ..files.heads import load_head
from ..files.partitions import load_partition
from ..files.recipes import FOR_PEOPLE
from ..files.schema import SUMMARY
from ..heads.calibration import accuracy_by_coverage
from ..math.metrics.counting import CELLS
from ..math.metrics.figures import MANY
from ..options.look import Picture
from ..partitions import Partition
from ..plugins import asked
from ..rendering import classes, curves
from ..rendering.style import Name, check_picture
from ..values.arrays import I64
from .runner import Files, Job, StageFunction

ERRORS = {
    "gcv": "generalised cross-validation",
    "validation_mse": "squared error per row, held-out clients",
    "training_mse": "squared error per row, training",
}


def _partition(o: Picture) -> Path:
    """Rows by client and class, and by client, of a partition; those of several side by side."""
    partitions = [load_partition(one) for one in o.files]
    panels = [_panel(one, partitions) for one in partitions]
    return classes.plot_partitions(panels, o.out, o.overwrite, o)


def _panel(p: Partition, every: Sequence[Partition]) -> classes.Panel:
    """A partition; the title has its settings, of several partitions those that differ."""
    told = []
    for name in sorted({name for one in every for name in one.scheme} - {"scheme"}):
        differs = len(every) == 1 or len({str(one.scheme.get(name)) for one in every}) > 1
        if differs and name in p.scheme:
            told.append(f"{name.replace('_', ' ')} {p.scheme[name]}")
    title = f"{p.scheme['scheme']} ({', '.join(told)})" if told else str(p.scheme["scheme"])
    return classes.Panel(p.counts(len(p.classes)), list(p.classes), title)


# ---------------------------------------------------------------- of an evaluation


def _evaluation(path: Path, positive: Sequence[str] = ()) -> dict[str, Any]:
    """What `evaluate` wrote, or the evaluation of a head from a total of counts."""
    if holds_counts(path):
        heads = evaluations(read_counts(path), positive)
        if len(heads) > 1:
            raise UsageError(f"{path} counts {len(heads)} heads: draw what counts one of them")
        return heads[0]
    return read_evaluation(path, Confusion)


def _entry(facts: dict[str, Any], path: Path, name: str, metric: str, kind: Any) -> dict[str, Any]:
    """An entry that evaluate writes for a metric."""
    if name not in facts:
        how = f"write it with afltool evaluate … --metrics {metric} -o {path}"
        if "total" in facts:
            how = f"scores of a {facts['head']['name']} head are no probabilities. Make some with "
            how += "afltool calibrate, and count the rows of that head"
        raise UsageError(f"{path} has no {name}: {how}")
    check_evaluation(path, facts[name], kind)
    check_evaluation(path, facts.get("metrics"), dict[str, Any])
    check_evaluation(path, facts["metrics"].get(metric), Figure)
    return dict(facts[name])


def _confusion(o: Picture) -> Path:
    """The confusion matrix of an evaluation's JSON file."""
    facts = _evaluation(o.files[0])
    if "confusion" not in facts:
        raise UsageError(
            f"{o.files[0]} counts {len(facts['per_class'])} classes, and no confusion matrix of so "
            "many: draw what afltool evaluate … -o writes, which has its cells"
        )
    names = list(facts["per_class"])
    true, predicted, rows = _cells(facts["confusion"])
    each = -(-len(names) // MANY)  # neighbouring classes that are drawn as one
    confusion = np.zeros((-(-len(names) // each),) * 2, np.int64)
    np.add.at(confusion, (true // each, predicted // each), rows)
    title = f"{facts['head']['name']} head" + f", {each} classes in a line" * (each > 1)
    hits = rows[true == predicted].sum() / max(rows.sum(), 1)
    note = f"top-1 {hits:.2%} of {rows.sum():,} rows"
    return classes.plot_confusion(confusion, names[::each], o.out, title, o.overwrite, o, note)


def _cells(confusion: Any) -> tuple[I64, I64, I64]:
    """The true class, the predicted one and the rows of each cell that is not 0."""
    if isinstance(confusion, dict):
        true, predicted, rows = (np.array(confusion[name], np.int64) for name in CELLS)
        return true, predicted, rows
    matrix = np.array(confusion, dtype=np.int64)
    true, predicted = matrix.nonzero()
    return true, predicted, matrix[true, predicted]


def _reliability(o: Picture) -> Path:
    """Accuracy by confidence, from what ``evaluate --metrics ece -o`` wrote."""
    facts = _evaluation(o.files[0])
    bins = _entry(facts, o.files[0], "reliability", "ece", Bins)
    ece = facts["metrics"]["ece"]["value"]
    note = f"expected calibration error {'undetermined' if ece is None else f'{ece:.4f}'}"
    return curves.plot_reliability(bins, o.out, _who(facts), note, o.overwrite, o)


def _roc(o: Picture) -> Path:
    """ROC curves, from what ``evaluate --metrics auc -o`` wrote.

    Each class in ``positive`` against the rest; by default the positive class of the file, of two
    classes without one the second, else every class.
    """
    facts = _evaluation(o.files[0], o.positive)
    every = _entry(facts, o.files[0], "roc", "auc", dict[str, Curve])
    own, there = facts["metrics"]["auc"].get("positive"), list(every)
    names = o.positive or ([own] if own in every else there[len(there) == 2 :])
    if unknown := [name for name in names if name not in every]:
        raise UsageError(
            f"--positive is a class of {o.files[0]}: {', '.join(there[:20])}; found {unknown[0]!r}"
        )
    note = f"{len(names)} of {len(there)} classes, each against the rest"
    if len(names) == 1:
        rest = [name for name in there if name != names[0]]
        other = rest[0] if len(rest) == 1 else f"the other {len(rest)} classes"
        note = f"positive class: {names[0]} against {other}"
    chosen = {name: every[name] for name in names}
    return curves.plot_roc(chosen, o.out, _who(facts), note, o.overwrite, o)


def _who(facts: dict[str, Any]) -> str:
    return f"{facts['head']['name']} head, {facts['n']:,} rows"


# ---------------------------------------------------------------- of heads and runs


def _coverage(o: Picture) -> Path:
    """Accuracy against coverage of each head in a total of counts."""
    counts = read_counts(o.files[0])
    if not counts.rows:
        raise UsageError(f"{o.files[0]} counts no rows: there is nothing to draw")
    of_heads = {f"{one.name} {one.digest[:8]}": one.confidence for one in counts.heads}
    lines = {name: accuracy_by_coverage(one) for name, one in of_heads.items()}
    return curves.plot_coverage(lines, o.out, f"{counts.rows:,} rows", o.overwrite, o)


def _ridge_path(o: Picture) -> Path:
    """Error estimates along the path that a head's ridge was chosen from."""
    report = load_head(o.files[0]).report
    points = report.get("ridge_path")
    if not points:
        raise UsageError(
            f"{o.files[0]} was solved with one given ridge and has no path: solve with --ridge "
            "auto or --ridge LO:HI:COUNT"
        )
    there = {name: label for name, label in ERRORS.items() if name in points[0]}
    lines = {of: np.array([p[name] for p in points], float) for name, of in there.items()}
    by = "validation_mse" if "validation_mse" in there else "gcv"
    chosen, ridges = {ERRORS[by]: report["ridge"]}, np.array([p["ridge"] for p in points])
    return curves.plot_ridge_path(ridges, lines, chosen, o.out, o.overwrite, o)


def _rounds(o: Picture) -> Path:
    """Error, accuracies, seconds and bytes of every round.

    ``files``: a run folder, what ``evaluate --each-round -o`` wrote, or a head (no accuracies). Of
    several: accuracy by round, and by the bytes that a client has sent.
    """
    path = o.files[0]
    if len(o.files) > 1:
        runs = {name: [_run(one) for one in of] for name, of in runs_by_name(o.files).items()}
        return curves.plot_compared(runs, o.out, o.overwrite, o)
    if path.is_dir() or path.suffix == ".json":
        facts = _with_rounds(path)
        rounds, title = facts["rounds"], f"top-1 {facts['top1']:.2%} of {facts['n']:,} rows"
    else:
        head = load_head(path)
        rounds, title = head.rounds, f"{head.head.name} head"
    if not rounds:
        raise UsageError(f"{path} has no solved round yet: there is nothing to draw")
    return curves.plot_rounds(rounds, o.out, title, o.overwrite, o)


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
    """The rounds of a run and its accuracy at the end; a head file has none."""
    facts = _with_rounds(path)
    # The report of a head of one round has none; what it sent is a run's entry of uploads.
    uploads = (facts.get("bytes_per_client") or [{}])[0]
    sent = uploads.get("mean_file", uploads.get("arrays_at_most", 0))
    return facts["rounds"] or [{"phase": "last", "upload_bytes": sent}], float(facts["top1"])


def _with_rounds(path: Path) -> dict[str, Any]:
    """The summary of a finished run, or an evaluation of every round."""
    return read_evaluation(path / SUMMARY if path.is_dir() else path, Rounds)


DRAW: dict[str, Callable[[Picture], Path]] = {
    "partition": _partition,
    "confusion": _confusion,
    "reliability": _reliability,
    "roc": _roc,
    "coverage": _coverage,
    "ridge-path": _ridge_path,
    "rounds": _rounds,
}


@StageFunction
def plot(o: Picture, files: Files) -> Job:
    """A picture of one of `look.KINDS`; the name of its file is checked before anything is read."""
    check_picture(o.out, o)
    return Job.of_rows(o.out, FOR_PEOPLE, lambda: DRAW[o.kind](o))
