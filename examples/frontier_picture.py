"""The picture of frontier.py: accuracy against the bytes that a client sends, by family."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from afltool.errors import InvalidDataError
from afltool.rendering.style import GREY, Look, figure, legend_below, look


def plot_frontier(
    points: Sequence[Mapping[str, Any]],
    path: str | os.PathLike[str],
    budgets: Sequence[float] = (),
    overwrite: bool = False,
) -> Path:
    """Draw ``points`` with bars of their standard error; a line joins the best points of a family.

    A point has ``family``, ``megabytes`` (> 0), ``top1`` (a fraction) and ``standard_error`` (None
    for one run alone). ``budgets``, in megabytes, are vertical lines if they are within the axis.
    Returns ``path``. Raises `InvalidDataError` without points, or for a point of 0 bytes, which a
    logarithmic axis cannot show.
    """
    if not points or not all(p["megabytes"] > 0 for p in points):
        raise InvalidDataError(
            f"frontier: expected points of more than 0 bytes, found {len(points)} points"
        )
    from matplotlib.ticker import LogLocator, NullFormatter

    families = list(dict.fromkeys(p["family"] for p in points))
    entries = []
    with figure(path, 8.0, 5.0, overwrite) as drawn:
        axes = drawn.add_subplot()
        most = max(p["megabytes"] for p in points)
        for budget in (b for b in budgets if b < 2 * most):
            axes.axvline(budget, color=GREY, linewidth=0.8, linestyle=":")
        for i, family in enumerate(families):
            ours = sorted(
                (p for p in points if p["family"] == family), key=lambda p: p["megabytes"]
            )
            entries.append((_family(axes, ours, look(i)), family))
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("MB that a client sends, all rounds")
        axes.set_ylabel("top-1 on test rows, %")
        legend_below(drawn, entries)
    return Path(path)


def frontier(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The ``points`` (in ascending ``megabytes``) with a larger ``top1`` than all before them.

    >>> points = [{"megabytes": m, "top1": t} for m, t in ((1, 0.5), (2, 0.4), (3, 0.6))]
    >>> [p["megabytes"] for p in frontier(points)]
    [1, 3]
    """
    best: list[Mapping[str, Any]] = []
    for point in points:
        if not best or point["top1"] > best[-1]["top1"]:
            best.append(point)
    return best


def _family(axes: Any, points: Sequence[Mapping[str, Any]], style: Look) -> Any:
    x = [p["megabytes"] for p in points]
    y = [100 * p["top1"] for p in points]
    bars = [100 * (p["standard_error"] or 0.0) for p in points]
    drawn = axes.errorbar(x, y, bars, capsize=2, **{**style, "linestyle": "none"})
    line = frontier(points)
    if len(line) > 1:
        axes.plot(
            [p["megabytes"] for p in line], [100 * p["top1"] for p in line],
            color=style["color"], linestyle=style["linestyle"],
        )  # fmt: skip
    return drawn
