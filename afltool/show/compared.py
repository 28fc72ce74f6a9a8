"""Several runs in one picture: accuracy by round, and by the bytes that a client has sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from ..options.plot import AS_NEEDED, SizeOptions
from .lines import Look, Name, logarithmic, looks, named_below
from .picture import figure, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Round = Mapping[str, Any]
Run = tuple[Sequence[Round], float]  # its rounds and its final accuracy, a fraction
_MARKS = 6  # of a line, beside its beginning


def plot_compared(
    runs: Mapping[Name, Sequence[Run]],
    path: Path,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw a line for each name: the mean of its runs, and a pale band from least to most.

    A last round without ``top1`` gets the final accuracy. ``upload_bytes`` of a round are those of
    one client; runs that send nothing have no line in the second panel. A line has the rounds that
    all its runs tell.
    """
    if not all(rounds for alike in runs.values() for rounds, _ in alike):
        raise UsageError("a run without rounds cannot be drawn beside others")
    styles, entries = looks(list(runs))
    wide = size.inches(180)
    with figure(path, wide, max(0.38 * wide, 1.9), overwrite, size.dpi) as drawn:
        by_round, by_bytes = drawn.subplots(1, 2, sharey=True)
        for style, alike in zip(styles, runs.values(), strict=True):
            rounds, tops, sent = _points(alike)
            _line(by_round, rounds, tops, style)
            _line(by_bytes, sent[sent > 0], tops[:, sent > 0], style)
        for axes, words in ((by_round, "round"), (by_bytes, "MB that a client has sent")):
            logarithmic(axes)
            axes.set_xlabel(wrapped(words, 0.4 * wide))
        by_round.set_ylabel("top-1, %")
        named_below(drawn, entries)
    return path


def _points(alike: Sequence[Run]) -> tuple[Any, Any, Any]:
    """Numbers of the rounds, from 1; runs × rounds accuracies, per cent; mean MB sent so far."""
    known = [_accuracies(rounds, end) for rounds, end in alike]
    numbers = sorted(set.intersection(*map(set, known)))
    tops = np.array([[100 * one[n] for n in numbers] for one in known])
    sent = [np.cumsum([one.get("upload_bytes") or 0 for one in rounds]) for rounds, _ in alike]
    at = np.array(numbers, np.int64) - 1
    return at + 1, tops, np.mean([one[at] for one in sent], axis=0) / 1e6


def _accuracies(rounds: Sequence[Round], end: float) -> dict[int, float]:
    """Accuracies by the numbers of the rounds, from 1, that have one."""
    known = {n: one["top1"] for n, one in enumerate(rounds, 1) if one.get("top1") is not None}
    known.setdefault(len(rounds), end)
    return known


def _line(axes: Axes, x: Any, tops: Any, style: Look) -> None:
    axes.plot(x, tops.mean(axis=0), markevery=-(-len(x) // _MARKS) or 1, **style)
    if len(tops) > 1 and len(x) > 1:
        low, high = tops.min(axis=0), tops.max(axis=0)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)
