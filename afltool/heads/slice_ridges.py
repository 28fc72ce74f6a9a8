"""A ridge of each slice of features that come from several nodes of a network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError


def slices_of(space: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Name and number of columns of each slice, in the order of the columns."""
    return [(str(one["name"]), int(one["dim"])) for one in space.get("slices", ())]


def of_slices(named: Mapping[str, float], space: Mapping[str, Any]) -> NDArray[np.float64]:
    """The ridge of each feature (d,) from that of its slice; all slices must be named."""
    slices = slices_of(space)
    wanted = {name for name, _ in slices}
    if wanted != named.keys():
        wrong = [f"no slice {n!r}" for n in named if n not in wanted]
        wrong += [f"no ridge of {n!r}" for n, _ in slices if n not in named]
        raise UsageError(
            f"--ridge names {len(named)} slices, and the features have {_told(slices)}: there is "
            f"{wrong[0]}; name each slice once, or give one ridge for all"
        )
    return np.concatenate([np.full(dim, named[name]) for name, dim in slices])


def several_slices(space: Mapping[str, Any], asked: str) -> list[tuple[str, int]]:
    """`slices_of` features that have two or more: with fewer there is one ridge to choose."""
    slices = slices_of(space)
    if len(slices) < 2:
        raise UsageError(
            f"--ridge {asked} chooses a ridge of each slice, and the features have "
            f"{_told(slices)}: use --ridge auto, or features of several nodes (extract --node A "
            "--node B, --node stages)"
        )
    return slices


def _told(slices: list[tuple[str, int]]) -> str:
    return ", ".join(f"{name!r} ({dim} columns)" for name, dim in slices) or "no slices"
