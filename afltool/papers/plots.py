"""Pictures of a study: a figure against an option, over seeds, by method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..progress import log
from ..show.lines import Name
from ..show.picture import check_picture
from . import records as found_by
from .cells import SEEDS
from .crosstab import Entry, Record, statistic
from .figures import FIGURES
from .layout import StudyFolder
from .options import PictureOptions, TableOptions, names_of, numbers_of
from .results import results_of
from .series import Series, plot_series
from .tables import told


def study_picture(
    root: Path, out: Path, options: PictureOptions, *, overwrite: bool = False
) -> Path:
    """Draw a figure of the study in ``root`` against an option, or against another figure."""
    o = options
    check_picture(out, o)
    results = results_of(root)
    shown = told(results.study, TableOptions(layers=o.layers, where=o.where))
    layers: Sequence[int] = numbers_of(shown.layers)
    if o.x.words == ("layers",) and o.layers is None:
        layers = range(1000)
    found = found_by.chosen(found_by.records(results, layers), o.where)
    x = o.x.words[0]
    there = [one for one in found if x in FIGURES or one.axes.get(x) is not None]
    by = names_of(o.by) or lines_of(there, x)
    series = series_of(there or found, x, o.y, by)
    return plot_series(series, words(x), o.y, out, overwrite, o)


def runs_by_name(paths: Sequence[Path]) -> tuple[dict[Name, list[Path]], list[Path]] | None:
    """The cells of studies of each line of a picture, by its name, and the paths that are no cells.

    Cells are named by their labels and the options that differ, and those that differ in seeds
    alone are one line; without a result they are left out. None where no path is a cell.
    """
    studies: dict[Path, list[Path]] = {}
    left = []
    for path in paths:
        root = path.resolve().parent.parent
        if StudyFolder.is_one(root) and path.resolve() == StudyFolder(root).cell(path.name):
            studies.setdefault(root, []).append(path)
        else:
            left.append(path)
    named: dict[Name, list[Path]] = {}
    for root, cells in studies.items():
        for line, alike in _cells_by_name(root, cells).items():
            named.setdefault(line, []).extend(alike)
    return (named, left) if studies else None


def _cells_by_name(root: Path, paths: Sequence[Path]) -> dict[Name, list[Path]]:
    results = results_of(root)
    asked = {path.resolve().name: path for path in paths}
    every = zip(results.each, found_by.records(results), strict=True)
    done = {of.cell.key: one for of, one in every if of.cell.key in asked and not one.hole}
    if left := len(asked) - len(done):
        log.warning("%d of %d cells of %s have no result: left out", left, len(asked), root)
    by = lines_of(list(done.values()), "")
    named: dict[Name, list[Path]] = {}
    for key, one in done.items():
        named.setdefault(_line(one, by), []).append(asked[key])
    return named


def words(name: str) -> str:
    """An option or a figure as people call it."""
    return FIGURES[name].label if name in FIGURES else name.replace("_", "-")


def lines_of(found: Sequence[Record], x: str) -> list[str]:
    """The options that distinguish the lines: the head, and what differs within a head."""
    names: dict[str, None] = {"head": None}
    for head in dict.fromkeys(one.axes["head"] for one in found):
        alike = [one for one in found if one.axes["head"] == head]
        for name in dict.fromkeys(n for one in alike for n in one.axes):
            many = len({str(one.axes.get(name)) for one in alike}) > 1
            if many and name not in (x, *SEEDS):
                names[name] = None
    return list(names)


def series_of(found: Sequence[Record], x: str, y: str, by: Sequence[str]) -> list[Series]:
    """Lines of ``y`` over ``x``; records of equal ``by`` and x are seeds of each other.

    ``x`` may be a figure: a point is then at its mean over seeds. Cells without a result are left
    out.
    """
    if y not in FIGURES:
        raise UsageError(f"--y is of {', '.join(FIGURES)}; found {y!r}")
    figure = x in FIGURES
    if not figure and not any(x in one.axes for one in found):
        raise UsageError(f"no cell has the option {x.replace('_', '-')!r}, and it is no figure")
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for one in found:
        if y in one.figures and (x in one.figures if figure else one.axes.get(x) is not None):
            line = _line(one, by)
            rest = {k: v for k, v in one.axes.items() if k not in SEEDS}
            point = str(sorted(rest.items(), key=str)) if figure else one.axes[x]
            groups.setdefault((line, point), []).append(one)
    lines: dict[tuple[str, ...], list[tuple[Any, float, float | None]]] = {}
    for (line, _), alike in groups.items():
        middle, spread = statistic(Entry([one.figures[y] for one in alike]), "mean±sd")
        at = alike[0].axes.get(x)
        if figure:
            at = FIGURES[x].factor * statistic(Entry([one.figures[x] for one in alike]), "mean")[0]
        lines.setdefault(line, []).append((at, middle, spread))
    return [_series(line, points) for line, points in lines.items()]


def _series(line: tuple[str, ...], points: list[tuple[Any, float, float | None]]) -> Series:
    if all(isinstance(x, (int, float)) for x, _, _ in points):
        points = sorted(points, key=lambda point: point[0])
    return Series(line, *map(list, zip(*points, strict=True)))


def _line(one: Record, by: Sequence[str]) -> Name:
    return tuple(filter(None, (_text(name, one.axes.get(name)) for name in by))) or ("all",)


def _text(name: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    if name in ("head", "data", "backbone", "scheme", "activation"):
        return str(value)
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{name.replace('_', '-')} = {shown}"
