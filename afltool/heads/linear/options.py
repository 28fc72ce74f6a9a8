"""Options of the linear head (AFL)."""

from __future__ import annotations

from dataclasses import dataclass

from ..options import LeastSquaresOptions


@dataclass(frozen=True, kw_only=True)
class LinearOptions(LeastSquaresOptions):
    """Options of the linear head (AFL)."""


OPTIONS = LinearOptions
