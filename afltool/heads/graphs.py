"""What the graphs of solved heads have in common: PyTorch modules that give the head's scores.

A head's folder has ``graph.py`` with ``graph(head, bits)``, a module that takes rows (n, d) float64
to scores (n, C) float64; ``bits`` are the fraction bits of fixed-point features, None for float32.
The rows are in the space's number format already: `Classifier` rounds them.

PyTorch and ONNX have these operations alike. Their results equal `Head.scores` up to the order of
sums. Comparisons and roundings use the same numbers, so no row changes its bucket.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import UsageError
from ..math.fixedpoint import LARGEST
from . import KNOWN
from .base import Head
from .projections import FINER, FLAT, LEAK, SHRINK, Projection, Tabled, table

NOBODY = -1  # the class of a row that afltool would refuse


def graph_of(head: Head, bits: int | None) -> nn.Module:
    """A solved head as a module, rows (n, d) → scores (n, C); `UsageError` if it has no graph."""
    package = __name__.rpartition(".")[0]
    module = import_module(KNOWN[head.name], package)
    if hasattr(module, "__path__") and find_spec(f"{module.__name__}.graph") is not None:
        module = import_module(".graph", module.__name__)
    if not hasattr(module, "graph"):
        raise UsageError(f"a {head.name} head cannot be exported: it has no graph")
    found: nn.Module = module.graph(head, bits)
    return found


class Classifier(nn.Module):
    """Features (n, d) float32 → (scores (n, C), predicted (n,) [, probabilities (n, C)]).

    Features are rounded to ``bits`` fraction bits first, half to even, as extraction rounds them. A
    row that afltool refuses (not finite, or beyond ±32767/2^bits) has scores NaN and the class −1;
    nothing is clipped.
    """

    def __init__(self, head: nn.Module, bits: int | None, probabilities: bool) -> None:
        super().__init__()
        self.head, self.bits, self.probabilities = head, bits, probabilities
        self.reach = float(np.finfo(np.float32).max) if bits is None else float(LARGEST)

    def forward(self, features: Tensor) -> tuple[Tensor, ...]:
        x = features.double()
        whole = x if self.bits is None else torch.round(x * 2.0**self.bits)
        good = (whole.abs() <= self.reach).all(dim=1, keepdim=True)  # NaN is not
        whole = torch.where(good, whole, torch.zeros((), dtype=torch.float64))
        scores = self.head(whole if self.bits is None else whole * 2.0**-self.bits)
        good = good & (scores == scores).all(dim=1, keepdim=True)  # a head may refuse rows, too
        predicted = torch.where(good[:, 0], scores.argmax(dim=1), torch.tensor(NOBODY))
        scores = torch.where(good, scores, torch.full((), np.nan, dtype=torch.float64))
        if not self.probabilities:
            return scores, predicted
        return scores, predicted, torch.softmax(scores, dim=1)


class Affine(nn.Module):
    """x ↦ xW + b, in the type of W; b may be absent."""

    W: Tensor
    b: Tensor | None

    def __init__(self, W: NDArray[Any], b: NDArray[Any] | None = None) -> None:
        super().__init__()
        self.register_buffer("W", tensor(W))
        self.register_buffer("b", None if b is None else tensor(b))

    def forward(self, x: Tensor) -> Tensor:
        out = x.to(self.W.dtype) @ self.W
        return out if self.b is None else out + self.b


class Drawn(nn.Module):
    """x ↦ σ(xA + a), with a projection that a seed has drawn; float32 as it is, or as float64."""

    from_seed = True  # its buffers are in no head file
    A: Tensor
    a: Tensor | None

    def __init__(self, drawn: Projection, activation: str) -> None:
        super().__init__()
        self.register_buffer("A", tensor(drawn.A))
        self.register_buffer("a", None if drawn.a is None else tensor(drawn.a))
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        out = x @ self.A.to(x.dtype)
        return activated(self.activation, out if self.a is None else out + self.a.to(x.dtype))


class Looked(nn.Module):
    """Rows of whole numbers ↦ (features of whole numbers, which rows are within the table).

    As `tabled.Tabled`, with float64 that holds the integers exactly.
    """

    from_seed = True
    A: Tensor
    a: Tensor
    table: Tensor

    def __init__(self, tabled: Tabled) -> None:
        super().__init__()
        self.register_buffer("A", tensor(tabled.A))
        self.register_buffer("a", tensor(tabled.a))
        self.register_buffer("table", tensor(tabled.table.astype(np.float64)))
        self.scale, self.flat = tabled.scale, tabled.activation in FLAT

    def forward(self, whole: Tensor) -> tuple[Tensor, Tensor]:
        return look_up(self.table, torch.round((whole @ self.A + self.a) * self.scale), self.flat)


class Tabulated(nn.Module):
    """σ of whole numbers of ``bits`` fraction bits, without a projection; see `Looked`."""

    table: Tensor

    def __init__(self, activation: str, bits: int) -> None:
        super().__init__()
        self.register_buffer("table", tensor(table(activation, bits).astype(np.float64)))
        self.flat = activation in FLAT

    def forward(self, whole: Tensor) -> tuple[Tensor, Tensor]:
        return look_up(self.table, whole * 2.0**FINER, self.flat)


def look_up(table: Tensor, place: Tensor, flat: bool) -> tuple[Tensor, Tensor]:
    """The table's values at whole places, and which rows (n, 1) have all places within it.

    ``flat``: beyond the table the values go on as they are at its ends.
    """
    reach = table.shape[0] // 2
    inside = place.clamp(-reach, reach)
    good = torch.ones_like(place) > 0 if flat else place == inside
    return table[(inside + reach).long()], good.all(dim=1, keepdim=True)


def activated(name: str, x: Tensor) -> Tensor:
    """σ(x), as `projections.activate`.

    onnxruntime has erf of float32 only, so GELU's is rounded to it: 6·10⁻⁸ of the value.
    """
    if name == "gelu":
        if x.dtype == torch.float32:
            return torch.nn.functional.gelu(x)
        return 0.5 * x * (1.0 + torch.erf((x * 0.5**0.5).float()).double())
    if name == "leaky-relu":
        return torch.where(x > 0, x, LEAK * x)
    if name == "hardswish":
        return x * (x + 3.0).clamp(0.0, 6.0) / 6.0
    if name == "softshrink":
        return x - x.clamp(-SHRINK, SHRINK)
    simple = {"none": lambda t: t, "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}
    return cast(Tensor, simple[name](x))


def tensor(array: NDArray[Any]) -> Tensor:
    """An array as a buffer; in C order, so that equal arrays make equal files."""
    return torch.from_numpy(np.array(array, order="C"))
