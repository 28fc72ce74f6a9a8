"""Pictures of classes: a confusion matrix, a partition with all about it, partitions side by side.

Colours and the maps of one hue read the same with any colour vision.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, UsageError
from ..options.look import AS_NEEDED, MM, SizeOptions
from ..partitions import mean_total_variation
from ..values.arrays import F64
from .style import (
    BLUE,
    CHARACTER,
    GREY,
    ORANGE,
    PALE,
    POINT,
    add_lines,
    figure,
    heading,
    plain,
    shortened,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Counts = NDArray[np.integer[Any]]

MOST_PANELS = 8
NARROWEST = 22.0  # millimetres of a panel, in which text of 8 points is readable
_NAMES = 30  # most classes whose names are written below panels
_NUMBERS = 20  # up to so many classes the cells of a confusion matrix have numbers
_SMALLEST = 4.5  # points of these numbers
_PITCH = 6  # points from a class name to the next
_CELLS = 1500  # more columns or rows are smaller than pixels, and blend
_NUMBERED = 120  # most clients that stay in their order


def checked_counts(counts: Counts, class_names: Sequence[str], name: str) -> Counts:
    counts = np.asarray(counts)
    if counts.ndim != 2 or not counts.size or counts.shape[1] != len(class_names):
        raise InvalidDataError(
            f"{name}: expected a matrix with {len(class_names)} columns, one per class name, found "
            f"shape {counts.shape}"
        )
    if counts.dtype.kind not in "iu" or counts.min() < 0:
        raise InvalidDataError(
            f"{name}: expected counts, found {counts.dtype} with minimum {counts.min()}"
        )
    return counts.astype(np.int64)


def class_ticks(axes: Axes, class_names: Sequence[str], which: str, inches: float) -> None:
    """Every name where ``inches`` of an axis have room for it, else every n-th one."""
    pitch = 72 * inches / len(class_names)
    step = max(1, int(np.ceil(_PITCH / pitch)))
    places = np.arange(0, len(class_names), step)
    names = [plain(shortened(name)) for name in class_names[::step]]
    size = min(POINT, 0.9 * pitch * step)
    if "y" in which:
        axes.set_yticks(places, names, fontsize=size)
    if "x" in which:
        axes.set_xticks(places, names, fontsize=size, rotation=90)


def room_for(class_names: Sequence[str]) -> float:
    """Inches of the longest name."""
    return CHARACTER * max(len(shortened(name)) for name in class_names)


def picture_frame(axes: Axes) -> None:
    """A frame round coloured cells, and no lines across them."""
    axes.grid(False)
    axes.spines[:].set_visible(True)


def pale_to_dark(start: float = 0.0) -> Any:
    """One hue from white (or, from ``start``, from pale) to dark: more is darker in grey too."""
    from matplotlib.colors import LinearSegmentedColormap

    whole = LinearSegmentedColormap.from_list("whole", ["#FFFFFF", "#A9CCE8", "#3A87BF", "#06203F"])
    return LinearSegmentedColormap.from_list("paper", whole(np.linspace(start, 1, 256)))


def plot_confusion(
    confusion: Counts,
    class_names: Sequence[str],
    path: Path,
    title: str,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
    note: str = "",
) -> Path:
    """Draw ``confusion`` (C × C, rows = true class) as shares of each true class.

    The colour scale is the square root of the share, so that rare mistakes show; cells carry the
    counts up to 20 classes. ``note`` stands below the title in place of the accuracy. Raises
    `InvalidDataError` for arrays of the wrong shape or with negative counts, and as `figure` does.
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
        heading(drawn, title, note or f"top-1 {hits:.2%} of {rows.sum():,} rows")
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
    widest = CHARACTER * len(str(confusion.max()))
    size = min(POINT, POINT * 0.75 * side / confusion.shape[0] / widest)
    if confusion.shape[0] > _NUMBERS or size < _SMALLEST:
        return
    for row, column in np.argwhere(confusion):
        ink = "white" if share[row, column] > 0.35 else "black"
        text = f"{confusion[row, column]}"
        axes.text(column, row, text, ha="center", va="center", fontsize=size, color=ink)


def plot_partition(
    counts: Counts,
    class_names: Sequence[str],
    path: Path,
    title: str,
    overwrite: bool = False,
    dpi: int | None = None,
) -> Path:
    """Draw ``counts`` (K clients × C classes): rows by client and class, sizes of both, shares.

    Rows of a client and class are a colour on a logarithmic scale, white is exactly no row. Beyond
    120 clients they stand in the order of their largest class and of their size, and the picture
    says so.
    Raises as `plot_confusion` does.
    """
    counts = checked_counts(counts, class_names, "counts")
    high = float(np.clip(0.13 * counts.shape[1], 2.8, 13.0))
    with figure(path, 12.0, high + 2.4, overwrite, dpi) as drawn:
        from matplotlib.colors import LogNorm

        heading(drawn, title, _partition_line(counts))
        grid = drawn.add_gridspec(2, 3, width_ratios=(1, 0.015, 0.2), height_ratios=(high, 1.7))
        cells = drawn.add_subplot(grid[0, 0])
        below = drawn.add_subplot(grid[1, 0], sharex=cells)
        classes = drawn.add_subplot(grid[0, 2], sharey=cells)
        counts, order = client_order(counts)
        image = coloured(cells, counts, LogNorm(1.0, max(float(counts.max()), 10.0)))
        bar = drawn.colorbar(image, cax=drawn.add_subplot(grid[0, 1]), format="{x:,g}")
        bar.set_label("rows (white: none)")
        bar.ax.minorticks_off()
        cells.set_ylabel("class")
        class_ticks(cells, class_names, "y", high)
        edges = np.arange(counts.shape[1] + 1) - 0.5
        classes.stairs(counts.sum(axis=0), edges, orientation="horizontal", fill=True, color=PALE)
        classes.tick_params(axis="y", labelleft=False, length=0)
        classes.set(xlim=(0, max(1.05 * counts.sum(axis=0).max(), 1)), xlabel="rows per class")
        _thousands(classes.xaxis)
        rows, middle = counts.sum(axis=1), np.median(counts.sum(axis=1))
        _client_sizes(below, rows)
        below.axhline(middle, color=ORANGE, linestyle="--", linewidth=1)
        below.set_title(f"median {middle:,.0f}", loc="right", color=ORANGE)
        below.set(xlabel=order, ylabel="rows per client", ylim=(0, max(1.1 * rows.max(), 1)))
        _cumulative_share(drawn.add_subplot(grid[1, 2]), rows)
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


def coloured(axes: Axes, counts: Counts, norm: Any) -> Any:
    """Rows of clients (across) and classes (down) as colours; white is 0."""
    picture_frame(axes)
    axes.tick_params(labelbottom=False)
    cells, fine = np.ma.masked_equal(counts.T, 0), max(counts.shape) > _CELLS
    look: dict[str, Any] = {"cmap": pale_to_dark(0.2), "aspect": "auto"}
    return axes.imshow(cells, norm=norm, interpolation=None if fine else "nearest", **look)


def _client_sizes(axes: Axes, rows: NDArray[np.int64], numbers: int = 4) -> None:
    # stairs draws one path; ten thousand bars take seconds
    axes.stairs(rows, np.arange(rows.size + 1) - 0.5, fill=True, color=BLUE)
    axes.set_xlim(-0.5, rows.size - 0.5)
    _thousands(axes.yaxis, numbers)


def _cumulative_share(axes: Axes, rows: NDArray[np.int64]) -> None:
    share = np.concatenate([[0.0], np.cumsum(np.sort(rows)[::-1]) / max(int(rows.sum()), 1)])
    largest = np.linspace(0, 1, rows.size + 1)
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
    axes.plot(largest, share, color=BLUE, linewidth=1.8)
    half = int(np.searchsorted(share, 0.5)) if rows.any() else 0
    axes.plot(largest[half], share[half], "o", color=ORANGE, markersize=5)
    axes.set_title(f"the {half:,} largest have half")
    axes.set(xlabel="share of clients", ylabel="share of rows", xlim=(0, 1), ylim=(0, 1.02))


def _thousands(axis: Any, numbers: int = 4) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(numbers, integer=True))
    axis.set_major_formatter("{x:,.0f}")


@dataclass(frozen=True)
class Panel:
    """A partition: rows (K clients × C classes), the names of the classes, a title."""

    counts: Counts
    class_names: Sequence[str]
    title: str


def plot_partitions(
    panels: Sequence[Panel], path: Path, overwrite: bool = False, size: SizeOptions = AS_NEEDED
) -> Path:
    """Draw rows by client and class of each partition, and below them rows per client.

    Colours and heights have one scale, so that panels can be compared; white is exactly no row.
    Clients stand in their order up to 120, beyond that in the order of their largest class and of
    their size. Raises as `figure` does, and `UsageError` where panels would be too narrow to read.
    """
    wide = size.inches(180)
    most = min(MOST_PANELS, int(wide * MM // NARROWEST))
    if len(panels) > most:
        raise UsageError(
            f"{len(panels)} partitions do not fit side by side into {wide * MM:g} mm: at most "
            f"{most} do; give a larger --width-mm or fewer files"
        )
    tables = [checked_counts(one.counts, one.class_names, one.title) for one in panels]
    alike = len({tuple(one.class_names) for one in panels}) == 1
    high = min(0.45 * wide, 1.1 * wide / len(panels))  # of the cells
    with figure(path, wide, high + 1.4, overwrite, size.dpi) as drawn:
        from matplotlib.colors import LogNorm

        norm = LogNorm(1.0, max(10.0, *(float(counts.max()) for counts in tables)))
        named = _named([one.class_names for one in panels], wide)
        titles = [wrapped(one.title, (wide - 1.1 - named) / len(panels)) for one in panels]
        add_lines(drawn, max(title.count("\n") for title in titles))
        top = max(1.05 * max(int(counts.sum(axis=1).max()) for counts in tables), 1)
        heights: dict[str, Any] = {"height_ratios": (2.2, 1), "squeeze": False}
        above, below = drawn.subplots(2, len(panels), **heights)
        for i, (one, counts) in enumerate(zip(panels, tables, strict=True)):
            counts, order = client_order(counts)
            image = coloured(above[i], counts, norm)
            _client_sizes(below[i], counts.sum(axis=1), 3)
            _thousands(below[i].xaxis, 3)
            above[i].set_title(titles[i])
            below[i].set(ylim=(0, top), xlabel=order.split(" in ")[0])
            below[i].tick_params(labelleft=not i)
            if i and alike:
                above[i].tick_params(labelleft=False)
            elif named:
                class_ticks(above[i], one.class_names, "y", high)
        above[0].set_ylabel("class")
        below[0].set_ylabel("rows")
        bar = drawn.colorbar(image, ax=above, fraction=0.05, pad=0.02, format="{x:,.0f}")
        bar.set_label("rows (white: none)")
    return path


def _named(names: Sequence[Sequence[str]], wide: float) -> float:
    """Inches of the class names beside all panels; 0 where there is room for numbers alone."""
    rooms = [room_for(one) for one in names]
    room = sum(rooms) if len(set(map(tuple, names))) > 1 else rooms[0]
    return room if max(map(len, names)) <= _NAMES and room <= 0.3 * wide else 0.0
