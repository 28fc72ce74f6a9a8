"""The sums of every head beside NumPy's in float64, where each size is at most 3.

A buffer that is used again must never be what was given away: of one class, or of one feature, a
transpose is no copy, in either memory order.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from problems import HEADS, drawn, gelu, one_hot
from scipy.special import softmax

from afltool import parallel
from afltool.heads import make_head
from afltool.math.blas import unpack
from afltool.math.gram import FixedPoint, Products
from afltool.values.statistics import Context

BITS = 5
FEW = [(1, 1, 0), (2, 3, 0), (3, 1, 0), (1, 2, 1), (1, 3, 1), (2, 1, 1), (3, 3, 1)]
#: d, C, n: three rows of every shape, none and one of some.
SIZES = [*itertools.product((1, 2, 3), (1, 2, 3), [3]), *FEW]
WAYS = [(1, 1), (1, 9), (2, 1), (2, 2), (3, 1), (3, 9)]  # threads, rows of a block
RANDOM = [
    (1, "float32", False), (3, "float32", True), (1, "float64", False), (3, "float64", False),
    (1, "fixed", False), (2, "fixed", True),
]  # fmt: skip
CODED = {"thresholds": "range:-2:2", "buckets": 4, "experts": 2, "ridge": 1.0}
CASES = [
    *((name.split()[0], HEADS[name]) for name in HEADS if name.startswith(("linear", "discrim"))),
    *(
        ("random-features", {"width": width, "compute": compute, "with_linear": linear})
        for width, compute, linear in RANDOM
    ),
    ("softmax", {"features": "raw"}),
    ("softmax", {"features": "random", "width": 1}),
    ("safle", CODED),
    ("safle", {**CODED, "with_linear": True}),
    *(
        ("deepafl", {"layers": 1, "width": width, "compute": compute})
        for width, compute in [(1, "float32"), (1, "float64"), (2, "float64"), (1, "fixed")]
    ),
]


def features(head, X, V):
    """Φ (n, D), dense."""
    o = head.options
    if head.name == "linear":
        return np.hstack([V, np.ones((len(V), 1))]) if o.intercept else V
    if head.name == "random-features":
        if o.compute == "fixed":
            return head.lift(X)
        return np.hstack([np.tanh(drawn(V, 0, o.width)), V[:, : V.shape[1] * o.with_linear]])
    if head.name == "safle":
        return one_hot(head, X)
    if head.name == "softmax" and o.features == "random":
        V = np.tanh(drawn(V, 0, o.width)) if o.compute != "fixed" else V
    return np.hstack([V, np.ones((len(V), 1))]) if head.name == "softmax" else V


def layered(head, V, Y):
    """The sums of W_0 or of Ω_1."""
    phi = np.tanh(drawn(V, 0, head.options.width))
    if head.phase().kind == "weights":
        return {"gram": phi.T @ phi, "cross": phi.T @ Y}
    F = gelu(drawn(phi, 1, head.options.width))
    return {"gram": F.T @ F, "cross": F.T @ (Y - phi @ head.weights[-1])}


def expected(head, X, V, y, classes):
    """What the phase's arrays are in float64, by name."""
    Y = np.eye(classes)[y]
    if head.name == "deepafl":
        return layered(head, V, Y)
    phi = features(head, X, V)
    if head.phase().kind == "gradient":
        return {"gradient": phi.T @ (softmax(phi @ head.point, axis=1) - Y)}
    if head.phase() == "codes":
        return {"labels": phi.T @ Y, "gram": V.T @ V, "cross": V.T @ Y}
    by_class = [(phi * column[:, None]).T @ phi for column in Y.T]
    return {"gram": phi.T @ phi, "cross": phi.T @ Y, "squares": (phi**2).T @ Y, "grams": by_class}


def compare(head, found, wanted, within):
    """Sums of integers are in units of the features, a gradient's in 2^-24 of these."""
    assert found.arrays.keys() & wanted.keys()
    unit = 2.0**-BITS if found.exact else 1.0
    units = {"cross": unit, "labels": 1.0, "gradient": unit * (2.0**-24 if found.exact else 1.0)}
    for name in found.arrays.keys() & wanted.keys():
        values = found.arrays[name] * units.get(name, unit**2)
        if name in ("gram", "grams"):
            values = np.array([unpack(one) for one in np.atleast_2d(values)])
        there = np.reshape(wanted[name], values.shape)
        assert np.allclose(values, there, rtol=within, atol=within), (name, values, there)


def rounds(head, X, y, V):
    """Each phase of the head that NumPy has, with the sums in one block; solved in between."""
    for _ in range(3):
        whole, _ = head.gather([(X, y)])
        yield head, whole
        bits = X.bits if isinstance(X, FixedPoint) else None
        space = {"fraction_bits": bits, "dim": V.shape[1]}
        if not len(y) or head.phase().kind in ("block", "gradient"):
            return
        if head.name not in ("softmax", "deepafl"):
            return
        head, _ = head.absorb(replace(whole, context=Context(space)))


@pytest.mark.parametrize("kind", ["f4", "f8", "i2"])
@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda one: str(one))
def test_sums_of_small_sizes_are_numpys(name, options, kind):
    fixed = options.get("compute") == "fixed"
    if fixed and kind != "i2":
        return
    ways = itertools.cycle(WAYS)
    for d, classes, n in SIZES:
        rng = np.random.default_rng([d, classes, n])
        whole, y = rng.integers(-60, 60, (n, d)).astype("i2"), rng.integers(0, classes, n)
        V = whole * 2.0**-BITS
        X = FixedPoint(whole, BITS) if kind == "i2" else V.astype(kind)
        head = make_head(name, options).bind(d, classes)
        for at, pooled in rounds(head, X, y, V):
            gradient = at.phase().kind == "gradient" and pooled.exact
            within = 1e-5 if options.get("compute") == "float32" or gradient else 1e-11
            rounded = (fixed and name == "deepafl") or (name == "softmax" and kind == "i2")
            if not rounded or options.get("features") == "raw":
                compare(at, pooled, expected(at, X, V, y, classes), within)
            for threads, cut in itertools.islice(ways, 2):
                blocks = [(X[i : i + cut], y[i : i + cut]) for i in range(0, max(n, 1), cut)]
                with parallel.thread_limit(threads):
                    parts, _ = at.gather(blocks)
                for key, array in parts.arrays.items():
                    other = pooled.arrays[key]
                    if pooled.exact:
                        assert np.array_equal(array, other), key
                    assert np.allclose(array, other, rtol=within, atol=within), key
        untouched = X.values if kind == "i2" else X.astype("f8")
        assert np.array_equal(untouched, whole if kind == "i2" else V)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("bits", [None, BITS])
def test_sums_that_were_given_away_stay_what_they_were(order, bits):
    for d, classes in itertools.product((1, 2, 3), repeat=2):
        rng = np.random.default_rng([d, classes])
        whole, y = rng.integers(-60, 60, (7, d)), rng.integers(0, classes, 7)
        X = np.asarray(whole, np.float64 if bits is None else np.int16, order=order)
        rows = X if bits is None else FixedPoint(X, bits)
        sums, Y = Products.like(rows, classes), np.eye(classes)[y]
        first = sums.add(rows, y).taken()
        kept = [a.copy() for a in first]
        second = sums.add(rows[:3], y[:3]).taken()
        assert all(map(np.array_equal, first, kept))
        for (gram, cross), n in ((first, 7), (second, 3)):
            assert np.array_equal(unpack(gram), whole[:n].T @ whole[:n])
            assert np.array_equal(cross, whole[:n].T @ Y[:n])
