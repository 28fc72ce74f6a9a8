"""Stage `plot`: files → pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, InputError, UsageError
from ..files import load_head, load_partition
from ..partitions import summary
from ..report.layers import plot_layers
from ..report.plots import plot_confusion, plot_partition, plot_ridge_path


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


def layers_picture(path: str | Path, out: str | Path) -> Path:
    """Training error and solve time of a head of layers, as far as it has come."""
    head, _ = load_head(Path(path))
    rounds = head.report.get("phases")
    if not rounds:
        raise UsageError(f"{path} is not a head of layers, or is before its first phase")
    return plot_layers(rounds, out)


_CURVES = {
    "gcv": "generalised\ncross-validation",
    "validation_mse": "squared error a row,\nheld-out clients",
    "training_mse": "squared error a row,\ntraining",
}
