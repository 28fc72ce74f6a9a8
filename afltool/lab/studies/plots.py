"""Pictures of a study: a figure against an option, over seeds, by method."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ...errors import UsageError
from ...options.look import AS_NEEDED, SizeOptions
from ...rendering.style import check_picture, figure, legend_below, logarithmic, look, plain
from .cells import SEEDS
from .options import FIGURES, StudyPicture, TableOptions, parse_names, parse_numbers
from .published import options_in
from .published import plain as plain_value
from .result_table import option_text
from .results import load_results
from .tables import chosen, frame, make_round_lines, resolve_options


def study_picture(o: StudyPicture) -> Path:
    """Draw a figure of the study against an option, or against another figure."""
    check_picture(o.out, o)
    results = load_results(o.study)
    shown = resolve_options(results.study, TableOptions(layers=o.layers, where=o.where))
    layers: Sequence[int] = parse_numbers(shown.layers)
    if parse_names(o.x) == ["layers"] and o.layers is None:
        layers = range(1000)
    (x, *_) = parse_names(o.x)
    every = make_round_lines(results) if x == "round" else frame(results, layers)
    lines = chosen(every, o.where)
    if o.y not in FIGURES:
        raise UsageError(f"--y is of {', '.join(FIGURES)}; found {o.y!r}")
    if x not in FIGURES and x not in options_in(lines):
        raise UsageError(f"no cell has the option {x.replace('_', '-')!r}, and it is no figure")
    by = parse_names(o.by) or get_line_options(lines, x)
    return plot_series(compute_points(lines, x, o.y, by), x, o.y, o.out, o.overwrite, o)


def get_line_options(lines: pd.DataFrame, x: str) -> list[str]:
    """The options that tell the lines apart: the head, and what differs within a head."""
    if x in lines and x not in FIGURES:
        lines = lines[lines[x].notna()]
    options = lines[options_in(lines)].map(lambda one: str(plain_value(one)))
    several = options.groupby("head").nunique().gt(1).any()
    return ["head", *(n for n in several.index[several] if n not in (x, *SEEDS))]


def compute_points(lines: pd.DataFrame, x: str, y: str, by: Sequence[str]) -> pd.DataFrame:
    """The points of each line: its ``name``, ``x``, and mean and deviation of ``y`` over seeds.

    Results are seeds of each other where the line and x are equal; where x is a figure, where all
    options are, and a point is at its mean.
    """
    lines = lines.reindex(columns=[*dict.fromkeys((*lines, *by, x, y))])
    lines = lines[lines[x].notna() & lines[y].notna()].copy()
    if lines.empty:
        return pd.DataFrame(columns=["name", "x", "y", "spread"])
    named = lines[list(by)].itertuples(index=False, name=None)
    lines["line"] = pd.Series([_name(by, one) for one in named], lines.index, dtype=object)
    rest = [name for name in options_in(lines) if name not in SEEDS] if x in FIGURES else [x]
    points = lines[rest].map(plain_value).map(str).agg("|".join, axis=1)
    factors = [FIGURES[name].factor if name in FIGURES else None for name in (x, y)]
    for name, axis, factor in zip((x, y), ("x_", "y_"), factors, strict=True):
        lines[axis] = lines[name] if factor is None else lines[name].astype(float) * factor
    seeds = lines.groupby(["line", points], sort=False)
    found = seeds["x_"].agg("mean" if x in FIGURES else "first").rename("x").to_frame()
    found["y"], found["spread"] = seeds["y_"].mean(), seeds["y_"].std().fillna(0)
    return found.reset_index("line").rename(columns={"line": "name"})


def _name(names: Sequence[str], values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(filter(None, map(option_text, names, values))) or ("all",)


def plot_series(
    points: pd.DataFrame,
    x: str,
    y: str,
    path: Path,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw the lines of `compute_points` with bars of deviation, and a legend of several."""
    if points.empty:
        raise UsageError(f"there is nothing to draw: no cell has both {words(x)} and {y}")
    wide, entries, values = size.inches(120), [], list(dict.fromkeys(points["x"]))
    with figure(path, wide, max(0.62 * wide, 2.3), overwrite, size.dpi) as drawn:
        axes = drawn.add_subplot()
        for i, name in enumerate(dict.fromkeys(points["name"])):
            line = points[[one == name for one in points["name"]]]
            line = line.sort_values("x", kind="stable") if are_numbers(values) else line
            across = line["x"] if are_numbers(values) else [plain(str(one)) for one in line["x"]]
            bars = line["spread"] if line["spread"].any() else None
            every = -(-len(line) // 20)  # marks and bars of 500 rounds would hide the line
            marks: dict[str, Any] = {"markevery": every, "errorevery": every, **look(i)}
            one = axes.errorbar([*across], line["y"], yerr=bars, capsize=2, **marks)
            entries.append((one, ", ".join(name)))
        axes.set(xlabel=plain(words(x)), ylabel=FIGURES[y].label)
        if spans_factors(values):
            logarithmic(axes)
        elif are_numbers(values):
            whole = all(isinstance(one, int) for one in values)
            axes.locator_params("x", nbins=6, integer=whole)
        elif x not in FIGURES:
            axes.tick_params(axis="x", rotation=30)
        if entries[1:]:
            legend_below(drawn, entries)
    return path


def are_numbers(values: Collection[Any]) -> bool:
    return all(isinstance(x, (int, float)) and not isinstance(x, bool) for x in values)


def spans_factors(values: Collection[Any]) -> bool:
    """Whether values are for a logarithmic axis: positive, of very different size, no steps."""
    x = np.unique([*values]) if are_numbers(values) else np.zeros(1)
    steps = np.diff(x)
    even = len(steps) > 1 and np.allclose(steps, steps[0])
    return bool(x[0] > 0 and x[-1] >= 10 * x[0] * (1 - 1e-9) and not even)


def words(name: str) -> str:
    return FIGURES[name].label if name in FIGURES else name.replace("_", "-")
