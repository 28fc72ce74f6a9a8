"""Stage `plot`: files → pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, InputError, UsageError
from ..files import load_head, load_partition
from ..partitions import summary
from ..report.plots import plot_confusion, plot_partition, plot_ridge_path
from ..report.rounds import plot_rounds


def partition_picture(path: str | Path, out: str | Path) -> Path:
    """Clients × classes, sizes, cumulative share."""
    p = load_partition(Path(path))
    counts = summary(p.client, p.effective_labels, len(p.names), len(p.classes)).counts
    settings = ", ".join(f"{k} {v}" for k, v in sorted(p.scheme.items()) if k != "scheme")
    plot_partition(counts, list(p.classes), Path(out), f"{p.scheme['scheme']} ({settings})")
    return Path(out)


def confusion_picture(path: str | Path, out: str | Path) -> Path:
    """The confusion matrix of an evaluation's JSON file."""
    found = _metrics(Path(path))
    title = f"{found['head']['name']} head"
    confusion = np.array(found["confusion"], dtype=np.int64)
    plot_confusion(confusion, list(found["per_class"]), Path(out), title)
    return Path(out)


def _metrics(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError(f"there is no file {path}: write it with afltool evaluate … -o {path}")
    try:
        found: dict[str, Any] = json.loads(path.read_text())
        assert {"confusion", "per_class", "head"} <= found.keys()
    except (ValueError, AssertionError, AttributeError):
        raise CorruptFileError(f"{path} is not what afltool evaluate … -o writes") from None
    return found


def ridge_path_picture(path: str | Path, out: str | Path) -> Path:
    """Error estimates along the path that a head's ridge was chosen from."""
    head, _ = load_head(Path(path))
    points = head.report.get("ridge_path")
    if not points:
        raise UsageError(
            f"{path} was solved with one given ridge: solve with --ridge auto, --ridge-path or "
            "--validate to have a path"
        )
    lambdas = np.array([p["ridge"] for p in points])
    curves = {
        label: np.array([np.nan if p[name] is None else p[name] for p in points])
        for name, label in _CURVES.items()
        if name in points[0]
    }
    by = "validation_mse" if "validation_mse" in points[0] else "gcv"
    plot_ridge_path(lambdas, curves, {_CURVES[by]: head.report["ridge"]}, Path(out))
    return Path(out)


def rounds_picture(path: str | Path, out: str | Path) -> Path:
    """Error, accuracies, seconds and bytes of every round.

    ``path``: a run folder, what ``evaluate --each-round -o`` wrote, or a head (no accuracies).
    """
    path = Path(path)
    rounds, title = _rounds_of_json(path) if _is_json(path) else _rounds_of_head(path)
    if not rounds:
        raise UsageError(f"{path} is before its first round: there is nothing to draw")
    return plot_rounds(rounds, out, title)


def _is_json(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".json"


def _rounds_of_json(path: Path) -> tuple[list[dict[str, Any]], str]:
    place = path / "summary.json" if path.is_dir() else path
    if not place.is_file():
        hint = "is the run finished?" if path.is_dir() else "evaluate --each-round -o writes one"
        raise InputError(f"there is no file {place}: {hint}")
    try:
        found = json.loads(place.read_text())
        rounds, title = found["rounds"], f"top-1 {found['top1']:.2%} of {found['n']:,} rows"
        assert all(isinstance(one["phase"], str) for one in rounds)
    except (ValueError, TypeError, KeyError, AssertionError):
        raise CorruptFileError(
            f"{place} tells no rounds: expected a run's summary.json, or what "
            "afltool evaluate … --each-round -o writes"
        ) from None
    return rounds, title


def _rounds_of_head(path: Path) -> tuple[list[dict[str, Any]], str]:
    head, _ = load_head(path)
    return head.report.get("phases", []), f"{head.name} head"


layers_picture = rounds_picture  # the name that it had when only heads of layers had rounds


_CURVES = {
    "gcv": "generalised\ncross-validation",
    "validation_mse": "squared error a row,\nheld-out clients",
    "training_mse": "squared error a row,\ntraining",
}
