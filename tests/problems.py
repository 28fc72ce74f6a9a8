"""Least-squares problems with a known solution and conditioning, and shapes that break things."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from itertools import islice
from operator import add
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import erf

from afltool.heads import make_head
from afltool.heads.base import Head, binding
from afltool.heads.projections import projection
from afltool.math.gram import FixedPoint, Rows, real
from afltool.values.statistics import Client, ClientId, Context, Statistics

F64 = NDArray[np.float64]

#: Each head in its ways, of 6 features and 3 classes: its name, then what is special.
DEEP = {"layers": 2, "feature_width": 9, "hidden_width": 7}
FEW = {"rounds": 3, "penalty": 0.01}
CODED = {"buckets": 3, "experts": 4}
HEADS = {
    "linear": {}, "linear intercept": {"intercept": True, "ridge": 1.0},
    "linear standardize": {"intercept": True, "standardize": True, "ridge": "1:10:3"},
    "linear min-norm": {"ridge": 0, "min_norm": True},
    **{f"discriminant {rule}": {"rule": rule} for rule in
       ("nearest-mean", "lda", "fedcgs", "fed3r", "naive-bayes", "qda")},
    "random-features": {"width": 8, "ridge": 1.0},
    "random-features fixed": {"width": 8, "ridge": 1.0, "compute": "fixed", "with_linear": True},
    "safle": CODED, "safle range": {**CODED, "thresholds": "range:-2:2", "bucketing": "onehot"},
    "safle hybrid": {**CODED, "with_linear": True, "bucketing": "integer"},
    "softmax": FEW,
    "softmax random": {**FEW, "features": "random", "width": 8},
    "deepafl": DEEP, "deepafl fixed": {**DEEP, "compute": "fixed"},
    "deepafl (88)": {**DEEP, "reconstruction": 0.5},
    "deepafl (89)": {**DEEP, "from_phi0": True}, "deepafl no-skip": {**DEEP, "no_skip": True},
    "deepafl cascade": {**DEEP, "deepening": "activated-cascade", "label_encoding": True},
    "deepafl incremental": {**DEEP, "incremental": True},
}  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """X (n, d) and H = XᵀX·W for a given W, so that the least-squares solution is W itself."""

    X: F64
    W: F64
    singular: F64

    @property
    def G(self) -> F64:
        return self.X.T @ self.X

    @property
    def H(self) -> F64:
        return self.G @ self.W


def known_problem(n: int, d: int, classes: int, condition: float, seed: int) -> Problem:
    """X = U diag(s) Vᵀ with cond(X) = ``condition``; asserts its own premises."""
    rng = np.random.default_rng(seed)
    rank = min(n, d)
    U = np.linalg.qr(rng.normal(size=(n, rank)))[0]
    V = np.linalg.qr(rng.normal(size=(d, rank)))[0]
    s = np.logspace(0, -np.log10(condition), rank)
    X = U * s @ V.T
    found = np.linalg.svd(X, compute_uv=False)
    assert np.allclose(found[:rank], s, rtol=1e-8, atol=1e-12)
    W = rng.normal(size=(d, classes))
    return Problem(X, W, s)


@st.composite
def row_sets(draw: st.DrawFn) -> tuple[NDArray[np.int16], NDArray[np.int64], int]:
    """Fixed-point rows and labels: long, wide, rank-deficient, badly scaled, one class, empty."""
    n, d = draw(st.integers(0, 40)), draw(st.integers(1, 12))
    classes = draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.integers(-(2**15) + 1, 2**15, size=(n, d)).astype(np.int16)
    shape = draw(st.sampled_from(["plain", "rank-deficient", "badly scaled", "zero", "extreme"]))
    if shape == "rank-deficient":
        X[:, d // 2 :] = X[:, :1]
    if shape == "badly scaled":
        X //= (10 ** rng.integers(0, 5, size=d)).astype(np.int16)
    if shape == "zero":
        X[:] = 0
    if shape == "extreme":
        X[:] = 2**15 - 1
    one_class = draw(st.booleans())
    y = np.zeros(n, np.int64) if one_class else rng.integers(0, classes, size=n)
    return X, y, classes


def statistics_of(
    X: NDArray[np.int16], y: NDArray[np.int64], classes: int, client: str | None = None
) -> Statistics:
    """Statistics of fixed-point rows (9 bits) for the linear head, of one named client or none."""
    head = make_head("linear").bind(X.shape[1], classes)
    found = gathered(head, FixedPoint(X, 9), y, client or "")
    return found if client is not None else replace(found, clients={})


def same(a: Statistics, b: Statistics) -> bool:
    """Equal in every number and every client."""
    return (
        a.digest() == b.digest()
        and dict(a.clients) == dict(b.clients)
        and all(np.array_equal(a.arrays[k], b.arrays[k]) for k in a.arrays)
    )


def total(parts: Iterable[Statistics]) -> Statistics:
    """The sum of one or more statistics."""
    return reduce(add, parts)


def sums(head: Head, X: Rows, y: NDArray[np.int64]) -> Statistics:
    """The statistics of some rows, in one block."""
    return head.gather([(X, y)])[0]


def drawn(X: F64, stream: int, width: int, seed: int = 0) -> F64:
    """X A + a (n, width) of a head's own projection, in float64."""
    made = projection(seed, stream, X.shape[1], width)
    return X @ made.A.astype(float) + made.a


def gelu(z: F64) -> F64:
    """z Φ(z), by SciPy's error function."""
    return z * (1 + erf(z / np.sqrt(2))) / 2


def one_hot(head: Head, X: Rows) -> F64:
    """Φ (n, E·V) of a SAFLe head's codes, dense."""
    phi = np.eye(head.options.size)[head.coder().codes(X)]  # (E, n, V)
    return phi.transpose(1, 0, 2).reshape(len(X), len(phi) * phi.shape[2])


def clouds(n: int, d: int, classes: int, seed: int = 0) -> tuple[FixedPoint, NDArray[Any]]:
    """Fixed-point rows (9 bits) of classes that a linear head can tell apart, and their labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    X = np.random.default_rng(99).normal(size=(classes, d))[y] + rng.normal(size=(n, d))
    return FixedPoint(np.rint(X * 512).astype(np.int16), 9), y


def far_rows(ratio: float, n: int = 600, d: int = 5) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Float32 rows of three classes whose mean is about ``ratio`` deviations from zero."""
    rng = np.random.default_rng(3)
    y = rng.integers(0, 3, n)
    X = (rng.normal(size=(n, d)) + 1.5 * np.eye(3, d)[y] + 1.4 * ratio).astype(np.float32)
    assert 0.7 * ratio < abs(X.mean(0) / X.std(0, dtype=np.float64)).min(), "the premise"
    return X, y


def nearly_constant(n: int, columns: int) -> NDArray[Any]:
    """Features as a network's dead ones are, whose products depend on the place in a batch."""
    jitter = np.random.default_rng(0).integers(-2, 3, (n, columns))
    return np.float32(0.12) + jitter * np.spacing(np.float32(0.12))


def dense(omega):
    """Ω itself (d_F, d_Φ), of its thin factors."""
    return omega.Z if omega.U is None else omega.Z @ omega.U.T


# ---------------------------------------------------------------- rounds of a head without files

_REPORTS: WeakKeyDictionary[Head, dict[str, Any]] = WeakKeyDictionary()


def gathered(head: Head, X: Rows, y: NDArray[np.int64], client: str = "a") -> Statistics:
    """The statistics of one client, with what its file would say of them."""
    bits = X.bits if isinstance(X, FixedPoint) else None
    names = tuple(map(str, range(head.classes)))
    context = Context({"fraction_bits": bits}, names, binding(head))
    return replace(sums(head, X, y), context=context, clients={ClientId(client): Client(len(y))})


def absorb(head: Head, total: Statistics, validation: Statistics | None = None) -> Head:
    """The head one phase further."""
    after, done = head.absorb(total, validation)
    _REPORTS[after] = done.report(report_of(head))
    return after


def report_of(head: Head) -> dict[str, Any]:
    """Figures of a head that `absorb` made, and as ``phases`` its rounds."""
    return _REPORTS.get(head, {})


def trained(head: Head, X: Rows, y: NDArray[np.int64], *held: Any) -> Head:
    """The solved head of one client's rows; ``held``: rows and labels of a held-out one."""
    while head.phase() is not None:
        seen = gathered(head, *held, "held") if held else None
        head = absorb(head, gathered(head, X, y), seen)
    return head


def phi_of(head: Head, X: Rows, t: int) -> NDArray[np.float64]:
    """Φ_t (n, d_Φ) of a deep head, in units of one."""
    return real(next(islice(head.features.each(X), t, None))[1])
