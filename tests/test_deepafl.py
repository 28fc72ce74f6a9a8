"""DeepAFL: the layers against the paper's formulas and theorems, over memory and over files."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import dense
from rounds_of_heads import absorb, report_of

from afltool.heads import make_head
from afltool.heads.deepafl.options import PRESETS
from afltool.heads.options import ACTIVATIONS
from afltool.heads.projections import activate, projection
from afltool.memory import Remembered
from afltool.options.partition import PartitionOptions
from afltool.partitions.dealing import assign
from afltool.values.statistics import Sum

C, D = 4, 6


def rows(n=200, seed=0, dim=D):
    """Classes that no linear head can tell apart quite."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    centres = np.random.default_rng(99).normal(size=(C, dim))
    return np.sin(centres[y] + 0.7 * rng.normal(size=(n, dim))), y


def fitted(X, y, owner=None, **options):
    """The solved head of clients that keep their intermediate results."""
    options = {"width": 12, "layers": 3, "compute": "float64", **options}
    head = make_head("deepafl", options).bind(X.shape[1], C)
    owner = np.zeros(len(y), int) if owner is None else owner
    parts = [(X[owner == k], y[owner == k]) for k in range(owner.max() + 1)]
    carried = [Remembered() for _ in parts]
    while head.phase() is not None:
        running = None
        for k, (x, labels) in enumerate(parts):
            one, carried[k] = head.gather([(x, labels)], carried=carried[k])
            running = Sum(one) if running is None else running.add(one)
        head = absorb(head, running.result())
    return head


def layered(X, y, T, seed, lam, gamma, sigma, sigma0, width=12, hidden=12):
    """The paper's algorithm 1 on pooled rows, dense, by (17) written out naively."""
    Y = np.eye(C)[y]
    phi = activate(sigma0, projection("linear-uniform", seed, 0, X.shape[1], width)(X))
    found = []
    for t in range(T + 1):
        W = np.linalg.solve(phi.T @ phi + lam * np.eye(width), phi.T @ Y)
        found.append(W)
        if t == T:
            return phi, found
        F = activate(sigma, projection("linear-uniform", seed, t + 1, width, hidden)(phi))
        system = np.kron(W @ W.T, F.T @ F) + gamma * np.eye(hidden * width)
        target = (F.T @ (Y - phi @ W) @ W.T).reshape(-1, order="F")
        phi = phi + F @ np.linalg.solve(system, target).reshape(hidden, width, order="F")
    raise AssertionError


@pytest.mark.parametrize("hidden", [12, 9, 15])
def test_it_is_the_papers_algorithm(hidden):
    X, y = rows()
    head = fitted(X, y, hidden_width=hidden, ridge=0.5, block_ridge=0.2, seed=3)
    phi, expected = layered(X, y, 3, 3, 0.5, 0.2, "gelu", "tanh", hidden=hidden)
    for W, wanted in zip(head.weights, expected, strict=True):
        assert np.allclose(W, wanted, rtol=1e-7, atol=1e-9)
    assert np.allclose(head.scores(X), phi @ expected[-1], rtol=1e-8, atol=1e-9)
    *_, (_, last) = head.round_scores(X)
    assert np.array_equal(last, head.scores(X))


def test_the_phases_in_order():
    X, y = rows()
    rounds = report_of(fitted(X, y))["phases"]
    names = ["weights-0", "block-1", "weights-1", "block-2", "weights-2", "block-3", "weights-3"]
    assert [r["phase"] for r in rounds] == names
    triangle, cross = 12 * 13 // 2, 12 * C
    assert all(r["upload_bytes"] == 8 * (triangle + cross) for r in rounds)
    assert [r["download_bytes"] for r in rounds][:2] == [8 * 12 * C, 8 * 24 * C]


SCHEMES = [
    ("iid", 1, {}),
    ("iid", 10, {}),
    ("shards", 10, {"shards_per_client": 2}),
    ("dirichlet", 10, {"alpha": 0.01}),
    pytest.param("dirichlet", 1000, {"alpha": 0.01}, marks=pytest.mark.slow),
]


@pytest.fixture(scope="module")
def pooled():
    X, y = rows(1200)
    return X, y, fitted(X, y, layers=20), fitted(X, y, layers=20, compute="float32")


def owners(y, scheme, clients, more):
    ids = np.array([f"{i:05d}" for i in range(len(y))], dtype="S")
    return assign(
        ids, y, C, PartitionOptions(scheme=scheme, clients=clients, seed=1, **more)
    ).client


@pytest.mark.parametrize(("scheme", "clients", "more"), SCHEMES)
def test_theorem_1_the_weights_do_not_depend_on_the_partition(pooled, scheme, clients, more):
    X, y, whole, _ = pooled
    head = fitted(X, y, owners(y, scheme, clients, more), layers=20)
    for mine, theirs in zip(head.weights, whole.weights, strict=True):
        assert np.abs(mine - theirs).max() < 1e-7 * np.abs(theirs).max()
    for ours, others in zip(head.blocks, whole.blocks, strict=True):
        gap = np.abs(dense(ours) - dense(others)).max()
        assert gap < 1e-7 * np.abs(dense(others)).max()


@pytest.mark.parametrize(("scheme", "clients", "more"), SCHEMES[:-1])
def test_in_float32_the_predictions_do_not(pooled, scheme, clients, more):
    X, y, double, whole = pooled
    T, _ = rows(3000, seed=5)
    expected = whole.scores(T).argmax(1)
    head = fitted(X, y, owners(y, scheme, clients, more), layers=20, compute="float32")
    assert (head.scores(T).argmax(1) == expected).mean() >= 0.999
    assert (double.scores(T).argmax(1) == expected).mean() >= 0.995


problems = st.tuples(st.integers(5, 40), st.integers(1, 5), st.integers(0, 999))
many = settings(max_examples=25, deadline=None, derandomize=True)


def rounding(head, X):
    """How far rounding may move ‖Y − ΦW‖²/n when it comes from ΦᵀΦ, whose W may be huge.

    tr(WᵀGW) is off by about d·ε·‖G‖‖W‖², and so is the risk of a W whose system is solved
    backward stably and has a condition number below 1/(d·ε).
    """
    bounds = []
    for t, W in enumerate(head.weights):
        phi = head.state(X, t)["phi"]
        bounds.append(len(W) * np.finfo(float).eps * (phi**2).sum() * (W**2).sum() / len(X))
    return 10 * max(bounds)


@many
@given(problems, st.integers(1, 9), st.sampled_from(["gelu", "relu", "tanh"]))
def test_theorem_2_without_ridges_the_risk_never_rises(problem, width, activation):
    n, dim, seed = problem
    X, y = rows(n, seed, dim)
    head = fitted(
        X, y, width=width, ridge=0.0, block_ridge=0.0, min_norm=True, activation=activation
    )
    risks = [r["training_mse"] for r in report_of(head)["phases"] if "training_mse" in r]
    room = 1e-9 + rounding(head, X)
    assert all(b <= a + room for a, b in pairwise(risks)), (risks, room)


@many
@given(problems, st.integers(1, 9), st.floats(1e-3, 10), st.floats(1e-3, 10))
def test_theorem_3_with_ridges_the_penalised_risk_never_rises(problem, width, lam, gamma):
    n, dim, seed = problem
    X, y = rows(n, seed, dim)
    head = fitted(X, y, width=width, ridge=lam, block_ridge=gamma)
    objective = [r["objective"] for r in report_of(head)["phases"] if "objective" in r]
    assert all(b <= a * (1 + 1e-10) for a, b in pairwise(objective))


def test_the_report_is_the_risk_of_the_rows_themselves():
    X, y = rows()
    head = fitted(X, y)
    found = [r["training_mse"] for r in report_of(head)["phases"] if "training_mse" in r]
    for t, (_, scores) in enumerate(head.round_scores(X)):
        assert np.isclose(((np.eye(C)[y] - scores) ** 2).sum() / len(y), found[t], rtol=1e-9)


ABLATIONS = {
    "no skip": {"no_skip": True},
    "B = I": {"identity_projection": True},
    "no activation": {"activation": "none"},
    "Ω = I": {"identity_omega": True},
    "Ω random": {"random_omega": True},
    "bias of A": {"bias": "first"},
    "bias of B": {"bias": "layers"},
    "variant (89)": {"from_phi0": True},
    "gaussian": {"projection": "gaussian"},
    "seed": {"seed": 1},
    "Φ_0": {"phi0_activation": "gelu"},
    "γ": {"block_ridge": 0.5},
    "reconstruction (88)": {"reconstruction": 0.5},
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_change_the_layers_and_only_some_the_beginning(name):
    X, y = rows()
    plain, changed = fitted(X, y), fitted(X, y, **ABLATIONS[name])
    begins_otherwise = name in ("gaussian", "seed", "Φ_0", "bias of B")
    one, other = plain.weights, changed.weights
    assert np.array_equal(one[0], other[0]) != begins_otherwise
    first_is_the_same = begins_otherwise or name == "variant (89)"  # whose first layer is no other
    assert np.array_equal(one[1], other[1]) == (name == "variant (89)")
    assert first_is_the_same or not np.allclose(one[1], other[1])
    assert not np.allclose(one[2], other[2])


def test_ablations_are_what_they_say():
    X, y = rows()
    phi0 = activate("tanh", projection("linear-uniform", 0, 0, D, 12)(X))

    def phi(head, t):
        state = head.state(X, t)
        return state["phi"]

    def hidden(source, t):
        return activate("gelu", projection("linear-uniform", 0, t + 1, 12, 12)(source))

    no_skip = fitted(X, y, no_skip=True)
    assert np.allclose(phi(no_skip, 1), hidden(phi0, 0) @ dense(no_skip.blocks[0]))
    F, W = hidden(phi0, 0), no_skip.weights[0]
    system = np.kron(W @ W.T, F.T @ F) + 0.1 * np.eye(12 * 12)  # vec Ω of min ‖Y − FΩW‖² + γ‖Ω‖²
    target = (F.T @ np.eye(C)[y] @ W.T).reshape(-1, order="F")
    omega = np.linalg.solve(system, target).reshape(12, 12, order="F")
    assert np.allclose(dense(no_skip.blocks[0]), omega, rtol=1e-7, atol=1e-9)
    identity = fitted(X, y, identity_projection=True)
    step = activate("gelu", phi0.copy()) @ dense(identity.blocks[0])
    assert np.allclose(phi(identity, 1), phi0 + step)
    omega = fitted(X, y, identity_omega=True)
    assert np.allclose(phi(omega, 1), phi0 + hidden(phi0, 0))
    assert [r["phase"] for r in report_of(omega)["phases"]] == [f"weights-{t}" for t in range(4)]
    frozen = fitted(X, y, random_omega=True)
    drawn = projection("linear-uniform", 0, 2**33, 12, 12).A.astype(float)
    assert np.allclose(phi(frozen, 1), phi0 + hidden(phi0, 0) @ drawn)
    assert [r["phase"] for r in report_of(frozen)["phases"]] == [f"weights-{t}" for t in range(4)]
    variant = fitted(X, y, from_phi0=True)
    first, second, _ = (dense(omega) for omega in variant.blocks)
    step = hidden(phi0, 0) @ first + hidden(phi0, 1) @ second
    assert np.allclose(phi(variant, 2), phi0 + step)


@pytest.mark.parametrize("bias", ["first", "layers", "none"])
def test_a_bias_may_be_of_a_or_of_the_layers_alone(bias):
    """Φ_0 = σ_0(XA + a) and F_0 = σ(Φ_0 B + b), of which --bias leaves some without a or b."""
    X, y = rows()
    head = fitted(X, y, bias=bias)
    first, layer = (projection("linear-uniform", 0, t, n, 12) for t, n in ((0, D), (1, 12)))
    a = first.a if bias == "first" else 0.0
    b = layer.a if bias == "layers" else 0.0
    phi0 = np.tanh(X @ first.A.astype(float) + a)
    F = activate("gelu", phi0 @ layer.A.astype(float) + b)
    assert np.allclose(head.state(X, 0)["phi"], phi0)
    assert np.allclose(head.state(X, 1)["phi"], phi0 + F @ dense(head.blocks[0]))


@pytest.mark.parametrize("more", [{}, {"reconstruction": 0.3}])
def test_without_the_skip_connection_more_layers_do_no_harm(more):
    """Φ_{t+1} = F_t Ω takes the place of Φ_t: the accuracy stays as it was, or rises."""
    X, y = rows(400)
    head = fitted(X, y, no_skip=True, layers=6, ridge=0.01, block_ridge=0.01, **more)
    right = [(scores.argmax(1) == y).mean() for _, scores in head.round_scores(X)]
    assert right[0] > 0.8, "the premise: there is something to lose"
    assert min(right[1:]) > right[0] - 0.02, right


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_goes_all_the_way(activation):
    X, y = rows()
    head = fitted(X, y, activation=activation, phi0_activation=activation)
    assert (head.scores(X).argmax(1) == y).mean() > 0.5


def test_zero_layers_are_one_round():
    X, y = rows()
    assert len(report_of(fitted(X, y, layers=0))["phases"]) == 1


def test_the_ridge_of_each_layer_can_be_chosen():
    X, y = rows()
    head = fitted(X, y, ridge="auto")
    chosen = [r for r in report_of(head)["phases"] if "ridge" in r]
    assert all(r["ridge_by"] == "generalised cross-validation" for r in chosen)


def test_presets_and_defaults():
    given = make_head("deepafl", {"preset": "cifar10"}).options
    assert (given.ridge, given.block_ridge, given.layers) == (10.0, 0.1, 20)
    assert make_head("deepafl", {"preset": "released-script"}).options.layers == 20
    assert make_head("deepafl", {"preset": "cifar10", "ridge": "3"}).options.ridge == 3.0
    for name in PRESETS:
        made = make_head("deepafl", {"preset": name})
        again = make_head("deepafl", made.options.as_dict())
        assert again.options == made.options
        assert again.digest() == made.digest()
    spelled = make_head("deepafl", {"ridge": 10.0, "block_ridge": 0.1, "layers": 20})
    assert spelled.digest() == make_head("deepafl", {"preset": "cifar10"}).digest()
