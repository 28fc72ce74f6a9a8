"""A figure of a study against an option, one line for each method: for a column of a paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..options.plot import AS_NEEDED, SizeOptions
from ..show.lines import Look, Name, logarithmic, looks, named_below
from ..show.picture import figure, plain, width_of
from .figures import FIGURES

FEW = 8  # values that are all named below the axis


@dataclass(frozen=True)
class Series:
    """One line: points in the order of x, their middles, and deviations (None: of one seed).

    ``x`` are numbers, or texts for options that are none.
    """

    name: Name
    x: Sequence[Any]
    y: Sequence[float]
    spread: Sequence[float | None]


def plot_series(
    series: Sequence[Series],
    x_name: str,
    y: str,
    path: Path,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw ``series`` of the figure ``y`` with error bars; a legend where there are several.

    The x axis is logarithmic where positive numbers span a factor of 10, but for equal steps.
    Raises as `figure` does, and `UsageError` where nothing can be drawn.
    """
    if not any(one.x for one in series):
        raise UsageError(f"there is nothing to draw: no cell has both {x_name} and {y}")
    styles, entries = looks([one.name for one in series])
    wide = size.inches(120)
    with figure(path, wide, max(0.62 * wide, 1.6), overwrite, size.dpi) as drawn:
        axes = drawn.add_subplot()
        places = _places(series)
        for one, style in zip(series, styles, strict=True):
            _line(axes, one, places, style, y)
        _x_axis(axes, places, x_name, wide)
        axes.set_ylabel(FIGURES[y].label)
        if len(series) > 1:
            named_below(drawn, entries)
    return path


def _places(series: Sequence[Series]) -> Mapping[Any, float]:
    """Where a value of x stands: at itself, or texts side by side."""
    values = list(dict.fromkeys(x for one in series for x in one.x))
    if _are_numbers(values):
        return {x: float(x) for x in sorted(values)}
    return {x: float(i) for i, x in enumerate(values)}


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(x, (int, float)) for x in values)


def _line(axes: Any, one: Series, places: Mapping[Any, float], style: Look, y: str) -> None:
    factor = FIGURES[y].factor
    across, up = [places[x] for x in one.x], [factor * value for value in one.y]
    bars = [0.0 if s is None else factor * s for s in one.spread]
    axes.errorbar(across, up, yerr=bars if any(bars) else None, capsize=2, **style)


def _x_axis(axes: Any, places: Mapping[Any, float], x_name: str, wide: float) -> None:
    numbers, at = _are_numbers(places), np.array(list(places.values()))
    axes.set_xlabel(plain(x_name))
    if by_factors := numbers and spans_factors(at):
        logarithmic(axes)
    if numbers and (len(places) > FEW or x_name in {one.label for one in FIGURES.values()}):
        return
    from matplotlib.ticker import NullLocator

    names = [f"{x:g}" if numbers else plain(str(x)) for x in places]
    inches = (wide - 0.8) * shares(np.log(at) if by_factors else at)
    turned = not numbers and any(
        width_of(names[i]) + width_of(names[i + 1]) > 2 * gap - 0.1
        for i, gap in enumerate(np.diff(inches))
    )
    kept = range(len(names)) if turned or not numbers else _apart(names, inches)
    side: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(at[list(kept)], [names[i] for i in kept], **(side if turned else {}))
    axes.xaxis.set_minor_locator(NullLocator())


def spans_factors(values: Any) -> bool:
    """Whether numbers are for a logarithmic axis: positive, of very different size, no steps.

    >>> spans_factors([0.1, 0.5, 1]), spans_factors([5, 10, 20, 50]), spans_factors([1, 2, 3])
    (True, True, False)
    >>> spans_factors([5 * t for t in range(1, 11)]), spans_factors([0, 1, 100])
    (False, False)
    """
    x = np.unique(np.asarray(values, np.float64))
    steps = np.diff(x)
    even = len(steps) > 1 and np.allclose(steps, steps[0])
    return bool(x.size and x[0] > 0 and x[-1] >= 10 * x[0] * (1 - 1e-9) and not even)


def shares(values: Any) -> Any:
    """Numbers as shares of their span."""
    low, high = values.min(), values.max()
    return (values - low) / (high - low if high > low else 1)


def _apart(names: Sequence[str], inches: Sequence[float]) -> list[int]:
    """The names that can stand side by side, from the left."""
    kept = [0]
    for i in range(1, len(names)):
        needed = (width_of(names[kept[-1]]) + width_of(names[i])) / 2 + 0.05
        if inches[i] - inches[kept[-1]] >= needed:
            kept.append(i)
    return kept
