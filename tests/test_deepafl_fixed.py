"""DeepAFL in fixed point: one row gives the same integers everywhere, so totals are equal bits."""

from __future__ import annotations

import numpy as np
import pytest
from problems import absorb, dense, phi_of, report_of, trained

from afltool.errors import InvalidDataError
from afltool.heads import make_head
from afltool.heads.deepafl.layers import EXACT_ROWS, RESIDUAL_BITS, ExactOmega
from afltool.heads.projections import FINER, projection, table, tabled
from afltool.math.blas import unpack
from afltool.math.gram import FixedPoint, encode
from afltool.math.sandwich import LowRank
from afltool.runs.config import RunConfig

C, D, BITS = 4, 6, 9
WAYS = {
    "plain": {},
    "other widths": {"hidden_width": 7},
    "dense Ω": {"width": 3},
    "(89)": {"from_phi0": True},
}


def rows(n=240, seed=0, dim=D):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    centres = np.random.default_rng(99).normal(size=(C, dim))
    x = np.sin(centres[y] + 0.7 * rng.normal(size=(n, dim)))
    return FixedPoint(encode(x, BITS), BITS), y


def begun(dim=D, **options):
    given = {"width": 12, "layers": 3, "compute": "fixed", **options}
    return make_head("deepafl", given).bind(dim, C)


def test_the_sums_are_those_of_integer_arithmetic():
    """Everything again by int64 alone, from the definitions."""
    X, y = rows()
    head = begun(layers=1, fixed_bits=10, activation="gelu")
    bits = 10
    first = tabled(head.features.drawn(0, D, 12), "tanh", BITS, bits)
    tanh, gelu = table("tanh", bits).astype(np.int64), table("gelu", bits).astype(np.int64)

    def looked(values, drawn, entries):
        place = values.astype(np.int64) @ drawn.A.astype(np.int64) + drawn.a.astype(np.int64)
        reach = len(entries) // 2
        k = np.rint(place * drawn.scale).astype(np.int64).clip(-reach, reach)
        return entries[k + reach]

    phi = looked(X.values, first, tanh)
    drawn, whole = projection(0, 0, D, 12).A.astype(float), first.A
    assert np.abs(whole / np.abs(whole).max() - drawn / np.abs(drawn).max()).max() < 1e-9
    found = head.gather([(X, y)])[0]
    assert np.array_equal(unpack(found.arrays["gram"]), phi.T @ phi)
    assert np.array_equal(found.arrays["cross"], phi.T @ np.eye(C, dtype=np.int64)[y])

    head = absorb(head, found)
    F = looked(phi, tabled(head.features.drawn(1, 12, 12), "gelu", bits, bits), gelu)
    found = head.gather([(X, y)])[0]
    assert np.array_equal(unpack(found.arrays["gram"]), F.T @ F)
    R = np.eye(C)[y] - phi * 2.0**-bits @ head.weights[0]
    Rhat = np.rint(R * 2.0**RESIDUAL_BITS).astype(np.int64)
    off = found.arrays["cross"] - F.T @ Rhat  # weights are rounded, too: at a tie R̂ is one off
    assert np.abs(off).max() <= np.abs(F).max() * 3


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_as_near_to_real_ones_as_the_stated_errors_add_up_to(way):
    """For each number: σ and its argument, FΩ; then what the next layer makes of it."""
    X, y = rows()
    options = {"activation": "tanh", "phi0_activation": "tanh", "layers": 2, **WAYS[way]}
    head = trained(begun(**options), X, y)
    o, bits = head.options, head.options.fixed_bits
    exact = make_head("deepafl", {**o.as_dict(), "compute": "float64", "fixed_bits": None})
    exact = exact.bind(D, C).restore(None, head.state_dict())
    unit = 2.0**-bits
    table_error = (1 / 2 + 1 / 2 ** (FINER + 1)) * unit  # |σ'| ≤ 1 for tanh
    first = error = np.full((1, o.widths[0]), table_error)
    for t in range(2):
        B = projection(o.seed, t + 1, *o.widths)
        source = first if o.from_phi0 else error
        hidden = source @ np.abs(B.A).astype(float) + table_error
        error = error + hidden @ np.abs(dense(head.blocks[t])) + unit * (1 / 2 + 1e-3)
        found = phi_of(head, X, t + 1)
        wanted = phi_of(exact, X, t + 1)
        assert (np.abs(found - wanted) <= error).all(), t
        assert np.abs(found - wanted).max() > 0
    scores = error @ np.abs(head.weights[-1])
    assert (np.abs(head.decision_function(X) - exact.decision_function(X)) <= scores * 1.001).all()


def test_a_head_is_as_close_to_a_real_one_as_its_fraction_bits():
    """Trained by itself; the error of its scores is proportional to the step."""
    (X, y), (T, t) = rows(600), rows(1000, seed=1)
    common = {"width": 30, "layers": 3}
    real = trained(begun(compute="float64", **common), X, y)
    told = [p["training_mse"] for p in report_of(real)["phases"] if "training_mse" in p]
    for bits in (8, 11, 14):
        head = trained(begun(fixed_bits=bits, **common), X, y)
        found, wanted = head.decision_function(T), real.decision_function(T)
        assert np.sqrt(((found - wanted) ** 2).mean()) < 8 * 2.0**-bits
        off = (found.argmax(1) == t).mean() - (wanted.argmax(1) == t).mean()
        assert abs(off) < (0.05 if bits == 8 else 0.01)
        mine = [p["training_mse"] for p in report_of(head)["phases"] if "training_mse" in p]
        assert mine == pytest.approx(told, rel=20 * 2.0**-bits)


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e9])
def test_the_products_with_a_learned_layer_are_exact_for_any_scale(scale):
    """Against Python's integers; a row of the largest values reaches the bound, and no further."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(9, 4)) * scale * np.logspace(0, -3, 4)
    U = np.linalg.qr(rng.normal(size=(7, 4)))[0]
    omega = ExactOmega.of(LowRank(Z, U))
    hidden = rng.integers(-32767, 32768, (5, 9)).astype(np.int16)
    hidden[0] = np.where(omega.Z[:, 0] > 0, 32767, -32767)
    inner = [
        [sum(int(f) * int(z) for f, z in zip(row, column, strict=True)) for column in omega.Z.T]
        for row in hidden
    ]
    assert max(abs(n) for row in inner for n in row) <= 2**53
    thin = [[int(np.rint(n * omega.first)) for n in row] for row in inner]
    outer = [
        [sum(p * int(u) for p, u in zip(row, line, strict=True)) for line in omega.U]
        for row in thin
    ]
    assert max(abs(n) for row in outer for n in row) <= 2**53
    wanted = [[float(np.rint(n * omega.second)) for n in row] for row in outer]
    assert np.array_equal(omega.times(hidden), wanted)
    near = hidden @ Z @ U.T
    assert np.abs(omega.times(hidden) - near).max() <= 0.5 + 1e-5 * np.abs(near).max()


def test_values_beyond_the_fixed_point_are_refused_never_clipped():
    X, y = rows()
    phi, F = np.full((2, 12), 30000, np.int16), np.full((2, 12), 20000, np.int16)
    with pytest.raises(InvalidDataError, match=r"Φ_2 of a row reaches 3\.\d+, beyond ±1\.99"):
        begun(fixed_bits=14).features.moved(phi, F, 1, LowRank(np.eye(12)))
    wide = begun(activation="relu", phi0_activation="relu", fixed_bits=14)
    with pytest.raises(InvalidDataError, match=r"before --activation relu .* fewer --fixed-b"):
        wide.gather([(FixedPoint(np.full((2, D), 32767, np.int16), BITS), y[:2])])
    head = begun()
    head = absorb(head, head.gather([(X, y)])[0])
    W = {**head.state_dict(), "weights-0": head.state_dict()["weights-0"] * 1e4}
    with pytest.raises(InvalidDataError, match=r"beyond ±16, .* or larger ridges"):
        head.restore("block-1", W).gather([(X, y)])


def test_long_blocks_are_cut_so_that_products_stay_exact():
    """The largest residuals of more rows than one exact product takes."""
    head = begun(layers=1)
    n = EXACT_ROWS + 5
    F, R = np.full((n, 2), 32767, np.int16), np.full((n, 1), 2.0**24)
    assert head.features.between(F, R).tolist() == [[n * 32767 * 2**24]] * 2


def test_a_run_takes_thin_sums_only_where_rows_are_real_and_the_head_says_its_bits():
    of_data = {"data": "digits", "backbone": "resnet18", "head": "deepafl"}
    assert RunConfig(**of_data).cheaper() == {"incremental": True}
    assert RunConfig(**of_data, compute="fixed").cheaper() == {}
    assert begun().options.as_dict()["fixed_bits"] == 11
    assert "fixed_bits" not in begun(compute="float64").options.as_dict()
