"""Pictures of classes: a confusion matrix, partitions side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..options.look import AS_NEEDED, MM, SizeOptions
from .style import BLUE, CHARACTER, POINT, figure, heading, higher, shorten, wrap_plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Counts = NDArray[np.integer[Any]]

NARROWEST = 22.0  # millimetres of a panel, in which text of 8 points is readable
_NUMBERS = 20  # up to so many classes the cells of a confusion matrix have numbers
_CELLS = 1500  # more columns or rows are smaller than pixels, and blend


def class_ticks(axes: Axes, class_names: Sequence[str], which: str, inches: float) -> None:
    """Every name where ``inches`` of an axis have room for it, else every n-th one."""
    step = max(1, int(np.ceil(len(class_names) * POINT / (72 * inches))))
    places, names = np.arange(0, len(class_names), step), [*map(shorten, class_names[::step])]
    if "y" in which:
        axes.set_yticks(places, names)
    if "x" in which:
        axes.set_xticks(places, names, rotation=90)


def draw_cells(axes: Axes, cells: Any, norm: Any, start: float = 0.0, **how: Any) -> Any:
    """Cells as colors of one hue: from white (or, from ``start``, from pale) to dark."""
    from matplotlib.colors import LinearSegmentedColormap

    whole = LinearSegmentedColormap.from_list("whole", ["#FFFFFF", "#A9CCE8", "#3A87BF", "#06203F"])
    hue = LinearSegmentedColormap.from_list("paper", whole(np.linspace(start, 1, 256)))
    axes.grid(False)
    axes.spines[:].set_visible(True)
    fine = None if max(cells.shape) > _CELLS else "nearest"
    return axes.imshow(cells, cmap=hue, norm=norm, interpolation=fine, **how)


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

    The color scale is the square root of the share, so that rare mistakes show; cells carry the
    counts up to 20 classes. ``note`` stands below the title in place of the accuracy.
    """
    rows = confusion.sum(axis=1, keepdims=True)
    share = confusion / np.maximum(rows, 1)
    names = CHARACTER * max(len(shorten(name)) for name in class_names)
    beside = names + 1.25  # inches: with the axis' name and the bar of colors
    usual = float(np.clip(0.125 * len(class_names), 3.2, 14.0))
    wide = size.inches(MM * (usual + beside))
    side = max(wide - beside, 0.5)
    with figure(path, wide, side + names + 0.35, overwrite, size.dpi) as drawn:
        from matplotlib.colors import PowerNorm

        hits = np.trace(confusion) / max(int(rows.sum()), 1)
        heading(drawn, title, note or f"top-1 {hits:.2%} of {rows.sum():,} rows")
        axes = drawn.add_subplot()
        image = draw_cells(axes, share, PowerNorm(0.5, 0, 1))
        bar = drawn.colorbar(image, ax=axes, shrink=0.75, ticks=[0, 0.05, 0.2, 0.5, 1])
        bar.ax.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        bar.set_label("share of the true class")
        class_ticks(axes, class_names, "xy", side)
        axes.set(xlabel="predicted class", ylabel="true class")
        if len(class_names) <= _NUMBERS:
            widest = CHARACTER * len(str(confusion.max()))
            _cell_numbers(axes, confusion, share, 0.75 * side / len(class_names) / widest)
    return path


def _cell_numbers(axes: Axes, confusion: Counts, share: Any, room: float) -> None:
    """The counts, where a cell has room for more than half of the size of other texts."""
    for row, column in np.argwhere(confusion) if room > 0.55 else ():
        ink = "white" if share[row, column] > 0.35 else "black"
        text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": POINT * min(1, room)}
        axes.text(column, row, f"{confusion[row, column]}", color=ink, **text)


def _thousands(axis: Any, numbers: int) -> None:
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

    Colors and heights have one scale; white is exactly no row.
    """
    wide = size.inches(180)
    if len(panels) > (most := int(wide * MM // NARROWEST)):
        raise UsageError(
            f"{len(panels)} partitions do not fit side by side into {wide * MM:g} mm: at most "
            f"{most} do; give a larger --width-mm"
        )
    tables = [one.counts for one in panels]
    sizes = [counts.sum(axis=1) for counts in tables]
    top = max(1.05 * max(int(rows.max()) for rows in sizes), 1)
    titles = [wrap_plain(one.title, (wide - 1.1) / len(panels)) for one in panels]
    high = min(0.45 * wide, 1.1 * wide / len(panels))
    with figure(path, wide, high + 1.4, overwrite, size.dpi) as drawn:
        from matplotlib.colors import LogNorm

        norm = LogNorm(1.0, max(10.0, *(float(counts.max()) for counts in tables)))
        higher(drawn, max(title.count("\n") for title in titles))
        above, below = drawn.subplots(2, len(panels), height_ratios=(2.2, 1), squeeze=False)
        for i, (title, counts) in enumerate(zip(titles, tables, strict=True)):
            cells = np.ma.masked_equal(counts.T, 0)
            image = draw_cells(above[i], cells, norm, 0.2, aspect="auto")
            above[i].tick_params(labelbottom=False)
            _thousands(above[i].yaxis, 5)
            above[i].set_title(title)
            # stairs draws one path; ten thousand bars take seconds
            edges = np.arange(sizes[i].size + 1) - 0.5
            below[i].stairs(sizes[i], edges, fill=True, color=BLUE)
            below[i].set(xlim=edges[[0, -1]], ylim=(0, top), xlabel="client")
            below[i].tick_params(labelleft=not i)
            _thousands(below[i].xaxis, 3)
            _thousands(below[i].yaxis, 3)
        above[0].set_ylabel("class")
        below[0].set_ylabel("rows")
        if len(panels) == 1:
            class_ticks(above[0], panels[0].class_names, "y", 0.6 * high)
        bar = drawn.colorbar(image, ax=above, fraction=0.05, pad=0.02, format="{x:,.0f}")
        bar.set_label("rows (white: none)")
    return path
