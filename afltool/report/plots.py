"""Pictures of a confusion matrix and of a ridge path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import F64
from ..errors import InvalidDataError
from .by_class import Counts, checked_counts, class_ticks, pale_to_dark
from .figure import BLUE, GREY, ORANGE, figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NUMBERS = 20  # up to so many classes a number fits into a cell of a confusion matrix


def plot_confusion(
    confusion: Counts,
    class_names: Sequence[str],
    path: Path,
    title: str,
    overwrite: bool = False,
) -> Path:
    """Draw ``confusion`` (C × C, rows = true class) as shares of each true class.

    The colour scale is the square root of the share, so that rare mistakes show; cells carry the
    counts up to 20 classes. Returns ``path``. Raises `InvalidDataError` for arrays of the wrong
    shape or with negative counts, `InputError` where the picture cannot be written, `UsageError`
    without matplotlib.
    """
    confusion = checked_counts(confusion, class_names, "confusion")
    if confusion.shape[0] != confusion.shape[1]:
        raise InvalidDataError(f"confusion: expected a square matrix, found {confusion.shape}")
    rows = confusion.sum(axis=1, keepdims=True)
    share = confusion / np.maximum(rows, 1)
    side = float(np.clip(0.125 * len(class_names), 3.2, 15.0))
    with figure(path, side + 2.6, side + 1.6, overwrite) as drawn:
        from matplotlib.colors import PowerNorm

        axes = drawn.add_subplot()
        norm = PowerNorm(0.5, 0, 1)
        image = axes.imshow(share, cmap=pale_to_dark(), norm=norm, interpolation="nearest")
        bar = drawn.colorbar(image, ax=axes, shrink=0.75, ticks=[0, 0.01, 0.05, 0.2, 0.5, 1])
        bar.ax.set_yticklabels(["0", "1 %", "5 %", "20 %", "50 %", "100 %"])
        bar.set_label("share of the true class")
        class_ticks(axes, class_names, "xy")
        axes.set(xlabel="predicted class", ylabel="true class")
        _cell_numbers(axes, confusion, share)
        hits = np.trace(confusion) / max(int(rows.sum()), 1)
        axes.set_title(
            f"{plain(title)}\ntop-1 {hits:.2%} of {rows.sum():,} rows", loc="left", fontsize=10
        )
    return path


def plot_ridge_path(
    lambdas: Sequence[float] | F64,
    curves: Mapping[str, Sequence[float] | F64],
    chosen: Mapping[str, float],
    path: Path,
    overwrite: bool = False,
) -> Path:
    """Draw each of ``curves`` over ``lambdas`` on a logarithmic axis, one panel a curve.

    ``chosen`` marks one λ of a curve by its name. λ = 0 stands one decade left of the smallest
    positive λ; values that are not finite are left out. Raises as `plot_confusion` does.
    """
    ridge = np.asarray(lambdas, np.float64)
    for name, values in curves.items():
        if np.shape(values) != ridge.shape:
            raise InvalidDataError(
                f"ridge path: expected {ridge.size} values, one per λ, found {np.shape(values)} "
                f"for {name!r}"
            )
    if not ridge.size or not curves or not (ridge >= 0).all() or not ridge.any():
        raise InvalidDataError(
            f"ridge path: expected curves over λ ≥ 0, found {len(curves)} curves over λ = {ridge}"
        )
    with figure(path, 7.0, 0.6 + 2.2 * len(curves), overwrite) as drawn:
        panels = drawn.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, values) in zip(panels, curves.items(), strict=True):
            _ridge_curve(axes, ridge, np.asarray(values, np.float64), name, chosen.get(name))
        panels[-1].set_xlabel("ridge λ")
    return path


def _cell_numbers(axes: Axes, confusion: Counts, share: F64) -> None:
    if confusion.shape[0] > _NUMBERS:
        return
    size = 9 if confusion.max(initial=0) < 1000 and confusion.shape[0] <= 12 else 6
    for row, column in np.argwhere(confusion):
        ink = "white" if share[row, column] > 0.35 else "black"
        text = f"{confusion[row, column]}"
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=ink)


def _ridge_curve(axes: Axes, ridge: F64, values: F64, name: str, chosen: float | None) -> None:
    order = np.argsort(ridge)
    order = order[np.isfinite(values[order])]
    zero = ridge[ridge > 0].min() / 10
    axes.plot(np.maximum(ridge, zero)[order], values[order], color=BLUE, marker="o", markersize=4)
    if (ridge == 0).any():
        axes.axvline(zero, color=GREY, linestyle=":", linewidth=1, label="λ = 0")
    if chosen is not None:
        label = f"chosen: λ = {chosen:g}"
        axes.axvline(max(chosen, zero), color=ORANGE, linestyle="--", linewidth=1.4, label=label)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8)
    axes.set(xscale="log", ylabel=plain(name))
    axes.grid(color="0.9", linewidth=0.6)
