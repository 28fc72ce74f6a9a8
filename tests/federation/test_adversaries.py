"""Rubbish, of a member, of the server or of the place: it counts as not there, is named, and stops
nobody else."""

from __future__ import annotations

import os
from hashlib import sha256

import numpy as np
import pytest
from parties import Federation

from afltool.errors import AflError, MismatchError, UnreachableError
from afltool.federation import masking
from afltool.federation.keys import Box, canonical
from afltool.federation.masking import offer_size
from afltool.federation.place import Place

slow = pytest.mark.slow
EVE = "site-03"


def four(tmp_path, head="linear", **terms):
    """A session that three of four members are enough for; Eve is the fourth."""
    f = Federation(tmp_path, head, 4, 3, **terms)
    return f, f.sites[EVE], f.names[:3]


def key_hash(party):
    return sha256(party.box.group).digest()


# ---------------------------------------------------------------- a member


def hellos(f, eve):
    """Rubbish in place of Eve's hello; who has the key of the session can encrypt any numbers."""
    key, offer, size = key_hash(eve), eve.draw(1), offer_size(f.agreed)

    def sealed(payload, number=0, box=eve.box):
        return box.seal("hello", number, payload)

    (header, _, rest), other = (sealed(key + offer).partition(b"\n") for _ in range(2))
    return {
        "another key": sealed(b"y" * 9, box=Box(f.agreed.digest, eve.me, b"x")),
        "another length": sealed(b"y" * 99),
        "another session": sealed(bytes(32 + size), box=Box("ab" * 32, eve.me, eve.box.group)),
        "another round": sealed(bytes(32 + size), number=1),
        "another name": sealed(key + offer, box=f.sites["site-01"].box),
        "another K": sealed(bytes(32) + offer),
        "behind its signature": header + b"\n" + rest[:64] + other[2][64:],
        "small order": sealed(key + bytes(size)),
        "small order of S": sealed(key + bytes(32) + offer[32:]),
        "small order of E": sealed(key + offer[:64] + bytes(32) + offer[96:]),
        "no JSON": b"[" * 5000 + b"\n" + bytes(200),
    }


def test_member_garbage_in_its_hello(tmp_path):
    """Nor can anybody send in another's name, or put numbers behind another's signature."""
    f, eve, others = four(tmp_path)
    f.turn("server", *others)
    eve.box.group = f.sites["site-00"].box.group
    for what, data in hellos(f, eve).items():
        f.at("hello", 0, EVE).write_bytes(data)
        assert f.server.turn() == f"the hello of {EVE} in round 0"
        assert f"hello of '{EVE}' in round 0 counts as not there" in f.said(), what
        f.server._said.clear()
    assert f.over("server", *others, late=0.0)
    assert f.is_pooled(*others)


@pytest.mark.parametrize("protection", ["masked", "signed"])
def test_member_garbage_in_its_sums(tmp_path, protection):
    """Another length, or an offer that would be no secret; in a signed session numbers of no
    rows."""
    signed = protection == "signed"
    head = "linear" if signed else ("softmax", {"rounds": 1})
    f, eve, others = four(tmp_path, head, protection=protection)
    f.rolled()
    size = 8 * f.server.layout(1).size + offer_size(f.agreed)
    x = f.numbers(EVE).copy()
    x[18] = -1  # the first number of the gram's diagonal, behind the cross of 6 · 3
    bodies = [b"", b"\xff" * (size - 8), b"\xff" * (size + 8), bytes(size)]
    for body in [x.tobytes(), b"\x7f" * size] if signed else bodies:
        f.put("sums", 1, EVE, body, eve.server_key if signed else b"")
        assert EVE in f.server.turn()
        assert f"sums of '{EVE}' in round 1 counts as not there" in f.said()
        f.server._said.clear()
    f.turn(*others)
    f.server.deadline = 0.0
    f.server.turn()
    assert f.over("server", *others)  # later rounds of the same rows lose nobody
    assert f.is_pooled(*others)


def test_rubbish_boxes_are_named(tmp_path):
    """Boxes that nobody can open stop a round; one that one holder cannot open excludes nobody."""
    at = masking.FIRST + masking.HASHES
    f, eve, _ = four(tmp_path / "one")
    o = eve.draw(1)
    eve.draw = lambda number: o[:at] + bytes(masking.BOX) + o[at + masking.BOX :]
    assert f.over()
    assert f.is_pooled()
    f, eve, _ = four(tmp_path / "all")
    o = eve.draw(1)
    eve.draw = lambda number: o[:96] + os.urandom(len(o[96:]))
    with pytest.raises(MismatchError, match=rf"'{EVE}'.*broke the rules"):
        f.run()
    assert not list(tmp_path.glob("all/site-0[012]/total-1.h5"))


@pytest.mark.parametrize("liars", [(0, 3), (1, 2, 3)])
def test_n_minus_t_liars_are_named(tmp_path, liars):
    """One more stops the sum; they are named, too."""
    f = Federation(tmp_path, n=5, threshold=3).rolled()
    for k in liars:
        f.sites[f.names[k]].answer = lambda number: os.urandom(33 * 5)
    f.turn(*f.names, "server")
    if len(liars) > 2:
        with pytest.raises(MismatchError, match="site-01, site-02, site-03 are wrong"):
            f.run()
        return
    f.turn(*f.names, *f.names)
    assert f.over()
    assert f.is_pooled()
    for k, name in enumerate(f.names):
        assert (f"from {name}" in f.said() or f", {name}" in f.said()) == (k in liars)


def test_a_member_whose_sums_no_rows_can_have_stops_the_sum(tmp_path):
    f = Federation(tmp_path).rolled()
    eve = f.sites["site-01"]
    layout, x = eve.layout(1), f.numbers("site-01").copy().view(np.uint64)
    x[-1] += np.uint64(10 * f.agreed.max_rows)
    object.__setattr__(layout, "joined", lambda sums: x.copy())
    eve.layout = lambda number: layout
    with pytest.raises(AflError, match=r"makes no sense.*masks hide which of site-00, site-01, s"):
        f.run()


# ---------------------------------------------------------------- the server


def test_a_total_of_a_signed_session_holds_the_sums_of_the_site(tmp_path):
    """A member cannot add up, but it knows its own part, and what the rest of a sum can be."""
    f = Federation(tmp_path, protection="signed", min_rows=25, max_rows=34).rolled()
    f.turn(*f.names, "server")
    total, own = f.numbers(), f.numbers("site-00")
    nine = np.eye(len(own), dtype=np.int64)[18] * own[18] * 9
    for lie in (total // 2, total - own, 2 * total, total - nine):  # for the sum of all
        f.put("total", 1, "server", lie.tobytes())
        with pytest.raises(MismatchError, match=r"the server's total of round 1.*of the rest"):
            f.turn("site-00")
        assert not (tmp_path / "site-00/total-1.h5").exists()
        (tmp_path / "site-00/taken/001-total-server").unlink()


def test_close_garbage(tmp_path):
    f, _, _ = four(tmp_path)
    f.turn("server", *f.names)
    all_of = {n: f.counted("hello", 0, n) for n in f.names}
    members = ["all", {}, [], {"server": "ab" * 32}, {**all_of, EVE: ""}, {n: [] for n in all_of},
               {**all_of, "eve": "ab" * 32}, {n: all_of[n] for n in f.names[:2]}]  # fmt: skip
    said = [{"before": "", "members": one} for one in members] + [{}, {"members": all_of}]
    said += [{"before": "x", "members": all_of}, {"before": "", "members": all_of, "more": 1}]
    odd = [b"", b"[]", b"null", b"7", b'"x"', b"[" * 5000, b"\xff", canonical(said[-1]) + b" "]
    for payload in (*odd, *map(canonical, said)):
        f.put("close", 0, "server", payload)
        with pytest.raises(MismatchError, match=r"broken the rules|below the threshold"):
            f.new_site("site-00").turn()
        (tmp_path / "site-00/taken/000-close-server").unlink()
    assert not f.sent("*sums*")


# ---------------------------------------------------------------- the place


def test_own_message_under_the_next_name_is_no_backup(tmp_path):
    """And where a write is refused it is said, and goes on later."""
    f = Federation(tmp_path, place=Place).rolled()
    data, own = f.at("hello", 0, "site-00").read_bytes(), f.at("sums", 1, "site-00")
    assert len(data) < 8 * f.server.layout(1).size + offer_size(f.agreed)  # so that it is read
    own.write_bytes(data)
    f.turn("site-00")
    own.unlink()
    own.mkdir()
    for _ in range(2):
        with pytest.raises(UnreachableError, match=r"(?i)is a ?directory"):
            f.turn("site-00")
    own.rmdir()
    assert f.over()


def test_idle_poll_bytes(tmp_path):
    """While one is late, a look costs each other one under 10 kB, however large the sums are."""
    X = np.random.default_rng(0).integers(-900, 900, (80, 60)).astype(np.int16)
    rows = {f"site-{k:02d}": (X[k::4], np.arange(20) % 3) for k in range(4)}
    f = Federation(tmp_path, ("linear", {"ridge": 1.0}), n=4, rows=rows).rolled()
    f.turn(*f.names[:3], "server")
    assert f.at("sums", 1, "site-00").stat().st_size > 15_000
    for one in ("server", *f.names[:3]):
        f.turn(one)
        before = f.place.down
        assert EVE in f.turn("server")["server"]
        f.turn(one)
        assert f.place.down - before < 10_000, one
