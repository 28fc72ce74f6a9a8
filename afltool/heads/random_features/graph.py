"""Random features and the head on them as PyTorch modules."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import UsageError
from ..graphs import Affine, Drawn, Looked
from ..options import FIXED
from ..projections import projection
from .head import RandomFeaturesHead, fixed_lift
from .options import RandomFeaturesOptions


class LiftedRows(nn.Module):
    """x ↦ [σ(xA + a), x if asked], in the compute type."""

    def __init__(self, options: RandomFeaturesOptions, dim: int) -> None:
        super().__init__()
        o = options
        self.drawn = Drawn(projection(o.projection, o.seed, 0, dim, o.width), o.activation)
        self.dtype = torch.float32 if o.compute == "float32" else torch.float64
        self.with_linear = o.with_linear

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        return torch.cat([self.drawn(x), x], dim=1) if self.with_linear else self.drawn(x)


class FixedLifted(nn.Module):
    """The same in fixed point: exact products of integers, and σ from its table.

    A row with a value outside the table, which afltool refuses, becomes NaN.
    """

    def __init__(self, options: RandomFeaturesOptions, dim: int, bits: int) -> None:
        super().__init__()
        self.looked = Looked(fixed_lift(options, dim, bits))
        self.bits, self.with_linear = bits, options.with_linear

    def forward(self, x: Tensor) -> Tensor:
        whole, good = self.looked(x * 2.0**self.bits)
        lifted = torch.where(good, whole * 2.0**-self.bits, torch.full((), np.nan).double())
        return torch.cat([lifted, x], dim=1) if self.with_linear else lifted


def lifted(options: RandomFeaturesOptions, dim: int, bits: int | None, fixed: bool) -> nn.Module:
    """The features of either kind; `UsageError` for fixed-point features of float32 rows."""
    if not fixed:
        return LiftedRows(options, dim)
    if bits is None:
        raise UsageError("--compute fixed needs int16 features; those of this head are float32")
    return FixedLifted(options, dim, bits)


def graph(head: RandomFeaturesHead, bits: int | None) -> nn.Module:
    """Φ, then ΦW in the type of Φ, with the intercept where there is one."""
    o, (dim, _) = head.options, head._bound()
    fixed = o.compute == FIXED
    W = head.arrays()["weights"].astype("f4" if o.compute == "float32" else "f8")
    affine = Affine(W[:-1], W[-1]) if o.intercept else Affine(W)
    return nn.Sequential(lifted(o, dim, bits, fixed), affine, _Double())


class _Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()
