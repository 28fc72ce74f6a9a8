"""Pictures of lines: what an evaluation measured, a ridge path, several runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InvalidDataError, UsageError
from ..options.look import AS_NEEDED, SizeOptions
from ..values.arrays import F64
from .style import (
    BLUE,
    GREY,
    ORANGE,
    PALE,
    Look,
    Name,
    figure,
    handles_of,
    heading,
    legend_below,
    logarithmic,
    look,
    looks,
    plain,
    shortened,
    wrapped,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = Sequence[float | None]
Curve = Mapping[str, Any]  # false_positive, true_positive and auc of one class
Round = Mapping[str, Any]
Rounds = Sequence[Round]
Run = tuple[Rounds, float]  # its rounds and its final accuracy, a fraction

_NAMED = 7  # up to so many curves are named all
_WORST = 5  # of more curves so many are named: those with the smallest areas
_PANEL = 1.9  # inches of a panel of a ridge path
TICKS = 14  # names of rounds below a picture
_MARKS = 6  # of a line of a run, beside its beginning


def plot_reliability(
    bins: Mapping[str, Numbers],
    path: Path,
    title: str,
    note: str = "",
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw the accuracy in each bin of confidence, and how many rows are in it.

    ``bins`` as `math.metrics.figures.reliability` gives them; None stands for a bin without rows. A
    head whose probabilities can be taken at their word has its bars on the diagonal. ``note``
    stands below the title. Raises as `figure` does.
    """
    weight, confidence, accuracy = (
        np.array(bins[name], np.float64) for name in ("weight", "confidence", "accuracy")
    )
    edges = np.linspace(0, 1, len(weight) + 1)
    wide = size.inches(137)
    with figure(path, wide, 0.95 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, note)
        upper, lower = drawn.subplots(2, 1, sharex=True, height_ratios=(3, 1))
        upper.stairs(np.nan_to_num(accuracy), edges, fill=True, color=PALE, label="accuracy")
        upper.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1, label="calibrated")
        upper.vlines(confidence, accuracy, confidence, color=ORANGE, linewidth=2, label="gap")
        upper.plot(confidence, accuracy, "o", color=BLUE, markersize=4)
        upper.set(xlim=(0, 1), ylim=(0, 1.02), ylabel="share of rows that are right")
        legend_below(drawn, handles_of(upper))
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
    """Draw the share of answered rows that is right by the share that is answered, for each head.

    ``curves`` as `math.calibration.accuracy_by_coverage` gives them. Raises as `figure` does.
    """
    wide = size.inches(137)
    styles, entries = looks([(name,) for name in curves])
    with figure(path, wide, 0.75 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, "the rows of the lowest confidence get no answer")
        axes = drawn.add_subplot()
        for (coverage, accuracy), style in zip(curves.values(), styles, strict=True):
            axes.plot(coverage, accuracy, markevery=0.2, clip_on=False, **style)
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

    A curve has ``false_positive`` and ``true_positive`` rates, and ``auc``, the area under the
    whole curve (None where rows do not determine it). Of more than 7 curves those with the smallest
    areas are named and the others pale. Raises as `figure` does.
    """
    area = {name: np.nan if one["auc"] is None else one["auc"] for name, one in curves.items()}
    worst = sorted((name for name in curves if area[name] == area[name]), key=area.__getitem__)
    named = list(curves) if len(curves) <= _NAMED else worst[:_WORST]
    wide = size.inches(137)
    with figure(path, wide, 0.95 * wide, overwrite, size.dpi) as drawn:
        heading(drawn, title, note)
        axes = drawn.add_subplot()
        axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
        entries: list[tuple[Any, str]] = []
        others = [name for name in curves if name not in set(named)]
        pale: Look = {"color": PALE, "linewidth": 0.8}
        for name in others:
            _curve(axes, curves[name], **pale)
        for i, name in enumerate(named):
            _curve(axes, curves[name], markevery=(0.04 * i, 0.2), **look(i))
            size_of = "undetermined" if np.isnan(area[name]) else f"{area[name]:.4f}"
            entries.append((look(i), f"{shortened(name)}: {size_of}"))
        if others:
            entries.append((pale, f"{len(others)} others"))
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        axes.set(xlabel="false positive rate (1 − specificity)")
        axes.set(ylabel="true positive rate (sensitivity)")
        legend_below(drawn, entries, "area under the curve")
    return path


def _curve(axes: Axes, one: Curve, **style: Any) -> None:
    axes.plot(one["false_positive"], one["true_positive"], clip_on=False, **style)


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
    positive λ; values that are not finite are left out. Raises as `plot_confusion` does.
    """
    ridge = np.asarray(lambdas, np.float64)
    for name, values in curves.items():
        if np.shape(values) != ridge.shape:
            raise InvalidDataError(
                f"ridge path: expected {ridge.size} values, one per λ, found {np.shape(values)} "
                f"for {name!r}"
            )
    if not ridge.size or not curves or not (ridge >= 0).all() or not ridge.any():
        raise InvalidDataError(
            f"ridge path: expected curves over λ ≥ 0, found {len(curves)} curves over λ = {ridge}"
        )
    with figure(path, size.inches(180), 0.3 + _PANEL * len(curves), overwrite, size.dpi) as drawn:
        panels = drawn.subplots(len(curves), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, values) in zip(panels, curves.items(), strict=True):
            _ridge_curve(axes, ridge, np.asarray(values, np.float64), chosen.get(name))
            axes.set_ylabel(wrapped(name, 0.8 * _PANEL))
        panels[-1].set_xlabel("ridge λ")
        if (ridge == 0).any():
            legend_below(drawn, handles_of(panels[-1]))
    return path


def _ridge_curve(axes: Axes, ridge: F64, values: F64, chosen: float | None) -> None:
    order = np.argsort(ridge)
    order = order[np.isfinite(values[order])]
    zero = ridge[ridge > 0].min() / 10
    axes.plot(np.maximum(ridge, zero)[order], values[order], color=BLUE, marker="o")
    if (ridge == 0).any():
        axes.axvline(zero, color=GREY, linestyle=":", linewidth=1, label="λ = 0")
    if chosen is not None:
        axes.axvline(max(chosen, zero), color=ORANGE, linestyle="--", linewidth=1.4)
        axes.set_title(f"chosen: λ = {chosen:g}", loc="right", color=ORANGE)
    axes.set_xscale("log")


def plot_compared(
    runs: Mapping[Name, Sequence[Run]],
    path: Path,
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw a line for each name: the mean of its runs, and a pale band from least to most.

    A last round without ``top1`` gets the final accuracy. Bytes of a round are those of
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
        legend_below(drawn, entries)
    return path


def _points(alike: Sequence[Run]) -> tuple[Any, Any, Any]:
    """Numbers of the rounds, from 1; runs × rounds accuracies, per cent; mean MB sent so far."""
    known = [_accuracies(rounds, end) for rounds, end in alike]
    numbers = sorted(set.intersection(*map(set, known)))
    tops = np.array([[100 * one[n] for n in numbers] for one in known])
    sent = [np.cumsum([_sent(one) or 0 for one in rounds]) for rounds, _ in alike]
    at = np.array(numbers, np.int64) - 1
    return at + 1, tops, np.mean([one[at] for one in sent], axis=0) / 1e6


def _sent(one: Round) -> Any:
    """Bytes of a client's file, where they were measured, else of its arrays."""
    return one.get("file_bytes", one.get("upload_bytes"))


def _accuracies(rounds: Rounds, end: float) -> dict[int, float]:
    """Accuracies by the numbers of the rounds, from 1, that have one."""
    known = {n: one["top1"] for n, one in enumerate(rounds, 1) if one.get("top1") is not None}
    known.setdefault(len(rounds), end)
    return known


def _line(axes: Axes, x: Any, tops: Any, style: Look) -> None:
    axes.plot(x, tops.mean(axis=0), markevery=-(-len(x) // _MARKS) or 1, **style)
    if len(tops) > 1 and len(x) > 1:
        low, high = tops.min(axis=0), tops.max(axis=0)
        axes.fill_between(x, low, high, color=style["color"], alpha=0.12, linewidth=0)


def plot_rounds(
    rounds: Rounds,
    path: Path,
    title: str = "",
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw error, accuracy, seconds and bytes of each round; unknown figures are left out.

    ``rounds``: at least one, as above. Returns ``path``.
    """
    panels = [one for one in _panels(rounds) if not all(np.isnan(y).all() for _, y in one[1])]
    wide = size.inches(180)
    high = 0.3 + (1.1 + 0.06 * wide) * len(panels)
    with figure(path, wide, high, overwrite, size.dpi) as drawn:
        heading(drawn, title)
        panes = drawn.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, lines, bars) in zip(panes, panels, strict=True):
            known = [(label, y) for label, y in lines if not np.isnan(y).all()]
            (_bars if bars else _dots)(axes, known)
            axes.set_ylabel(name)
            if len(known) > 1 or bars:  # above the panel, where it hides nothing
                axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2)
            if name == TOP1:
                _mark_kept(axes, rounds, lines[0][1])
        panes[0].set_xlim(-1, max(len(rounds), 2))
        step = -(-len(rounds) // TICKS)
        step += step > 1 and step % 2  # two kinds of rounds may alternate
        names = [plain(one["phase"]) for one in rounds[::step]]
        side: dict[str, Any] = {"ha": "right", "rotation_mode": "anchor", "rotation": 45}
        panes[-1].set_xticks(range(0, len(rounds), step), names, **side)
        panes[-1].set_xlabel("round")
        drawn.align_ylabels()
    return path


TOP1 = "top-1, %"
Lines = Sequence[tuple[str, F64]]  # with their labels


def _panels(rounds: Rounds) -> list[tuple[str, Lines, bool]]:
    """What can be drawn: its name, its lines, and whether they are bars."""

    def of(name: str, factor: float = 1) -> F64:
        return factor * np.array([one.get(name) for one in rounds], np.float64)

    sent = np.array([_sent(one) for one in rounds], np.float64) / 1e6
    measured = any("file_bytes" in one for one in rounds)
    errors = [("training", of("training_mse")), ("held-out clients", of("validation_mse"))]
    losses = [("loss", of("loss")), ("loss, held-out clients", of("validation_loss"))]
    seconds = [("gathering", of("gather_seconds")), ("solving", of("solve_seconds"))]
    received = of("download_bytes", 1e-6)
    return [
        ("squared error\nper row", errors, False),
        ("loss per row", losses, False),
        (TOP1, [("", of("top1", 100))], False),
        ("seconds", seconds, True),
        (
            "MB of\none client",
            [("sent" if measured else "sent, at most", sent), ("received", received)],
            True,
        ),
    ]


def _dots(axes: Axes, lines: Lines) -> None:
    """A line over the rounds that have a figure."""
    for (label, y), colour, dash in zip(lines, (BLUE, ORANGE), "-:", strict=False):
        at, mark = np.flatnonzero(~np.isnan(y)), 3.5 if len(y) < 60 else 2
        style: Look = {"color": colour, "linestyle": dash, "marker": "o", "markersize": mark}
        axes.plot(at, y[at], label=label, **style)


def _bars(axes: Axes, lines: Lines) -> None:
    """Bars side by side."""
    wide = 0.8 / len(lines)
    for i, ((label, y), colour) in enumerate(zip(lines, (BLUE, ORANGE), strict=False)):
        at = np.arange(len(y)) + wide * (i - (len(lines) - 1) / 2)
        axes.bar(at, np.nan_to_num(y), width=wide, color=colour, label=label)


def _mark_kept(axes: Axes, rounds: Rounds, top1: F64) -> None:
    known = np.flatnonzero(~np.isnan(top1))
    kept = next((i for i in known[::-1] if rounds[i].get("kept")), known[-1])
    axes.plot(kept, top1[kept], "o", color=ORANGE, markersize=6)
    axes.set_title(f"kept: {top1[kept]:.2f}", loc="right", color=ORANGE)
    axes.margins(y=0.2)
