"""Pictures of a study: a figure against an option, over seeds, by method."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UsageError
from ..options.look import AS_NEEDED, SizeOptions
from ..progress import log
from ..show.style import (
    Name,
    check_picture,
    figure,
    legend_below,
    logarithmic,
    looks,
    plain,
)
from . import records as found_by
from .cells import SEEDS, StudyFolder
from .crosstab import Record
from .options import FIGURES, StudyPicture, TableOptions, names_of, numbers_of
from .results import results_of
from .tables import told

FEW = 8  # values that are all named below the axis


@dataclass(frozen=True)
class Series:
    """One line: points in the order of x, their middles, and deviations (NaN: of one seed).

    ``x`` are numbers, or texts for options that are none.
    """

    name: Name
    x: Sequence[Any]
    y: Sequence[float]
    spread: Sequence[float]


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
    wide, factor = size.inches(120), FIGURES[y].factor
    with figure(path, wide, max(0.62 * wide, 1.6), overwrite, size.dpi) as drawn:
        axes = drawn.add_subplot()
        values = {x for one in series for x in one.x}
        for one, style in zip(series, styles, strict=True):
            bars, up = factor * np.nan_to_num(one.spread), factor * np.asarray(one.y)
            across = one.x if _are_numbers(values) else [plain(str(x)) for x in one.x]
            axes.errorbar(across, up, yerr=bars if any(bars) else None, capsize=2, **style)
        _x_axis(axes, values, x_name)
        axes.set_ylabel(FIGURES[y].label)
        if len(series) > 1:
            legend_below(drawn, entries)
    return path


def _x_axis(axes: Any, values: set[Any], name: str) -> None:
    """Few values of an option are named, and slant; other numbers are matplotlib's."""
    axes.set_xlabel(plain(name))
    numbers = _are_numbers(values)
    if numbers and spans_factors(list(values)):
        logarithmic(axes)
    if numbers and (len(values) > FEW or name in {one.label for one in FIGURES.values()}):
        return
    if numbers:
        from matplotlib.ticker import NullLocator

        axes.set_xticks(sorted(values), [f"{x:g}" for x in sorted(values)])
        axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", rotation=30)


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(x, (int, float)) for x in values)


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


def study_picture(o: StudyPicture) -> Path:
    """Draw a figure of the study against an option, or against another figure."""
    root, out, overwrite = o.study, o.out, o.overwrite
    check_picture(out, o)
    results = results_of(root)
    shown = told(results.study, TableOptions(layers=o.layers, where=o.where))
    layers: Sequence[int] = numbers_of(shown.layers)
    if names_of(o.x) == ["layers"] and o.layers is None:
        layers = range(1000)
    records = found_by.chosen(found_by.records(results, layers), o.where)
    x = names_of(o.x)[0]
    there = [one for one in records if x in FIGURES or one.axes.get(x) is not None]
    by = names_of(o.by) or lines_of(there, x)
    series = series_of(there or records, x, o.y, by)
    return plot_series(series, words(x), o.y, out, overwrite, o)


def runs_by_name(paths: Sequence[Path]) -> tuple[dict[Name, list[Path]], list[Path]] | None:
    """The cells of studies of each line of a picture, by its name, and the paths that are no cells.

    Cells are named by their labels and the options that differ, and those that differ in seeds
    alone are one line; without a result they are left out. None where no path is a cell.
    """
    studies: dict[Path, dict[str, Path]] = {}
    left = []
    for path in paths:
        if (place := _place_of_cell(path)) is None:
            left.append(path)
        else:
            studies.setdefault(place.parent.parent.resolve(), {})[place.name] = path
    named: dict[Name, list[Path]] = {}
    for root, cells in studies.items():
        for line, alike in _cells_by_name(root, cells).items():
            named.setdefault(line, []).extend(alike)
    return (named, left) if studies else None


def _place_of_cell(path: Path) -> Path | None:
    """Where a cell lies in its study, whose folder of cells may be a link; None for no cell."""
    for place in (Path(os.path.abspath(path)), path.resolve()):
        if place.parent.name == StudyFolder.CELLS and StudyFolder.is_one(place.parent.parent):
            return place
    return None


def _cells_by_name(root: Path, paths: dict[str, Path]) -> dict[Name, list[Path]]:
    results = results_of(root)
    every = zip(results.each, found_by.records(results), strict=True)
    done = {of.cell.key: one for of, one in every if of.cell.key in paths and not one.hole}
    if left := len(paths) - len(done):
        log.warning("%d of %d cells of %s have no result: left out", left, len(paths), root)
    by = lines_of(list(done.values()), "")
    named: dict[Name, list[Path]] = {}
    for key, one in done.items():
        named.setdefault(_line(one, by), []).append(paths[key])
    return named


def words(name: str) -> str:
    """An option or a figure as people call it."""
    return FIGURES[name].label if name in FIGURES else name.replace("_", "-")


def lines_of(records: Sequence[Record], x: str) -> list[str]:
    """The options that distinguish the lines: the head, and what differs within a head."""
    if not records:
        return ["head"]
    axes = pd.DataFrame([one.axes for one in records]).astype(str)
    several = axes.groupby("head").nunique().gt(1).any()
    return ["head", *(n for n in several.index[several] if n not in (x, *SEEDS))]


def series_of(records: Sequence[Record], x: str, y: str, by: Sequence[str]) -> list[Series]:
    """Lines of ``y`` over ``x``; records of equal ``by`` and x are seeds of each other.

    ``x`` may be a figure: a point is then at its mean over seeds. Cells without a result are left
    out.
    """
    if y not in FIGURES:
        raise UsageError(f"--y is of {', '.join(FIGURES)}; found {y!r}")
    figure = x in FIGURES
    if not figure and not any(x in one.axes for one in records):
        raise UsageError(f"no cell has the option {x.replace('_', '-')!r}, and it is no figure")
    points = []
    for one in records:
        at = one.figures.get(x) if figure else one.axes.get(x)
        if y in one.figures and at is not None:
            rest = sorted(((k, v) for k, v in one.axes.items() if k not in SEEDS), key=str)
            point = str(rest) if figure else at
            points.append(
                (_line(one, by), point, FIGURES[x].factor * at if figure else at, one.figures[y])
            )
    frame = pd.DataFrame(points, columns=["line", "point", "x", "y"])
    seeds = frame.groupby(["line", "point"], sort=False)
    found = seeds["x"].agg("mean" if figure else "first").to_frame()
    found["y"], found["spread"] = seeds["y"].mean(), seeds["y"].std()
    series = []
    line: Any  # a name, which pandas' types do not know as a key
    for line, one_line in found.groupby("line", sort=False):
        if _are_numbers(one_line["x"]):
            one_line = one_line.sort_values("x", kind="stable")
        series.append(Series(line, *(one_line[name].tolist() for name in ("x", "y", "spread"))))
    return series


def _line(one: Record, by: Sequence[str]) -> Name:
    return tuple(filter(None, (_text(name, one.axes.get(name)) for name in by))) or ("all",)


def _text(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    if name in ("head", "data", "backbone", "scheme", "activation"):
        return str(value)
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name.replace('_', '-')} = {shown}"
