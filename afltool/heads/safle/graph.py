"""SAFLe's codes and tables as a PyTorch module."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...math.codes import Coder
from ...math.gram import LARGEST
from ..graphs import tensor
from .head import SafleHead


class Tables(nn.Module):
    """Σ_j W_j[idx_j] (+ x·W): the codes of a row choose the lines of E tables.

    Fixed-point features are compared as the integers that they are: x̂ > t·2^f is x̂ > ⌊t·2^f⌋.
    """

    features: Tensor
    cuts: Tensor
    powers: Tensor
    starts: Tensor
    tables: Tensor
    linear: Tensor | None

    def __init__(
        self, coder: Coder, tables: NDArray[Any], linear: NDArray[Any] | None, bits: int | None
    ) -> None:
        """``tables`` (E, V, C), ``linear`` (d, C) of a hybrid."""
        super().__init__()
        cuts = coder.cuts
        if bits is not None:
            cuts = np.floor(cuts * 2.0**bits).clip(-LARGEST - 1, LARGEST) * 2.0**-bits
        self.experts, self.digits = coder.features.shape
        powers = np.tile(coder.radix ** np.arange(self.digits), (self.experts, 1))
        starts = np.arange(self.experts) * coder.size
        self.register_buffer("features", tensor(coder.features.ravel()))
        self.register_buffer("cuts", tensor(cuts.reshape(-1, len(coder.signs))))
        self.register_buffer("powers", tensor(powers.astype(np.int64)))
        self.register_buffer("starts", tensor(starts.astype(np.int64)))
        self.register_buffer("tables", tensor(tables.reshape(-1, tables.shape[-1])))
        self.register_buffer("linear", None if linear is None else tensor(linear))
        self.signs = coder.signs

    def forward(self, x: Tensor) -> Tensor:
        read = x[:, self.features]
        digit = torch.zeros_like(read, dtype=torch.int64)
        for s, sign in enumerate(self.signs):
            digit = digit + sign * (read > self.cuts[:, s]).long()
        digits = digit.reshape(-1, self.experts, self.digits)
        codes = (digits * self.powers).sum(dim=2) + self.starts
        scores = nn.functional.embedding(codes, self.tables).sum(dim=1)
        return scores if self.linear is None else scores + x @ self.linear


def graph(head: SafleHead, bits: int | None) -> nn.Module:
    """The head's codes, its tables and, for a hybrid, its weights of the raw features."""
    tables = np.asarray(head.tables)
    return Tables(head.coder(), tables, head.linear, bits)
