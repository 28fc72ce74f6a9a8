"""The softmax head on raw features, random ones and codes: options, partitions, oracles, files."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import sums, total
from rounds_of_heads import absorb, report_of
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

import afltool
from afltool.errors import InvalidDataError, MismatchError, UsageError
from afltool.files.heads import load_head
from afltool.heads import make_head
from afltool.heads.base import binding
from afltool.heads.checks import with_options
from afltool.heads.options import ACTIVATIONS, RandomFeaturesOptions
from afltool.heads.projections import activate, projection, table
from afltool.heads.random_features import Lift
from afltool.math import codes as cd
from afltool.math.gram import FixedPoint, real
from afltool.plans.config import RunConfig
from afltool.values.names import Phase
from afltool.values.statistics import Client, ClientId, Context

DIM, CLASSES = 6, 4
KINDS = {
    "raw": {},
    "random": {"features": "random", "width": 20},
    "random beside raw": {"features": "random", "width": 20, "with_linear": True},
    "codes": {"features": "safle", "buckets": 4, "group_size": 2, "experts": 9},
    "codes beside raw": {
        "features": "safle", "buckets": 4, "group_size": 2, "experts": 9, "with_linear": True,
    },
}  # fmt: skip
WITHOUT_A_ROUND_FOR_THRESHOLDS = {"features": "safle", "thresholds": "range:-2:2"}


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, n)
    X = np.random.default_rng(9).normal(size=(CLASSES, DIM))[y] + rng.normal(size=(n, DIM))
    return FixedPoint(np.rint(X * 512).astype(np.int16), 9), y


def gathered(head, X, y, client="a"):
    """One client's statistics for the head's phase."""
    bits = X.bits if isinstance(X, FixedPoint) else None
    context = Context({"fraction_bits": bits}, tuple("abcd"), binding(head))
    who = {ClientId(client): Client(len(y))}
    return replace(sums(head, X, y), context=context, clients=who)


def heads(X, y, **options):
    """The head before every phase and after the last, of one client."""
    head = make_head("softmax", options).bind(DIM, CLASSES)
    yield head
    while head.phase() is not None:
        head = absorb(head, gathered(head, X, y))
        yield head


def solved(X, y, **options):
    return list(heads(X, y, **options))[-1]


def features(head, X):
    """Φ of rows as dense reals, made by other means: of random features and codes."""
    o = head.options
    beside = [real(X)] if o.with_linear else []
    ones = [np.ones((len(X), 1))]
    if o.features == "random":
        made = projection(o.projection, o.seed, 0, DIM, o.width)
        z = np.rint((real(X) @ made.A.astype(float) + made.a) * 4096) / 4096
        return np.hstack([np.rint(np.tanh(z) * 512) / 512, *beside, *ones])
    if o.features == "raw":
        return np.hstack([real(X), *ones])
    digits = cd.digits_per_feature(o.bucketing, o.buckets) * DIM
    dealt = cd.deal(digits, o.experts, o.group_size, o.seed)
    coder = cd.coder(head.arrays()["thresholds"], o.bucketing, o.buckets, dealt)
    hot = [np.eye(coder.size)[row] for row in coder.codes(X)]
    return np.hstack([*beside, *hot])


def objective(W, F, y, mu, free):
    S = F @ W
    loss = (logsumexp(S, axis=1) - S[np.arange(len(y)), y]).mean()
    return loss + 0.5 * mu * (W[: len(W) - free] ** 2).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_phi_times_the_weights(kind):
    X, y = rows()
    head = solved(X, y, rounds=3, **KINDS[kind])
    expected = features(head, X) @ head.arrays()["weights"]
    assert np.allclose(head.scores(X), expected, atol=1e-6)
    assert (head.scores(X).argmax(1) == y).mean() > 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_the_limit_is_scikit_learns_on_the_same_features(kind):
    """Without an intercept where the features are codes, which add up to one in each group."""
    X, y = rows()
    mu = 1e-2
    head = solved(X, y, rounds=1000, penalty=mu, tolerance=1e-7, **KINDS[kind])
    F, free = features(head, X), int("codes" not in kind)
    kept = F[:, :-1] if free else F
    oracle = LogisticRegression(
        C=1 / (mu * len(y)), tol=1e-10, max_iter=20_000, fit_intercept=bool(free)
    ).fit(kept, y)
    W = np.vstack([oracle.coef_.T, oracle.intercept_]) if free else oracle.coef_.T
    best = objective(W, F, y, mu, free)
    assert np.isclose(objective(head.arrays()["weights"], F, y, mu, free), best, rtol=1e-6)


DEALT = (("iid", 10, {}), ("shards", 10, {"shards_per_client": 1}),
         ("dirichlet", 10, {"alpha": 0.01}), ("dirichlet", 200, {"alpha": 0.01}))  # fmt: skip


# ---------------------------------------------------------------- standardised


def uneven(n=300, seed=0):
    """Rows whose features differ in scale by powers of two, one of them constant."""
    X, y = rows(n, seed)
    values = X.values >> np.arange(DIM) % 4
    values[:, 4] = 1024
    return FixedPoint(values, 9), y


def spread(F):
    """Standard deviations of the columns; 1 of a constant one."""
    s = F.std(axis=0)
    return np.where(s > 1e-9, s, 1.0)


@pytest.mark.parametrize("kind", ["raw", "random beside raw", "codes"])
def test_standardised_is_scikit_learns_on_features_divided_by_their_deviation(kind):
    X, y = uneven()
    mu, free = 0.03, int("codes" not in kind)
    asked = {"rounds": 600, "penalty": mu, "tolerance": 1e-6, **KINDS[kind]}
    head = solved(X, y, standardise=True, **asked)
    F = features(head, X)
    s = spread(F)
    oracle = LogisticRegression(
        C=1 / (mu * len(y)), tol=1e-9, max_iter=20_000, fit_intercept=bool(free)
    ).fit((F / s)[:, : F.shape[1] - free], y)
    W = np.vstack([oracle.coef_.T, oracle.intercept_]) if free else oracle.coef_.T
    best = objective(W, F / s, y, mu, free)
    reached = objective(s[:, None] * head.weights, F / s, y, mu, free)
    assert np.isclose(reached, best, rtol=1e-6)
    assert np.isclose(report_of(head)["phases"][-1]["objective"], best, rtol=1e-5)
    plain = solved(X, y, **asked)
    assert objective(s[:, None] * plain.weights, F / s, y, mu, free) > best * 1.001, "weak test"


def test_a_scale_of_the_features_changes_no_round_once_it_is_standardised():
    X, y = rows()
    values = X.values >> 3 << 3
    found = {}
    for standardise in (True, False):
        for scale in (1, 2 ** (np.arange(DIM) % 4)):
            one = FixedPoint((values // scale).astype(np.int16), 9)
            head = solved(one, y, rounds=6, penalty=0.1, standardise=standardise)
            found.setdefault(standardise, []).append(
                [p["objective"] for p in report_of(head)["phases"][1:]]
            )
    assert np.allclose(*found[True], rtol=1e-6)
    assert not np.allclose(*found[False], rtol=1e-3), "the premise: without, it changes them"


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(KINDS)),
    st.booleans(),
    st.integers(0, 10**6),
    st.sampled_from([1e-6, 1e-4, 1e-2, 1.0]),
    st.integers(1, 60),
)
def test_a_step_of_the_bound_never_raises_the_objective(kind, standardise, seed, penalty, n):
    """The best weights are such a step from a point whose objective is the least so far."""
    X, y = uneven(n, seed) if standardise else rows(n, seed)
    given = {"rounds": 8, "penalty": penalty, "standardise": standardise, **KINDS[kind]}
    best = []
    for head in heads(X, y, **given):
        W = head.weights if head.best is None else head.best
        best += [] if W is None else [W]
    F, free = features(head, X), int("codes" not in kind)
    s = spread(F) if standardise else np.ones(F.shape[1])
    values = [p["objective"] for p in report_of(head)["phases"] if "objective" in p]
    assert len(values) == 8
    found = [objective(s[:, None] * W, F / s, y, penalty, free) for W in best[1:]]
    least = np.minimum.accumulate(values)
    assert all(b <= a + 1e-6 * max(1, a) for a, b in zip(least, found, strict=True))


def test_a_round_of_some_clients_weighs_by_the_variances_of_all():
    X, y = uneven()
    head = make_head("softmax", {"rounds": 3, "standardise": True}).bind(DIM, CLASSES)
    halves = [gathered(head, X[i::2], y[i::2], f"c{i}") for i in range(2)]
    head = absorb(head, total(halves))
    V = head.point
    assert np.allclose(head.variances, spread(features(head, X)) ** 2, rtol=1e-9)
    part = gathered(head, X[::2], y[::2], "c0")
    found = report_of(absorb(head, part))["phases"][-1]
    s = spread(features(head, X))[:, None]
    wanted = objective(s * V, features(head, X[::2]) / s.T, y[::2], 1e-3, 1)
    assert np.isclose(found["objective"], wanted, rtol=1e-6)


def test_what_standardise_leaves_as_it_was_and_what_it_refuses():
    plain = make_head("softmax").bind(DIM, CLASSES)
    assert "standardise" not in plain.options.as_dict()
    X, y = uneven()
    state = absorb(plain, gathered(plain, X, y)).arrays()
    assert "variances" not in state
    asked = make_head("softmax", {"standardise": True})
    for bad in (np.zeros(DIM + 1), np.ones(DIM), np.full(DIM + 1, np.nan)):
        with pytest.raises(InvalidDataError, match="the array 'variances'"):
            asked.restore(Phase("gradient-1"), {**state, "variances": bad}).bind(DIM, CLASSES)
    with pytest.raises(UsageError, match="fixes --standardise before its first round"):
        with_options(plain, standardise=True)


# ---------------------------------------------------------------- options


@pytest.mark.parametrize("thresholds", ["federated", "range:-2:2"])
def test_digits_that_codes_leave_out_are_said_once(caplog, thresholds):
    X, y = rows()
    solved(X, y, features="safle", experts=3, rounds=1, thresholds=thresholds)
    said = [r.getMessage() for r in caplog.records if "digits of a row" in r.getMessage()]
    assert len(said) == 1
    assert "use 9 of the 48 digits of a row" in said[0]


# ---------------------------------------------------------------- the lift to fixed point


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("kind", ["linear-uniform", "gaussian"])
def test_lifted_rows_are_the_random_features_rounded(activation, kind):
    X, _ = rows()
    options = RandomFeaturesOptions(width=15, activation=activation, projection=kind)
    lift = Lift(options)._table(DIM, 9)
    made = projection(kind, 0, 0, DIM, 15)
    z = real(X) @ made.A.astype(float) + (0 if made.a is None else made.a)
    found, wanted = lift(X.values) / 512, activate(activation, z)
    assert np.abs(found - wanted).max() <= (1 / 2 + 1.2 / 16) / 512  # of the value, of its argument
    for step in (1, 7, 100):
        again = [lift(X.values[at : at + step]) for at in range(0, 300, step)]
        assert np.array_equal(np.concatenate(again), lift(X.values))


@pytest.mark.parametrize(
    ("activation", "digest"),
    [
        ("tanh", "532a2f457f5301dd"),
        ("gelu", "0e75638e6c2820d0"),
        ("sigmoid", "6bfcbadd11820c8a"),
        ("hardswish", "c141632da470b649"),
    ],
)
def test_the_tables_are_the_same_on_every_machine(activation, digest):
    """What makes digests of random features agree between machines: made on an AMD EPYC."""
    found = hashlib.sha256(table(activation, 9).astype("<i2").tobytes()).hexdigest()
    assert found[:16] == digest


def test_random_features_beyond_the_fixed_point_are_refused_never_clipped():
    X = FixedPoint(np.full((2, DIM), 32767, np.int16), 9)
    wide = RandomFeaturesOptions(width=40, activation="relu", projection="gaussian", seed=1)
    with pytest.raises(InvalidDataError, match=r"before --activation relu is beyond ±64"):
        Lift(wide)._table(DIM, 9)(X.values)
    assert np.abs(Lift(replace(wide, activation="tanh"))(X)).max() == 512
    with pytest.raises(InvalidDataError, match="--fraction-bits 14 or fewer"):
        table("tanh", 15)


# ---------------------------------------------------------------- over files


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("softmax")
    for name, seed, n in (("train", 0, 400), ("test", 1, 100)):
        X, y = rows(n, seed)
        np.savez(folder / f"{name}.npz", x=real(X), y=y)
        afltool.import_embeddings(folder / f"{name}.npz", folder / f"{name}.h5")
    return folder


def carried_out(files, out, **options):
    given = {
        "train_features": files / "train.h5",
        "test_features": files / "test.h5",
        "head": "softmax",
        **options,
    }
    return afltool.run(RunConfig(**given), out)


PARTITIONS = (
    {"scheme": "iid", "clients": 1},
    {"scheme": "shards", "shards_per_client": 1, "clients": 10, "keep_clients": True},
    {"scheme": "dirichlet", "alpha": 0.01, "clients": 200},
)
FACTS = {"phase", "rows", "clients", "upload_bytes", "download_bytes", "solve_seconds"}
OF_A_ROUND = {"loss", "objective", "gradient_norm", "validation_loss", "restarted"}


def test_a_cache_of_random_features_changes_the_work_and_nothing_else(files, tmp_path, monkeypatch):
    options = {"features": "random", "width": 20, "rounds": 3, "clients": 5}
    plain = carried_out(files, tmp_path / "plain", **options)
    lifted = []
    lift = Lift.__call__
    monkeypatch.setattr(Lift, "__call__", lambda self, X: lifted.append(len(X)) or lift(self, X))
    cached = carried_out(files, tmp_path / "cached", cache=tmp_path / "cache", **options)
    assert sum(lifted) == 2 * 400 + 100  # the gram, the first gradient, the test rows
    assert len(list((tmp_path / "cache").iterdir())) == 1
    same = [afltool.info(f / "05-head-4.h5")["digest"] for f in (plain, cached)]
    assert same[0] == same[1]


def test_the_rounds_so_far_make_a_head_at_any_time(files, tmp_path):
    folder = carried_out(files, tmp_path / "RUN", rounds=3, features="random", width=20)
    X, y = rows(100, 1)
    assert not list(load_head(folder / "03-head0.h5")[0].round_scores(X))
    losses = []
    for suffix in ("", "-2", "-3", "-4"):
        file = load_head(folder / f"05-head{suffix}.h5")
        head = file.head
        ((name, scores),) = head.round_scores(X)
        assert file.phase_of(name) == file.rounds[-1]["phase"]
        if head.phase() is None:
            assert np.array_equal(scores, head.scores(X))
        losses.append((logsumexp(scores, axis=1) - scores[np.arange(len(y)), y]).mean())
    assert losses[-1] < losses[0]
    assert losses[-1] == pytest.approx(losses[-2], abs=0.05)


def test_thresholds_of_a_file_end_up_in_the_head(files, tmp_path):
    options = {"features": "safle", "experts": 9, "group_size": 2, "buckets": 4}
    from_rows = tmp_path / "of-rows.h5"
    afltool.head(
        "softmax", from_rows, head_options={**options, "thresholds": str(files / "train.h5")}
    )
    head = load_head(from_rows)[0]
    assert head.phase() == "codes"
    assert str(head.options.thresholds).startswith("features:")
    federated = carried_out(files, tmp_path / "F", rounds=2, clients=3, features="safle",
                            experts=9, group_size=2, buckets=4)  # fmt: skip
    mine = carried_out(files, tmp_path / "M", clients=3, head=str(from_rows))
    arrays = [load_head(f)[0].arrays() for f in (federated / "05-head-2.h5", mine / "05-head.h5")]
    assert np.array_equal(arrays[0]["thresholds"], arrays[1]["thresholds"])
    assert np.array_equal(arrays[0]["point"], arrays[1]["point"])


def test_clients_may_miss_rounds_but_not_the_first(files, tmp_path):
    """A round sums over whoever is there and says so; who was not in the gram is refused."""
    train, clients = files / "train.h5", tmp_path / "clients.h5"
    afltool.partition(train, clients, clients=8, alpha=1.0)
    head = afltool.head("softmax", tmp_path / "head0.h5", head_options={"rounds": 3})
    for number, only in enumerate(("0-6", "0-3", "2-6", "1,5")):
        stats, total = tmp_path / f"stats{number}", tmp_path / f"total{number}.h5"
        if number == 2:
            late = afltool.local_stats(
                train, head, tmp_path / "late.h5", partition=clients, sum=True
            )
            with pytest.raises(MismatchError, match="1 of 8 clients were not in the first"):
                afltool.solve(late, tmp_path / "x.h5", head=head)
        afltool.local_stats(train, head, stats, partition=clients, only=only)
        total = afltool.aggregate([stats], total)
        head = afltool.solve(total, tmp_path / f"head{number + 1}.h5", head=head)
    phases = afltool.info(head)["report"]["phases"]
    assert [p["clients"] for p in phases] == [7, 4, 5, 2]
    assert afltool.evaluate(head, files / "test.h5")["top1"] > 0.5


def test_the_commands_take_the_features_of_the_head(files, tmp_path, cli):
    head = tmp_path / "head0.h5"
    done = cli("head", "softmax", "--features", "random", "--width", 20, "--rounds", 2, "-o", head)
    assert done.exit_code == 0, done.output
    bad = cli("head", "softmax", "--features", "safle", "--width", 20, "-o", tmp_path / "x.h5")
    assert bad.exit_code == 2
    assert "--width belongs to --features random" in bad.stderr
    afltool.partition(files / "train.h5", tmp_path / "clients.h5", clients=5, alpha=0.1)
    common = ["--partition", tmp_path / "clients.h5", "--sum"]
    short = ["--head", "softmax", "--features", "random", "--width", 20, "--rounds", 2]
    for name, which in (("file", ["--head", head]), ("short", short)):
        out = tmp_path / f"{name}.h5"
        done = cli("local-stats", files / "train.h5", *which, *common, "-o", out)
        assert done.exit_code == 0, done.output
    same = {afltool.info(tmp_path / f"{n}.h5")["digest"] for n in ("file", "short")}
    assert len(same) == 1
    done = cli(
        "run", "--train-features", files / "train.h5", "--test-features", files / "test.h5",
        "--head", "softmax", "--features", "random", "--width", 20, "--rounds", 2,
        "--clients", 5, "-o", tmp_path / "RUN",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert afltool.info(tmp_path / "RUN" / "04-total.h5")["digest"] in same
