"""The picture of a partition: rows by client and class, sizes of both, cumulative shares."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..partitions.rows import mean_total_variation
from ..values.arrays import F64
from .by_class import Counts, checked_counts, class_ticks, pale_to_dark, picture_frame
from .picture import BLUE, GREY, ORANGE, PALE, figure, heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BUBBLES = 30  # most clients and classes for which bubbles are drawn
_NUMBERED = 120  # most clients that stay in their order
_CELLS = 1500  # more columns or rows than that fall between the pixels


def plot_partition(
    counts: Counts,
    class_names: Sequence[str],
    path: Path,
    title: str,
    overwrite: bool = False,
    dpi: int | None = None,
) -> Path:
    """Draw ``counts`` (K clients × C classes): rows by client and class, sizes of both, shares.

    Bubbles (area = rows) up to 30 clients and classes, a heat map on a logarithmic scale beyond;
    white is exactly no row. Beyond 120 clients they stand in the order of their largest class and
    of their size, beyond 1,500 a column is the mean of neighbours, and the picture says both.
    Raises as `plot_confusion` does.
    """
    counts = checked_counts(counts, class_names, "counts")
    high = float(np.clip(0.13 * counts.shape[1], 2.8, 13.0))
    with figure(path, 12.0, high + 2.4, overwrite, dpi) as drawn:
        heading(drawn, title, _partition_line(counts))
        grid = drawn.add_gridspec(2, 3, width_ratios=(1, 0.015, 0.2), height_ratios=(high, 1.7))
        cells = drawn.add_subplot(grid[0, 0])
        sizes = drawn.add_subplot(grid[1, 0], sharex=cells)
        counts, order = client_order(counts)
        _client_cells(cells, drawn.add_subplot(grid[0, 1]), counts)
        class_ticks(cells, class_names, "y", high)
        _class_sizes(drawn.add_subplot(grid[0, 2], sharey=cells), counts)
        _client_sizes(sizes, counts, order)
        _cumulative_share(drawn.add_subplot(grid[1, 2]), counts)
    return path


def _partition_line(counts: Counts) -> str:
    rows = counts.sum(axis=1)
    return (
        f"{rows.size:,} clients, {rows.sum():,} rows, {counts.shape[1]:,} classes  ·  rows per "
        f"client: min {rows.min():,}, median {np.median(rows):,.0f}, max {rows.max():,}  ·  "
        f"{(rows == 0).sum():,} empty  ·  mean total variation {mean_total_variation(counts):.2f}"
    )


def client_order(counts: Counts) -> tuple[Counts, str]:
    """Clients in their order, or by largest class where there are too many to tell apart."""
    if counts.shape[0] <= _NUMBERED:
        return counts, "client"
    order = np.lexsort((-counts.sum(axis=1), counts.argmax(axis=1), counts.sum(axis=1) == 0))
    return counts[order], "clients in the order of their largest class, then of their size"


def _client_cells(axes: Axes, legend: Axes, counts: Counts) -> None:
    clients, classes = counts.shape
    if clients <= _BUBBLES and classes <= _BUBBLES:
        legend.set_axis_off()
        _bubbles(axes, counts)
    else:
        _heat_map(axes, legend, counts)
    axes.set(xlim=(-0.5, clients - 0.5), ylim=(classes - 0.5, -0.5), ylabel="class")
    axes.tick_params(labelbottom=False)


def _bubbles(axes: Axes, counts: Counts) -> None:
    clients, classes = np.nonzero(counts)
    pitch = 72 * min(8.0 / counts.shape[0], max(2.8 / counts.shape[1], 0.13))  # points
    largest = max(int(counts.max()), 1)
    area = (0.95 * min(pitch, 40.0)) ** 2 * counts[clients, classes] / largest
    axes.scatter(clients, classes, s=area, color=BLUE, edgecolors="black", linewidths=0.4)
    axes.set_xlabel(f"area = rows; the largest bubble has {largest:,}", loc="right")
    axes.spines[:].set_visible(True)


def _heat_map(axes: Axes, legend: Axes, counts: Counts) -> None:
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import FuncFormatter, NullFormatter

    means, wide, high = binned(counts)
    positive = means[means > 0]
    low, top = (positive.min(), positive.max()) if positive.size else (1.0, 1.0)
    image = coloured(axes, means, counts.shape, LogNorm(min(low, 1.0), max(top, 10.0)))
    unit = "rows (white: none)"
    if wide * high > 1:
        unit = f"rows, mean over {wide} clients × {high} classes (white: none)"
    bar = axes.figure.colorbar(image, cax=legend, format=FuncFormatter(lambda x, _: f"{x:,g}"))
    bar.ax.yaxis.set_minor_formatter(NullFormatter())
    bar.set_label(unit)


def coloured(axes: Axes, means: F64, shape: tuple[int, ...], norm: Any) -> Any:
    """``means`` as colours over as many clients and classes as ``shape`` says; white is 0."""
    picture_frame(axes)
    seen, edges = np.ma.masked_equal(means.T, 0), (-0.5, shape[0] - 0.5, shape[1] - 0.5, -0.5)
    look: dict[str, Any] = {"cmap": pale_to_dark(0.2), "aspect": "auto", "interpolation": "nearest"}
    return axes.imshow(seen, norm=norm, extent=edges, **look)


def binned(counts: Counts) -> tuple[F64, int, int]:
    """Means over blocks of neighbours, so that no cell is smaller than a pixel."""
    wide, high = (-(-size // _CELLS) for size in counts.shape)
    sums = np.add.reduceat(counts, np.arange(0, counts.shape[0], wide), axis=0)
    sums = np.add.reduceat(sums, np.arange(0, counts.shape[1], high), axis=1)
    return sums / (wide * high), wide, high


def _class_sizes(axes: Axes, counts: Counts) -> None:
    edges = np.arange(counts.shape[1] + 1) - 0.5
    axes.stairs(counts.sum(axis=0), edges, orientation="horizontal", fill=True, color=PALE)
    axes.tick_params(axis="y", labelleft=False, length=0)
    axes.set_xlim(0, max(1.05 * counts.sum(axis=0).max(), 1))
    _thousands(axes.xaxis)
    axes.set_xlabel("rows per class")


def _client_sizes(axes: Axes, counts: Counts, order: str) -> None:
    rows = counts.sum(axis=1)
    # stairs draws one path; ten thousand bars take seconds
    axes.stairs(rows, np.arange(rows.size + 1) - 0.5, fill=True, color=BLUE)
    axes.axhline(np.median(rows), color=ORANGE, linestyle="--", linewidth=1)
    axes.set_title(f"median {np.median(rows):,.0f}", loc="right", color=ORANGE)
    axes.set(xlabel=order, ylabel="rows per client", ylim=(0, max(1.1 * rows.max(), 1)))
    if rows.size <= _BUBBLES:
        axes.set_xticks(np.arange(rows.size))
    _thousands(axes.yaxis)


def _cumulative_share(axes: Axes, counts: Counts) -> None:
    rows = np.sort(counts.sum(axis=1))[::-1]
    share = np.concatenate([[0.0], np.cumsum(rows) / max(int(rows.sum()), 1)])
    largest = np.linspace(0, 1, rows.size + 1)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
    axes.plot(largest, share, color=BLUE, linewidth=1.8)
    half = int(np.searchsorted(share, 0.5)) if rows.any() else 0
    axes.plot(largest[half], share[half], "o", color=ORANGE, markersize=5)
    axes.set_title(f"the {half:,} largest have half")
    axes.set(xlabel="share of clients", ylabel="share of rows")
    axes.set(xlim=(0, 1), ylim=(0, 1.02))


def _thousands(axis: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(4, integer=True))
    axis.set_major_formatter("{x:,.0f}")
