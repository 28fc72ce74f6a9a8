"""Noise: its distribution, its calibration, and what one row can change."""

from __future__ import annotations

import math

import numpy as np
import pytest
from federations import new_roster, statistics_of
from hypothesis import given
from hypothesis import strategies as st
from problems import total
from scipy import integrate, stats

from afltool.errors import CorruptFileError, NumericalError, UsageError
from afltool.math.gram import FixedPoint
from afltool.privacy import accountant, differential, noise
from afltool.privacy.accountant import Block
from afltool.privacy.differential import Noise, noise_of
from afltool.privacy.identity import Identity
from afltool.privacy.terms import Budget, Terms
from afltool.privacy.worth import account
from afltool.values.statistics import Context

KEY = bytes(range(32))

# ---------------------------------------------------------------- the accountant


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("multiplier", [0.5, 2.0, 20.0])
def test_gaussian_delta_is_the_hockey_stick_divergence(epsilon, multiplier):
    """∫ max(0, p − e^ε q) for p = N(0, m²), q = N(1, m²), by numerical integration."""

    def excess(x):
        p, q = stats.norm.pdf(x, 0, multiplier), stats.norm.pdf(x, 1, multiplier)
        return max(0.0, p - math.exp(epsilon) * q)

    edge = 0.5 - epsilon * multiplier**2  # where the two are equal
    wanted = integrate.quad(excess, edge - 40 * multiplier, edge, limit=500)[0]
    assert accountant.gaussian_delta(epsilon, multiplier) == pytest.approx(wanted, rel=1e-6)


def test_calibration_is_the_published_one_and_the_least():
    """Balle and Wang's own program gives σ = 3.730631634815942 for (1, 1e-5)."""
    m = accountant.gaussian_multiplier(1.0, 1e-5)
    assert m == pytest.approx(3.730631634815942, rel=1e-8)
    assert accountant.gaussian_delta(1.0, m) <= 1e-5 < accountant.gaussian_delta(1.0, 0.9999 * m)
    assert m < math.sqrt(2 * math.log(1.25 / 1e-5))  # the classical mechanism needs more


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0, 1e-5), (-1, 1e-5), (1, 0), (1, 1), (np.inf, 0.1)]
)
def test_budgets_that_are_none_are_refused(epsilon, delta):
    with pytest.raises(UsageError, match="privacy budget"):
        accountant.gaussian_multiplier(epsilon, delta)


@given(st.floats(1e-4, 2.0), st.floats(1e-9, 0.01))
def test_concentrated_privacy_is_no_weaker_than_its_classical_bound(rho, delta):
    """Bun and Steinke's ε = ρ + 2√(ρ ln 1/δ) is never below ours, and ours holds."""
    epsilon = accountant.concentrated_epsilon(rho, delta)
    assert epsilon <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert accountant.concentrated_delta(rho, epsilon) <= delta


def test_concentrated_privacy_never_promises_more_than_the_gaussian_keeps():
    """The Gaussian of multiplier m is 1/(2m²)-zCDP: its exact δ is below what zCDP says."""
    for m in (0.7, 3.0, 10.0):
        for epsilon in (0.1, 1.0, 4.0):
            exact = accountant.gaussian_delta(epsilon, m)
            assert exact <= accountant.concentrated_delta(0.5 / m**2, epsilon) * (1 + 1e-9)


def test_small_noise_costs_more_where_it_is_discrete():
    def rho(*sigmas):
        parts = tuple((sigma, 100 // len(sigmas)) for sigma in sigmas)
        return accountant.sum_of_discrete([Block(1 / sigmas[0], parts)], 5)

    assert rho(10.0) == pytest.approx(1 / (2 * 5 * 100), rel=1e-12)
    assert rho(0.6) > 1.01 / (2 * 5 * 0.36)
    assert rho(0.6, 0.6) == pytest.approx(rho(0.6), rel=1e-12)
    assert rho(10.0, 0.6) > rho(10.0)
    assert rho(10.0, 5.0) == pytest.approx(rho(10.0), rel=1e-12)


# ---------------------------------------------------------------- the noise itself


@pytest.mark.parametrize("sigma", [0.4, 1.0, 3.7])
def test_discrete_gaussian_has_its_distribution(sigma):
    found = noise.discrete_gaussian(noise.Bits(KEY), 200_000, sigma)
    k = np.arange(-int(4 * sigma) - 1, int(4 * sigma) + 2)
    wide = np.arange(-200, 201)
    p = np.exp(-(k**2) / (2 * sigma**2)) / np.exp(-(wide**2) / (2 * sigma**2)).sum()
    seen = np.array([(found == x).sum() for x in k])
    keep = p * len(found) > 5
    rest = len(found) - seen[keep].sum(), (1 - p[keep].sum()) * len(found)
    observed, expected = [*seen[keep], rest[0]], [*p[keep] * len(found), rest[1]]
    assert stats.chisquare(observed, expected).pvalue > 1e-6


@pytest.mark.parametrize("draw", [noise.rounded_gaussian, noise.discrete_gaussian])
@pytest.mark.parametrize("sigma", [50.0, 3e9])
def test_wide_noise_is_gaussian_with_the_variance_that_was_asked_for(draw, sigma):
    found = draw(noise.Bits(KEY), 100_000, sigma).astype(float)
    assert abs(found.var() / sigma**2 - 1) < 5 * math.sqrt(2 / len(found))
    assert abs(found.mean()) < 5 * sigma / math.sqrt(len(found))
    assert stats.kstest(found / sigma, "norm").pvalue > 1e-6


def test_noise_of_next_to_nothing_is_nothing():
    for draw in (noise.rounded_gaussian, noise.discrete_gaussian):
        assert not draw(noise.Bits(KEY), 1000, 1e-9).any()


def test_the_same_key_gives_the_same_noise_and_another_one_another():
    draws = [noise.rounded_gaussian(noise.Bits(k), 100, 9.0) for k in (KEY, KEY, bytes(32))]
    assert np.array_equal(draws[0], draws[1])
    assert abs(np.corrcoef(draws[0], draws[2])[0, 1]) < 0.5


def test_uniforms_are_never_0_or_1():
    ends = np.array([0, 2**64 - 1], np.uint64)
    found = Given(ends).uniforms(2)
    assert found.tolist() == [2.0**-53, 1 - 2.0**-53]
    assert np.isfinite(noise._rounded(Given(ends), 2, 1.0)).all()


class Given(noise.Bits):
    """Words that are given, one array a draw."""

    def __init__(self, *draws):
        self._draws = list(draws)

    def words(self, n):
        return self._draws.pop(0)[:n]


def test_every_integer_of_the_tails_can_be_reached():
    """Far out one draw jumps over integers; beside it the second one goes through them all."""
    sigma, n = 5e9, 4000
    steps = np.arange(n, dtype=np.uint64)
    tail = (np.uint64(2**52 - 2**13) + steps) << np.uint64(12)
    alone = noise._rounded(Given(tail), n, sigma)
    assert alone.min() > 6 * sigma
    assert np.diff(alone).min() > 10_000  # the premise
    middle = (np.uint64(2**51) + (steps << np.uint64(18))) << np.uint64(12)
    found = noise.rounded_gaussian(Given(np.full(n, tail[0]), middle), n, sigma)
    assert found.min() > 4 * sigma
    assert np.diff(found).max() == 1


@pytest.mark.parametrize("sigma", [noise.ONE_DRAW, noise.ONE_DRAW * 1.001])
@pytest.mark.parametrize("draw", [noise.rounded_gaussian, noise.discrete_gaussian])
def test_one_draw_and_two_have_one_distribution(draw, sigma):
    found = draw(noise.Bits(KEY), 200_000, sigma)
    k = np.arange(-80, 81)
    p = np.exp(-(k**2) / (2 * sigma**2))
    p, keep = p / p.sum(), np.abs(k) <= 50
    seen = np.array([(found == x).sum() for x in k])
    observed = [*seen[keep], len(found) - seen[keep].sum()]
    expected = [*p[keep] * len(found), (1 - p[keep].sum()) * len(found)]
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_noise_beyond_exact_integers_is_refused():
    with pytest.raises(NumericalError, match="standard deviation"):
        noise.rounded_gaussian(noise.Bits(KEY), 1, 2.0**49)


# ---------------------------------------------------------------- rows


@given(st.integers(0, 2**32), st.integers(1, 40_000))
def test_clipped_rows_are_never_longer(seed, radius):
    rng = np.random.default_rng(seed)
    X = rng.integers(-(2**15) + 1, 2**15, (5, 4)).astype(np.int16)
    found = differential.clip_rows(X, radius).astype(np.int64)
    assert ((found**2).sum(axis=1) <= radius**2).all()
    short = (X.astype(np.int64) ** 2).sum(axis=1) <= radius**2
    assert np.array_equal(found[short], X[short])
    assert (np.abs(found) <= np.abs(X.astype(np.int64))).all()
    assert (found * X.astype(np.int64) >= 0).all()


@given(st.integers(0, 2**32))
def test_one_row_changes_no_more_than_the_sensitivity(seed):
    """x xᵀ in units of its noise, x in its class's column, 1 in its count; equality is reached.

    Noise of 1 on the diagonal and 1/√2 off it costs Σ xᵢ⁴ + 2 Σ_{i<j} xᵢ² xⱼ² = ‖x‖⁴.
    """
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 9))
    made = Noise(1.0, 1e-5, 2.0, 9)
    raw = (rng.standard_normal((1, d)) ** 5 * 3000).clip(-32767, 32767).astype(np.int16)
    x = differential.clip_rows(raw, made.radius).astype(float)[0]
    in_units = (np.outer(x, x) / np.where(np.eye(d), 1, 0.5**0.5))[np.tril_indices(d)]
    assert np.linalg.norm(in_units) == pytest.approx(x @ x, rel=1e-12)
    assert x @ x <= made.sensitivity["gram"]
    assert np.linalg.norm(x) <= made.sensitivity["cross"]


def test_blocks_of_rows_are_clipped_as_they_pass():
    X = FixedPoint(np.array([[3000, 4000]], np.int16), 9)
    blocks = list(Noise(1.0, 1e-5, 2.0, 9).clipped([(X, "labels")]))
    assert np.linalg.norm(blocks[0][0].values) <= 1024
    with pytest.raises(UsageError, match="int16"):
        list(Noise(1.0, 1e-5, 2.0, 9).clipped([(X.values.astype(np.float32), "labels")]))


# ---------------------------------------------------------------- statistics


def known(seed=0, **sizes):
    return statistics_of(np.random.default_rng(seed), **sizes)


@pytest.mark.parametrize("members", [1, 5])
def test_the_noise_has_the_variance_of_the_calibration_and_keeps_the_budget(members):
    made = Noise(1.0, 1e-5, 2.0, 9, members)
    one = known(d=60, classes=5)
    noisy = made.added(one, KEY)
    sigma = noisy.context.noise["sigma"]
    budget = 0.0
    added = {k: (noisy.arrays[k] - one.arrays[k]).astype(float) for k in ("gram", "cross")}
    diagonal = np.cumsum(np.arange(1, 61)) - 1
    for name, difference in (
        ("gram", added["gram"][diagonal]),
        ("gram_off_diagonal", np.delete(added["gram"], diagonal)),
        ("cross", added["cross"]),
    ):
        error = 5 * math.sqrt(2 / difference.size)
        assert abs(difference.var() / sigma[name] ** 2 - 1) < error, name
    assert sigma["gram_off_diagonal"] == pytest.approx(sigma["gram"] / math.sqrt(2), rel=1e-15)
    for name, delta in made.sensitivity.items():
        budget += (delta / sigma[name]) ** 2 / members
    multiplier = 1 / math.sqrt(budget)
    if members == 1:
        assert accountant.gaussian_delta(1.0, multiplier) == pytest.approx(1e-5, rel=1e-6)
    else:
        rho = noisy.context.noise["rho"]
        assert rho == pytest.approx(0.5 / multiplier**2, rel=1e-9)
        assert accountant.concentrated_delta(rho, 1.0) == pytest.approx(1e-5, rel=1e-6)
        assert made.added(one, bytes(32)).digest() != noisy.digest()


def test_distributed_noise_is_smaller_at_each_client_and_about_the_same_in_the_sum():
    sizes = {"gram": 1830, "cross": 300, "class_counts": 5}
    local = Noise(1.0, 1e-5, 2.0, 9).sigmas(sizes)
    each = Noise(1.0, 1e-5, 2.0, 9, 100).sigmas(sizes)
    for name in sizes:
        in_sum = each[name] * 10
        assert local[name] < in_sum < 1.2 * local[name]  # zCDP costs 8 % here


def test_class_counts_do_not_make_the_gram_noisier():
    """Noise of class counts narrower than 1 would; it is widened where that helps."""
    sizes = {"gram": 819_840, "cross": 12_800, "class_counts": 10}
    made = Noise(16.0, 1e-5, 40.0, 9, 67)
    each = made.sigmas(sizes)
    assert each["class_counts"] == 2.0
    rho = made.rho(each, sizes, 67)
    assert accountant.concentrated_delta(rho, 16.0) == pytest.approx(1e-5, rel=1e-6)
    gaussian = Noise(16.0, 1e-5, 40.0, 9).sigmas(sizes)
    assert each["gram"] * math.sqrt(67) < 1.2 * gaussian["gram"]


def test_statistics_with_noise_add_only_to_the_like():
    one, two = known(0), known(1)
    made = Noise(1.0, 1e-5, 2.0, 9)
    total([made.added(one, KEY), made.added(two, bytes(32))])
    with pytest.raises(Exception, match=r"noise\.epsilon is 2"):
        total([made.added(one, KEY), Noise(2.0, 1e-5, 2.0, 9).added(two, KEY)])
    with pytest.raises(Exception, match="noise"):
        total([made.added(one, KEY), two])
    assert "noise" not in Context().as_dict()


def test_without_noise_nothing_changes_as_epsilon_grows():
    one = known()
    for members in (1, 3):
        assert Noise(1e300, 1e-5, 2.0, 9, members).added(one, KEY).digest() == one.digest()


@pytest.mark.parametrize(
    ("head", "what"),
    [
        (("linear", "gram", {"intercept": True}, "int16"), "intercept"),
        (("softmax", "gram", {}, "int16"), "a softmax head"),
        (("deepafl", "weights-0", {}, "int16"), "weights-0"),
        (("safle", "codes", {}, "int16"), "not derived"),
        (("linear", "gram", {}, "float32"), "int16"),
    ],
)
def test_what_is_not_derived_is_refused(head, what):
    differential.check_head("linear", "gram", {"intercept": False}, "int16")
    with pytest.raises(UsageError, match=what):
        differential.check_head(*head)


@pytest.mark.parametrize("members", [1, 3, 67])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 64.0])
def test_an_edited_budget_is_not_what_its_sigma_gives(members, epsilon):
    sizes = {"gram": 2080, "cross": 640, "class_counts": 10}
    facts = Noise(epsilon, 1e-5, 2.0, 9, members).facts(sizes)
    account(facts, 70, 9, sizes)
    for field, factor in (("epsilon", 0.9), ("clip", 1.1), ("delta", 0.1)):
        edited = {**facts, field: facts[field] * factor}
        with pytest.raises(CorruptFileError, match=r"but its σ gives ε = "):
            account(edited, 70, 9, sizes)


# ---------------------------------------------------------------- AdaSSP's ridge


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 2.0, 3.7, 60.0, 1e5])
def test_a_discrete_gaussian_goes_with_a_gaussian_within_two(sigma):
    """P(G > k + 2) ≤ P(X > k) ≤ P(G > k): drawn by one uniform number, they differ by 2."""
    reach = int(12 * sigma) + 3
    step = max(1, reach // 2000)
    k = np.arange(0, reach)[::-1]
    p = np.exp(-(k.astype(float) ** 2) / (2 * sigma**2))
    tail = np.cumsum(p) - p
    beyond = (tail / (2 * p.sum() - 1))[::-1][::step]
    at = np.arange(0, reach)[::step]
    assert (beyond <= stats.norm.sf(at / sigma) * (1 + 1e-9) + 1e-30).all()
    assert (beyond >= stats.norm.sf((at + 2) / sigma) * (1 - 1e-9) - 1e-30).all()


@pytest.mark.parametrize("off", [5e4 / math.sqrt(2), 5e4])
def test_the_bound_of_the_noise_holds_and_is_close(off):
    """The norm of d × d noise is near s √(2d); an entry off the diagonal stands for two."""
    rng, d = np.random.default_rng(1), 60
    bound = differential.noise_bound(d, 5e4, off, 3)
    norms = []
    for _ in range(100):
        N = sum(np.tril(rng.normal(0, off, (d, d)), -1) for _ in range(3))
        N += N.T + np.diag(rng.normal(0, 5e4 * math.sqrt(3), d))
        norms.append(np.abs(np.linalg.eigvalsh(np.rint(N))[[0, -1]]).max())
    assert max(norms) < bound < 1.7 * np.mean(norms)
    assert differential.noise_bound(d, 0.01, 0.01, 3) == 0


def test_adassp_is_zero_without_noise_and_bounds_the_noise_with_it():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 20))
    assert differential.adassp_ridge(X.T @ X, 0.0) == 0.0
    N = np.triu(rng.standard_normal((20, 20))) * 5.0
    N = N + np.triu(N, 1).T
    bound = differential.noise_bound(20, 5.0, 5.0, 1)
    ridge = differential.adassp_ridge(N, bound)
    assert ridge >= np.abs(np.linalg.eigvalsh(N)).max()
    strong = differential.adassp_ridge(1e6 * np.eye(20) + N, bound)
    assert strong == 0.0


def test_the_accountant_says_what_more_clients_than_needed_bring():
    sizes = {"gram": 28, "cross": 21, "class_counts": 3}
    facts = Noise(1.0, 1e-5, 2.0, 9, 4).facts(sizes)
    assert "(ε = 1, δ = 1e-05)" in account(facts, 4, 9, sizes)
    better = accountant.concentrated_epsilon(facts["rho"] / 2, 1e-5)
    assert f"(ε = {better:.4g}, " in account(facts, 8, 9, sizes)
    assert "that of 4 together" in account(facts, 3, 9, sizes)


@pytest.mark.parametrize(("threshold", "colluding"), [(3, 0), (4, 0), (5, 2)])
def test_noise_is_enough_against_a_member_that_knows_its_own(threshold, colluding):
    """Only t members stay. One of them, and those that tell it theirs, subtract their noise."""
    sizes = {"gram": 28, "cross": 21, "class_counts": 3}
    members = [Identity.new(f"site-{i}").member for i in range(threshold + 1)]
    terms = Terms("masked", Budget(1.0, 1e-5, 2.0))
    agreed = new_roster(members, threshold, terms=terms, colluding=colluding)
    bound = {"name": "linear", "phase": "gram", "options": {}}
    space = {"dtype": "int16", "fraction_bits": 9}
    sigma = noise_of(terms.noise, bound, space, agreed).facts(sizes)["sigma"]
    left = threshold - 1 - colluding
    change = {"gram": 1024.0**2, "cross": 1024.0, "class_counts": 1.0}
    parts = [Block(change[k] / sigma[k], ((sigma[k], n),)) for k, n in sizes.items()]
    rho = accountant.sum_of_discrete(parts, left)
    assert accountant.concentrated_epsilon(rho, 1e-5) == pytest.approx(1.0, rel=1e-6)
    assert f"ε = {1:.4g}. It was" in account(
        noise_of(terms.noise, bound, space, agreed).facts(sizes), threshold, 9, sizes
    )
    with pytest.raises(UsageError, match=r"noise shared under masks needs a threshold"):
        new_roster(members[:3], 2, terms=terms)
    assert new_roster(members[:4], terms=terms, colluding=1).threshold == 4
