"""Partitions side by side, for a column or a page of a paper: a panel each, in one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UsageError
from .by_class import Counts, checked_counts, class_ticks
from .figure import BLUE, figure, plain
from .partition_picture import binned, client_order, coloured
from .series import MM, POINT

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
    panels: Sequence[Panel],
    path: Path,
    width_mm: float = 180.0,
    overwrite: bool = False,
) -> Path:
    """Draw rows by client and class of each partition, and below them rows per client.

    Colours and heights have one scale, so that panels can be compared; white is exactly no row.
    Clients stand in their order up to 120, beyond that in the order of their largest class and of
    their size. Text has 8 points whatever the width. Raises as `figure` does, and `UsageError`
    where panels would be too narrow to read.
    """
    most = min(MOST_PANELS, int(width_mm // NARROWEST))
    if len(panels) > most:
        raise UsageError(
            f"{len(panels)} partitions do not fit side by side into {width_mm:g} mm: at most "
            f"{most} do; give a larger --width-mm or fewer files"
        )
    found = [checked_counts(one.counts, one.class_names, one.title) for one in panels]
    wide = width_mm / MM
    alike = len({tuple(one.class_names) for one in panels}) == 1
    with figure(path, wide, min(0.45 * wide, 1.1 * wide / len(panels)) + 1.6, overwrite) as drawn:
        from matplotlib.colors import LogNorm

        grid = drawn.add_gridspec(2, len(panels), height_ratios=(2.2, 1))
        norm = LogNorm(1.0, max(10.0, *(float(counts.max()) for counts in found)))
        above: list[Axes] = []
        below: list[Axes] = []
        for i, (one, counts) in enumerate(zip(panels, found, strict=True)):
            counts, order = client_order(counts)
            cells = drawn.add_subplot(grid[0, i])
            cells.tick_params(labelsize=POINT, labelbottom=False)
            image = coloured(cells, binned(counts)[0], counts.shape, norm)
            sizes = drawn.add_subplot(grid[1, i], sharey=below[0] if below else None)
            _sizes(sizes, counts)
            letters = max(12, int(width_mm / len(panels) / 2))
            title = "\n".join(map(plain, wrap(one.title, letters)))
            cells.set_title(title, fontsize=POINT, loc="left")
            sizes.set_xlabel(order.split(" in ")[0], fontsize=POINT)
            _class_axis(cells, one.class_names, first=not i or not alike)
            above.append(cells)
            below.append(sizes)
        below[0].set_ylabel("rows", fontsize=POINT)
        for axes in below[1:]:
            axes.tick_params(labelleft=False)
        bar = drawn.colorbar(image, ax=above, fraction=0.05, pad=0.02, format="{x:,.0f}")
        bar.set_label("rows (white: none)", fontsize=POINT)
        bar.ax.tick_params(labelsize=POINT)
    return path


def _class_axis(axes: Axes, names: Sequence[str], first: bool) -> None:
    """Names of a few classes, numbers of many; only where they are not those of the first panel."""
    if not first:
        axes.tick_params(labelleft=False)
        return
    if len(names) <= _NAMES:
        class_ticks(axes, names, "y")
    axes.set_ylabel("class", fontsize=POINT)


def _sizes(axes: Axes, counts: Counts) -> None:
    from matplotlib.ticker import MaxNLocator

    rows = counts.sum(axis=1)
    axes.stairs(rows, np.arange(rows.size + 1) - 0.5, fill=True, color=BLUE)
    axes.set_xlim(-0.5, rows.size - 0.5)
    axes.set_ylim(bottom=0)
    axes.tick_params(labelsize=POINT)
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
