"""Pictures of lines: what an evaluation measured, a ridge path, several runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..options.look import AS_NEEDED, SizeOptions
from ..values.arrays import F64
from .style import BLUE, GREY, ORANGE, PALE, figure, heading, legend_below, plain

Numbers = Sequence[float | None]
Round = Mapping[str, Any]
Rounds = Sequence[Round]

TICKS = 14  # names of rounds below a picture


def plot_reliability(
    bins: Mapping[str, Numbers],
    path: Path,
    title: str,
    note: str = "",
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw the accuracy in each bin of confidence (None: without rows), and the rows in it."""
    weight, confidence, accuracy = (
        np.array(bins[name], np.float64) for name in ("weight", "confidence", "accuracy")
    )
    edges, wide = np.linspace(0, 1, len(weight) + 1), size.inches(137)
    with figure(path, wide, 0.95 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, note)
        upper, lower = drawn.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        upper.stairs(np.nan_to_num(accuracy), edges, fill=True, color=PALE, label="accuracy")
        upper.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="calibrated")
        upper.vlines(confidence, accuracy, confidence, color=ORANGE, linewidth=2, label="gap")
        upper.plot(confidence, accuracy, "o", color=BLUE, markersize=4)
        upper.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="share of rows that are right")
        legend_below(drawn, zip(*upper.get_legend_handles_labels(), strict=True))
        lower.stairs(weight, edges, fill=True, color=BLUE)
        lower.set(xlabel="probability of the predicted class", ylabel="rows", ylim=(0, None))
        lower.yaxis.set_major_formatter("{x:,.0f}")
    return path


def plot_rounds(
    rounds: Rounds,
    path: Path,
    title: str = "",
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw error, accuracy, seconds and bytes of each round; unknown figures are left out."""
    panels = [(name, known, bars) for name, known, bars in _panels(rounds) if known]
    wide = size.inches(180)
    high = 0.3 + (1.1 + 0.06 * wide) * len(panels)
    with figure(path, wide, high, overwrite, size.dpi) as drawn:
        heading(drawn, title)
        panes = drawn.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, lines, bars) in zip(panes, panels, strict=True):
            for i, (label, y) in enumerate(lines):
                style: dict[str, Any] = {"color": (BLUE, ORANGE)[i], "label": label}
                at = np.arange(len(y)) + 0.4 * bars * (i - (len(lines) - 1) / 2)
                known = ~np.isnan(y)
                if bars:
                    axes.bar(at[known], y[known], width=0.4, **style)
                else:
                    axes.plot(at[known], y[known], ("o-", "s:")[i], **style)
            axes.set_ylabel(name)
            if len(lines) > 1 or bars:  # above the panel, where it hides nothing
                axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2)
        panes[0].set_xlim(-1, max(len(rounds), 2))
        step = -(-len(rounds) // TICKS)
        step += step > 1 and step % 2  # two kinds of rounds may alternate
        names = [plain(one["phase"]) for one in rounds[::step]]
        side: dict[str, Any] = {"ha": "right", "rotation_mode": "anchor", "rotation": 45}
        panes[-1].set_xticks(range(0, len(rounds), step), names, **side)
        panes[-1].set_xlabel("round")
        drawn.align_ylabels()
    return path


Lines = list[tuple[str, F64]]  # with their labels


def _panels(rounds: Rounds) -> list[tuple[str, Lines, bool]]:
    """What can be drawn: its name, its lines that are known, and whether they are bars."""

    def known(factor: float, *lines: tuple[str, str]) -> Lines:
        every = [
            (label, factor * np.array([one.get(name) for one in rounds], np.float64))
            for label, name in lines
        ]
        return [(label, y) for label, y in every if not np.isnan(y).all()]

    return [
        ("squared error\nper row", known(1, *_ERRORS), False),
        ("loss per row", known(1, *_LOSSES), False),
        ("top-1, %", known(100, ("", "top1")), False),
        ("seconds", known(1, ("gathering", "gather_seconds"), ("solving", "solve_seconds")), True),
        ("MB of\none client", known(1e-6, *_BYTES), True),
    ]


_BYTES = ("sent, at most", "upload_bytes"), ("received", "download_bytes")
_ERRORS = ("training", "training_mse"), ("held-out clients", "validation_mse")
_LOSSES = ("loss", "loss"), ("loss, held-out clients", "validation_loss")
