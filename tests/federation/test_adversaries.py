"""Rubbish, of a member, of the server or of the place: it counts as not there, is named, and stops
nobody else."""

from __future__ import annotations

import os
from hashlib import sha256
from itertools import combinations

import numpy as np
import pytest
from msgspec import msgpack
from parties import Federation

from afltool.errors import AflError, MismatchError, UnreachableError
from afltool.federation import masking
from afltool.federation.keys import Box, canonical
from afltool.federation.masking import offer_size
from afltool.federation.place import Place

slow = pytest.mark.slow
EVE = "site-03"


def key_hash(party):
    return sha256(party.box.group).digest()


def others_finish(f, late=0.0):
    """Everybody but Eve comes to the end, with the head of all who were inside."""
    waits = f.over("server", *f.names[:3], late=late) or f.party("server").turn()
    assert waits in (True, f"{EVE} to sign the end")
    assert f.is_pooled(*f.names[:3]) or f.digests("server", "site-00") == {f.pooled().digest()}


# ---------------------------------------------------------------- a member


def sealed(make, number=0, box=lambda f, eve: eve.box):
    """What makes of a session and of Eve a hello with this payload."""
    return lambda f, eve: box(f, eve).seal("hello", number, make(f, eve))


def zeros(f, eve):
    return bytes(32 + offer_size(f.agreed))


HELLOS = {
    "empty": b"",
    "short": b"x" * 20,
    "another key": sealed(lambda f, e: b"y" * 9, box=lambda f, e: Box(f.agreed.digest, e.me, b"x")),
    "another length": sealed(lambda f, e: b"y" * 99),
    "another session": sealed(zeros, box=lambda f, e: Box("ab" * 32, e.me, e.box.group)),
    "another round": sealed(zeros, number=1),
    "another K": sealed(lambda f, e: bytes(32) + e.draw(1)),
    "small order": sealed(lambda f, e: key_hash(e) + bytes(offer_size(f.agreed))),
    "small order of S": sealed(lambda f, e: key_hash(e) + bytes(32) + e.draw(1)[32:]),
    "small order of E": sealed(
        lambda f, e: key_hash(e) + (o := e.draw(1))[:64] + bytes(32) + o[96:]),
    "no JSON": lambda f, e: b"[" * 5000 + b"\n" + bytes(200),
    "nothing": lambda f, e: b"",
}  # fmt: skip


@pytest.mark.parametrize("hello", HELLOS)
def test_member_garbage_in_its_hello(tmp_path, hello):
    f = Federation(tmp_path, n=4, threshold=3)
    f.turn("server", *f.names[:3])
    eve = f.sites[EVE]
    eve.box.group = f.sites["site-00"].box.group
    if isinstance(body := HELLOS[hello], bytes):
        f.put_body("hello", 0, EVE, body)
    else:
        f.at("hello", 0, EVE).write_bytes(body(f, eve))
    others_finish(f)
    assert f.is_pooled(*f.names[:3])
    assert hello == "nothing" or f"hello of '{EVE}'" in f.said()


@pytest.mark.parametrize("kind", ["length", "impossible", "gram", "offer"])
def test_member_garbage_in_its_sums(tmp_path, kind):
    """Another length; in a signed session numbers of no rows; an offer that would be no secret."""
    signed = kind in ("impossible", "gram")
    f = Federation(tmp_path, ("softmax", {"rounds": 1}) if kind == "offer" else "linear", n=4,
                   threshold=3, protection="signed" if signed else "masked").rolled()  # fmt: skip
    size = 8 * f.server.layout(1).size + offer_size(f.agreed)
    to = f.sites[EVE].server_key if signed else b""
    x = f.numbers(EVE).copy()
    x[18] = -1  # the first number of the gram's diagonal, behind the cross of 6 · 3
    bodies = {"length": [b"", b"\xff" * (size - 8), b"\xff" * (size + 8)], "gram": [x.tobytes()],
              "impossible": [b"\x7f" * size], "offer": [bytes(size)]}[kind]  # fmt: skip
    for body in bodies:
        f.put("sums", 1, EVE, body, to)
        f.server.turn()
    f.turn(*f.names[:3])
    f.server.deadline = 0.0
    f.server.turn()  # later rounds of the same rows lose nobody
    others_finish(f, None if kind == "offer" else 0.0)
    assert f"sums of '{EVE}' in round 1 counts as not there" in f.said()


def test_member_replaces_what_was_counted(tmp_path):
    """Its hello for one site, and its sums, after the close: the server has kept them."""
    f = Federation(tmp_path, n=4, threshold=3).rolled()
    eve = f.sites[EVE]
    other = masking.offered(f.agreed, 1, EVE, os.urandom(64))
    f.put("hello", 0, EVE, key_hash(eve) + other)
    assert f"hello of {EVE}" in f.sites["site-00"].turn()
    f.rolled()
    f.put("sums", 1, EVE, bytes(8 * f.server.layout(1).size + offer_size(f.agreed)))
    assert f.over("server", *f.names[:3], late=0.0)
    assert f.solved("site-00").digest() == f.pooled().digest()


def test_rubbish_shares_are_named(tmp_path):
    """Boxes that nobody can open: the others have what they need of honest ones, or name it."""
    f = Federation(tmp_path, n=4, threshold=3)
    eve, real = f.sites[EVE], f.sites[EVE].draw
    eve.draw = lambda number: (o := real(number))[:96] + os.urandom(len(o[96:]))
    with pytest.raises(MismatchError, match=rf"'{EVE}'.*broke the rules"):
        f.run()
    assert not list(tmp_path.glob("site-0[012]/total-1.h5"))


@pytest.mark.parametrize("liars", [(0, 1), *(pytest.param(c, marks=slow)
                                             for c in combinations(range(5), 2))])  # fmt: skip
def test_n_minus_t_liars_are_named(tmp_path, liars):
    f = Federation(tmp_path, n=5, threshold=3)
    for k in liars:
        f.sites[f.names[k]].answer = lambda number: os.urandom(33 * 5)
    f.rolled().turn(*f.names, "server", *f.names, *f.names)
    assert f.over()
    assert f.solved("server").digest() == f.pooled().digest()
    for k, name in enumerate(f.names):
        assert (f"from {name}" in f.said() or f", {name}" in f.said()) == (k in liars)


def test_more_liars_stop_the_sum_and_are_named(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    for k in (1, 2):
        f.sites[f.names[k]].answer = lambda number: bytes(33 * 4)
    with pytest.raises(MismatchError, match="site-01, site-02 are wrong"):
        f.run()


def test_a_member_that_gives_wrong_shares_excludes_nobody(tmp_path):
    """A box that one holder cannot open."""
    f = Federation(tmp_path, n=4, threshold=3)
    eve, real = f.sites[EVE], f.sites[EVE].draw
    at = masking.FIRST + masking.HASHES
    eve.draw = lambda number: (
        o[:at] + bytes(masking.BOX) + o[at + masking.BOX :] if (o := real(number)) else o
    )
    assert f.over()
    assert f.is_pooled()


def test_a_member_cannot_send_in_anothers_name(tmp_path):
    f = Federation(tmp_path, n=3)
    f.turn("server", *f.names[:2])
    f.put("hello", 0, "site-02", zeros(f, None), box=f.sites["site-01"].box)
    assert f.server.take("hello", 0, "site-02") is None
    assert "not signed by 'site-02'" in f.said()
    assert f.over()
    assert f.is_pooled()


def test_a_member_cannot_put_its_numbers_behind_anothers_signature(tmp_path):
    """It has the key of the session, so it can encrypt; the signature is of all that follows."""
    f = Federation(tmp_path, n=3)
    f.turn("server", *f.names)
    eve, victim, person = f.sites["site-01"], f.sites["site-02"], f.agreed.people["site-02"]
    real = f.at("hello", 0, "site-02").read_bytes()
    header, _, rest = real.partition(b"\n")
    forged = Box(f.agreed.digest, f.keys["site-02"], eve.box.group).seal(
        "hello", 0, key_hash(eve) + eve.draw(1))  # fmt: skip
    mixed = header + b"\n" + rest[:64] + forged.partition(b"\n")[2][64:]
    assert victim.box.open("hello", 0, person, real)
    with pytest.raises(AflError, match="altered"):
        victim.box.open("hello", 0, person, mixed)


def test_a_member_whose_sums_no_rows_can_have_stops_the_sum(tmp_path):
    f = Federation(tmp_path, n=3).rolled()
    eve = f.sites["site-01"]
    layout, x = eve.layout(1), f.numbers("site-01").copy().view(np.uint64)
    x[-1] += np.uint64(10 * f.agreed.max_rows)
    object.__setattr__(layout, "joined", lambda sums: x.copy())
    eve.layout = lambda number: layout
    with pytest.raises(AflError, match=r"makes no sense.*masks hide which of site-00, site-01, s"):
        f.run()


# ---------------------------------------------------------------- the server


LIES = {  # what the server says in place of the sum of all
    "half of it": lambda total, own: total // 2,
    "without a site": lambda total, own: total - own,
    "twice": lambda total, own: 2 * total,
    "another gram": lambda total, own: total - np.eye(len(own), dtype=int)[18] * own[18] * 9,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_total_of_a_signed_session_holds_the_sums_of_the_site(tmp_path, lie):
    """A member cannot add up, but it knows its own part, and what the rest of a sum can be."""
    f = Federation(tmp_path, n=3, protection="signed", min_rows=25, max_rows=34).rolled()
    f.turn(*f.names, "server")
    f.put("total", 1, "server", LIES[lie](f.numbers(), f.numbers("site-00")).tobytes())
    with pytest.raises(MismatchError, match=r"the server's total of round 1.*of the rest"):
        f.turn("site-00")
    assert not (tmp_path / "site-00/total-1.h5").exists()


CLOSES = [b"", b"[]", b"null", b"7", b'"x"', b"{}", b"[" * 5000, b"\xff", {}, {"members": {}},
          {"before": "", "members": []}, {"before": "", "members": {"eve": "ab" * 32}},
          {"before": "x", "members": "all"}, {"before": "", "members": {"server": "ab" * 32}},
          {"before": "", "members": "digest"}, {"before": "", "members": "list"},
          {"before": "", "members": "stranger"}, {"before": "", "members": "two"}]  # fmt: skip


def test_close_garbage(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.turn("server", *f.names)
    digests = {n: f.server.take("hello", 0, n).digest for n in f.names}
    members = {"all": digests, "digest": {**digests, EVE: ""}, "list": {n: [] for n in digests},
               "stranger": {**digests, "eve": "ab" * 32},
               "two": {n: digests[n] for n in f.names[:2]}}  # fmt: skip
    for said in CLOSES:
        if isinstance(said, dict):
            who = said.get("members")
            said = canonical({**said, "members": members[who] if isinstance(who, str) else who})
        f.put("close", 0, "server", said)
        with pytest.raises(MismatchError, match=r"broken the rules|below the threshold"):
            f.new_site("site-00", folder=tmp_path / "site-00").turn()
        (tmp_path / "site-00/taken/000-close-server").unlink()
    assert not f.sent("*sums*")


def test_a_server_cannot_choose_a_head(tmp_path):
    f = Federation(tmp_path, ("softmax", {"rounds": 2}), n=3)
    real = f.server.keep_head

    def chosen(number, head):
        if number == 2:  # the weights that read one row out of the gradient
            arrays = {
                k: a * 1.001 if a.dtype.kind == "f" else a for k, a in head.state_dict().items()
            }
            head = head.restore(head.phase(), arrays)
        real(number, head)

    f.server.keep_head = chosen
    with pytest.raises(MismatchError, match="not the solution of the sums"):
        f.run()
    assert not f.sent("002-sums*")


ARRAYS = [{}, [bytes(144)], {"weights": 7}, {"weights": b""}, {"x": bytes(8)}, {1: bytes(144)},
          {"weights": bytes(56)}, {"weights": bytes(144)}, {"weights": b"\xff" * 144}]  # fmt: skip
HEADS = [b"", b"\xc1", b"\x07", b"\x91" * 100, msgpack.encode(ARRAYS[-1]) + b"\x80",
         *map(msgpack.encode, ARRAYS)]  # fmt: skip


def test_head_garbage(tmp_path):
    f = Federation(tmp_path, n=3).rolled()
    f.turn(*f.names, "server", *f.names)
    for payload in HEADS:
        f.put("head", 2, "server", payload)
        with pytest.raises(MismatchError, match="server's head is no"):
            f.turn("site-00")
        (tmp_path / "site-00/taken/002-head-server").unlink()


# ---------------------------------------------------------------- the place


def small(path):
    """What is in a file; rubbish for what is none, or huge."""
    whole = path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20
    return path.read_bytes() if whole else b"x"


def spoil(folder, rng):
    for path in sorted(folder.glob("[0-9]*")):
        if rng.random() < 0.3:
            data, how = bytearray(small(path)), rng.integers(8)
            if path.is_dir():
                path.rmdir()
                continue
            path.unlink()
            if how == 1:
                path.write_bytes(data[: len(data) // 2])
            elif how == 2 and data:
                data[rng.integers(len(data))] ^= 1
                path.write_bytes(data)
            elif how == 3:
                others = sorted(folder.glob("[0-9]*"))
                path.write_bytes(small(others[rng.integers(len(others))]))
            elif how == 4:
                os.mkfifo(path)
            elif how == 5:
                path.symlink_to("/dev/zero")
            elif how == 6:
                with path.open("wb") as file:
                    file.truncate(1 << 40)


@pytest.mark.parametrize("once", [True, False])
@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(k, marks=slow) for k in range(3, 25))])
def test_place_garbage(tmp_path, seed, once):
    """Lost, cut, flipped, exchanged, a pipe, a link, 10¹² bytes: nothing changes the head."""
    f = Federation(tmp_path, "softmax" if seed % 2 else "linear", n=3)
    rng = np.random.default_rng(seed)
    for _ in range(150):
        if once:
            f.begin()
        waits = {}
        for name in ("server", *f.names):
            try:
                waits[name] = f.party(name).turn()
            except UnreachableError as error:
                waits[name] = str(error)
        if set(waits.values()) == {""}:
            break
        if rng.random() < 0.6:
            spoil(tmp_path / "place", rng)
    assert set(waits.values()) == {""}
    assert f.is_pooled()


def test_own_message_under_the_next_name_is_no_backup(tmp_path):
    f = Federation(tmp_path, ("softmax", {"rounds": 1}), n=3).rolled()
    data = f.at("hello", 0, "site-00").read_bytes()
    assert len(data) < 8 * f.server.layout(1).size + offer_size(f.agreed)  # so that it is read
    f.at("sums", 1, "site-00").write_bytes(data)
    f.turn("site-00")
    assert f.over()


def test_once_sends_again_what_was_lost_after_its_end(tmp_path):
    f = Federation(tmp_path, n=3)
    for k in range(4):
        f.turn("server", "site-00", "site-01", *(["site-02"] if k < 2 else []))
    f.turn("site-02")
    f.at("shares", 1, "site-00").unlink()
    for _ in range(5):
        f.begin()  # a new process each, as with --once
        waits = f.turn("server", *f.names)
    assert set(waits.values()) == {""}


def test_a_write_that_is_refused_is_said_and_goes_on_later(tmp_path):
    f = Federation(tmp_path, n=3).rolled()
    f.at("sums", 1, "site-00").mkdir()
    for _ in range(2):
        with pytest.raises(UnreachableError, match=r"(?i)is a ?directory"):
            f.turn("site-00")
    f.at("sums", 1, "site-00").rmdir()
    assert f.over()


def test_idle_poll_bytes(tmp_path, monkeypatch):
    """While one is late, a look costs each other one under 10 kB, however large the sums are."""
    rng = np.random.default_rng(0)
    rows = {f"site-{k:02d}": (rng.integers(-900, 900, (20, 60)).astype(np.int16),
                              rng.integers(0, 3, 20)) for k in range(5)}  # fmt: skip
    f = Federation(tmp_path, ("linear", {"ridge": 1.0}), n=5, rows=rows).rolled()
    read, count = Place.read, [0]
    f.turn(*f.names[:4], "server")

    def counted(self, name, most):
        data = read(self, name, most)
        count[0] += len(data or b"")
        return data

    monkeypatch.setattr(Place, "read", counted)
    assert f.at("sums", 1, "site-00").stat().st_size > 15_000
    for one in ("server", *f.names[:4]):
        f.turn(one)
        count[0] = 0
        assert "site-04" in f.turn("server")["server"]
        f.turn(one)
        assert count[0] < 10_000, (one, count)
