"""A calibrated head as a PyTorch module: the head's own, then the calibration."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from ...math.calibration import NEAR
from ...values.arrays import F64
from ..graphs import graph_of, tensor
from .head import CalibratedHead


def graph(head: CalibratedHead, bits: int | None) -> nn.Module:
    """x ↦ log p_c, or log p_c / (1 − p_c); see `CalibratedHead.of_values`."""
    known, ratios = head.arrays(), head.inner.log_probabilities
    if head.slope is not None:
        last: nn.Module = _Lines(known["slope"], known["offset"], ratios)
    else:
        last = _Knots(known["knots"], known["levels"], ratios)
    logits = [_Logits()] if ratios else []
    return nn.Sequential(graph_of(head.inner, bits), *logits, last)


def _logit(p: Tensor) -> Tensor:
    inside = p.clamp(NEAR, 1 - NEAR)
    return torch.log(inside) - torch.log(1 - inside)


class _Logits(nn.Module):
    def forward(self, scores: Tensor) -> Tensor:
        p = torch.softmax(scores, dim=1).clamp(NEAR, 1 - NEAR)
        return torch.log(p) - torch.log1p(-p)


class _Lines(nn.Module):
    """v ↦ z = a v + b, or log σ(z) = min(z, 0) − log(1 + exp(−|z|))."""

    slope: Tensor
    offset: Tensor

    def __init__(self, slope: F64, offset: F64, ratios: bool) -> None:
        super().__init__()
        self.ratios = ratios
        self.register_buffer("slope", tensor(slope))
        self.register_buffer("offset", tensor(offset))

    def forward(self, values: Tensor) -> Tensor:
        z = values * self.slope + self.offset
        return z.clamp(max=0.0) - torch.log(1 + torch.exp(-z.abs())) if self.ratios else z


class _Knots(nn.Module):
    """v ↦ log, or logit, of the broken line: each piece rises as far as v goes."""

    left: Tensor
    width: Tensor
    rate: Tensor
    first: Tensor

    def __init__(self, knots: F64, levels: F64, ratios: bool) -> None:
        super().__init__()
        self.ratios = ratios
        width, rise = np.diff(knots), np.diff(levels)
        rate = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)
        for name, array in {"left": knots[:, :-1], "width": width, "rate": rate}.items():
            self.register_buffer(name, tensor(array))
        self.register_buffer("first", tensor(levels[:, 0]))

    def forward(self, values: Tensor) -> Tensor:
        into = torch.minimum((values[:, :, None] - self.left).clamp(min=0.0), self.width)
        p = self.first + (into * self.rate).sum(dim=2)
        return torch.log(p) if self.ratios else _logit(p)
