"""The graphs of solved heads: PyTorch modules that give the head's scores.

A graph is made by a function of (head, bits): a module that takes rows (n, d) float64 to scores
(n, C) float64; ``bits`` are the fraction bits of fixed-point features, None for float32. `GRAPHS`
has those of small heads; of others it is ``graph`` in their module, or in ``graph.py`` of their
folder. The rows are in the space's number format already: `Classifier` rounds them.

PyTorch and ONNX have these operations alike. Their results equal `Head.scores` up to the order of
sums, and no row changes its bucket. Random features in fixed point are real here: `exporting.trial`
says what rounding them may move.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg
from torch import Tensor, nn

from ..errors import UsageError
from ..math.blas import unpack
from ..math.calibration import NEAR
from ..math.gram import LARGEST
from ..values.arrays import F64
from . import KNOWN
from .base import NOBODY, Head
from .calibration import CalibratedHead
from .discriminant import DiscriminantHead, log_shares
from .network import NetworkHead
from .options import FIXED, RandomFeaturesOptions
from .projections import FLAT, LEAK, SHRINK, Projection, projection
from .random_features import RandomFeaturesHead

Graph = Callable[[Any, int | None], nn.Module]


def graph_of(head: Head, bits: int | None) -> nn.Module:
    """A solved head as a module, rows (n, d) → scores (n, C); `UsageError` if it has no graph."""
    if (affine := head.affine()) is not None:
        return Affine(*affine)
    make = GRAPHS.get(head.name) or _own(head.name)
    if make is None:
        raise UsageError(f"a {head.name} head cannot be exported: it has no graph")
    return make(head, bits)


def _own(name: str) -> Graph | None:
    """The graph in a head's own module or folder, if it has one."""
    module = import_module(KNOWN[name], __package__)
    if hasattr(module, "__path__") and find_spec(f"{module.__name__}.graph") is not None:
        module = import_module(".graph", module.__name__)
    return getattr(module, "graph", None)


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


def arithmetic(graph: nn.Module) -> tuple[torch.dtype, int | None]:
    """The type of the products, and to how many bits the head rounds random features, if it does.

    The least precise of both: float32, and the fewest bits.
    """
    buffers = [b.dtype for m in graph.modules() if isinstance(m, Affine) for b in m.buffers()]
    bits = (m.bits for m in graph.modules() if isinstance(m, Drawn))
    kind = torch.float32 if torch.float32 in buffers else torch.float64
    return kind, min((b for b in bits if b is not None), default=None)


class Drawn(nn.Module):
    """x ↦ σ(xA + a), with a projection that a seed has drawn; float32 as it is, or as float64.

    ``bits``: fraction bits of the head's features, if they are in fixed point: a row that its table
    of σ has no place for becomes NaN.
    """

    A: Tensor
    a: Tensor | None

    def __init__(self, drawn: Projection, activation: str, bits: int | None = None) -> None:
        super().__init__()
        self.register_buffer("A", tensor(drawn.A))
        self.register_buffer("a", None if drawn.a is None else tensor(drawn.a))
        self.activation, self.bits = activation, bits

    def forward(self, x: Tensor) -> Tensor:
        out = x @ self.A.to(x.dtype)
        out = out if self.a is None else out + self.a.to(x.dtype)
        return activated(
            self.activation, out if self.activation in FLAT else within(out, self.bits)
        )


def within(x: Tensor, bits: int | None) -> Tensor:
    """The numbers that int16 of so many fraction bits holds, NaN for others; all for None."""
    if bits is None:
        return x
    return torch.where(x.abs() <= 2.0 ** (15 - bits), x, torch.full((), np.nan, dtype=x.dtype))


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


def network(head: NetworkHead, bits: int | None) -> nn.Module:
    """h ← ReLU(hW + b), in float64 as `NetworkHead.scores`."""
    layers: list[nn.Module] = []
    for W, b in head.layers:
        layers += [Affine(W.astype("f8"), b.astype("f8")), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class LiftedRows(nn.Module):
    """x ↦ [σ(xA + a), x if asked], in the compute type; float64 of fixed-point features."""

    def __init__(self, options: RandomFeaturesOptions, dim: int, bits: int | None) -> None:
        super().__init__()
        o = options
        drawn = projection(o.projection, o.seed, 0, dim, o.width)
        self.drawn = Drawn(drawn, o.activation, bits)
        self.dtype = torch.float32 if o.compute == "float32" else torch.float64
        self.with_linear = o.with_linear

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        return torch.cat([self.drawn(x), x], dim=1) if self.with_linear else self.drawn(x)


def random_features(head: RandomFeaturesHead, bits: int | None) -> nn.Module:
    """Φ, then ΦW in the type of Φ, with the intercept where there is one."""
    o, (dim, _) = head.options, head._bound()
    W = head.arrays()["weights"].astype("f4" if o.compute == "float32" else "f8")
    affine = Affine(W[:-1], W[-1]) if o.intercept else Affine(W)
    rows = LiftedRows(o, dim, bits if o.compute == FIXED else None)
    return nn.Sequential(rows, affine, _Double())


class _Double(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.double()


class NaiveBayes(nn.Module):
    """Σ_j [−½ log 2πσ² − (x − μ)²/2σ²] + log π."""

    means: Tensor
    precisions: Tensor
    base: Tensor

    def __init__(self, means: F64, variances: F64, shares: F64) -> None:
        super().__init__()
        self.register_buffer("means", tensor(means))
        self.register_buffer("precisions", tensor(1.0 / variances))
        base = shares - 0.5 * np.log(2.0 * np.pi * variances).sum(axis=0)
        self.register_buffer("base", tensor(base))

    def forward(self, x: Tensor) -> Tensor:
        away = x[:, :, None] - self.means
        return self.base - 0.5 * (away * away * self.precisions).sum(dim=1)


class Quadratic(nn.Module):
    """−½ (‖L⁻¹(x − μ)‖² + log det Σ) + log π, with L⁻¹ (C, d, d) instead of a solve."""

    means: Tensor
    inverse: Tensor
    base: Tensor

    def __init__(self, means: F64, factors: F64, shares: F64) -> None:
        super().__init__()
        d, classes = means.shape
        inverse, base = np.zeros((classes, d, d)), np.zeros(classes)
        for c in np.flatnonzero(factors.any(axis=1)):  # a class without rows has no factor
            L = np.tril(unpack(factors[c]))
            inverse[c] = linalg.solve_triangular(L, np.eye(d), lower=True)
            base[c] = shares[c] - np.log(np.diag(L)).sum()
        self.register_buffer("means", tensor(means.T))
        self.register_buffer("inverse", tensor(inverse.transpose(0, 2, 1)))
        self.register_buffer("base", tensor(base))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.matmul(x - self.means[:, None, :], self.inverse)  # (C, n, d)
        return self.base - 0.5 * (z * z).sum(dim=2).T


class Present(nn.Module):
    """Scores, −∞ for classes without rows."""

    present: Tensor

    def __init__(self, scores: nn.Module, present: np.ndarray) -> None:
        super().__init__()
        self.scores = scores
        self.register_buffer("present", tensor(present))

    def forward(self, x: Tensor) -> Tensor:
        none = torch.full((), -np.inf, dtype=torch.float64)
        return torch.where(self.present, self.scores(x), none)


def discriminant(head: DiscriminantHead, bits: int | None) -> nn.Module:
    """The rule's scores."""
    counts = np.asarray(head.counts, dtype=np.float64)
    shares = log_shares(counts)
    module: nn.Module
    if head.weights is not None:
        module = Affine(head.weights[:-1], head.weights[-1])
    elif head.variances is not None:
        module = NaiveBayes(np.asarray(head.means), head.variances, shares)
    else:
        module = Quadratic(np.asarray(head.means), np.asarray(head.factors), shares)
    return module if counts.all() else Present(module, counts > 0)


def calibrated(head: CalibratedHead, bits: int | None) -> nn.Module:
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


GRAPHS: dict[str, Graph] = {
    "network": network,
    "calibrated": calibrated,
    "random-features": random_features,
    "discriminant": discriminant,
}
