"""Pictures of a confusion matrix and of a ridge path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InvalidDataError
from ..options.plot import AS_NEEDED, MM, SizeOptions
from ..values.arrays import F64
from .by_class import Counts, checked_counts, class_ticks, pale_to_dark, picture_frame, room_for
from .lines import legend_below
from .picture import BLUE, GREY, ORANGE, POINT, figure, heading, width_of, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NUMBERS = 20  # up to so many classes the cells of a confusion matrix have numbers
_SMALLEST = 4.5  # points of these numbers
_PANEL = 1.9  # inches of a curve's panel


def plot_confusion(
    confusion: Counts,
    class_names: Sequence[str],
    path: Path,
    title: str,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw ``confusion`` (C × C, rows = true class) as shares of each true class.

    The colour scale is the square root of the share, so that rare mistakes show; cells carry the
    counts up to 20 classes. Raises `InvalidDataError` for arrays of the wrong shape or with
    negative counts, and as `figure` does.
    """
    confusion = checked_counts(confusion, class_names, "confusion")
    if confusion.shape[0] != confusion.shape[1]:
        raise InvalidDataError(f"confusion: expected a square matrix, found {confusion.shape}")
    rows = confusion.sum(axis=1, keepdims=True)
    share = confusion / np.maximum(rows, 1)
    with figure(path, 1, 1, overwrite, size.dpi) as drawn:
        from matplotlib.colors import PowerNorm

        side = _give_size(drawn, class_names, size)
        hits = np.trace(confusion) / max(int(rows.sum()), 1)
        heading(drawn, title, f"top-1 {hits:.2%} of {rows.sum():,} rows")
        axes = drawn.add_subplot()
        norm = PowerNorm(0.5, 0, 1)
        image = axes.imshow(share, cmap=pale_to_dark(), norm=norm, interpolation="nearest")
        picture_frame(axes)
        ticks = [0, 0.05, 0.2, 0.5, 1] if side < 2.5 else [0, 0.01, 0.05, 0.2, 0.5, 1]
        bar = drawn.colorbar(image, ax=axes, shrink=0.75, ticks=ticks)
        bar.ax.set_yticklabels([f"{100 * tick:g} %" for tick in ticks])
        bar.set_label("share of the true class")
        class_ticks(axes, class_names, "xy", side)
        axes.set(xlabel="predicted class", ylabel="true class")
        _cell_numbers(axes, confusion, share, side)
    return path


def plot_ridge_path(
    lambdas: Sequence[float] | F64,
    curves: Mapping[str, Sequence[float] | F64],
    chosen: Mapping[str, float],
    path: Path,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
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
    with figure(path, size.inches(180), 0.3 + _PANEL * len(curves), overwrite, size.dpi) as drawn:
        panels = drawn.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, values) in zip(panels, curves.items(), strict=True):
            _ridge_curve(axes, ridge, np.asarray(values, np.float64), chosen.get(name))
            axes.set_ylabel(wrapped(name, 0.8 * _PANEL))
        panels[-1].set_xlabel("ridge λ")
        if (ridge == 0).any():
            legend_below(drawn, *panels[-1].get_legend_handles_labels())
    return path


def _give_size(drawn: Figure, class_names: Sequence[str], size: SizeOptions) -> float:
    """Make a figure for a matrix of these classes; the inches of its side."""
    names = room_for(class_names)
    beside = names + 1.25  # with the axis' name and the bar of colours
    usual = float(np.clip(0.125 * len(class_names), 3.2, 14.0))
    side = max(size.inches(MM * (usual + beside)) - beside, 0.5)
    drawn.set_size_inches(size.inches(MM * (side + beside)), side + names + 0.35)
    return side


def _cell_numbers(axes: Axes, confusion: Counts, share: F64, side: float) -> None:
    """The counts, where a cell has room for them."""
    widest = max(width_of(str(confusion.max())), 1e-9)
    size = min(POINT, POINT * 0.75 * side / confusion.shape[0] / widest)
    if confusion.shape[0] > _NUMBERS or size < _SMALLEST:
        return
    for row, column in np.argwhere(confusion):
        ink = "white" if share[row, column] > 0.35 else "black"
        text = f"{confusion[row, column]}"
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=ink)


def _ridge_curve(axes: Axes, ridge: F64, values: F64, chosen: float | None) -> None:
    order = np.argsort(ridge)
    order = order[np.isfinite(values[order])]
    zero = ridge[ridge > 0].min() / 10
    axes.plot(np.maximum(ridge, zero)[order], values[order], color=BLUE, marker="o")
    if (ridge == 0).any():
        axes.axvline(zero, color=GREY, linestyle=":", linewidth=1, label="λ = 0")
    if chosen is not None:
        axes.axvline(max(chosen, zero), color=ORANGE, linestyle="--", linewidth=1.4)
        axes.set_title(f"chosen: λ = {chosen:g}", loc="right", color=ORANGE)
    axes.set_xscale("log")
