"""The protocol over a folder: everybody has the pooled head, whoever drops out, is killed or lies;
a server that tells members different things opens no sum of few, nor does the thief of a key."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import combinations

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from parties import Federation, played

from afltool.errors import AflError, IncompleteError
from afltool.federation import commands, masking, session
from afltool.federation.keys import Box, make_cipher

slow = pytest.mark.slow
#: Each head, each protection, and each number of sites; what carries them is in test_commands.
PLAYED = [("linear", "masked", 3), ("linear", "signed", 2), ("softmax", "masked", 3),
          ("discriminant", "masked", 5), ("safle", "signed", 3), ("random-features", "signed", 3),
          ("deepafl", "masked", 3)]  # fmt: skip
STEPS = "hello", "sums", "shares"
WIDE = ("random-features", {"width": 400, "compute": "fixed", "ridge": 1.0})


@pytest.mark.parametrize(("head", "protection", "n"), PLAYED)
def test_everybody_has_the_head_of_the_pooled_rows(head, protection, n):
    f = played(head, n=n, protection=protection)
    assert f.is_pooled()
    site, number = f.sites["site-01"], f.server.newest_round()
    assert {site.take("done", number, name) for name in f.keys} == {site.result(number)}


@pytest.mark.parametrize(("n", "t", "head", "steps"), [
    (5, 3, "linear", ["hello", "sums"]), (5, 3, "linear", ["hello", "shares"]),
    pytest.param(16, 11, WIDE, STEPS, marks=slow),
])  # fmt: skip
def test_a_member_drops_out_at_each_step(tmp_path, n, t, head, steps):
    """One before each of these: its hello, its sums, its shares."""
    f = Federation(tmp_path, head, n=n, threshold=t)
    of, stay = dict(zip(steps, f.names[::-1], strict=False)), f.names[: -len(steps)]
    hello, sums, shares = ([of[one]] if one in of else [] for one in STEPS)
    f.server.deadline = 0.0
    f.turn("server", *stay, *shares, *sums, "server", *stay, *shares)
    assert f.over("server", *stay, late=0.0)
    assert f.is_pooled(*stay, of=[*stay, *shares])
    for gone in (*hello, *sums):
        with pytest.raises(IncompleteError, match="goes on without"):
            f.run(gone)
        assert not list((tmp_path / gone).glob("secrets-*"))  # excluded keeps no secrets


def test_below_the_threshold_nothing_is_opened(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.server.deadline = 0.0
    waits = f.run("server", "site-00", "site-01")
    assert waits["server"] == "the hello of site-02, site-03 in round 0"
    assert not f.sent("000-close*")


def test_killed_anywhere_the_same_bytes_are_sent(tmp_path, monkeypatch):
    """Every write of every party fails once, after it or before it; then all begin anew."""
    f = Federation(tmp_path)
    sent, write, rng = {}, f.place.write, np.random.default_rng(0)

    def fails(name, data):
        assert sent.setdefault(name, data) == data
        if rng.random() < 0.5:
            write(name, data)
        raise KeyboardInterrupt

    monkeypatch.setattr(f.place, "write", fails)
    waits = {"server": "killed"}
    while set(waits.values()) != {""}:
        f.begin()
        for name in ("server", *f.names):
            waits[name] = "killed"
            with suppress(KeyboardInterrupt):
                waits[name] = f.party(name).turn()
    assert f.is_pooled()


def test_an_end_that_was_interrupted_goes_on(tmp_path, monkeypatch):
    """Before the key of the session is deleted: it goes for good, and the summary is made."""
    f, key = Federation(tmp_path), tmp_path / "server/group-key"
    (key.parent / "head-old.h5").mkdir(parents=True)  # somebody's own file

    def killed(path, *data, real=session.write_once):
        found = real(path, *data) if data else None
        if path.name == ("finished" if data else "group-key"):
            raise KeyboardInterrupt
        return found

    for step in ("write_once", "delete"):
        with monkeypatch.context() as m:
            m.setattr(session, step, killed)
            with pytest.raises(KeyboardInterrupt):
                f.run()
        assert key.exists()
        f.begin()
    assert f.over()
    assert not key.exists()
    commands.finish(f.server)
    found = json.loads((tmp_path / "server/summary.json").read_bytes())
    assert found["signed"] == sorted(["server", *f.names])


# ---------------------------------------------------------------- one close a round


def test_a_liar_in_seen_stops_nobody(tmp_path):
    """Shares come when so many have seen the same, and not one less; a lie is named."""
    f = Federation(tmp_path, n=5, threshold=4).rolled()
    f.turn(*f.names, "server")
    f.put("seen", 1, "site-04", bytes(32))
    for k, name in enumerate(f.names[:4]):
        assert not f.sent("001-shares*")
        f.turn(name)
        assert len(f.sent("001-seen*")) == k + 2
    assert f.sent("001-shares*") == ["001-shares-site-03"]
    assert "site-04 or the server lie about who is in round 1" in f.said("site-00")
    assert f.over("server", *f.names[:4], late=0.0)
    assert f.is_pooled(*f.names[:4], of=f.names)


@pytest.mark.parametrize("protection", ["masked", "signed"])
def test_one_stolen_key_opens_nothing_old(protection):
    """A key and all that ever was in the place, after the end: of a member the totals that it has
    known, and nobody's sums; of the server nothing at all."""
    f = played(n=3, protection=protection)
    assert not list(f.root.glob("*/secrets-*"))
    assert not (f.root / "server/group-key").exists()

    def opened(box, kind, number, sender, key):
        data = f.at(kind, number, sender).read_bytes()
        return box.open(kind, number, f.agreed.people[sender], data, key)

    for whose in ("site-00", "site-01", "server"):
        key, mine = f.keys[whose], f.agreed.places.get(whose)
        box = Box(f.agreed.digest, key)
        shut = [("sums", 1, n, key.agreeing) for n in f.names]
        if mine:
            box.group = opened(box, "key", mine, "server", key.agreeing)[:32]
        else:
            shut += [("key", k, "server", x) for k in range(1, 4) for x in (key.agreeing, None)]
        for what in shut:
            with pytest.raises(AflError):
                opened(box, *what)
        if mine and protection == "masked":
            check_boxes(f, key, {n: opened(box, "hello", 0, n, None) for n in f.names})


def check_boxes(f, key, hellos):
    """Of each secret a thief opens the one share that its member holds, and no other."""
    for giver, hello in hellos.items():
        offer = masking.Offer.of(f.agreed, 1, giver, hello)
        assert any(offer.decrypt_shares(key)["pairs"])
        for holder in f.agreed.members:
            for theirs in (offer.data[64:96], holder.agreeing, offer.public):
                if holder.name != key.name:
                    cipher = make_cipher(key.agreeing, theirs, offer.about, holder.key)
                    with pytest.raises(InvalidTag):
                        cipher.decrypt(bytes(12), offer.part(holder.name)[1], None)


def test_secrets_go_with_their_round(tmp_path):
    f = Federation(tmp_path, ("softmax", {"rounds": 1})).until(2)
    assert not list(tmp_path.glob("*/secrets-1"))
    drawn = [path.read_bytes() for path in tmp_path.glob("*/secrets-[23]")]
    assert len({half for one in drawn for half in (one[:32], one[32:])}) == 2 * len(drawn) >= 6
    assert f.over()
    assert not list(tmp_path.glob("*/secrets-*"))
    assert not f.sent("*seen*")  # t = n needs none


# ---------------------------------------------------------------- what a reader, a member see


def test_masked_numbers_are_uniform():
    f = played(n=3)
    x = f.numbers("site-00").view(np.uint64)
    y = np.frombuffer(f.server.take("sums", 1, "site-00"), "<u8", len(x))
    assert 20 < np.mean([bin(int(a ^ b)).count("1") for a, b in zip(x, y, strict=True)]) < 44


def test_shamir_as_in_wikipedias_example(monkeypatch):
    monkeypatch.setattr(masking, "PRIME", 1613)
    points = {1: 1494, 2: 329, 3: 965}
    assert int.from_bytes(masking.join({k: v.to_bytes(33) for k, v in points.items()})) == 1234


def test_fewer_than_t_shares_open_nothing(tmp_path):
    """And n − t liars stop nobody: each is named, whoever they are."""
    f, drawn = Federation(tmp_path, n=5, threshold=3), bytes(range(64))
    offer = masking.Offer.of(
        f.agreed, 1, "site-00", masking.make_offer(f.agreed, 1, "site-00", drawn)
    )
    for kind, secret in (("own", drawn[32:]), ("pairs", drawn[:32])):
        shares = {n: offer.decrypt_shares(f.keys[n])[kind] for n in f.names}
        for some in (one for k in range(1, 6) for one in combinations(f.names, k)):
            joined = masking.join({f.agreed.places[n]: shares[n] for n in some})
            assert (joined == secret) == (len(some) >= 3)
            opened = offer.combine_shares(kind, {n: shares[n] for n in some})[0]
            assert opened == (secret if len(some) >= 3 else None)
            lied = offer.combine_shares(kind, {**shares, **{n: bytes(33) for n in some}})
            assert lied == (secret if len(some) <= 2 else None, list(some))
