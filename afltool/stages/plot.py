"""Stage `plot`: files → pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..files import evaluations as written
from ..files.counts import evaluations, holds_counts, read_counts
from ..files.heads import load_head
from ..files.partitions import load_partition
from ..files.recipes import FOR_PEOPLE
from ..files.schema import SUMMARY
from ..math.metrics.counting import CELLS
from ..math.metrics.figures import MANY
from ..options.look import Picture
from ..partitions import Partition
from ..rendering import classes, curves
from ..rendering.style import check_picture
from ..values.arrays import I64
from .runner import Files, Job, StageFunction

Facts = dict[str, Any]


def _partition(o: Picture) -> Path:
    """Rows by client and class, and by client, of a partition; those of several side by side."""
    partitions = [load_partition(one) for one in o.files]
    panels = [_panel(one, partitions) for one in partitions]
    return classes.plot_partitions(panels, o.out, o.overwrite, o)


def _panel(p: Partition, every: Sequence[Partition]) -> classes.Panel:
    """A partition; the title has its settings, of several partitions those that differ."""
    told = [
        f"{name.replace('_', ' ')} {value}"
        for name, value in sorted(p.scheme.items())
        if name != "scheme"
        and (len(every) == 1 or any(one.scheme.get(name) != value for one in every))
    ]
    title = f"{p.scheme['scheme']} ({', '.join(told)})" if told else str(p.scheme["scheme"])
    return classes.Panel(p.counts(len(p.classes)), list(p.classes), title)


# ---------------------------------------------------------------- of an evaluation


def _evaluation(path: Path) -> Facts:
    """What `evaluate` wrote, or the evaluation of a head from a total of counts."""
    if not holds_counts(path):
        return written.read_evaluation(path, written.Confusion)
    heads = evaluations(read_counts(path))
    if len(heads) > 1:
        raise UsageError(f"{path} counts {len(heads)} heads: afltool info has the figures of each")
    return heads[0]


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
    each = -(-len(names) // MANY)  # neighboring classes that are drawn as one
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
    if "reliability" not in facts:
        raise UsageError(
            f"{o.files[0]} has no reliability: write it with afltool evaluate … --metrics ece -o "
            "FILE; scores of a least-squares head are no probabilities, see afltool calibrate"
        )
    written.check_evaluation(o.files[0], facts, written.Reliability)
    ece, head = facts["metrics"]["ece"]["value"], facts["head"]["name"]
    note = f"expected calibration error {'undetermined' if ece is None else f'{ece:.4f}'}"
    title = f"{head} head, {facts['n']:,} rows"
    return curves.plot_reliability(facts["reliability"], o.out, title, note, o.overwrite, o)


# ---------------------------------------------------------------- of heads and runs


def _rounds(o: Picture) -> Path:
    """Error, accuracies, seconds and bytes of every round.

    Of a run folder, what ``evaluate --each-round -o`` wrote, or a head (no accuracies).
    """
    path = o.files[0]
    if path.is_dir() or path.suffix == ".json":
        facts = _with_rounds(path)
        rounds, title = facts["rounds"], f"top-1 {facts['top1']:.2%} of {facts['n']:,} rows"
    else:
        head = load_head(path)
        rounds, title = head.rounds, f"{head.head.name} head"
    if not rounds:
        raise UsageError(f"{path} has no solved round yet: there is nothing to draw")
    return curves.plot_rounds(rounds, o.out, title, o.overwrite, o)


def _with_rounds(path: Path) -> Facts:
    """The summary of a finished run, or an evaluation of every round."""
    return written.read_evaluation(path / SUMMARY if path.is_dir() else path, written.Rounds)


DRAW: dict[str, Callable[[Picture], Path]] = {
    "partition": _partition,
    "confusion": _confusion,
    "reliability": _reliability,
    "rounds": _rounds,
}


@StageFunction
def plot(o: Picture, files: Files) -> Job:
    """A picture of one of `look.KINDS`; the name of its file is checked before anything is read."""
    check_picture(o.out, o)
    return Job.for_file(o.out, FOR_PEOPLE, lambda: DRAW[o.kind](o))
