"""A figure of a study against an option, one line for each method: for a column of a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .crosstab import UNITS
from .figure import STYLES, figure, plain

MM = 25.4  # millimetres of an inch
POINT = 8  # of the smallest text: readable in a two-column paper at 84 mm
MOST_LINES = 4 * len(STYLES)
_DASHES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Series:
    """One line: points in the order of x, their middles, and deviations (None: of one seed).

    ``x`` are numbers, or texts for options that are none.
    """

    name: str
    x: Sequence[Any]
    y: Sequence[float]
    spread: Sequence[float | None]


def plot_series(
    series: Sequence[Series],
    x_name: str,
    y: str,
    path: Path,
    width_mm: float = 120,
    overwrite: bool = False,
) -> Path:
    """Draw ``series`` of the figure ``y`` with error bars; a legend where there are several.

    The x axis is logarithmic where positive numbers span more than a factor of 20. Text has 8
    points whatever the width. Raises as `figure` does, and `UsageError` where nothing can be drawn.
    """
    if not any(one.x for one in series):
        raise UsageError(f"there is nothing to draw: no cell has both {x_name} and {y}")
    if len(series) > MOST_LINES:
        raise UsageError(
            f"{len(series)} lines cannot be told apart: at most {MOST_LINES}; choose by --where"
        )
    wide = width_mm / MM
    legend = -(-len(series) // 2) if len(series) > 1 else 0  # lines of two names each
    with figure(path, wide, max(0.62 * wide, 1.6) + 0.14 * legend, overwrite) as drawn:
        axes = drawn.add_subplot()
        places = _places(series)
        for number, one in enumerate(series):
            _line(axes, one, places, number, y)
        _x_axis(axes, series, places, x_name)
        axes.set_ylabel(UNITS[y][0], fontsize=POINT)
        axes.tick_params(labelsize=POINT)
        axes.grid(color="0.92", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if len(series) > 1:
            columns = 2 if wide > 2.5 else 1
            drawn.legend(loc="outside lower center", fontsize=POINT, frameon=False, ncols=columns)
    return path


def _places(series: Sequence[Series]) -> Mapping[Any, float]:
    """Where a value of x stands: at itself, or texts side by side."""
    values = list(dict.fromkeys(x for one in series for x in one.x))
    if all(isinstance(x, (int, float)) for x in values):
        return {x: float(x) for x in values}
    return {x: float(i) for i, x in enumerate(values)}


def _line(axes: Any, one: Series, places: Mapping[Any, float], number: int, y: str) -> None:
    colour, mark = STYLES[number % len(STYLES)]
    factor = UNITS[y][1]
    bars = [0.0 if s is None else factor * s for s in one.spread]
    axes.errorbar(
        [places[x] for x in one.x], [factor * value for value in one.y],
        yerr=bars if any(bars) else None, label=plain(one.name), color=colour, marker=mark,
        markersize=3.5, linewidth=1, capsize=2, linestyle=_DASHES[number // len(STYLES)],
    )  # fmt: skip


def _x_axis(axes: Any, series: Sequence[Series], places: Mapping[Any, float], x_name: str) -> None:
    numbers = all(isinstance(x, (int, float)) for one in series for x in one.x)
    values = sorted(places.values())
    if numbers and values[0] > 0 and values[-1] > 20 * values[0]:
        axes.set_xscale("log")
    few = len(places) <= 8 and x_name not in {name for name, _, _ in UNITS.values()}
    if few or not numbers:
        from matplotlib.ticker import NullLocator

        names = [f"{x:g}" if numbers else plain(str(x)) for x in places]
        long = sum(map(len, names)) > 45
        axes.set_xticks(list(places.values()), names, rotation=30 if long else 0)
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(plain(x_name), fontsize=POINT)
