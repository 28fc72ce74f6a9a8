"""A picture of a head of layers: training error and solve time, layer by layer."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .plots import _BLUE, _GREY, _figure


def plot_layers(rounds: Sequence[dict[str, Any]], path: str | os.PathLike[str]) -> Path:
    """Draw the training error after each layer and the seconds of each round's solve.

    ``rounds``: the ``phases`` of a head's report, one entry each. Returns ``path``.
    """
    errors = [(r["phase"], r["training_mse"]) for r in rounds if "training_mse" in r]
    with _figure(path, 7.0, 5.0) as figure:
        above, below = figure.subplots(2, 1)
        above.plot(range(len(errors)), [e for _, e in errors], "o-", color=_BLUE)
        above.set_xlabel("layers")
        above.set_ylabel("squared error\na row, training")
        below.bar(range(len(rounds)), [r["solve_seconds"] for r in rounds], color=_GREY)
        below.set_xlabel(f"round, from {rounds[0]['phase']} to {rounds[-1]['phase']}")
        below.set_ylabel("seconds\nof the solve")
    return Path(path)
