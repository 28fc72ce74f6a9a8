"""DeepAFL: layers against the paper's formulas and theorems; layers chosen by held-out clients."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import absorb, dense, drawn, gelu, phi_of, report_of, sums, total, trained

from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.heads import make_head
from afltool.heads.deepafl.layers import EXACT_ROWS, OF_LABELS, RESIDUAL_BITS, ExactOmega
from afltool.heads.deepafl.options import PRESETS
from afltool.heads.projections import FINER, activate, projection, table, tabled
from afltool.math.blas import unpack
from afltool.math.gram import FixedPoint, encode
from afltool.math.sandwich import LowRank
from afltool.memory import NOTHING, Carried
from afltool.options.partition import PartitionOptions
from afltool.partitions.assignment import assign
from afltool.runs.config import RunConfig
from afltool.values.statistics import Client, ClientId

C, D, BITS = 4, 6, 9


def rows(n=200, seed=0, dim=D):
    """Classes that no linear head can tell apart quite."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    centres = np.random.default_rng(99).normal(size=(C, dim))
    return np.sin(centres[y] + 0.7 * rng.normal(size=(n, dim))), y


def fitted(X, y, owner=None, held=(), until=None, **options):
    """The head of clients that keep their intermediate results, solved or before ``until``."""
    given = {"width": 12, "layers": 3, "compute": "float64", **options}
    head = make_head("deepafl", given).bind(X.shape[1], C)
    owner = np.zeros(len(y), int) if owner is None else owner
    carried = [Carried() for _ in range(owner.max() + 1)]
    while head.phase() != until:
        head = absorb(
            head, gathered_by(head, X, y, owner, carried), sums(head, *held) if held else None
        )
    return head


def gathered_by(head, X, y, owner, carried):
    parts = []
    for k in range(owner.max() + 1):
        blocks, who = [(X[owner == k], y[owner == k])], {ClientId(f"c{k}"): Client(0)}
        one, carried[k] = head.gather(blocks, who, carried[k])
        parts.append(one)
    return total(parts)


def told(head, name):
    """A figure of the rounds that have it."""
    return [one[name] for one in report_of(head)["phases"] if name in one]


def layered(X, y, T, lam, gamma, seed=0, hidden=12, width=12, share=0.0):
    """Algorithm 1 on pooled rows, dense: (2), (6), (9); Ω by (17), or (88), as one least-squares
    problem in vec(Ω); the objective (65) of theorem 3.

    Φ_T, every W_t and the objective after each.
    """
    Y, found, penalty, objectives = np.eye(C)[y], [], 0.0, []
    phi0 = np.tanh(drawn(X, 0, width, seed))
    phi = phi0.copy()
    for t in range(T + 1):
        inverse = np.linalg.inv(phi.T @ phi + lam * np.eye(width))
        W, Q = inverse @ phi.T @ Y, inverse @ phi.T @ phi0
        found.append(W)
        objectives.append(((Y - phi @ W) ** 2).sum() + lam * (W**2).sum() + penalty)
        if t == T:
            return phi, found, objectives
        F = gelu(drawn(phi, t + 1, hidden, seed))
        a, b = np.sqrt(1 - share), np.sqrt(share)
        A = np.vstack([a * np.kron(W.T, F), b * np.kron(Q.T, F)])
        left = [a * (Y - phi @ W), b * (phi0 - phi @ Q)]
        r = np.concatenate([one.reshape(-1, order="F") for one in left])
        omega = np.linalg.solve(A.T @ A + gamma * np.eye(hidden * width), A.T @ r)
        phi, penalty = (
            phi + F @ omega.reshape(hidden, width, order="F"),
            penalty + gamma * omega @ omega,
        )
    raise AssertionError


@pytest.mark.parametrize("hidden", [12, 9, 15])
def test_it_is_the_papers_algorithm(hidden):
    X, y = rows()
    head = fitted(X, y, hidden_width=hidden, ridge=0.5, block_ridge=0.2, seed=3)
    phi, expected, objectives = layered(X, y, 3, 0.5, 0.2, 3, hidden)
    for W, wanted in zip(head.weights, expected, strict=True):
        assert np.allclose(W, wanted, rtol=1e-7, atol=1e-9)
    assert np.allclose(head.decision_function(X), phi @ expected[-1], rtol=1e-8, atol=1e-9)
    scores = [one for _, one in head.round_scores(X)]
    assert np.array_equal(scores[-1], head.decision_function(X))
    risks = [((np.eye(C)[y] - one) ** 2).sum() / len(y) for one in scores]
    assert np.allclose(told(head, "training_mse"), risks, rtol=1e-9)
    assert np.allclose(told(head, "objective"), objectives, rtol=1e-9)


@pytest.mark.parametrize("hidden", [12, 9])
def test_reconstruction_is_88_layer_by_layer(hidden):
    X, y = rows(120)
    options = {"layers": 2, "hidden_width": hidden, "ridge": 0.5, "block_ridge": 0.2}
    head = fitted(X, y, reconstruction=0.4, **options)
    phi, W, _ = layered(X, y, 2, 0.5, 0.2, hidden=hidden, share=0.4)
    assert np.allclose(head.decision_function(X), phi @ W[-1], rtol=1e-7, atol=1e-8)
    assert not np.allclose(head.decision_function(X), fitted(X, y, **options).decision_function(X))


def test_the_phases_in_order():
    """With rows, clients and bytes of every round; of no layers there is one."""
    X, y = rows()
    rounds = report_of(fitted(X, y, hidden_width=7))["phases"]
    names = ["weights-0", "block-1", "weights-1", "block-2", "weights-2", "block-3", "weights-3"]
    assert [r["phase"] for r in rounds] == names
    for one in rounds:
        side = 12 if one["phase"].startswith("weights") else 7
        assert (one["rows"], one["clients"]) == (len(y), 1)
        assert one["upload_bytes"] == 8 * (side * (side + 1) // 2 + side * C)
        assert one["download_bytes"] == 8 * (12 * C if side == 12 else (12 + 7) * C)
    assert len(report_of(fitted(X, y, layers=0))["phases"]) == 1
    chosen = told(fitted(X, y, ridge="auto"), "ridge_by")
    assert chosen == ["generalised cross-validation"] * 4


def test_theorem_1_the_weights_do_not_depend_on_the_partition():
    """Of 20 layers; in float32 the predictions do not."""
    (X, y), (T, _) = rows(600), rows(3000, seed=5)
    ids = np.array([f"{i:05d}" for i in range(len(y))], dtype="S")
    shards = PartitionOptions(scheme="shards", clients=10, seed=1, shards_per_client=2)
    skewed = PartitionOptions(scheme="dirichlet", clients=10, seed=1, alpha=0.01)
    owners = [None, *(assign(ids, y, C, how).client for how in (shards, skewed))]
    whole, *others = (fitted(X, y, owner, layers=20) for owner in owners)
    for head in others:
        for mine, theirs in zip(head.weights, whole.weights, strict=True):
            assert np.abs(mine - theirs).max() < 1e-7 * np.abs(theirs).max()
        for ours, all_ in zip(map(dense, head.blocks), map(dense, whole.blocks), strict=True):
            assert np.abs(ours - all_).max() < 1e-7 * np.abs(all_).max()
    single = {"layers": 20, "compute": "float32"}
    heads = whole, fitted(X, y, **single), fitted(X, y, owners[2], **single)
    double, pooled, apart = (head.decision_function(T).argmax(1) for head in heads)
    assert (apart == pooled).mean() >= 0.999
    assert (double == pooled).mean() >= 0.995


problems = st.tuples(st.integers(5, 40), st.integers(1, 5), st.integers(0, 999))
many = settings(max_examples=25, deadline=None, derandomize=True)


def rounding(head, X):
    """How far rounding may move ‖Y − ΦW‖²/n when it comes from ΦᵀΦ, whose W may be huge.

    tr(WᵀGW) is off by about d·ε·‖G‖‖W‖², and so is the risk of a W whose system is solved
    backward stably and has a condition number below 1/(d·ε).
    """
    bounds = []
    for t, W in enumerate(head.weights):
        phi = phi_of(head, X, t)
        bounds.append(len(W) * np.finfo(float).eps * (phi**2).sum() * (W**2).sum() / len(X))
    return 10 * max(bounds)


@many
@given(problems, st.integers(1, 9), st.sampled_from(["gelu", "relu", "tanh"]))
def test_theorem_2_without_ridges_the_risk_never_rises(problem, width, activation):
    n, dim, seed = problem
    X, y = rows(n, seed, dim)
    none = {"ridge": 0.0, "block_ridge": 0.0, "min_norm": True}
    head = fitted(X, y, width=width, activation=activation, **none)
    risks, room = told(head, "training_mse"), 1e-9 + rounding(head, X)
    assert all(b <= a + room for a, b in pairwise(risks)), (risks, room)


@many
@given(problems, st.integers(1, 9), st.floats(1e-3, 10), st.floats(1e-3, 10))
def test_theorem_3_with_ridges_the_penalised_risk_never_rises(problem, width, lam, gamma):
    n, dim, seed = problem
    X, y = rows(n, seed, dim)
    head = fitted(X, y, width=width, ridge=lam, block_ridge=gamma)
    assert all(b <= a * (1 + 1e-10) for a, b in pairwise(told(head, "objective")))


def test_ablations_are_what_they_say():
    X, y = rows()
    phi0 = activate("tanh", projection(0, 0, D, 12)(X))

    def hidden(source, t):
        return activate("gelu", projection(0, t + 1, 12, 12)(source))

    no_skip = fitted(X, y, no_skip=True)
    assert np.allclose(phi_of(no_skip, X, 1), hidden(phi0, 0) @ dense(no_skip.blocks[0]))
    F, W = hidden(phi0, 0), no_skip.weights[0]
    system = np.kron(W @ W.T, F.T @ F) + 0.1 * np.eye(12 * 12)  # vec Ω of min ‖Y − FΩW‖² + γ‖Ω‖²
    target = (F.T @ np.eye(C)[y] @ W.T).reshape(-1, order="F")
    omega = np.linalg.solve(system, target).reshape(12, 12, order="F")
    assert np.allclose(dense(no_skip.blocks[0]), omega, rtol=1e-7, atol=1e-9)
    identity = fitted(X, y, identity_projection=True)
    step = activate("gelu", phi0.copy()) @ dense(identity.blocks[0])
    assert np.allclose(phi_of(identity, X, 1), phi0 + step)
    random = projection(0, 2**33, 12, 12).A.astype(float)
    for name, Omega in (("identity_omega", np.eye(12)), ("random_omega", random)):
        head = fitted(X, y, **{name: True})
        assert np.allclose(phi_of(head, X, 1), phi0 + hidden(phi0, 0) @ Omega)
        assert [r["phase"] for r in report_of(head)["phases"]] == [f"weights-{t}" for t in range(4)]
    variant = fitted(X, y, from_phi0=True)
    first, second, _ = (dense(omega) for omega in variant.blocks)
    assert np.allclose(
        phi_of(variant, X, 2), phi0 + hidden(phi0, 0) @ first + hidden(phi0, 1) @ second
    )


@pytest.mark.parametrize("bias", ["first", "layers", "none"])
def test_a_bias_may_be_of_a_or_of_the_layers_alone(bias):
    """Φ_0 = σ_0(XA + a) and F_0 = σ(Φ_0 B + b), of which --bias leaves some without a or b."""
    X, y = rows()
    head = fitted(X, y, bias=bias)
    first, layer = (projection(0, t, n, 12) for t, n in ((0, D), (1, 12)))
    phi0 = np.tanh(X @ first.A.astype(float) + (first.a if bias == "first" else 0.0))
    b = layer.a if bias == "layers" else 0.0
    F = activate("gelu", phi0 @ layer.A.astype(float) + b)
    assert np.allclose(phi_of(head, X, 0), phi0)
    assert np.allclose(phi_of(head, X, 1), phi0 + F @ dense(head.blocks[0]))


@pytest.mark.parametrize("encoded", [False, True])
def test_linear_layers_change_nothing_without_a_ridge(encoded):
    """Least squares of Y on any invertible map of its own fit is that fit."""
    X, y = rows()
    how = {"ridge": 0, "min_norm": True, "bias": "none", "hidden_width": 9}
    head = fitted(X, y, deepening="cascade", label_encoding=encoded, **how)
    first, *others = (found for _, found in head.round_scores(X))
    assert len(others) == 3
    for one in others:
        assert np.allclose(one, first, atol=1e-9)
    bent = fitted(X, y, deepening="activated-cascade", **how)
    assert not np.allclose(bent.decision_function(X), first, atol=1e-3)


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


# ---------------------------------------------------------------- other strategies (E.3.7)


FOUR = [
    {"deepening": deepening, "label_encoding": encoded}
    for deepening in ("cascade", "activated-cascade")
    for encoded in (False, True)
]


def cascaded(X, y, T, lam, *, deepening, label_encoding, seed=3, coded=9):
    """Every W_t of pooled rows; the layers are solved for Y Q_t itself, as the text has it."""
    Y, made = np.eye(C)[y], partial(projection, seed)
    phi, found = activate("tanh", made(0, D, 12)(X)), []
    for t in range(T + 1):
        system = phi.T @ phi + lam * np.eye(12)
        found.append(np.linalg.solve(system, phi.T @ Y))
        Q = made(OF_LABELS + t, C, coded).A.astype(float) if label_encoding else np.eye(C)
        phi = made(t + 1, Q.shape[1], 12)(phi @ np.linalg.solve(system, phi.T @ (Y @ Q)))
        phi = activate("gelu", phi) if deepening == "activated-cascade" else phi
    return found


@pytest.mark.parametrize("strategy", FOUR)
def test_every_layer_is_solved_for_the_labels_or_their_codes_in_one_round(strategy):
    X, y = rows()
    head = fitted(X, y, ridge=0.5, seed=3, hidden_width=9, **strategy)
    for W, wanted in zip(head.weights, cascaded(X, y, 3, 0.5, **strategy), strict=True):
        assert np.allclose(W, wanted, rtol=1e-8, atol=1e-10)
    rounds = report_of(head)["phases"]
    assert [one["phase"] for one in rounds] == [f"weights-{t}" for t in range(4)]
    assert {one["upload_bytes"] for one in rounds} == {8 * (12 * 13 // 2 + 12 * C)}
    assert {one["download_bytes"] for one in rounds} == {8 * 12 * C}


# ---------------------------------------------------------------- layers by held-out clients


def overfitting():
    """Few training rows with flipped labels: more layers soon fit the noise."""
    X, y = rows(60, seed=1)
    wrong = np.random.default_rng(2).random(60) < 0.3
    y[wrong] = (y[wrong] + 1) % C
    return (X, y), rows(400, seed=3)


OVERFITTING = {"layers": 9, "ridge": 0.1, "block_ridge": 0.1}


def test_held_out_rows_choose_the_number_of_layers():
    """Of parts as of their whole; the head is that of so many layers, and comes back from a file"""
    (X, y), (V, v) = overfitting()
    head, by_hand = fitted(X, y, held=(V, v), **OVERFITTING), []
    for _, scores in fitted(X, y, **OVERFITTING).round_scores(V):
        by_hand.append(((np.eye(C)[v] - scores) ** 2).sum() / len(v))
    assert np.allclose(told(head, "validation_mse"), by_hand, rtol=1e-9)
    best = int(np.argmin(by_hand))
    assert 0 < best < 9, "the premise: neither the first nor the last is the best"
    assert report_of(head)["layers"] == best
    assert len(head.weights) == best + 1
    few = fitted(X, y, held=(V, v), **{**OVERFITTING, "layers": best})
    assert np.array_equal(head.decision_function(V), few.decision_function(V))
    assert head.digest() == few.digest()
    options, arrays = head.options.as_dict(), head.state_dict()
    again = make_head("deepafl", options).restore(None, arrays).bind(D, C)
    assert np.array_equal(again.decision_function(X), head.decision_function(X))
    broken = {name: a for name, a in arrays.items() if not name.startswith("block-2")}
    with pytest.raises(InvalidDataError, match="a head of phase None holds the arrays of phase"):
        make_head("deepafl", options).restore(None, broken)


def test_what_the_layers_are_chosen_by_is_part_of_the_head_until_it_is_solved():
    """The same total with other held-out rows: the same weights, and another choice to come.

    Where held-out rows were missing once, or always, all layers are kept.
    """
    (X, y), (V, v) = overfitting()
    head = fitted(X, y, until="weights-0", **OVERFITTING)
    one, other, none = (
        absorb(head, sums(head, X, y), held) for held in (sums(head, V, v), sums(head, X, y), None)
    )
    assert np.array_equal(one.weights[0], other.weights[0])
    assert len({one.digest(), other.digest(), none.digest()}) == 3
    again = make_head("deepafl", head.options.as_dict()).restore("block-1", one.state_dict())
    assert again.digest() == one.digest()
    wanted = report_of(fitted(X, y, held=(V, v), **OVERFITTING))["layers"]
    for start, layers in ((again.bind(D, C), wanted), (none, 9)):
        end = trained(start, X, y, V, v)
        assert len(end.weights) == layers + 1
        assert report_of(end).get("layers", 9) == layers


# ---------------------------------------------------------------- sums of what changed


@pytest.mark.parametrize(
    "options",
    [{}, {"hidden_width": 7}, {"hidden_width": 20}, {"width": 3}, {"from_phi0": True},
     {"identity_projection": True}, {"block_ridge": 0.0, "ridge": 1e-3}],
)  # fmt: skip
def test_the_layers_of_incremental_sums_are_those_of_full_sums(options):
    X, y = rows()
    owner = np.arange(len(y)) % 3
    full, thin = (fitted(X, y, owner, layers=4, incremental=i, **options) for i in (False, True))
    for one, other in zip(full.weights, thin.weights, strict=True):
        assert np.abs(one - other).max() < 1e-8 * np.abs(one).max()
    assert told(full, "training_mse") == pytest.approx(told(thin, "training_mse"), rel=1e-8)


def test_a_layer_sends_half_as_much():
    """And what the server keeps is not counted as sent, and goes in the end."""
    X, y = rows()
    full, thin = (fitted(X, y, width=64, incremental=i) for i in (False, True))
    sent = [told(head, "upload_bytes") for head in (full, thin)]
    assert sent[1][:2] == sent[0][:2]
    assert sent[1][2] == 8 * (64 * C + C * C)
    assert sum(sent[1]) < 0.65 * sum(sent[0])
    assert told(thin, "download_bytes")[1] == 8 * (64 + 64) * C
    assert not [name for name in thin.state_dict() if name.startswith("kept")]


def test_other_clients_in_a_later_round_are_refused():
    X, y = rows()
    owner = np.arange(len(y)) % 3
    for until in ("block-1", "weights-1", "block-2"):
        head = fitted(X, y, owner, until=until, incremental=True)
        fresh = partial(gathered_by, head, carried=[NOTHING] * 4)
        two = fresh(X[owner > 0], y[owner > 0], owner[owner > 0] - 1)
        with pytest.raises(MismatchError, match=r"2 clients .* first round \(3 clients, 200 rows"):
            absorb(head, two)
        others = fresh(X, y, owner + 1)  # as many rows, other names
        with pytest.raises(MismatchError, match="begin again without --incremental"):
            absorb(head, others)
        with pytest.raises(UsageError, match="as in the first round"):
            absorb(head, fresh(X, y, owner), fresh(X, y, owner))


def test_a_file_without_what_it_builds_on_is_refused():
    X, y = rows()
    head = fitted(X, y, until="weights-2", incremental=True)
    options, arrays = head.options.as_dict(), head.state_dict()
    again = make_head("deepafl", options).restore("weights-2", arrays)
    assert again.digest() == head.digest()
    for name in ("kept-gram", "kept-cross", "kept-hidden-gram", "kept-class-counts"):
        left = {k: a for k, a in arrays.items() if k != name}
        with pytest.raises(InvalidDataError, match=r"kept-|has no sums"):
            make_head("deepafl", options).restore("weights-2", left).bind(D, C)
        short = {**arrays, name: arrays[name][:-1]}
        with pytest.raises(InvalidDataError, match=name):
            make_head("deepafl", options).restore("weights-2", short).bind(D, C)


# ---------------------------------------------------------------- over files


def test_a_run_of_incremental_sums_chooses_as_many_layers_by_held_out_clients(done_run):
    how = {"head": "deepafl", "clients": 6, "each_round": True, "width": 12, "layers": 3}
    how |= {"ridge": "1e-3:1e1:5", "held_out": 0.34}
    runs = [done_run(**how, incremental=i) / "summary.json" for i in (False, True)]
    full, thin = (json.loads(path.read_text()) for path in runs)
    for one, other in zip(full["rounds"], thin["rounds"], strict=True):
        for name in ("validation_mse", "training_mse", "top1", "ridge"):
            assert (name in one) == (name in other)
            assert one.get(name, 0) == pytest.approx(other.get(name, 0), rel=1e-6), name
    assert full["top1"] == thin["top1"]
    sent = [sum(one["upload_bytes"] for one in each["rounds"]) for each in (full, thin)]
    assert sent[1] < 0.9 * sent[0]
    with pytest.raises(
        UsageError, match=r"same clients in every round; found --participation 0\.5"
    ):
        done_run(**how, incremental=True, participation=0.5)


# ---------------------------------------------------------------- fixed point: integers of a row


WAYS = {
    "plain": {},
    "other widths": {"hidden_width": 7},
    "dense Ω": {"width": 3},
    "(89)": {"from_phi0": True},
}


def fixed_rows(n=240, seed=0):
    X, y = rows(n, seed)
    return FixedPoint(encode(X, BITS), BITS), y


def begun(dim=D, **options):
    given = {"width": 12, "layers": 3, "compute": "fixed", **options}
    return make_head("deepafl", given).bind(dim, C)


def test_the_sums_are_those_of_integer_arithmetic():
    """Everything again by int64 alone, from the definitions."""
    X, y = fixed_rows()
    head = begun(layers=1, fixed_bits=10, activation="gelu")
    bits = 10
    first = tabled(head.features.draw_weights(0, D, 12), "tanh", BITS, bits)
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
    F = looked(phi, tabled(head.features.draw_weights(1, 12, 12), "gelu", bits, bits), gelu)
    found = head.gather([(X, y)])[0]
    assert np.array_equal(unpack(found.arrays["gram"]), F.T @ F)
    R = np.eye(C)[y] - phi * 2.0**-bits @ head.weights[0]
    Rhat = np.rint(R * 2.0**RESIDUAL_BITS).astype(np.int64)
    off = found.arrays["cross"] - F.T @ Rhat  # weights are rounded, too: at a tie R̂ is one off
    assert np.abs(off).max() <= np.abs(F).max() * 3


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_as_near_to_real_ones_as_the_stated_errors_add_up_to(way):
    """For each number: σ and its argument, FΩ; then what the next layer makes of it."""
    X, y = fixed_rows()
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
    (X, y), (T, t) = fixed_rows(600), fixed_rows(1000, seed=1)
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
    X, y = fixed_rows()
    phi, F = np.full((2, 12), 30000, np.int16), np.full((2, 12), 20000, np.int16)
    with pytest.raises(InvalidDataError, match=r"Φ_2 of a row reaches 3\.\d+, beyond ±1\.99"):
        begun(fixed_bits=14).features.add_layer(phi, F, 1, LowRank(np.eye(12)))
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
    assert head.features.product(F, R).tolist() == [[n * 32767 * 2**24]] * 2


def test_a_run_takes_thin_sums_only_where_rows_are_real_and_the_head_says_its_bits():
    of_data = {"data": "digits", "backbone": "resnet18", "head": "deepafl"}
    assert RunConfig(**of_data).cheaper() == {"incremental": True}
    assert RunConfig(**of_data, compute="fixed").cheaper() == {}
    assert begun().options.as_dict()["fixed_bits"] == 11
    assert "fixed_bits" not in begun(compute="float64").options.as_dict()
