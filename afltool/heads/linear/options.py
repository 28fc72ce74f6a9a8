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
        more=f"; NAME=λ,NAME=λ or {EACH_SLICE} for one of each node's features",
    )


OPTIONS = LinearOptions
