"""The graphs of solved heads: PyTorch modules that give the head's scores.

A graph is made by a function of (head, bits): a module that takes rows (n, d) float64 to scores
(n, C) float64; ``bits`` are the fraction bits of fixed-point features, None for float32. `GRAPHS`
has those of small heads; of others it is ``graph`` in their module, or in ``graph.py`` of their
folder. The rows are in the space's number format already: `Classifier` rounds them.

PyTorch and ONNX have these operations alike. Their results equal `Head.scores` up to the order of
sums. Comparisons and roundings use the same numbers, so no row changes its bucket.
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
from ..math.gram import LARGEST
from ..values.arrays import F64
from . import KNOWN
from .base import NOBODY, Head
from .discriminant import DiscriminantHead, log_shares
from .network import NetworkHead
from .options import FIXED, RandomFeaturesOptions
from .projections import FINER, FLAT, LEAK, SHRINK, Projection, Tabled, projection, table
from .random_features import RandomFeaturesHead, fixed_lift

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


class Drawn(nn.Module):
    """x ↦ σ(xA + a), with a projection that a seed has drawn; float32 as it is, or as float64."""

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


def network(head: NetworkHead, bits: int | None) -> nn.Module:
    """h ← ReLU(hW + b), in float64 as `NetworkHead.scores`."""
    layers: list[nn.Module] = []
    for W, b in head.layers:
        layers += [Affine(W.astype("f8"), b.astype("f8")), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


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


def random_features(head: RandomFeaturesHead, bits: int | None) -> nn.Module:
    """Φ, then ΦW in the type of Φ, with the intercept where there is one."""
    o, (dim, _) = head.options, head._bound()
    fixed = o.compute == FIXED
    W = head.arrays()["weights"].astype("f4" if o.compute == "float32" else "f8")
    affine = Affine(W[:-1], W[-1]) if o.intercept else Affine(W)
    return nn.Sequential(lifted(o, dim, bits, fixed), affine, _Double())


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


GRAPHS: dict[str, Graph] = {
    "network": network,
    "random-features": random_features,
    "discriminant": discriminant,
}
