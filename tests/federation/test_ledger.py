"""Two sums with and without a member tell it exactly: the ledger, leaving, and noise."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from parties import BITS, CLASSES, NOISE, Federation, key_of, played
from scipy import stats

from afltool.errors import AflError, CorruptFileError, MismatchError, UsageError
from afltool.federation import noise as noise_
from afltool.federation.agreement import Agreement, Consent
from afltool.federation.commands import format_text
from afltool.federation.compute import Layout
from afltool.federation.ledger import Ledger
from afltool.federation.noise import Noise, clip_rows, discrete_gaussian
from afltool.federation.rows import SiteRows

ALONE = "site-03 is known nearly alone"


@pytest.fixture
def four():
    return played(n=4)


def refused(f, why, shown="*shares*"):
    with pytest.raises(MismatchError, match=why):
        f.run()
    assert not f.sent(shown)


def test_restart_with_one_fewer(tmp_path, four):
    """The difference of the two totals would be the leaver's own sums."""
    old = four.server.layout(1).joined(four.server.total(1)).view(np.int64)
    assert np.array_equal(old - four.numbers(*four.names[:3]), four.numbers("site-03"))
    for again in (False, True):
        g = four.changed(tmp_path / f"{again}", four.names[:3])
        g.sites = {n: g.new_site(n, again=again) for n in g.names}
        refused(g, rf"30 of the 30 rows.*{ALONE}", "*sums*")


def test_leaving_needs_the_leaver(tmp_path, four):
    """Odd consents, and old ones, are bad_certificate and old_consent in tests/attacks."""
    old, leaver, stay = four.agreed.digest, four.keys["site-03"], four.names[:3]
    wrong = Consent.sign(old, four.keys["site-02"])  # of somebody who stays
    g = four.changed(tmp_path / "a", stay, follows=old, consents=(wrong,))
    refused(g, "must sign that it leaves")
    consent = Consent.sign(old, leaver)
    with pytest.raises(MismatchError, match="has not signed"):
        replace(consent, session="ab" * 32)
    other = Consent.sign(replace(four.agreed, min_rows=1).digest, leaver)
    refused(four.changed(tmp_path / "b", stay, follows=old, consents=(other,)), ALONE)
    g = four.changed(tmp_path / "c", stay, follows=old, consents=(consent,))
    assert f"site-03 ({leaver.party.key[:16]}) has left" in format_text(g.agreed)
    assert Agreement.parse(g.agreed.text) == g.agreed
    assert g.over()
    assert g.is_pooled(*g.names)


def test_a_drop_out_of_the_next_session_is_one_fewer_too(tmp_path, four):
    """All are agreed on, one does not come: nobody gives shares."""
    g = four.changed(tmp_path / "then", threshold=3)
    g.turn("server", *g.names[:3])
    with pytest.raises(MismatchError, match=ALONE):
        g.over("server", *g.names[:3], late=0.0)
    assert not g.sent("*shares*")


def test_who_joins_has_agreed_to_follow(tmp_path, four):
    """A new member's sums are the difference: only if the session says which one it follows. The
    same members may sum again."""
    four.keys["newcomer"] = key_of("newcomer")
    X, y = four.rows["site-00"]
    four.rows["newcomer"] = X[:25] + np.int16(1), y[:25]
    names = sorted([*four.names, "newcomer"])
    refused(four.changed(tmp_path / "a", names), "newcomer is known nearly alone")
    assert four.changed(tmp_path / "b", names, follows=four.agreed.digest).over()
    assert four.changed(tmp_path / "c").over()


def test_ledger_overlap(tmp_path):
    """One more row, one fewer, scaled. In another order, or as a file of other classes, they are
    ledger_classes in tests/attacks; of the same members changed_rows and same_members."""
    f, ledger = Federation(tmp_path, n=7), Ledger(tmp_path / "ledger")
    X, y = f.rows["site-00"]
    hashes, _ = ledger.hashes(f.agreed, [(X, y)])
    for _ in range(2):
        ledger.claim(f.agreed, 1, f.names, hashes)
    fewer, members = f.names[:6], f.agreed.members
    then = replace(f.agreed, members=members[:6], nonce="0" * 32, scale=10)
    for rows in ((X, y), (X[:-1], y[:-1]), (np.concatenate([X, X[:1] + 1]), np.append(y, 0)),
                 (X[:1], y[:1])):  # fmt: skip
        with pytest.raises(MismatchError, match="site-06 is known nearly alone"):
            ledger.claim(then, 1, fewer, ledger.hashes(then, [rows])[0])
    other, _ = ledger.hashes(then, [(X + 1, y)])
    ledger.check(replace(then, scale=None), fewer, other)  # other rows
    finer = {**f.agreed.space, "fraction_bits": 11}  # in which nobody can tell
    for terms in ({}, {"scale": None, "space": finer}):
        with pytest.raises(MismatchError, match="may be, in the sums"):
            ledger.check(replace(then, **terms), fewer, other)
    wider = {**finer, "dim": 7}  # features of something else
    ledger.check(replace(then, scale=None, space=wider), fewer, other)
    three, four = (replace(then, members=members[:n], threshold=3) for n in (3, 4))  # c is 2
    again = Ledger(ledger.folder, again=True)
    with pytest.raises(MismatchError, match="--again says that you accept it"):
        ledger.check(three, f.names[:3], hashes)
    again.check(three, f.names[:3], hashes)
    with pytest.raises(MismatchError, match="nearly alone"):
        again.check(four, f.names[:4], hashes)
    text = b"".join(p.read_bytes() for p in ledger.folder.rglob("*") if p.is_file())
    assert X[0].tobytes() not in text
    assert (ledger.folder.stat().st_mode & 0o077) == 0
    next(ledger.folder.rglob("people-1")).write_bytes(b'{"people": 7}')
    with pytest.raises(CorruptFileError, match="people-1 is damaged"):
        ledger.check(then, fewer, hashes)


def test_members_on_one_machine_have_one_ledger(tmp_path):
    """The rows of each are in it, and each is refused where its sums would tell of one member."""
    f = Federation(tmp_path / "first", n=4)
    one = f.root / "ledgers/machine"
    one.mkdir(parents=True)
    for name in f.names:
        (f.root / "ledgers" / name).symlink_to(one)
    f.begin()
    assert f.over()
    assert len({p.read_bytes() for p in one.rglob("rows")}) == 4
    assert len(list(one.rglob("people-1"))) == 4
    g = f.changed(tmp_path / "then", f.names[:3])
    for name in g.rolled().names:
        with pytest.raises(MismatchError, match=ALONE):
            g.turn(name)
    assert not g.sent("*sums*")


# ---------------------------------------------------------------- noise


def spent(f, name):
    return [float(p.read_bytes()) for p in (f.root / "ledgers" / name).glob("*/rho")]


def noise_of(f):
    layout = Layout.of(f.agreed, f.first, first=True)
    return Noise.of(f.agreed, layout), layout


@pytest.mark.parametrize(("epsilon", "close"), [(1e9, True), (1.0, False)])
def test_noise_is_shared_and_everybody_solves_with_the_same_ridge(epsilon, close):
    f = played(noise={**NOISE, "epsilon": epsilon})
    assert len({f.solved(n).digest() for n in ("server", *f.names)}) == 1
    W, pooled = (h.affine()[0] for h in (f.solved("site-00"), f.pooled()))
    assert bool(np.abs(W - pooled).max() < 0.2) == close
    assert spent(f, "site-00") == [noise_of(f)[0].rho]
    assert not list((f.root / "ledgers").rglob("rows"))


def test_noise_is_spent_before_others_can_open_it(tmp_path):
    """A site that is killed when its sums are sent: t others open them, and its ledger knows."""
    f = Federation(tmp_path, n=4, threshold=3, noise=NOISE).rolled()
    f.turn(*f.names, "server")
    f.run("server", *f.names[:3])
    assert f.server.newest_round() == 2
    assert "site-03" in f.server.get_close(1)
    assert not f.sent("001-shares-site-03")
    assert spent(f, "site-03")[0] > 0


def test_noise_is_added_to_every_number():
    """Of all who stay together √n σ: on the triangle's diagonal, off it, and everywhere else."""
    f = played(noise={**NOISE, "epsilon": 1.0})
    noise, layout = noise_of(f)
    total, exact = f.server.total(1), f.gathered()
    on = np.arange(1, 7).cumsum() - 1
    gram = np.where(np.isin(np.arange(21), on), 1.0, 0.5**0.5) * noise.sigma["gram"]
    sigma = np.concatenate([np.full(18, noise.sigma["cross"]), gram,
                            np.full(3, noise.sigma["class counts"])])  # fmt: skip
    moved = (layout.joined(total).view(np.int64) - layout.joined(exact).view(np.int64)) / sigma
    parts = {"cross": moved[:18], "on": moved[18:39][on], "off": np.delete(moved[18:39], on)}
    for name, part in {**parts, "counts": moved[39:]}.items():
        least = 0.1 if len(part) > 5 else 0.0  # three counts are 0 by chance now and then
        assert least <= np.sqrt((part**2).mean() / 3) < 2.5, name
    drawn = np.stack([noise.draw(layout) for _ in range(400)]).std(axis=0)
    assert np.abs(drawn / sigma - 1).max() < 0.2
    ridges = {noise.ridge(exact.arrays["gram"], 4.0**-BITS * (1 + k * 2**-50), 5) for k in range(5)}
    assert len(ridges) == 1  # eigenvalues of another machine


def test_noise_of_other_heads_and_terms_is_refused(tmp_path):
    for head in ("softmax", ("linear", {"intercept": True})):
        with pytest.raises(UsageError, match="linear head without --intercept"):
            format_text(Federation(tmp_path / str(head)[:4], head, noise=NOISE).agreed)
    a = Federation(tmp_path, noise=NOISE).agreed
    for more in ({"min_rows": 5}, {"max_rows": 1}, {"scale": 10}, {"protection": "signed"},
                 {"evaluation": {"groups": [], "min_cell": 5}}):  # fmt: skip
        with pytest.raises(AflError):
            replace(a, **more)


def test_shared_noise_has_the_distribution_that_is_accounted_for():
    for sigma in (2.0, 15.0, 300.0, 1e6):
        draws = discrete_gaussian(100_000, sigma)
        assert abs(draws.std() / sigma - 1) < 0.015
        assert abs(draws.mean()) < 0.02 * sigma
        assert abs(stats.kurtosis(draws)) < 0.08
    draws = discrete_gaussian(400_000, 2.0)
    k = np.arange(-9, 10)
    p = np.exp(-(k**2) / 8.0)
    expected = (p / p.sum() * len(draws))[2:-2]
    seen = np.array([(draws == v).sum() for v in k])[2:-2]
    assert stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue > 1e-4
    assert noise_.delta(0.03, noise_.epsilon(0.03, 1e-12)) <= 1e-12
    tau = 10 * sum(np.exp(-2 * np.pi**2 * 0.09 * k / (k + 1)) for k in (1, 2))  # of σ = 0.3, n = 3
    bounds = 4 / 3 + 5 * tau / 2, ((4 / 3) ** 0.5 + (5 * tau**2) ** 0.5) ** 2
    assert noise_.rho(2.0, {0.3: 5}, 3) == pytest.approx(min(bounds) / 2, rel=1e-12)


def test_clipped_rows_have_the_norm_that_was_agreed_on():
    X = np.random.default_rng(0).integers(-30000, 30000, (200, 5)).astype(np.int16)
    norms = (clip_rows(X, 4096).astype(np.int64) ** 2).sum(1)
    assert (norms <= 4096**2).all()
    assert (norms > 4090**2).all()
    short = np.array([[1, 2, 3]], np.int16)
    assert np.array_equal(clip_rows(short, 4), short)


# ---------------------------------------------------------------- rows of files


def test_rows_of_feature_files(tmp_path, cli):
    """Those of a session's features and classes; where it scales, any numbers of its dimension."""
    f = Federation(tmp_path, scale=10)
    X, y = f.rows["site-00"]
    np.savez(tmp_path / "rows.npz", x=X * 2.0**-BITS, y=np.array(CLASSES)[y])
    words = ("import", tmp_path / "rows.npz", "--x", "x", "--y", "y", "--backbone", "made-up", "-o")
    fixed, reals = tmp_path / "fixed.h5", tmp_path / "reals.h5"
    cli(*words, fixed, "--fraction-bits", BITS)
    cli(*words, reals, "--dtype", "float32")
    for path, scale in ((fixed, None), (fixed, 10), (reals, 10)):
        rows = SiteRows.of_files(replace(f.agreed, scale=scale), path, path)
        found = [np.concatenate(parts) for parts in zip(*rows.train(), strict=True)]
        assert np.array_equal(found[0], X if scale is None else X * 2.0**-BITS)
        assert np.array_equal(found[1], y)
        assert len(list(rows.test())) == 1
    other = {"backbone": "another", "dim": 7, "weights": "IMAGENET1K_V1"}
    changes = [{"space": {**f.agreed.space, k: v}} for k, v in other.items()]
    for change in (*changes, {"classes": ("a", "b", "z")}, {"scale": None}):
        with pytest.raises(MismatchError, match="not those of the session"):
            SiteRows.of_files(replace(f.agreed, **change), reals)
