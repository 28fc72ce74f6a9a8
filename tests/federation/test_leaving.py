"""Two sums with and without a member tell it exactly: the ledger, leaving, and noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from parties import BITS, CLASSES, Federation, key_of

from afltool.errors import AflError, MismatchError, UsageError
from afltool.federation import noise as noise_
from afltool.federation.agreement import Consent
from afltool.federation.compute import Layout
from afltool.federation.ledger import Ledger
from afltool.federation.noise import Noise, clip_rows, discrete_gaussian
from afltool.federation.rows import SiteRows
from afltool.federation.words import in_words

NOISE = {"epsilon": 1.0, "delta": 1e-5, "clip": 4.0, "colluding": 0}


def following(f, names, consents=(), follows="", **terms):
    """The session of those who stay, with the sites' ledgers of before."""
    g = f.changed(members=tuple(f.keys[n].party for n in names), threshold=len(names),
                  follows=follows, consents=tuple(sorted(consents)), **terms)  # fmt: skip
    g.root.mkdir()
    (g.root / "ledgers").symlink_to(f.root / "ledgers")
    g.begin()
    return g


@pytest.fixture
def five(tmp_path):
    f = Federation(tmp_path / "first", n=5)
    assert set(f.run().values()) == {""}
    return f


def sent_no_shares(g):
    return not list((g.root / "place").glob("*shares*"))


def test_old_minus_new_is_the_leaver(five):
    """Why: the difference of the two totals is the leaver's own sums."""
    layout = five.server.layout(1)
    old = layout.joined(five.server.total(1)).view(np.int64)
    new = layout.joined(five.gathered(five.first, *five.names[:4])).view(np.int64)
    own = layout.joined(five.gathered(five.first, "site-04")).view(np.int64)
    assert np.array_equal(old - new, own)


@pytest.mark.parametrize("again", [False, True])
def test_restart_with_one_fewer(five, again):
    g = following(five, five.names[:4])
    g.sites = {n: g.new_site(n, again=again) for n in g.names}
    with pytest.raises(MismatchError, match=r"30 of the 30 rows.*site-04 is known nearly alone"):
        g.run()
    assert not list((g.root / "place").glob("*sums*"))


def test_leaving_needs_the_leaver(five):
    old, stay = five.agreed.digest, five.names[:4]
    leaver = five.keys["site-04"]
    wrong = Consent.sign(old, five.keys["site-03"])  # of somebody who stays
    g = following(five, stay, [wrong], old)
    with pytest.raises(MismatchError, match="must sign that it leaves"):
        g.run()
    consent = Consent.sign(old, leaver)
    for change in ({"session": "ab" * 32}, {"name": "site-03"}, {"signature": "00" * 64},
                   {"key": wrong.key}):  # fmt: skip
        with pytest.raises(MismatchError, match="has not signed"):
            replace(consent, **change)
    for change in ({"signature": "00"}, {"signature": 7}, {"session": ""}, {"session": None}):
        with pytest.raises(UsageError, match=f"{next(iter(change))} of a consent"):
            replace(consent, **change)


@pytest.mark.parametrize("follows", [False, True])
def test_a_consent_is_for_one_session_and_those_before_it(five, follows):
    """Who has left another session once may not be left out of this one."""
    consent = Consent.sign(five.changed(min_rows=1).agreed.digest, five.keys["site-04"])
    about = five.agreed.digest if follows else ""
    g = following(five, five.names[:4], [consent], about, max_rows=65)
    with pytest.raises(MismatchError, match="site-04 is known nearly alone"):
        g.run()
    assert sent_no_shares(g)


def test_who_has_left_and_those_who_stay_are_done(five):
    old = five.agreed.digest
    g = following(five, five.names[:4], [Consent.sign(old, five.keys["site-04"])], old)
    assert "site-04" in in_words(g.agreed)
    assert "has left" in in_words(g.agreed)
    assert set(g.run().values()) == {""}
    assert g.solved("site-00").digest() == five.pooled(*five.names[:4]).digest()
    assert g.agreed.follows == old


def test_a_drop_out_of_the_next_session_is_one_fewer_too(five):
    """All are agreed on, one does not come: nobody gives shares."""
    g = five.changed(threshold=4)
    g.root.mkdir()
    (g.root / "ledgers").symlink_to(five.root / "ledgers")
    g.begin()
    g.turn("server", *g.names[:4])
    g.server.deadline = 0.0
    with pytest.raises(MismatchError, match="site-04 is known nearly alone"):
        g.run("server", *g.names[:4])
    assert sent_no_shares(g)


def test_the_same_members_may_sum_again(five):
    g = five.changed(head=Federation(five.root, "softmax", n=5).agreed.head)
    g.root.mkdir()
    (g.root / "ledgers").symlink_to(five.root / "ledgers")
    g.begin()
    assert set(g.run().values()) == {""}


def test_who_joins_has_agreed_to_follow(five):
    """A new member's sums are the difference: only if the session says which one it follows."""
    new = key_of("newcomer")
    five.keys["newcomer"] = new
    five.rows["newcomer"] = five.rows["site-00"][0][:25] + np.int16(1), five.rows["site-00"][1][:25]
    names = sorted([*five.names, "newcomer"])
    g = following(five, names)
    with pytest.raises(MismatchError, match="newcomer is known nearly alone"):
        g.run()
    g = following_again(five, names)
    assert set(g.run().values()) == {""}


def following_again(f, names):
    g = f.changed(members=tuple(f.keys[n].party for n in names), threshold=len(names),
                  follows=f.agreed.digest, max_rows=63)  # fmt: skip
    g.root = f.root.parent / "again"
    g.root.mkdir()
    (g.root / "ledgers").symlink_to(f.root / "ledgers")
    from afltool.federation.place import Place

    g.place = Place(str(g.root / "place"))
    g.begin()
    return g


def test_ledger_overlap(tmp_path):
    """The same rows and one more, in another order, as a file of other classes, scaled; two
    sessions at once."""
    f = Federation(tmp_path, n=7)
    X, y = f.rows["site-00"]
    ledger = Ledger(tmp_path / "ledger")
    order = np.random.default_rng(0).permutation(len(X))
    hashes, digest = ledger.hashes(f.agreed, [(X, y)])
    parts = [(X[some], y[some]) for some in (order[:9], order[9:])]
    assert np.array_equal(hashes, ledger.hashes(f.agreed, parts)[0])
    assert digest == ledger.hashes(f.agreed, parts)[1]
    others = replace(f.agreed, classes=("z", *CLASSES))
    assert np.array_equal(hashes, ledger.hashes(others, [(X, y + 1)])[0])
    ledger.claim(f.agreed, 1, f.names, hashes)
    ledger.claim(f.agreed, 1, f.names, hashes)
    fewer = f.names[:6]
    then = replace(f.agreed, members=f.agreed.members[:6], nonce="0" * 32, scale=10)
    for rows in (
        (X, y),
        (X[:-1], y[:-1]),
        (np.concatenate([X, X[:1] + 1]), [*y, 0]),
        (X[:1], y[:1]),
    ):
        some, _ = ledger.hashes(then, [(rows[0], np.asarray(rows[1]))])
        with pytest.raises(MismatchError, match="site-06 is known nearly alone"):
            ledger.claim(then, 1, fewer, some)
    other, _ = ledger.hashes(then, [(X + 1, y)])
    ledger.check(replace(then, scale=None), fewer, other)  # other rows
    finer = {**f.agreed.space, "fraction_bits": 11}  # in which nobody can tell
    for terms in ({}, {"scale": None, "space": finer}):
        with pytest.raises(MismatchError, match="may be, in the sums"):
            ledger.check(replace(then, **terms), fewer, other)
    wider = {**finer, "dim": 7}  # features of something else
    ledger.check(replace(then, scale=None, space=wider), fewer, other)
    again, labels = ledger.hashes(replace(f.agreed, classes=("x", "y", "z")), [(X, 0 * y)])
    assert np.array_equal(hashes, again)  # for a gram knows no classes
    assert labels != digest
    many = replace(then, members=f.agreed.members[:3], threshold=3)  # c = 2, four have gone
    with pytest.raises(MismatchError, match="--again says that you accept it"):
        ledger.check(many, f.names[:3], hashes)
    Ledger(ledger.folder, again=True).check(many, f.names[:3], hashes)
    three = replace(then, members=f.agreed.members[:4], threshold=3)  # c + 1 have gone
    with pytest.raises(MismatchError, match="nearly alone"):
        Ledger(ledger.folder, again=True).check(three, f.names[:4], hashes)
    text = b"".join(p.read_bytes() for p in ledger.folder.rglob("*") if p.is_file())
    assert X[0].tobytes() not in text
    assert (ledger.folder.stat().st_mode & 0o077) == 0


def test_members_on_one_machine_have_one_ledger(tmp_path):
    """The rows of each are in it, and each is refused where its sums would tell of one member."""
    f = Federation(tmp_path / "first", n=5)
    one = f.root / "ledgers/machine"
    one.mkdir(parents=True)
    for name in f.names:
        (f.root / "ledgers" / name).symlink_to(one)
    f.begin()
    assert set(f.run().values()) == {""}
    assert len({p.read_bytes() for p in one.rglob("rows")}) == 5
    assert len(list(one.rglob("people-1"))) == 5
    g = following(f, f.names[:4])
    g.turn("server", *g.names, "server")
    for name in g.names:
        with pytest.raises(MismatchError, match="site-04 is known nearly alone"):
            g.turn(name)
    assert not list((g.root / "place").glob("*sums*"))


def test_two_sessions_at_once(tmp_path):
    """Both are joined before either is opened: the second one gets no shares."""
    f = Federation(tmp_path / "a", n=4)
    g = following(f, f.names[:3])
    f.turn("server", *f.names, "server", *f.names)
    g.turn("server", *g.names, "server", *g.names)  # sums are there in both
    assert set(f.run().values()) == {""}
    with pytest.raises(MismatchError, match="nearly alone"):
        g.run()
    assert sent_no_shares(g)


def test_a_session_that_died_before_its_sum_was_opened_needs_nothing(tmp_path):
    f = Federation(tmp_path / "a", n=4)
    f.turn("server", *f.names, "server", *f.names[:3])
    g = following(f, f.names[:3])
    assert set(g.run().values()) == {""}


# ---------------------------------------------------------------- noise


def test_noise_is_shared_and_everybody_solves_with_the_same_ridge(tmp_path):
    for epsilon, close in ((1e9, True), (1.0, False)):
        f = Federation(tmp_path / str(epsilon), n=4, noise={**NOISE, "epsilon": epsilon})
        assert set(f.run().values()) == {""}
        assert f.solved("site-00").digest() == f.solved("server").digest()
        W, pooled = (h.affine()[0] for h in (f.solved("site-00"), f.pooled()))
        assert bool(np.abs(W - pooled).max() < 0.2) == close
        ledger = f.sites["site-00"].ledger
        layout = Layout.of(f.agreed, f.first, first=True)
        assert ledger.spent() == Noise.of(f.agreed, layout).rho
        assert not list(ledger.folder.rglob("rows"))


def test_noise_is_spent_before_others_can_open_it(tmp_path):
    """A site that is killed when its sums are sent: t others open them, and its ledger knows."""
    f = Federation(tmp_path, n=4, threshold=3, noise=NOISE)
    f.turn("server", *f.names, "server", *f.names, "server")
    f.run("server", *f.names[:3])
    assert f.server.known() == 2
    assert "site-03" in f.server.closed(1)
    assert not (tmp_path / "place" / "001-shares-site-03").exists()
    assert f.sites["site-03"].ledger.spent() > 0


def test_noise_never_refuses(tmp_path):
    """A site that has a row more or less, none, or the rows of another session, sends the same
    kinds of bytes: whether it takes part tells nothing of its rows."""
    seen = []
    for k, n in enumerate((30, 29, 31, 0, 300)):
        f = Federation(tmp_path / str(k), n=4, noise=NOISE)
        X, y = f.rows["site-00"]
        f.rows["site-00"] = np.resize(X, (n, X.shape[1])), np.resize(y, n)
        f.begin()
        assert set(f.run().values()) == {""}
        g = f.changed(max_rows=0, noise={**NOISE, "epsilon": 0.5})
        g.root.mkdir()
        (g.root / "ledgers").symlink_to(f.root / "ledgers")
        g.begin()
        assert set(g.run().values()) == {""}
        place = f.root / "place"
        seen.append({p.name: p.stat().st_size for p in place.glob("*site-00")})
        assert sum(1 for _ in (f.root / "ledgers/site-00").glob("*/rho")) == 2
    assert all(one == seen[0] for one in seen)


def test_noise_is_added_to_every_number(tmp_path):
    """Of all who stay together √n σ: on the triangle's diagonal, off it, and everywhere else."""
    f = Federation(tmp_path, n=5, noise=NOISE)
    assert set(f.run().values()) == {""}
    noise = Noise.of(f.agreed, Layout.of(f.agreed, f.first, first=True))
    total, exact = f.server.total(1), f.gathered(f.first)
    on = np.arange(1, 7).cumsum() - 1
    off = np.setdiff1d(np.arange(21), on)
    moved = {k: (total.arrays[k] - exact.arrays[k]).ravel() / noise.sigma[k] for k in exact.arrays}
    counts = (total.class_counts - exact.class_counts) / noise.sigma["class counts"]
    parts = {"on": moved["gram"][on], "off": moved["gram"][off] * 2**0.5, "cross": moved["cross"]}
    parts["counts"] = counts
    for name, part in parts.items():
        least = 0.1 if len(part) > 5 else 0.0  # three counts are 0 by chance now and then
        assert least <= np.sqrt((part**2).mean() / 5) < 2.5, name
    layout = Layout.of(f.agreed, f.first, first=True)
    drawn = np.stack([noise.drawn(layout) for _ in range(400)]).std(axis=0)
    gram = {True: noise.sigma["gram"], False: noise.sigma["gram"] / 2**0.5}
    expected = [*[noise.sigma["cross"]] * 18, *(gram[k in on] for k in range(21)),
                *[noise.sigma["class counts"]] * 3]  # fmt: skip
    assert np.abs(drawn / np.array(expected) - 1).max() < 0.2


def test_ridge_is_the_same_for_eigenvalues_of_another_machine(tmp_path):
    f = Federation(tmp_path, n=4, noise=NOISE)
    noise = Noise.of(f.agreed, Layout.of(f.agreed, f.first, first=True))
    gram = f.gathered(f.first).arrays["gram"]
    ridges = {noise.ridge(gram, 4.0**-BITS * (1 + k * 2**-50), 4) for k in range(5)}
    assert len(ridges) == 1


def test_noise_of_other_heads_and_terms_is_refused(tmp_path):
    for head in ("softmax", ("linear", {"intercept": True})):
        a = Federation(tmp_path / str(head)[:4], head, n=4, noise=NOISE).agreed
        with pytest.raises(UsageError, match="linear head without --intercept"):
            in_words(a)
    a = Federation(tmp_path, n=4, noise=NOISE).agreed
    for more in ({"min_rows": 5}, {"max_rows": 50}, {"scale": 10}, {"protection": "signed"},
                 {"evaluation": {"groups": [], "min_cell": 5, "bins": "0:1:15"}}):  # fmt: skip
        with pytest.raises(AflError):
            replace(a, **more)


def test_shared_noise_has_the_distribution_that_is_accounted_for():
    from scipy import stats

    for sigma in (2.0, 15.0, 300.0, 1e6):
        draws = discrete_gaussian(100_000, sigma)
        assert abs(draws.std() / sigma - 1) < 0.015
        assert abs(draws.mean()) < 0.02 * sigma
        kurtosis = stats.kurtosis(draws)
        assert abs(kurtosis) < 0.08
    sigma = 2.0
    draws = discrete_gaussian(400_000, sigma)
    k = np.arange(-9, 10)
    p = np.exp(-(k**2) / (2 * sigma**2))
    p /= p.sum()
    expected = p * len(draws)
    seen = np.array([(draws == v).sum() for v in k])
    assert (
        stats.chisquare(seen[2:-2], expected[2:-2] * seen[2:-2].sum() / expected[2:-2].sum()).pvalue
        > 1e-4
    )
    assert noise_.delta(0.03, noise_.epsilon(0.03, 1e-12)) <= 1e-12


def test_clipped_rows_have_the_norm_that_was_agreed_on():
    rng = np.random.default_rng(0)
    X = rng.integers(-30000, 30000, (200, 5)).astype(np.int16)
    Y = clip_rows(X, 4096).astype(np.int64)
    assert ((Y**2).sum(1) <= 4096**2).all()
    short = np.array([[1, 2, 3]], np.int16)
    assert np.array_equal(clip_rows(short, 4), short)


def test_rows_in_memory_and_their_test_rows():
    rows = SiteRows.of_arrays(np.zeros((2, 3)), np.array([0, 1]), np.ones((1, 3)), np.array([1]))
    assert [len(y) for _, y in rows.train()] == [2]
    assert [y.tolist() for _, y in rows.test()] == [[1]]
    assert not SiteRows.of_arrays(np.zeros((2, 3)), np.array([0, 1])).test()


@pytest.mark.parametrize("scale", [None, 10])
def test_rows_of_feature_files(tmp_path, cli, scale):
    """Those of a session's features and classes; where it scales, any numbers of its dimension."""
    f = Federation(tmp_path, n=3, **({} if scale is None else {"scale": scale}))
    X, y = f.rows["site-00"]
    np.savez(tmp_path / "rows.npz", x=X * 2.0**-BITS, y=np.array(CLASSES)[y])
    words = ["--x", "x", "--y", "y", "--backbone", "made-up"]
    fixed, reals = tmp_path / "fixed.h5", tmp_path / "reals.h5"
    cli("import", tmp_path / "rows.npz", "-o", fixed, *words, "--fraction-bits", BITS)
    cli("import", tmp_path / "rows.npz", "-o", reals, *words, "--dtype", "float32")
    for path in (fixed, reals):
        if scale is None and path == reals:
            with pytest.raises(MismatchError, match="not those of the session"):
                SiteRows.of_files(f.agreed, path)
            continue
        rows = SiteRows.of_files(f.agreed, path, path)
        found = [np.concatenate(parts) for parts in zip(*rows.train(), strict=True)]
        assert np.array_equal(found[0], X if scale is None else X * 2.0**-BITS)
        assert np.array_equal(found[1], y)
        assert len(list(rows.test())) == 1
    other = replace(f.agreed, classes=("a", "b", "z"))
    with pytest.raises(MismatchError, match="classes"):
        SiteRows.of_files(other, fixed)
    for change in ({"backbone": "another"}, {"dim": 7}, {"weights": "IMAGENET1K_V1"}):
        other = replace(f.agreed, space={**f.agreed.space, **change})
        for some in (fixed, reals) if scale else (fixed,):
            with pytest.raises(MismatchError, match=next(iter(change))):
                SiteRows.of_files(other, some)
