"""The graphs of solved heads: PyTorch modules that give the head's scores.

A graph is made by a function of (head, bits), of `GRAPHS`, or ``graph`` beside the class of a
plug-in's head: rows (n, d) float64, of so many fraction bits (None: float32), to scores (n, C)
float64, as `Head.decision_function` up to the order of sums. Random features in fixed point are
real here: `exporting.trial` says what rounding them may move.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import linalg
from torch import Tensor, nn

from ..errors import UsageError
from ..math.blas import unpack
from ..math.gram import LARGEST
from ..values.arrays import F64, Array
from . import base
from .base import NOBODY
from .calibration import NEAR, CalibratedHead
from .deepafl.head import DeepAFLHead
from .deepafl.layers import OF_LABELS
from .deepafl.options import ACTIVATED, RESIDUAL
from .discriminant import DiscriminantHead, log_shares
from .least_squares import RandomFeaturesHead
from .network import NetworkHead
from .options import FIXED
from .projections import FLAT, LEAK, SHRINK, Projection, RandomFeatures, projection
from .safle.head import SafleHead
from .softmax.head import SoftmaxHead

Graph = Callable[[Any, int | None], nn.Module]
Held = Mapping[str, Tensor]


def build_graph(head: base.Classifier, bits: int | None) -> nn.Module:
    """A solved head as a module, rows (n, d) → scores (n, C); `UsageError` if it has no graph."""
    if (affine := head.affine()) is not None:
        return Affine(*affine)
    beside = sys.modules[type(head).__module__]
    make: Graph | None = GRAPHS.get(head.name) or getattr(beside, "graph", None)
    if make is None:
        raise UsageError(f"a {head.name} head cannot be exported: it has no graph")
    return make(head, bits)


class Classifier(nn.Module):
    """Features (n, d) float32 → (scores (n, C), predicted (n,) [, probabilities (n, C)]), rounded
    to ``bits`` fraction bits first, half to even. A row that afltool refuses has scores NaN, class
    −1."""

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


class Part(nn.Module):
    """x ↦ f(x, arrays): the arrays are buffers, in C order, so that equal ones make equal files."""

    def __init__(self, f: Callable[[Tensor, Held], Tensor], **arrays: NDArray[Any]) -> None:
        super().__init__()
        self._f = f
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(np.array(array, order="C")))

    def forward(self, x: Tensor) -> Tensor:
        return self._f(x, dict(self.named_buffers()))


class Affine(Part):
    """x ↦ xW + b, in the type of W; b may be absent."""

    def __init__(self, W: NDArray[Any], b: NDArray[Any] | None = None) -> None:
        def f(x: Tensor, a: Held) -> Tensor:
            out = x.to(a["W"].dtype) @ a["W"]
            return out + a["b"] if "b" in a else out

        super().__init__(f, W=W, **({} if b is None else {"b": b}))


class Drawn(Part):
    """x ↦ σ(xA + a), with a projection that a seed has drawn, in the type of x. ``bits``: of
    features in fixed point: a row that their table of σ has no place for becomes NaN."""

    def __init__(self, drawn: Projection, activation: str, bits: int | None = None) -> None:
        def f(x: Tensor, a: Held) -> Tensor:
            out = x @ a["A"].to(x.dtype)
            out = out + a["a"].to(x.dtype) if "a" in a else out
            return activate_tensor(
                activation, out if activation in FLAT else clip_to_fixed_point(out, bits)
            )

        super().__init__(f, A=drawn.A, **({} if drawn.a is None else {"a": drawn.a}))
        self.bits = bits


def arithmetic(graph: nn.Module) -> tuple[torch.dtype, int | None]:
    """The least precise type of the products, and the fewest bits of rounded random features."""
    buffers = [b.dtype for m in graph.modules() if isinstance(m, Affine) for b in m.buffers()]
    bits = (m.bits for m in graph.modules() if isinstance(m, Drawn))
    kind = torch.float32 if torch.float32 in buffers else torch.float64
    return kind, min((b for b in bits if b is not None), default=None)


def clip_to_fixed_point(x: Tensor, bits: int | None) -> Tensor:
    """The numbers that int16 of so many fraction bits holds, NaN for others; all for None."""
    if bits is None:
        return x
    return torch.where(x.abs() <= 2.0 ** (15 - bits), x, torch.full((), np.nan, dtype=x.dtype))


def activate_tensor(name: str, x: Tensor) -> Tensor:
    """σ(x), as `projections.activate`; GELU's erf is float32, as onnxruntime has it: 6·10⁻⁸."""
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
    simple = {"none": lambda t: t, "relu": torch.relu, "tanh": torch.tanh}
    return cast(Tensor, simple[name](x))


def network(head: NetworkHead, bits: int | None) -> nn.Module:
    """h ← ReLU(hW + b), in float64 as `NetworkHead.decision_function`."""
    layers: list[nn.Module] = []
    for W, b in head.layers:
        layers += [Affine(W.astype("f8"), b.astype("f8")), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class LiftedRows(nn.Module):
    """x ↦ [σ(xA + a), x if asked], in the compute type; float64 of fixed-point features."""

    def __init__(self, head: RandomFeaturesHead | SoftmaxHead, bits: int | None) -> None:
        super().__init__()
        features = head.features
        assert isinstance(features, RandomFeatures)
        o, dim = features.options, head._bound()[0]
        drawn = projection(o.seed, 0, dim, o.width)
        self.drawn = Drawn(drawn, o.activation, features.bits(bits))
        self.with_linear = o.with_linear
        self.dtype = torch.float32 if o.compute == "float32" else torch.float64

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.dtype)
        return torch.cat([self.drawn(x), x], dim=1) if self.with_linear else self.drawn(x)


def lifted(head: RandomFeaturesHead | SoftmaxHead, bits: int | None) -> nn.Module:
    """ΦW with Φ = [σ(XA + a), X if asked, 1 if asked]; of softmax the product is of float64."""
    W = np.asarray(head.weights)
    if isinstance(head, RandomFeaturesHead) and head.options.compute == "float32":
        W = W.astype(np.float32)
    affine = Affine(W[:-1], W[-1]) if head.intercept else Affine(W)
    return nn.Sequential(LiftedRows(head, bits), affine, Part(lambda x, _: x.double()))


def discriminant(head: DiscriminantHead, bits: int | None) -> nn.Module:
    """The scores of a rule that has variances or factors; −∞ for classes without rows."""
    known = head.state_dict()
    counts = np.asarray(known["counts"], dtype=np.float64)
    shares = np.where(counts > 0, log_shares(counts), -np.inf)
    if head.variances is None:
        return _quadratic(known["means"], known["factors"], shares)
    base = shares - 0.5 * np.log(2.0 * np.pi * head.variances).sum(axis=0)
    return Part(_bayes, means=known["means"], precisions=1.0 / head.variances, base=base)


def _bayes(x: Tensor, a: Held) -> Tensor:
    """Σ_j [−½ log 2πσ² − (x − μ)²/2σ²] + log π."""
    away = x[:, :, None] - a["means"]
    return a["base"] - 0.5 * (away * away * a["precisions"]).sum(dim=1)


def _quadratic(means: F64, factors: F64, shares: F64) -> nn.Module:
    """−½ (‖L⁻¹(x − μ)‖² + log det Σ) + log π, with L⁻¹ (C, d, d) instead of a solve."""
    d, classes = means.shape
    inverse, base = np.zeros((classes, d, d)), shares.copy()
    for c in np.flatnonzero(factors.any(axis=1)):  # a class without rows has no factor
        L = np.tril(unpack(factors[c]))
        inverse[c] = linalg.solve_triangular(L, np.eye(d), lower=True).T
        base[c] -= np.log(np.diag(L)).sum()

    def f(x: Tensor, a: Held) -> Tensor:
        z = torch.matmul(x - a["means"][:, None, :], a["inverse"])  # (C, n, d)
        return a["base"] - 0.5 * (z * z).sum(dim=2).T

    return Part(f, means=means.T, inverse=inverse, base=base)


def safle(head: SafleHead, bits: int | None) -> nn.Module:
    """Σ_j W_j[idx_j] (+ x·W of a hybrid): the codes of a row choose lines of E tables (E, V, C).
    Fixed-point features are compared as the integers that they are: x̂ > t·2^f is x̂ > ⌊t·2^f⌋."""
    coder, tables = head.coder(), np.asarray(head.tables)
    cuts, (experts, digits) = coder.cuts, coder.features.shape
    if bits is not None:
        cuts = np.floor(cuts * 2.0**bits).clip(-LARGEST - 1, LARGEST) * 2.0**-bits

    def f(x: Tensor, a: Held) -> Tensor:
        read = x[:, a["features"]]
        digit = torch.zeros_like(read, dtype=torch.int64)
        for s, sign in enumerate(coder.signs):
            digit = digit + sign * (read > a["cuts"][:, s]).long()
        codes = (digit.reshape(-1, experts, digits) * a["powers"]).sum(dim=2) + a["starts"]
        scores = nn.functional.embedding(codes, a["tables"]).sum(dim=1)
        return scores + x @ a["linear"] if "linear" in a else scores

    return Part(
        f,
        features=coder.features.ravel(),
        cuts=cuts.reshape(-1, len(coder.signs)),
        powers=np.tile(coder.radix ** np.arange(digits), (experts, 1)).astype(np.int64),
        starts=(np.arange(experts) * coder.size).astype(np.int64),
        tables=tables.reshape(-1, tables.shape[-1]),
        **({} if head.linear is None else {"linear": head.linear}),
    )


def calibrate_scores(head: CalibratedHead, bits: int | None) -> nn.Module:
    """x ↦ log p_c, or log p_c / (1 − p_c); see `CalibratedHead.calibrate_values`."""
    known, ratios = head.state_dict(), head.inner.log_probabilities
    logits = [Part(lambda scores, _: _logit(torch.softmax(scores, dim=1)))] if ratios else []
    if head.slope is not None:

        def lines(v: Tensor, a: Held) -> Tensor:
            """z = a v + b, or log σ(z) = min(z, 0) − log(1 + exp(−|z|))."""
            z = v * a["slope"] + a["offset"]
            return z.clamp(max=0.0) - torch.log(1 + torch.exp(-z.abs())) if ratios else z

        last = Part(lines, slope=known["slope"], offset=known["offset"])
    else:
        width, rise = np.diff(known["knots"]), np.diff(known["levels"])
        rate = np.divide(rise, width, out=np.zeros_like(rise), where=width > 0)

        def knots(v: Tensor, a: Held) -> Tensor:
            """log, or logit, of the broken line: each piece rises as far as v goes."""
            into = torch.minimum((v[:, :, None] - a["left"]).clamp(min=0.0), a["width"])
            p = a["first"] + (into * a["rate"]).sum(dim=2)
            return torch.log(p) if ratios else _logit(p)

        left, first = known["knots"][:, :-1], known["levels"][:, 0]
        last = Part(knots, left=left, width=width, rate=rate, first=first)
    return nn.Sequential(build_graph(head.inner, bits), *logits, last)


def _logit(p: Tensor) -> Tensor:
    inside = p.clamp(NEAR, 1 - NEAR)
    return torch.log(inside) - torch.log1p(-inside)


class Deep(nn.Module):
    """σ_0(xA), the layers, ΦW; products in the compute type, float64 of fixed-point features."""

    def __init__(self, head: DeepAFLHead) -> None:
        super().__init__()
        self.o = o = head.options
        real = "float64" if o.compute == FIXED else o.compute
        self.dtype = getattr(torch, real)
        drawn = head.features.draw_weights(0, head._bound()[0], o.widths[0])
        self.first = Drawn(drawn, str(o.phi0_activation), o.fixed_bits)
        *before, last = (W.astype(real) for W in head.weights)
        make = _block if o.deepening == RESIDUAL else _cascade
        self.layers = nn.ModuleList(make(head, t, W) for t, W in enumerate(before))
        self.last = Affine(last)

    def forward(self, x: Tensor) -> Tensor:
        phi0 = phi = self.first(x.to(self.dtype))
        for layer in self.layers:
            moved = layer(phi0 if self.o.from_phi0 else phi)
            whole = self.o.no_skip or self.o.deepening != RESIDUAL
            phi = clip_to_fixed_point(moved if whole else phi + moved, self.o.fixed_bits)
        return cast(Tensor, self.last(phi).double())


def _cascade(head: DeepAFLHead, t: int, W: Array) -> nn.Module:
    """σ(Φ_t W_t B_t), or σ(Φ_t W_t Q_t B_t)."""
    o, draw, chain, width = head.options, head.features.draw_weights, [Affine(W)], W.shape[1]
    if o.label_encoding:
        chain.append(Affine(draw(OF_LABELS + t, width, o.widths[1]).A.astype(W.dtype)))
        width = o.widths[1]
    sigma = str(o.activation) if o.deepening == ACTIVATED else "none"
    return nn.Sequential(*chain, Drawn(draw(t + 1, width, o.widths[0]), sigma))


def _block(head: DeepAFLHead, t: int, W: Array) -> nn.Module:
    """F_t Ω_{t+1}."""
    o, sigma = head.options, str(head.options.activation)
    hidden: nn.Module = Part(lambda x, _: activate_tensor(sigma, x))
    if not o.identity_projection:
        hidden = Drawn(head.features.draw_weights(t + 1, *o.widths), sigma, o.fixed_bits)
    omega = head.features.omega(t)
    Z, U = (None, None) if omega is None else omega.astype(W.dtype)
    both = [Affine(one) for one in (Z, None if U is None else U.T) if one is not None]
    return nn.Sequential(hidden, *both)


GRAPHS: dict[str, Graph] = {
    "calibrated": calibrate_scores,
    "network": network,
    "random-features": lifted,
    "discriminant": discriminant,
    "safle": safle,
    "softmax": lifted,
    "deepafl": lambda head, bits: Deep(head),
}
