"""Random projections: the same numbers everywhere, with the distribution that they should have."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from afltool.heads.options import ACTIVATIONS
from afltool.heads.projections import (
    _log,
    _normal,
    _uniform,
    _words,
    activate,
    projection,
)

GOLDEN = {
    "linear-uniform": "f03f1080bc8fc78ddb25808b52df17fe0d1a60d37b4c33c797b714581f8709c9",
    "gaussian": "8dc596b27b34a3751f75bf11b99c40e122bff3e97f98f6bb2f2f567b4cb19770",
}


@pytest.mark.parametrize("kind", GOLDEN)
def test_golden_digests(kind):
    made = projection(kind, 7, 3, 20, 30)
    arrays = [made.A] if made.a is None else [made.A, made.a]
    data = b"".join(a.astype("<f4").tobytes() for a in arrays)
    assert hashlib.sha256(data).hexdigest() == GOLDEN[kind]


def test_the_generator_is_philox_from_counter_zero():
    """The known answer for key 0 and counter 0 that the authors of Random123 publish."""
    expected = [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert _words(0, 0).random_raw(4).tolist() == expected
    first = ((0x16554D9ECA36314C >> 8) % 2**24 - 2**23) / 2**23
    assert _uniform(_words(0, 0), 1)[0] == first


def test_seeds_and_streams_differ_and_repeat():
    a, b, c = (projection("linear-uniform", s, t, 9, 4).A for s, t in ((0, 0), (0, 1), (1, 0)))
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, c)
    assert np.array_equal(a, projection("linear-uniform", 0, 0, 9, 4).A)


def test_distributions():
    uniform = projection("linear-uniform", 0, 0, 400, 500)
    assert np.abs(uniform.A).max() <= 0.05
    assert np.isclose(uniform.A.std(), 0.05 / np.sqrt(3), rtol=0.01)
    normal = _normal(_words(0, 0), 200_000)
    assert abs(normal.mean()) < 0.01
    assert abs(normal.std() - 1) < 0.01
    assert abs((normal**4).mean() - 3) < 0.1
    assert np.isclose(projection("gaussian", 0, 0, 400, 500).A.std(), 0.05, rtol=0.01)


def test_the_logarithm_is_numpys_to_the_last_bits():
    x = np.random.default_rng(0).uniform(0, 1, 100_000) ** 4 + 1e-300
    assert np.abs(_log(x) / np.log(x) - 1).max() < 1e-15


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_activations_are_torchs(name, kind):
    x = np.linspace(-5, 5, 101, dtype=kind).reshape(1, -1)
    F = torch.nn.functional
    oracle = {
        "none": lambda t: t, "gelu": F.gelu, "relu": F.relu, "leaky-relu": F.leaky_relu,
        "tanh": F.tanh, "hardswish": F.hardswish, "softshrink": F.softshrink,
        "sigmoid": F.sigmoid,
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
