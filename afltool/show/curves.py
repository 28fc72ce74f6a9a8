"""Pictures of what an evaluation measured: reliability of its confidence, ROC curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..options.plot import AS_NEEDED, SizeOptions
from ..values.arrays import F64
from .lines import Look, legend_below, look, looks, named_below
from .picture import BLUE, GREY, ORANGE, PALE, figure, heading, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = Sequence[float | None]
Curve = Mapping[str, Any]  # false_positive, true_positive and auc of one class

_NAMED = 7  # up to so many curves are named all
_WORST = 5  # of more curves so many are named: those with the smallest areas


def plot_reliability(
    bins: Mapping[str, Numbers],
    path: Path,
    title: str,
    note: str = "",
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw the accuracy in each bin of confidence, and how many rows are in it.

    ``bins`` as `math.metrics.figures.reliability` gives them; None stands for a bin without rows. A
    head whose probabilities can be taken at their word has its bars on the diagonal. ``note``
    stands below the title. Raises as `figure` does.
    """
    weight, confidence, accuracy = (
        np.array([np.nan if v is None else v for v in bins[name]], np.float64)
        for name in ("weight", "confidence", "accuracy")
    )
    edges = np.linspace(0, 1, len(weight) + 1)
    wide = size.inches(137)
    with figure(path, wide, 0.95 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, note)
        upper, lower = drawn.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        upper.stairs(np.nan_to_num(accuracy), edges, fill=True, color=PALE, label="accuracy")
        upper.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="calibrated")
        upper.vlines(confidence, accuracy, confidence, color=ORANGE, linewidth=2, label="gap")
        upper.plot(confidence, accuracy, "o", color=BLUE, markersize=4)
        upper.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="share of rows that are right")
        legend_below(drawn, *upper.get_legend_handles_labels())
        lower.stairs(weight, edges, fill=True, color=BLUE)
        lower.set(xlabel="probability of the predicted class", ylabel="rows", ylim=(0, None))
        lower.yaxis.set_major_formatter("{x:,.0f}")
    return path


def plot_coverage(
    curves: Mapping[str, tuple[F64, F64]],
    path: Path,
    title: str,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw the share of answered rows that is right by the share that is answered, for each head.

    ``curves`` as `math.calibration.accuracy_by_coverage` gives them. Raises as `figure` does.
    """
    wide = size.inches(137)
    styles, entries = looks([(name,) for name in curves])
    with figure(path, wide, 0.75 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, "the rows of the lowest confidence get no answer")
        axes = drawn.add_subplot()
        for i, ((coverage, accuracy), style) in enumerate(
            zip(curves.values(), styles, strict=True)
        ):
            axes.plot(coverage, accuracy, markevery=(0.04 * i, 0.2), clip_on=False, **style)
        axes.set(xlim=(0, 1), xlabel="share of rows that are answered (coverage)")
        axes.set(ylim=(None, 1), ylabel="share of these that is right (accuracy)")
        named_below(drawn, entries)
    return path


def plot_roc(
    curves: Mapping[str, Curve],
    path: Path,
    title: str,
    note: str = "",
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw the ROC curve of each class against the rest, by the classes' names.

    A curve has ``false_positive`` and ``true_positive`` rates, and ``auc``, the area under the
    whole curve (None where rows do not determine it). Of more than 7 curves those with the smallest
    areas are named and the others pale. Raises as `figure` does.
    """
    area = {name: np.nan if one["auc"] is None else one["auc"] for name, one in curves.items()}
    worst = sorted((name for name in curves if area[name] == area[name]), key=area.__getitem__)
    named = list(curves) if len(curves) <= _NAMED else worst[:_WORST]
    wide = size.inches(137)
    with figure(path, wide, 0.95 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, note)
        axes = drawn.add_subplot()
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
        entries: list[tuple[str, Look]] = []
        others = [name for name in curves if name not in set(named)]
        pale: Look = {"color": PALE, "linewidth": 0.8}
        for name in others:
            _curve(axes, curves[name], **pale)
        for i, name in enumerate(named):
            _curve(axes, curves[name], markevery=(0.04 * i, 0.2), **look(i))
            size_of = "undetermined" if np.isnan(area[name]) else f"{area[name]:.4f}"
            entries.append((f"{shortened(name)}: {size_of}", look(i)))
        if others:
            entries.append((f"{len(others)} others", pale))
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        axes.set(xlabel="false positive rate (1 − specificity)")
        axes.set(ylabel="true positive rate (sensitivity)")
        named_below(drawn, entries, "area under the curve")
    return path


def _curve(axes: Axes, one: Curve, **style: Any) -> None:
    axes.plot(one["false_positive"], one["true_positive"], clip_on=False, **style)
