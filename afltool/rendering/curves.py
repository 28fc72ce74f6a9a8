"""Pictures of lines: what an evaluation measured, a ridge path, several runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..options.look import AS_NEEDED, SizeOptions
from ..values.arrays import F64
from .style import (
    BLUE,
    GREY,
    ORANGE,
    PALE,
    figure,
    heading,
    legend_below,
    look,
    plain,
    shortened,
    wrapped,
)

if TYPE_CHECKING:
    pass

Numbers = Sequence[float | None]
Curve = Mapping[str, Any]  # false_positive, true_positive and auc of one class
Round = Mapping[str, Any]
Rounds = Sequence[Round]

_NAMED = 7  # of more ROC curves those with the smallest areas are named
_PANEL = 1.9  # inches of a panel of a ridge path
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


def plot_coverage(
    curves: Mapping[str, tuple[F64, F64]],
    path: Path,
    title: str,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw the share of answered rows that is right by the share that is answered."""
    wide, entries = size.inches(137), []
    with figure(path, wide, 0.75 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, "the rows of the lowest confidence get no answer")
        axes = drawn.add_subplot()
        for i, (name, (coverage, accuracy)) in enumerate(curves.items()):
            lines = axes.plot(coverage, accuracy, markevery=0.2, clip_on=False, **look(i))
            entries.append((lines[0], name))
        axes.set(xlim=(0, 1), xlabel="share of rows that are answered (coverage)")
        axes.set(ylim=(None, 1), ylabel="share of these that is right (accuracy)")
        legend_below(drawn, entries)
    return path


def plot_roc(
    curves: Mapping[str, Curve],
    path: Path,
    title: str,
    note: str = "",
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw the ROC curve of each class against the rest, by the classes' names.

    A curve has ``false_positive`` and ``true_positive`` rates, and ``auc`` (None: undetermined). Of
    more than 7 curves those with the smallest areas are named and the others pale.
    """
    area = {name: np.nan if one["auc"] is None else one["auc"] for name, one in curves.items()}
    worst = set(sorted(curves, key=lambda name: np.nan_to_num(area[name], nan=2.0))[:_NAMED])
    wide, entries = size.inches(137), list[tuple[Any, str]]()
    with figure(path, wide, 0.95 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, note)
        axes = drawn.add_subplot()
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
        for name in sorted(curves, key=worst.__contains__):
            style: dict[str, Any] = {"color": PALE, "linewidth": 0.8}
            if name in worst:
                style = {"markevery": (0.04 * len(entries), 0.2), **look(len(entries))}
            x, y = curves[name]["false_positive"], curves[name]["true_positive"]
            lines = axes.plot(x, y, clip_on=False, **style)
            size_of = "undetermined" if np.isnan(area[name]) else f"{area[name]:.4f}"
            if name in worst:
                entries.append((lines[0], f"{shortened(name)}: {size_of}"))
        axes.set(xlim=(-0.01, 1.01), xlabel="false positive rate (1 − specificity)")
        axes.set(ylim=(-0.01, 1.01), ylabel="true positive rate (sensitivity)")
        which = "" if len(worst) == len(curves) else f", the {_NAMED} smallest of {len(curves)}"
        legend_below(drawn, entries, f"area under the curve{which}")
    return path


def plot_ridge_path(
    lambdas: Sequence[float] | F64,
    curves: Mapping[str, Sequence[float] | F64],
    chosen: Mapping[str, float],
    path: Path,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw each of ``curves`` over ``lambdas`` on a logarithmic axis, one panel a curve.

    ``chosen`` marks one λ of a curve by its name. λ = 0 stands one decade left of the smallest
    positive λ; values that are not finite are left out.
    """
    ridge = np.asarray(lambdas, np.float64)
    zero, order = ridge[ridge > 0].min() / 10, np.argsort(ridge)
    with figure(path, size.inches(180), 0.3 + _PANEL * len(curves), overwrite, size.dpi) as drawn:
        panels = drawn.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, values) in zip(panels, curves.items(), strict=True):
            y = np.asarray(values, np.float64)[order]
            known = np.isfinite(y)
            axes.plot(np.maximum(ridge, zero)[order][known], y[known], "o-", color=BLUE)
            if (ridge == 0).any():
                axes.axvline(zero, color=GREY, linestyle=":", linewidth=1)
                axes.set_title("dotted: λ = 0")
            if name in chosen:
                axes.axvline(max(chosen[name], zero), color=ORANGE, linestyle="--", linewidth=1.4)
                axes.set_title(f"chosen: λ = {chosen[name]:g}", loc="right", color=ORANGE)
            axes.set(xscale="log", ylabel=wrapped(name, 0.8 * _PANEL))
        panels[-1].set_xlabel("ridge λ")
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
