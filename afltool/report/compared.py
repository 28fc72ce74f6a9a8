"""Several runs in one picture: accuracy by round, and by the bytes that a client has sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from .figure import figure, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Round = Mapping[str, Any]


def plot_compared(
    runs: Mapping[str, tuple[Sequence[Round], float]],
    path: Path,
    overwrite: bool = False,
) -> Path:
    """Draw ``runs``: for each name its rounds and its final accuracy, a fraction.

    A last round without ``top1`` gets the final accuracy. ``upload_bytes`` of a round are those of
    one client; runs that send nothing have no line in the second panel. Returns ``path``.
    """
    if not all(rounds for rounds, _ in runs.values()):
        raise UsageError("a run without rounds cannot be drawn beside others")
    with figure(path, 9.0, 4.2, overwrite) as drawn:
        by_round, by_bytes = drawn.subplots(1, 2, sharey=True)
        for name, (rounds, end) in runs.items():
            numbers, tops = _accuracies(rounds, end)
            sent = np.cumsum([one.get("upload_bytes") or 0 for one in rounds])[numbers - 1] / 1e6
            _line(by_round, numbers, tops, name)
            _line(by_bytes, sent[sent > 0], tops[sent > 0], name)
        for axes, words in ((by_round, "round"), (by_bytes, "MB that a client has sent")):
            axes.set_xscale("log")
            axes.set_xlabel(words)
            axes.grid(color="0.92")
            axes.spines[["top", "right"]].set_visible(False)
        by_round.set_ylabel("top-1, %")
        by_round.legend(frameon=False, fontsize=8)
    return path


def _accuracies(rounds: Sequence[Round], end: float) -> tuple[Any, Any]:
    """Numbers of the rounds whose accuracy is known, from 1, and the accuracies in per cent."""
    known = {n: one["top1"] for n, one in enumerate(rounds, 1) if one.get("top1") is not None}
    known.setdefault(len(rounds), end)
    return np.array(list(known)), 100 * np.array(list(known.values()))


def _line(axes: Axes, x: Any, y: Any, name: str) -> None:
    axes.plot(x, y, "o-" if len(x) < 2 else "-", label=plain(name), linewidth=1.2, markersize=5)
