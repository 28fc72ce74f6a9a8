"""Masks between fewer pairs: who is a neighbour, what an adversary reaches, and rosters before."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from federations import HEAD, MASKED, SERVER, Federation, statistics_of
from problems import total
from rounds_under_masks import digest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, maximum_flow
from trials import Trial

from afltool.privacy import identity, masking, roster

ONE = identity.Identity.new("one").member
# Members, threshold, how many collude; the least number of neighbours by docs/privacy.md.
AGREED = [(31, 21, 0, 30), (32, 22, 0, 30), (36, 19, 0, 33), (40, 30, 10, 30), (60, 31, 0, 57),
          (100, 67, 0, 50), (100, 67, 8, 60), (100, 80, 0, 30), (101, 75, 6, 42)]  # fmt: skip


def agreed(n: int, t: int, c: int, **more) -> roster.Roster:
    """A roster of n members; nobody uses their keys."""
    members = tuple(replace(ONE, name=f"{k:03}") for k in range(n))
    return roster.Roster("", members, t, HEAD, 1, MASKED, SERVER.member, c, masks=2, **more)


def graph(one: roster.Roster) -> np.ndarray:
    names = one.names()
    near = [one.neighbours(name) for name in names]
    return np.array([[name in of for name in names] for of in near], np.int32)


@pytest.mark.parametrize(("n", "t", "c", "least"), AGREED)
def test_nobody_is_cut_off_by_all_that_an_adversary_can_open(n, t, c, least):
    """Menger's theorem: as many paths without a common member as others have to be taken out."""
    one = agreed(n, t, c)
    assert one.degree == least > min(n - 2, (n - t) * (n - c) // (t - c) + c)
    pairs = graph(one)
    assert (pairs == pairs.T).all()
    assert not pairs.diagonal().any()
    assert (pairs.sum(0) >= least).all()
    inner, zero = np.eye(n, dtype=np.int32), np.zeros((n, n), np.int32)
    split = csr_array(np.block([[zero, inner], [pairs, zero]]))  # each member: a way in, and out
    for far in range(1, n):  # a circle: all members are alike
        if not pairs[0, far]:
            assert maximum_flow(split, n, far).flow_value >= least


def test_all_pairs_have_masks_where_members_are_few_and_where_it_was_agreed_so():
    for n in (2, 3, 10, 31):
        assert graph(agreed(n, n, 0, all=True)).sum() == n * (n - 1)
    assert graph(replace(agreed(100, 67, 0), masks=1)).sum() == 100 * 99
    assert graph(agreed(100, 100, 40, all=True)).sum() == 100 * 42


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """36 members, 19 must stay; the server opens the pairwise secrets of 32 about site-0."""
    federation = Federation(tmp_path_factory.mktemp("many"), 36, 19)
    federation.offered = federation.offers()
    near = sorted(federation.roster.neighbours("site-0"))
    assert (federation.roster.degree, len(near)) == (33, 34)
    federation.near, federation.gone = near, near[: 17 * 36 // 19]
    rng = np.random.default_rng(0)
    federation.rest = sorted(federation.me.keys() - set(federation.gone))
    federation.found = {name: statistics_of(rng) for name in federation.rest}
    return federation


def peeled(federation, name: str, gone) -> np.ndarray:
    """A member's numbers less its own mask and all pairwise ones of those that are ``gone``."""
    one, offered = federation.roster, federation.offered
    arrays = federation.masked(offered, name, federation.found[name])
    secrets = {who: federation.round_folder(who).secrets() for who in (name, *gone)}
    streams = [(masking.self_key(one, secrets[name].self, name), True)]
    for other in sorted(one.neighbours(name) & set(gone)):
        key = masking.pair_key(offered, secrets[other].mask_key, other, name)
        streams.append(masking.pair_stream(key, name, other, subtract=True))
    words = masking.flat(arrays)
    masking.add_streams(streams, words)
    return np.concatenate(words).view(np.int64)


def truth(*found) -> np.ndarray:
    whole = total(found)
    arrays = {**whole.arrays, masking.COUNTS: whole.class_counts}
    return np.concatenate([arrays[name].ravel() for name in sorted(arrays)])


def test_a_server_that_opens_all_it_can_learns_one_sum_of_the_rest(many):
    """Not one of the four that are left, nor two or three of them, around whomever it digs."""
    files = {name: peeled(many, name, many.gone) for name in many.rest}
    assert len(files) == 4
    for left in range(1, 2**4 - 1):
        some = [name for k, name in enumerate(many.rest) if left >> k & 1]
        true = truth(*(many.found[name] for name in some))
        assert not np.isin(sum(files[name] for name in some), true[true != 0]).any()
    np.testing.assert_array_equal(sum(files.values()), truth(*many.found.values()))


def test_the_premise_with_all_neighbours_a_file_is_open(many):
    found = peeled(many, "site-0", many.near)
    np.testing.assert_array_equal(found, truth(many.found["site-0"]))


def test_any_that_stay_make_their_sum(many):
    """20 of 36, of whom two made no offer."""
    names = sorted(many.me)
    rng = np.random.default_rng(1)
    fresh = Federation(many.folder / "fresh", 36, 19)
    offered = fresh.offers(names[2:])
    found = {name: statistics_of(rng) for name in names[3:23]}
    got = fresh.sum_under_masks(offered, found, list(found))
    assert got.digest() == total(found.values()).digest()


def test_who_is_left_hangs_together_after_any_arcs_are_taken(many):
    """The worst that can be taken from a circle are two arcs."""
    pairs, n, most = graph(many.roster), 36, many.roster.degree - 1
    for first in range(most + 1):
        for gap in range(1, n - most):
            out = np.r_[np.arange(first), first + gap + np.arange(most - first)] % n
            stay = np.setdiff1d(np.arange(n), out)
            assert connected_components(csr_array(pairs[np.ix_(stay, stay)]))[0] == 1


# ---------------------------------------------------------------- what was agreed before


def without_version(session: Path) -> None:
    """The session as afltool wrote it before masks had versions."""
    found = json.loads(session.read_text())
    assert found["body"].pop("masks") == 2
    session.write_text(json.dumps(found))


@pytest.mark.parametrize("threshold", [2, "all"])
def test_a_session_of_the_first_version_goes_on(tmp_path, threshold):
    """Its offers have the form of then, and its masks are of ChaCha20."""
    trial = Trial(tmp_path, 3)
    at = trial.begin("s", threshold=threshold)
    without_version(at.session)
    trial.offer(at)
    if threshold != "all":
        (one,) = json.loads(at.offer("site-0").read_text())["body"]["rounds"]
        assert one["shares"][0].keys() == {"sealed", "mask", "self"}
    assert digest(trial.whole(at, 1)) == trial.pooled(at, 1)
