"""Partitions side by side, for a column or a page of a paper: a panel each, in one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UsageError
from ..options.plot import AS_NEEDED, MM, SizeOptions
from .by_class import Counts, checked_counts, class_ticks, room_for
from .partition_picture import binned, client_order, coloured
from .picture import BLUE, add_lines, figure, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PANELS = 8
NARROWEST = 22.0  # millimetres of a panel, in which text of 8 points is readable
_NAMES = 30  # most classes whose names are written


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
    found = [checked_counts(one.counts, one.class_names, one.title) for one in panels]
    alike = len({tuple(one.class_names) for one in panels}) == 1
    high = min(0.45 * wide, 1.1 * wide / len(panels))  # of the cells
    with figure(path, wide, high + 1.4, overwrite, size.dpi) as drawn:
        from matplotlib.colors import LogNorm

        grid = drawn.add_gridspec(2, len(panels), height_ratios=(2.2, 1))
        norm = LogNorm(1.0, max(10.0, *(float(counts.max()) for counts in found)))
        named = _named([one.class_names for one in panels], wide)
        each = (wide - 1.1 - named) / len(panels)
        titles = [wrapped(one.title, each) for one in panels]
        add_lines(drawn, max(title.count("\n") for title in titles))
        above: list[Axes] = []
        below: list[Axes] = []
        for i, (one, counts) in enumerate(zip(panels, found, strict=True)):
            counts, order = client_order(counts)
            cells = drawn.add_subplot(grid[0, i])
            cells.tick_params(labelbottom=False)
            image = coloured(cells, binned(counts)[0], counts.shape, norm)
            sizes = drawn.add_subplot(grid[1, i], sharey=below[0] if below else None)
            _sizes(sizes, counts)
            cells.set_title(titles[i])
            sizes.set_xlabel(order.split(" in ")[0])
            if i and alike:
                cells.tick_params(labelleft=False)
            elif named:
                class_ticks(cells, one.class_names, "y", high)
            above.append(cells)
            below.append(sizes)
        above[0].set_ylabel("class")
        below[0].set_ylabel("rows")
        for axes in below[1:]:
            axes.tick_params(labelleft=False)
        bar = drawn.colorbar(image, ax=above, fraction=0.05, pad=0.02, format="{x:,.0f}")
        bar.set_label("rows (white: none)")
    return path


def _named(names: Sequence[Sequence[str]], wide: float) -> float:
    """Inches of the class names beside all panels; 0 where there is room for numbers alone."""
    rooms = [room_for(one) for one in names]
    room = sum(rooms) if len(set(map(tuple, names))) > 1 else rooms[0]
    return room if max(map(len, names)) <= _NAMES and room <= 0.3 * wide else 0.0


def _sizes(axes: Axes, counts: Counts) -> None:
    from matplotlib.ticker import MaxNLocator

    rows = counts.sum(axis=1)
    axes.stairs(rows, np.arange(rows.size + 1) - 0.5, fill=True, color=BLUE)
    axes.set_xlim(-0.5, rows.size - 0.5)
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")
