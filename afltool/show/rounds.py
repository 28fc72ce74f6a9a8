"""The rounds of a head: a table and a picture of the costs and the accuracy of each.

A round is one entry of ``phases`` in a head's report (`heads.base.note_round`). It may have
accuracies, and ``kept`` if the final head is the one of that round. A head reports the figures that
it has; others are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table

from ..options.plot import AS_NEEDED, SizeOptions
from .picture import BLUE, GREY, LINE, ORANGE, PALE, POINT, figure, heading, plain, width_of
from .terminal import add_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Round = dict[str, Any]
SHOWN = 25  # rows of the table that a person sees; CSV and JSON have them all
TICKS = 14  # names of rounds that fit below a picture


_seconds, _share, _number = "{:.2f}".format, "{:.2%}".format, "{:.4g}".format


def _megabytes(value: float) -> str:
    return f"{value / 1e6:.3g}" if value < 1e9 else f"{value / 1e6:,.0f}"


# Title and format of the figures that fit on a terminal; files have all figures.
COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "phase": ("round", str),
    "rows": ("rows", str),
    "clients": ("clients", str),
    "ridge": ("ridge", _number),
    "training_mse": ("training\nerror", _number),
    "validation_mse": ("held-out\nerror", _number),
    "reconstruction_mse": ("error\nof Φ_0", _number),
    "loss": ("loss", _number),
    "validation_loss": ("held-out\nloss", _number),
    "train_top1": ("training\ntop-1", _share),
    "top1": ("top-1", _share),
    "csr": ("CSR", _number),
    "ifs": ("IFS", _number),
    "dm": ("DM", _number),
    "gather_seconds": ("gather\ns", _seconds),
    "solve_seconds": ("solve\ns", _seconds),
    "upload_bytes": ("up\nMB", _megabytes),
    "download_bytes": ("down\nMB", _megabytes),
}
CONSTANT = ("rows", "clients", "ridge")  # shown only where they change
SUMS = ("gather_seconds", "solve_seconds", "upload_bytes", "download_bytes")


def rounds_table(rounds: Sequence[Round]) -> Table:
    """One line for each round (of very many for some of them), and the sums over all."""
    title = "rounds (error: squared error per row; bytes: of one client)"
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, show_footer=len(rounds) > 1)
    columns = [name for name in COLUMNS if _worth_a_column(name, rounds)]
    shown = _spread(rounds)
    for name in columns:
        side: Literal["left", "right"] = "left" if name == "phase" else "right"
        table.add_column(COLUMNS[name][0], _foot(name, rounds), justify=side, no_wrap=True)
    for one in shown:
        cells = [_cell(name, one) for name in columns]
        add_row(table, cells[0] + " ←" * _chosen(one, rounds), *cells[1:])
    notes = [f"{len(shown)} of {len(rounds)} rounds"] * (len(shown) < len(rounds))
    notes += ["←: the round whose head is kept"] * any(_chosen(one, rounds) for one in shown)
    table.caption = "; ".join(notes) or None
    return table


def _foot(name: str, rounds: Sequence[Round]) -> str:
    if name not in SUMS:
        return "all" if name == "phase" else ""
    return COLUMNS[name][1](sum(one.get(name) or 0 for one in rounds))


def _cell(name: str, one: Round) -> str:
    return "–" if one.get(name) is None else COLUMNS[name][1](one[name])


def _chosen(one: Round, rounds: Sequence[Round]) -> bool:
    """Whether the final head is that of this round, which is not the last one."""
    return bool(one.get("kept")) and one is not rounds[-1]


def _worth_a_column(name: str, rounds: Sequence[Round]) -> bool:
    values = {one.get(name) for one in rounds} - {None}
    return len(values) > 1 if name in CONSTANT else bool(values)


def _spread(rounds: Sequence[Round]) -> list[Round]:
    """At most `SHOWN` rounds, evenly spread, with the last one.

    Of many rounds only those with a solved head are shown, if there are any.
    """
    if len(rounds) <= SHOWN:
        return list(rounds)
    telling = [one for one in rounds if "training_mse" in one or "top1" in one] or list(rounds)
    at = np.unique(np.linspace(0, len(telling) - 1, min(SHOWN, len(telling))).round().astype(int))
    return [telling[i] for i in at]


# ------------------------------------------------------------ picture


def plot_rounds(
    rounds: Sequence[Round],
    path: Path,
    title: str = "",
    overwrite: bool = False,
    size: SizeOptions = AS_NEEDED,
) -> Path:
    """Draw error, accuracy, seconds and bytes of each round; unknown figures are left out.

    ``rounds``: at least one, as above. Returns ``path``.
    """
    panels = [draw for draw, names in _PANELS if any(_has(rounds, name) for name in names)]
    wide = size.inches(180)
    high = 0.3 + (1.1 + 0.06 * wide) * len(panels)
    with figure(path, wide, high, overwrite, size.dpi) as drawn:
        heading(drawn, title)
        found = drawn.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, draw in zip(found, panels, strict=True):
            draw(axes, rounds)
        found[0].set_xlim(-1, max(len(rounds), 2))
        _name_rounds(found[-1], [one["phase"] for one in rounds], wide - 0.7)
        drawn.align_ylabels()
    return path


def _has(rounds: Sequence[Round], name: str) -> bool:
    return any(one.get(name) is not None for one in rounds)


def _values(
    rounds: Sequence[Round], name: str, scale: float = 1.0
) -> tuple[list[int], list[float]]:
    """The rounds that have a figure, and its values there times ``scale``."""
    at = [i for i, one in enumerate(rounds) if one.get(name) is not None]
    return at, [rounds[i][name] * scale for i in at]


def _errors(axes: Axes, rounds: Sequence[Round]) -> None:
    size = 3.5 if len(rounds) < 60 else 2
    for name, label, colour, dash in (
        ("training_mse", "training", BLUE, "-"),
        ("validation_mse", "held-out clients", ORANGE, "--"),
        ("loss", "loss", BLUE, "-"),
        ("validation_loss", "loss, held-out clients", ORANGE, "--"),
    ):
        if _has(rounds, name):
            axes.plot(
                *_values(rounds, name), "o" + dash, color=colour, label=label, markersize=size
            )
    squared = _has(rounds, "training_mse")
    axes.set_ylabel("squared error\nper row" if squared else "loss per row")
    _legend(axes)


def _legend(axes: Axes) -> None:
    """Above the panel, where it hides nothing."""
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.98), ncols=2)


def _accuracies(axes: Axes, rounds: Sequence[Round]) -> None:
    at, top1 = _values(rounds, "top1", 100)
    axes.plot(at, top1, "o-", color=BLUE, markersize=3.5 if len(rounds) < 60 else 2)
    kept = [i for i in at if rounds[i].get("kept")] or at[-1:]
    value = rounds[kept[-1]]["top1"] * 100
    axes.plot(kept[-1:], [value], "o", color=ORANGE, markersize=6)
    axes.set_title(f"kept: {value:.2f}", loc="right", color=ORANGE)
    axes.margins(y=0.2)
    axes.set_ylabel("top-1, %")


def _times(axes: Axes, rounds: Sequence[Round]) -> None:
    solve = np.array([one.get("solve_seconds") or 0.0 for one in rounds])
    gather = np.array([one.get("gather_seconds") or 0.0 for one in rounds])
    at = np.arange(len(rounds))
    if gather.any():
        axes.bar(at, gather, color=PALE, label="gathering")
        axes.bar(at, solve, bottom=gather, color=GREY, label="solving")
        _legend(axes)
        axes.set_ylabel("seconds")
        return
    axes.bar(at, solve, color=GREY)
    axes.set_ylabel("seconds\nof the solve")


def _bytes(axes: Axes, rounds: Sequence[Round]) -> None:
    at = np.arange(len(rounds))
    for name, label, colour, shift in (
        ("upload_bytes", "sent", BLUE, -0.2),
        ("download_bytes", "received", ORANGE, 0.2),
    ):
        size = [(one.get(name) or 0) / 1e6 for one in rounds]
        axes.bar(at + shift, size, width=0.4, color=colour, label=label)
    _legend(axes)
    axes.set_ylabel("MB of\none client")


_PANELS = (
    (_errors, ("training_mse", "loss")),
    (_accuracies, ("top1",)),
    (_times, ("solve_seconds",)),
    (_bytes, ("upload_bytes",)),
)


def _name_rounds(axes: Axes, names: Sequence[str], wide: float) -> None:
    """Every name where ``wide`` inches have room, else every n-th.

    n is even, because two kinds of rounds may alternate.
    """
    shown = [plain(name) for name in names]
    level = max(map(width_of, shown)) + POINT / 72
    turned = level * len(names) > wide
    most = max(2, min(TICKS, int(wide / (1.5 * LINE if turned else level))))
    step = max(1, -(-len(names) // most))
    at = range(0, len(names), step + (step > 1 and step % 2))
    side: dict[str, Any] = {"ha": "right", "rotation_mode": "anchor", "rotation": 45}
    axes.set_xticks(at, [shown[i] for i in at], **(side if turned else {}))
    axes.set_xlabel("round")
