"""Options of the linear head (AFL)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..options import EACH_SLICE, LeastSquaresOptions, ridge_option


@dataclass(frozen=True, kw_only=True)
class LinearOptions(LeastSquaresOptions):
    """Options of the linear head (AFL)."""

    by_slice: ClassVar[bool] = True

    ridge: str | float = ridge_option(
        0.0,
        more="; NAME=λ,NAME=λ for a ridge of each slice of features of several nodes, "
        f"{EACH_SLICE} to choose them",
    )


OPTIONS = LinearOptions
