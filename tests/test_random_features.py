"""Random projections, the same everywhere; the linear head on them, real and in fixed point."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from problems import drawn, sums

from afltool.errors import InvalidDataError
from afltool.heads import make_head
from afltool.heads.options import ACTIVATIONS, RandomFeaturesOptions
from afltool.heads.projections import (
    RandomFeatures,
    _uniform,
    _words,
    activate,
    projection,
    table,
    tabled,
)
from afltool.math.blas import unpack
from afltool.math.gram import FixedPoint, encode, real


def test_a_golden_digest():
    made = projection(7, 3, 20, 30)
    data = b"".join(a.astype("<f4").tobytes() for a in (made.A, made.a))
    wanted = "f03f1080bc8fc78ddb25808b52df17fe0d1a60d37b4c33c797b714581f8709c9"
    assert hashlib.sha256(data).hexdigest() == wanted


def test_the_generator_is_philox_from_counter_zero():
    """The known answer for key 0 and counter 0 that the authors of Random123 publish."""
    expected = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert _words(0, 0).random_raw(4).tolist() == expected
    first = ((0x16554D9ECA36314C >> 8) % 2**24 - 2**23) / 2**23
    assert _uniform(_words(0, 0), 1)[0] == first
    a, b, c = (projection(s, t, 9, 4).A for s, t in ((0, 0), (0, 1), (1, 0)))
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, c)
    uniform = projection(0, 0, 400, 500)
    assert np.abs(uniform.A).max() <= 0.05
    assert np.isclose(uniform.A.std(), 0.05 / np.sqrt(3), rtol=0.01)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_activations_are_torchs(name, kind):
    x = np.linspace(-5, 5, 101, dtype=kind).reshape(1, -1)
    F = torch.nn.functional
    oracle = {
        "none": lambda t: t, "gelu": F.gelu, "relu": F.relu, "leaky-relu": F.leaky_relu,
        "tanh": F.tanh, "hardswish": F.hardswish, "softshrink": F.softshrink,
    }[name]  # fmt: skip
    expected = oracle(torch.from_numpy(x.copy())).numpy()
    found = activate(name, x.copy())
    assert found.dtype == x.dtype
    if (name, kind) == ("gelu", "float32"):  # where 1 + erf cancels, torch's own errs by as much
        exact = F.gelu(torch.from_numpy(x.astype("f8"))).numpy()
        bound = 2 * np.finfo(kind).eps * np.maximum(1, np.abs(x))
        assert (np.abs(found - exact) <= bound).all()
        assert np.allclose(found[x >= -1], exact[x >= -1], rtol=1e-6, atol=0)
    else:
        assert np.allclose(found, expected, rtol=1e-6 if kind == "float32" else 1e-13)


# ---------------------------------------------------------------- the head


C, D, WIDTH = 3, 5, 20


def rows(n=300, bits=9):
    rng = np.random.default_rng(0)
    return FixedPoint(encode(rng.normal(size=(n, D)), bits), bits), rng.integers(0, C, n)


@pytest.mark.parametrize("with_linear", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_fixed_sums_are_the_integers_of_the_rounded_features(with_linear, intercept):
    X, y = rows()
    options = {"with_linear": with_linear, "intercept": intercept, "compute": "fixed"}
    head = make_head("random-features", {"width": WIDTH, **options}).bind(D, C)
    found = sums(head, X, y)
    float_options = {**options, "compute": "float64", "width": WIDTH}
    Phi = make_head("random-features", float_options).bind(D, C).lift(X)
    rounded = np.rint(head.lift(X) * 2**9).astype(np.int64)
    assert np.abs(rounded * 2.0**-9 - Phi).max() < 0.6 * 2.0**-9  # σ is rounded, and its argument
    assert np.array_equal(unpack(found.arrays["gram"]), rounded.T @ rounded)
    assert np.array_equal(found.arrays["cross"], rounded.T @ np.eye(C, dtype=int)[y])
    assert found.exact


def test_lifted_rows_are_the_random_features_rounded():
    X, _ = rows()
    made, z = projection(0, 0, D, 15), drawn(real(X), 0, 15)
    for activation in ACTIVATIONS:
        lift = tabled(made, activation, 9, 9)
        found, wanted = lift(X.values) / 512, activate(activation, z.copy())
        within = (1 / 2 + 1.2 / 16) / 512  # of the value, of its argument
        assert np.abs(found - wanted).max() <= within, activation
        for step in (1, 7):
            again = [lift(X.values[at : at + step]) for at in range(0, 300, step)]
            assert np.array_equal(np.concatenate(again), lift(X.values))


def test_the_tables_are_the_same_on_every_machine():
    """What makes digests of random features agree between machines: made on an AMD EPYC."""
    for activation, digest in (
        ("tanh", "532a2f457f5301dd"), ("gelu", "0e75638e6c2820d0"),
        ("hardswish", "c141632da470b649"),
    ):  # fmt: skip
        found = hashlib.sha256(table(activation, 9).astype("<i2").tobytes()).hexdigest()
        assert found[:16] == digest


def test_random_features_beyond_the_fixed_point_are_refused_never_clipped():
    X = FixedPoint(np.full((2, D), 32767, np.int16), 9)
    wide = RandomFeaturesOptions(width=40, activation="relu", seed=1)
    with pytest.raises(InvalidDataError, match=r"before --activation relu is beyond ±64"):
        RandomFeatures(wide)(X)
    assert np.abs(RandomFeatures(replace(wide, activation="tanh"))(X)).max() == 512
    with pytest.raises(InvalidDataError, match="--fraction-bits 14 or fewer"):
        table("tanh", 15)
