"""Rounds of other kinds, and of several rounds: what each tells, and what ends a session."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from parties import BITS, Federation, played

from afltool.errors import AflError, IncompleteError, InvalidDataError, MismatchError
from afltool.federation import compute
from afltool.federation.session import Server
from afltool.files.counts import read_counts
from afltool.math.gram import FixedPoint
from afltool.math.ridge import gram_matrix
from afltool.math.softmax import BITS as LOSS_BITS

NAMES = [f"site-{k:02d}" for k in range(4)]
SCORED = {"groups": [], "min_cell": 4}
RIDGE = ("linear", {"ridge": 1.0})


def real_rows(n=40, d=4):
    rng, rows = np.random.default_rng(0), {}
    for i, name in enumerate(NAMES):
        y = rng.integers(0, 3, n + i)
        x = rng.normal(size=(len(y), d)) * [1, 50, 1e-2, 0] + [0, 300, 1, 7] + 0.5 * np.eye(3, d)[y]
        x[:, 3] = 7.0
        rows[name] = x, y.astype(np.int64)
    return rows


def scored_rows(rows=12, dim=6, groups=1):
    rng = np.random.default_rng(3)
    return {name: (rng.integers(-900, 900, (rows, dim)).astype(np.int16),
                   np.arange(rows) % 3 + 3 * (np.arange(rows) // 3 % groups))
            for name in NAMES}  # fmt: skip


def test_features_are_scaled_in_the_first_round(tmp_path):
    head = ("linear", {"intercept": True, "ridge": 1.0})
    f = Federation(tmp_path, head, rows=real_rows(), scale=10, protection="signed")
    assert f.over()
    X, y = (np.concatenate([f.rows[n][k] for n in f.names]) for k in (0, 1))
    known = f.sites["site-00"].scale.state_dict(), f.server.scale.state_dict()
    scale, of_server = ([one["centre"], one["spread"]] for one in known)
    units = np.round(X * 2.0**21) / 2.0**21
    assert scale[0] == pytest.approx(units.mean(0), rel=1e-12)
    assert scale[1] == pytest.approx(np.where(units.std(0) == 0, 1, units.std(0)), rel=1e-9)
    assert np.array_equal(scale, of_server)
    Z = np.round((X - scale[0]) / scale[1] * 2**BITS).astype(np.int16)
    s = compute.compute_statistics(f.agreed, f.first, [(FixedPoint(Z, BITS), y)])
    assert f.solved("site-01").digest() == f.first.absorb(s)[0].digest()


def test_new_phases_send_listed_numbers_only(tmp_path):
    """Sites that differ in one row: all bytes outside are of the same length; the arrays of each
    round are the listed ones, and no extreme of a row is among the numbers."""
    seen = []
    for value in (301.0, 1000.0):
        rows = real_rows()
        rows["site-00"][0][3, 1] = value
        tests = {n: (x / 900.0 * [1, 9, 0.01, 0] + [0, 300, 1, 7], y)
                 for n, (x, y) in scored_rows(dim=4).items()}  # fmt: skip
        f = Federation(tmp_path / str(value), RIDGE, rows=rows, scale=10, evaluation=SCORED,
                       tests=tests)  # fmt: skip
        assert f.over()
        assert [[name for name, _ in f.server.layout(r).arrays] for r in (1, 2, 3)] == [
            ["counts", "squares", "sums", "class counts"], ["cross", "gram"],
            ["confidence-0", "confusion-0", "ranks-0", "scores-0", "class counts"]]  # fmt: skip
        total = f.server.total(1)
        assert set(total.arrays["counts"].tolist()) == {total.rows}
        assert not {int(v) for a in total.arrays.values() for v in a.flat} & {1000 << 21, 301 << 21}
        seen.append({p.name: p.stat().st_size for p in (f.root / "place").glob("*site*")})
    assert seen[0] == seen[1]


def test_raw_features_beyond_the_agreed_range_are_refused_and_nothing_is_sent(tmp_path):
    rows, values = real_rows(), dict(zip(NAMES, (2000.0, np.nan, np.inf), strict=False))
    for name, value in values.items():
        rows[name][0][5, 2] = value
    f = Federation(tmp_path, RIDGE, rows=rows, scale=10).rolled()
    for name, value in values.items():
        with pytest.raises(InvalidDataError, match=f"row 5, feature 2 is {value:.6g}"):
            f.turn(name)
    assert not f.sent("001-sums*")


@pytest.mark.parametrize("protection", ["masked", "signed"])
def test_the_last_round_counts_test_rows(tmp_path, protection):
    """Of the final head, once; other rows than before, so somebody may be lost. Whether test rows
    are few says nothing of how many rows a site has to have."""
    tests = scored_rows(rows=24, groups=2)
    scored = {**SCORED, "groups": ["f", "m"]}
    f = Federation(tmp_path, n=4, threshold=3, evaluation=scored, tests=tests, min_rows=30,
                   protection=protection).until(2)  # fmt: skip
    assert f.over("server", *f.names[:3], late=0.0)
    counts = read_counts(tmp_path / "site-02/total-2.h5")
    X, y = (np.concatenate([tests[n][k] for n in NAMES[:3]]) for k in (0, 1))
    predicted = f.pooled().decision_function(FixedPoint(X, BITS)).argmax(1)
    expected = np.zeros((3, 3), int)
    np.add.at(expected, (y % 3, predicted), 1)
    assert np.array_equal(counts.heads[0].confusion, expected)
    assert f.is_pooled(*f.names[:3], of=f.names)
    assert counts.rows == 72
    assert f.server.task(3) is None


def test_few_test_rows_of_a_class_or_group_are_not_counted(tmp_path):
    tests = scored_rows()
    tests["site-00"] = tests["site-00"][0][:9], np.array([0] * 6 + [1] * 3)
    tests["site-01"] = tests["site-01"][0][:8], np.array([0] * 6 + [3] * 2)
    f = Federation(tmp_path, tests=tests, evaluation={**SCORED, "groups": ["f", "m"]})
    for name, few in (("site-00", "3 test rows of the class 'b'"),
                      ("site-01", "2 test rows of the group 'm'")):  # fmt: skip
        with pytest.raises(InvalidDataError, match=few):
            f.sites[name].rows.check_cells(f.agreed)
    f.sites["site-02"].rows.check_cells(f.agreed)


# ---------------------------------------------------------------- several rounds of the same rows


@pytest.mark.parametrize("head", ["scale", "softmax"])
def test_drop_out_between_overlapping_phases(tmp_path, head):
    """The session ends for all, and nobody gives shares of the round that would tell of it."""
    scaled = {"rows": real_rows(), "scale": 10} if head == "scale" else {}
    f = Federation(tmp_path, RIDGE if scaled else head, n=4, threshold=3, **scaled)
    f.rolled().turn(*f.names)
    if not scaled:
        f.until(2)
    f.run(*(others := ("server", *f.names[:3])))
    f.server.deadline, number = 0.0, f.server.newest_round()
    for name in others:
        with pytest.raises(IncompleteError, match=f"ended in round {number}: site-03 dropped out"):
            f.run(name)
    assert not f.sent(f"{number:03d}-shares*")
    assert not list(tmp_path.glob("site-0[012]/secrets-*"))
    f.begin()
    with pytest.raises(IncompleteError):
        f.server.turn()


def test_later_rows_are_those_of_round_1(tmp_path):
    """Counts are sent once; a site whose rows have changed is refused, and so are totals beyond."""
    f = Federation(tmp_path, "softmax").until(2)
    layout, total = f.server.layout(2), f.server.total(1)
    assert [name for name, _ in layout.arrays] == ["gradient", "loss"]
    f.rows["site-00"] = tuple(np.concatenate([a, a[:1]]) for a in f.rows["site-00"])
    f.begin()
    with pytest.raises(MismatchError, match="begun with other rows"):
        f.run()
    most = np.full(layout.size, total.rows << 39, np.int64)
    with pytest.raises(AflError, match=f"of any {total.rows} rows"):
        layout.statistics((most + 1).view(np.uint64), f.names, total.class_counts)


def test_totals_are_those_of_some_rows():
    """Of three sites with at most 64 rows each."""
    f = played(n=3)
    layout, x = f.server.layout(1), f.numbers()
    layout.statistics(x.copy().view(np.uint64), f.names, None)
    rows = f.gathered().rows
    for at, value in {-1: 3 * 64 + 1, 18: -5, 0: (rows << 15) + 1, -2: -1, -3: 2**62}.items():
        wrong = x.copy()
        wrong[at] = value
        with pytest.raises(AflError):
            layout.statistics(wrong.view(np.uint64), f.names, None)
    few = replace(layout, agreed=replace(f.agreed, max_rows=40, min_rows=20))
    for counts, sites in (([20, 0], 1), ([39, 1], 1), ([80, 0], 2)):
        few.check_rows(np.array(counts), sites)
    for counts, sites in (([19, 0], 1), ([40, 1], 1), ([39, 0], 2), ([81, 0], 2)):
        with pytest.raises(InvalidDataError, match="20 to 40 at each"):
            few.check_rows(np.array(counts), sites)


def test_a_site_refuses_a_point_that_no_honest_head_has(tmp_path, monkeypatch):
    """A loss above that of all rows without a head; the attack is member_heads in tests/attacks."""
    own, unit = played(n=3).gathered("site-00"), np.log(2) * 2**LOSS_BITS
    compute.check_point(replace(own, arrays={"loss": np.array([int(300 * unit)])}), 300, 2)
    with pytest.raises(MismatchError, match="no honest head has"):
        compute.check_point(replace(own, arrays={"loss": np.array([int(602 * unit)])}), 300, 2)
    f = Federation(tmp_path, "softmax").until(2)
    monkeypatch.setattr(compute, "SLACK", 1e-9)
    with pytest.raises(MismatchError, match="no honest head has"):
        f.turn("site-01")
    assert "002-sums-site-01" not in f.sent("002-sums*")


def test_an_honest_session_of_very_different_sites_is_not_refused(tmp_path):
    """Each site has nearly one class alone: its own loss may be far above ln C a row."""
    rng, rows = np.random.default_rng(4), {}
    for name in NAMES[:3]:
        y = rng.choice(3, 40, p=rng.dirichlet(np.full(3, 0.05)))
        X = (rng.normal(size=(40, 6)) * 900 + 1500 * np.eye(3, 6)[y]).astype(np.int16)
        rows[name] = X, y
    f = Federation(tmp_path, ("softmax", {"rounds": 2, "penalty": 1e-5}), rows=rows)
    assert f.over()
    assert f.is_pooled()


@pytest.mark.parametrize("power", [0, 4, 7])
@pytest.mark.parametrize("intercept", [False, True])
def test_unlike_blas(tmp_path, power, intercept):
    """What another machine solves has another rounding error of the same size, whatever κ is."""
    rng, d, n = np.random.default_rng(power), 12, 400
    Q = np.linalg.qr(rng.normal(size=(d, d)))[0]
    base = rng.normal(size=(n, d)) @ np.diag(np.logspace(0, -power, d)) @ Q
    X = np.clip(np.round(base * 4000), -32000, 32000).astype(np.int16)
    y = (base[:, 0] > 0).astype(np.int64) + (base[:, 1] > 0)
    rows = {f"site-{k:02d}": (X[k::3][:60], y[k::3][:60]) for k in range(3)}
    f = Federation(tmp_path, ("linear", {"ridge": 1e-3, "intercept": intercept}), rows=rows)
    head, s = f.first, f.gathered()
    ((name, W), *_) = head.absorb(s)[0].state_dict().items()
    G = gram_matrix(s.arrays["gram"], BITS)
    A = G + 1e-3 * np.eye(len(G))
    if not intercept:
        P = np.eye(len(A))[rng.permutation(len(A))]
        other = P.T @ np.linalg.solve(P @ A @ P.T, P @ (s.arrays["cross"] * 2.0**-BITS))
        assert compute.is_same(name, W, other, head, s)
    error = np.linalg.solve(A, rng.normal(size=W.shape))
    error *= np.finfo(float).eps * np.linalg.norm(G) * np.linalg.norm(W) / np.linalg.norm(G @ error)
    assert compute.is_same(name, W, W + error, head, s)
    for wrong in (W * (1 + 1e-6), W + 1e-6 * np.abs(W).max()):
        assert not compute.is_same(name, W, wrong, head, s)


def test_a_feature_that_no_row_has_gets_no_weight_of_the_server(tmp_path):
    """By minimum norm; with a ridge it is null_space in tests/attacks."""
    f = Federation(tmp_path, ("linear", {"min_norm": True}))
    for X, _ in f.rows.values():
        X[:, 2] = 0
    s = f.gathered()
    ((name, W),) = f.first.absorb(s)[0].state_dict().items()
    column, below = np.arange(6)[:, None] == 2, np.arange(6)[:, None] > 0
    assert compute.is_same(name, W, W * (1 + 2**-50), f.first, s)
    assert not compute.is_same(name, W, W + column * 10 * np.abs(W).max(), f.first, s)
    W[0, 0] = 1e12  # one large number moves no other
    assert not compute.is_same(name, W, W + below * 900.0, f.first, s)


@pytest.mark.parametrize(("by", "taken"), [(2.0**-50, True), (1e-3, False)])
def test_a_server_cannot_choose_a_head(tmp_path, by, taken):
    """The last bits of its machine are taken, and no other point, which could read one row."""
    f = Federation(tmp_path, ("softmax", {"rounds": 1}))

    def other(number, total):
        head, known = Server.solve(f.server, number, total), f.server.head(number).state_dict()
        return head.restore(head.phase(), {
            k: a * (1 + by) if a.dtype.kind == "f" and a is not known.get(k) else a
            for k, a in head.state_dict().items()})  # fmt: skip

    f.server.solve = other
    if not taken:
        with pytest.raises(MismatchError, match="not the solution of the sums"):
            f.run()
        assert not f.sent("002-sums*")
        return
    assert f.over()
    assert len({f.solved(n).digest() for n in ("server", *f.names)}) == 1
    assert not f.is_pooled()


def test_heads_of_reals_are_refused(tmp_path):
    f = Federation(tmp_path, ("random-features", {"width": 8}))
    f.turn("server", *f.names)
    with pytest.raises(InvalidDataError, match="--compute fixed"):
        f.turn("server")
