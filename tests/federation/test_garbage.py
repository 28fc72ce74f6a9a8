"""Rubbish, of a member, of the server or of the place: it counts as not there, is named, and stops
nobody else."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from itertools import combinations

import numpy as np
import pytest
from msgspec import msgpack
from parties import Federation

from afltool.errors import AflError, MismatchError, UnreachableError
from afltool.federation import commands, masking
from afltool.federation.keys import DOMAIN, Box, canonical, name_of
from afltool.federation.masking import offer_size
from afltool.federation.place import Place
from afltool.federation.session import Member, Server


def said(party):
    return " | ".join(sorted(party._said))


def put(f, kind, number, name, data):
    (f.root / "place" / name_of(kind, number, name)).write_bytes(data)


def signed(f, kind, number, name, body):
    """A message with any body, signed as it should be."""
    box = Box(f.agreed.digest, f.keys[name])
    header = box._header(kind, number, name, hashlib.sha256(body).hexdigest())
    return header + b"\n" + box.me.signing.sign(DOMAIN + header) + body


# ---------------------------------------------------------------- a member


@pytest.fixture
def four(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.turn("server", *f.names[:3])
    f.sites["site-03"].begin()
    return f


def others_finish(f, *names, end=True):
    f.server.deadline = 0.0 if end else None
    waits = f.run("server", *f.names[:3])
    assert set(waits.values()) == {""} or waits["server"] == "site-03 to sign the end"
    assert f.solved("server").digest() == f.pooled(*(names or f.names[:3])).digest()
    assert f.solved("site-00").digest() == f.solved("server").digest()


BODIES = {
    "empty": lambda f, eve: signed(f, "hello", 0, "site-03", b""),
    "short": lambda f, eve: signed(f, "hello", 0, "site-03", b"x" * 20),
    "another key": lambda f, eve: Box(f.agreed.digest, eve.me, b"x").seal("hello", 0, b"y" * 9),
    "another length": lambda f, eve: eve.box.seal("hello", 0, b"y" * 99),
    "another session": lambda f, eve: Box("ab" * 32, eve.me, eve.box.group).seal(
        "hello", 0, bytes(32 + offer_size(f.agreed))),
    "another round": lambda f, eve: eve.box.seal("hello", 1, bytes(32 + offer_size(f.agreed))),
    "small order": lambda f, eve: eve.box.seal(
        "hello", 0, eve._key_digest + bytes(offer_size(f.agreed))),
    "small order of S": lambda f, eve: eve.box.seal(
        "hello", 0, eve._key_digest + bytes(32) + eve.draw(1)[32:]),
    "small order of E": lambda f, eve: eve.box.seal(
        "hello", 0, eve._key_digest + (o := eve.draw(1))[:64] + bytes(32) + o[96:]),
    "another K": lambda f, eve: eve.box.seal("hello", 0, bytes(32) + eve.draw(1)),
    "no JSON": lambda f, eve: b"[" * 5000 + b"\n" + bytes(200),
    "nothing": lambda f, eve: b"",
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_member_garbage_in_its_hello(four, body):
    put(four, "hello", 0, "site-03", BODIES[body](four, four.sites["site-03"]))
    others_finish(four)
    assert body == "nothing" or "hello of 'site-03'" in said(four.server)


@pytest.mark.parametrize("protection", ["masked", "signed"])
def test_member_garbage_in_its_sums(tmp_path, protection):
    f = Federation(tmp_path, n=4, threshold=3, protection=protection)
    f.turn("server", *f.names, "server")
    eve = f.sites["site-03"]
    size = 8 * f.server.layout(1).size + offer_size(f.agreed)
    to = b"" if protection == "masked" else eve.server_key
    for body in (b"", b"\xff" * (size - 8), b"\xff" * (size + 8)):
        put(f, "sums", 1, "site-03", eve.box.seal("sums", 1, body, to))
        assert "site-03" in f.server.turn() or True
    if protection == "signed":  # where the server reads them: no rows can have these
        put(f, "sums", 1, "site-03", eve.box.seal("sums", 1, b"\x7f" * size, to))
    f.turn(*f.names[:3])
    others_finish(f)
    assert "sums of 'site-03'" in said(f.server)


def test_small_order_in_a_later_offer_is_refused_before_close(tmp_path):
    f = Federation(tmp_path, "softmax", n=4, threshold=3)
    f.turn("server", *f.names, "server")
    eve = f.sites["site-03"]
    size = 8 * f.server.layout(1).size + offer_size(f.agreed)
    put(f, "sums", 1, "site-03", eve.box.seal("sums", 1, bytes(size)))
    f.turn(*f.names[:3])
    f.server.deadline = 0.0
    assert "sums of 'site-03'" in f.server.turn() + said(f.server)
    f.server.deadline = None
    others_finish(f, end=False)


def test_member_replaces_what_was_counted(tmp_path):
    """Its hello for one site, and its sums, after the close: the server has kept them."""
    f = Federation(tmp_path, n=4, threshold=3)
    f.turn("server", *f.names, "server")
    eve = f.sites["site-03"]
    other = masking.offered(f.agreed, 1, eve.me.name, os.urandom(64))
    put(f, "hello", 0, "site-03", eve.box.seal("hello", 0, eve._key_digest + other))
    assert "hello of site-03" in f.sites["site-00"].turn()
    f.turn("server", *f.names, "server")
    size = 8 * f.server.layout(1).size + offer_size(f.agreed)
    put(f, "sums", 1, "site-03", eve.box.seal("sums", 1, bytes(size)))
    f.server.deadline = 0.0
    assert set(f.run("server", *f.names[:3]).values()) == {""}
    assert f.solved("site-00").digest() == f.pooled().digest()


def test_rubbish_shares_are_named(tmp_path):
    """Boxes that nobody can open: the others have what they need of honest ones, or name it."""
    f = Federation(tmp_path, n=4, threshold=3)
    eve = f.sites["site-03"]
    real = eve.draw

    def rubbish(number):
        offer = real(number)
        return offer[:96] + os.urandom(len(offer) - 96) if offer else offer

    eve.draw = rubbish
    with pytest.raises(MismatchError, match=r"'site-03'.*broke the rules"):
        f.run()
    assert not list(tmp_path.glob("site-0[012]/total-1.h5"))


@pytest.mark.parametrize("liars", [(0, 1), (2, 4), *(pytest.param(c, marks=pytest.mark.slow)
                                  for c in combinations(range(5), 2))])  # fmt: skip
def test_n_minus_t_liars_are_named(tmp_path, liars):
    f = Federation(tmp_path, n=5, threshold=3)
    for k in liars:
        one = f.sites[f.names[k]]
        one.answer = lambda number: os.urandom(33 * 5)
    f.turn("server", *f.names, "server", *f.names, "server", *f.names, *f.names)
    assert set(f.run().values()) == {""}
    assert f.solved("server").digest() == f.pooled().digest()
    for k, name in enumerate(f.names):
        assert (f"from {name}" in said(f.server) or f", {name}" in said(f.server)) == (k in liars)


def test_more_liars_stop_the_sum_and_are_named(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    for k in (1, 2):
        f.sites[f.names[k]].answer = lambda number: bytes(33 * 4)
    with pytest.raises(MismatchError, match="site-01, site-02 are wrong"):
        f.run()


@pytest.mark.parametrize("liar", range(4))
def test_a_member_that_gives_wrong_shares_excludes_nobody(tmp_path, liar):
    f = Federation(tmp_path, n=4, threshold=3)
    eve, at = f.sites[f.names[liar]], 96 + 146 * ((liar + 1) % 4) + 64
    real = eve.draw

    def one_bad(number):
        offer = real(number)
        return offer[:at] + bytes(82) + offer[at + 82 :] if offer else offer

    assert masking.FIRST + masking.HASHES + masking.BOX == 96 + 146
    eve.draw = one_bad
    assert set(f.run().values()) == {""}
    assert f.solved("server").digest() == f.pooled().digest()


def test_a_member_cannot_send_in_anothers_name(tmp_path):
    f = Federation(tmp_path, n=3)
    f.turn("server", "site-00", "site-01")
    forged = f.sites["site-01"].box.seal("hello", 0, bytes(32 + offer_size(f.agreed)))
    put(f, "hello", 0, "site-02", forged)
    assert f.server.take("hello", 0, "site-02") is None
    assert "not signed by 'site-02'" in said(f.server)
    assert set(f.run().values()) == {""}
    assert f.solved("site-00").digest() == f.pooled().digest()


def test_a_member_cannot_put_its_numbers_behind_anothers_signature(tmp_path):
    """It has the key of the session, so it can encrypt; the signature is of all that follows."""
    f = Federation(tmp_path, n=3)
    f.turn("server", *f.names)
    eve, victim = f.sites["site-01"], f.sites["site-02"]
    real = (tmp_path / "place" / name_of("hello", 0, "site-02")).read_bytes()
    header, _, rest = real.partition(b"\n")
    forged = Box(f.agreed.digest, f.keys["site-02"], eve.box.group).seal(
        "hello", 0, eve._key_digest + eve.draw(1))  # fmt: skip
    mixed = header + b"\n" + rest[:64] + forged.partition(b"\n")[2][64:]
    person = f.agreed.people["site-02"]
    assert victim.box.open("hello", 0, person, real)
    with pytest.raises(AflError, match="altered on its way"):
        victim.box.open("hello", 0, person, mixed)


def test_a_member_whose_sums_no_rows_can_have_stops_the_sum(tmp_path):
    f = Federation(tmp_path, n=3)
    eve = f.sites["site-01"]
    real = f.agreed.max_rows
    eve.gathered = lambda number: f.gathered(f.first, *(["site-01"] * 1))
    layout = eve.layout
    f.turn("server", *f.names, "server")
    x = layout(1).joined(f.gathered(f.first, "site-01")).copy()
    x[-1] += np.uint64(10 * real)
    object.__setattr__(eve, "layout", lambda number: Lying(layout(number), x))
    with pytest.raises(AflError, match="makes no sense") as said:
        f.run()
    assert "masks hide which of site-00, site-01, site-02 has sent something else" in str(
        said.value
    )


def test_signed_sums_that_no_rows_can_have_are_named(tmp_path):
    """Numbers within their bounds, which no gram of rows has: the server reads them."""
    f = Federation(tmp_path, n=4, threshold=3, protection="signed")
    f.turn("server", *f.names[:3], "server")
    eve = f.sites["site-03"]
    f.turn("site-03", "server", *f.names[:3])
    x = f.server.layout(1).joined(f.gathered(f.first, "site-03")).copy().view(np.int64)
    x[18] = -1  # the first number of the gram's diagonal, behind the cross of 6 · 3
    put(f, "sums", 1, "site-03", eve.box.seal("sums", 1, x.tobytes(), eve.server_key))
    others_finish(f)
    assert "sums of 'site-03' in round 1 counts as not there" in said(f.server)


class Lying:
    def __init__(self, real, x):
        self.real, self.x = real, x

    def flat(self, sums):
        return self.x.copy()

    def __getattr__(self, name):
        return getattr(self.real, name)


# ---------------------------------------------------------------- the server


LIES = {  # what the server says in place of the sum of all
    "half of it": lambda f, total, own: total // 2,
    "without a site": lambda f, total, own: total - own,
    "twice": lambda f, total, own: 2 * total,
    "another gram": lambda f, total, own: total - np.eye(len(own), dtype=int)[18] * own[18] * 9,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_total_of_a_signed_session_holds_the_sums_of_the_site(tmp_path, lie):
    """A member cannot add up, but it knows its own part, and what the rest of a sum can be."""
    f = Federation(tmp_path, n=3, protection="signed", min_rows=25, max_rows=34)
    f.turn("server", *f.names, "server", *f.names, "server")
    layout = f.server.layout(1)
    total = layout.joined(f.gathered(f.first)).view(np.int64)
    own = layout.joined(f.gathered(f.first, "site-00")).view(np.int64)
    wrong = LIES[lie](f, total, own)
    put(f, "total", 1, "server", f.server.box.seal("total", 1, wrong.tobytes()))
    with pytest.raises(MismatchError, match=r"the server's total of round 1.*of the rest"):
        f.turn("site-00")
    assert not (tmp_path / "site-00/total-1.h5").exists()


@pytest.mark.parametrize("step", ["write_once", "delete"])
def test_an_end_that_was_interrupted_goes_on(tmp_path, monkeypatch, step):
    """Before the key of the session is deleted: it goes for good, and the summary is made."""
    f = Federation(tmp_path, n=3)
    module = sys.modules[Server.__module__]
    real = getattr(module, step)

    def killed(path, *data):
        found = real(path, *data) if step == "write_once" else None
        if path.name == ("finished" if step == "write_once" else "group-key"):
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(module, step, killed)
    with pytest.raises(KeyboardInterrupt):
        f.run()
    assert (tmp_path / "server/group-key").exists()
    monkeypatch.undo()
    f.begin()
    assert set(f.run().values()) == {""}
    assert not (tmp_path / "server/group-key").exists()
    commands.finish(f.server)
    found = json.loads((tmp_path / "server/summary.json").read_bytes())
    assert found["signed"] == sorted(["server", *f.names])


CLOSES = [b"", b"[]", b"null", b"7", b'"x"', b"{}", b"[" * 5000, b"\xff", {}, {"members": {}},
          {"before": "", "members": []}, {"before": "", "members": {"eve": "ab" * 32}},
          {"before": "x", "members": "all"}, {"before": "", "members": {"server": "ab" * 32}},
          {"before": "", "members": "digest"}, {"before": "", "members": "list"},
          {"before": "", "members": "stranger"}]  # fmt: skip


@pytest.mark.parametrize("said", CLOSES)
def test_close_garbage(tmp_path, said):
    f = Federation(tmp_path, n=4, threshold=3)
    f.turn("server", *f.names)
    digests = {n: f.server.take("hello", 0, n).digest for n in f.names}
    if isinstance(said, dict):
        whole = {
            "all": digests,
            "digest": {**digests, "site-03": ""},
            "list": {n: [] for n in digests},
            "stranger": {**digests, "eve": "ab" * 32},
        }
        members = said.get("members")
        said = canonical(
            {**said, "members": whole[members] if isinstance(members, str) else members}
        )
    put(f, "close", 0, "server", f.server.box.seal("close", 0, said))
    with pytest.raises(MismatchError, match=r"the server has broken the rules|below the threshold"):
        f.turn("site-00")
    assert not (tmp_path / "place" / name_of("sums", 1, "site-00")).exists()


def test_a_server_cannot_choose_a_head(tmp_path):
    f = Federation(tmp_path, "softmax", n=3)
    real = f.server.keep_head

    def chosen(number, head):
        if number == 2:  # the weights that read one row out of the gradient
            arrays = {k: a * 1.001 if a.dtype.kind == "f" else a for k, a in head.arrays().items()}
            head = head.restore(head.phase(), arrays)
        real(number, head)

    f.server.keep_head = chosen
    with pytest.raises(MismatchError, match="not the solution of the sums"):
        f.run()
    assert not (tmp_path / "place" / name_of("sums", 2, "site-00")).exists()


ARRAYS = [{}, [bytes(144)], {"weights": 7}, {"weights": b""}, {"x": bytes(8)}, {1: bytes(144)},
          {"weights": bytes(56)}, {"weights": bytes(144)}, {"weights": b"\xff" * 144}]  # fmt: skip
HEADS = [b"", b"\xc1", b"\x07", b"\x91" * 100, msgpack.encode(ARRAYS[-1]) + b"\x80",
         *map(msgpack.encode, ARRAYS)]  # fmt: skip


@pytest.mark.parametrize("payload", HEADS)
def test_head_garbage(tmp_path, payload):
    f = Federation(tmp_path, n=3)
    f.turn("server", *f.names, "server", *f.names, "server", *f.names)
    put(f, "head", 2, "server", f.server.box.seal("head", 2, payload))
    with pytest.raises(MismatchError, match="server's head is no"):
        f.turn("site-00")


def test_another_session_in_the_place(tmp_path):
    f = Federation(tmp_path, n=3)
    f.turn("server")
    g = f.changed(min_rows=1)
    g.place = f.place
    g.begin()
    with pytest.raises(MismatchError, match="holds another session"):
        g.turn("server")
    (tmp_path / "place/session.json").write_bytes(b"rubbish")  # of its own place it makes it anew
    assert set(f.run().values()) == {""}
    for name in ("server", "site-00"):
        g = Federation(tmp_path, n=3)
        with pytest.raises(MismatchError, match="is of another session"):
            g.turn(name)


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
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(k, marks=pytest.mark.slow)
                                               for k in range(3, 25))])  # fmt: skip
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
    assert f.solved("site-02").digest() == f.solved("server").digest() == f.pooled().digest()


def test_own_message_under_the_next_name_is_no_backup(tmp_path):
    f = Federation(tmp_path, "softmax", n=3)
    f.turn("server", *f.names, "server")
    data = (tmp_path / "place" / name_of("hello", 0, "site-00")).read_bytes()
    assert len(data) < 8 * f.server.layout(1).size + offer_size(f.agreed)  # so that it is read
    put(f, "sums", 1, "site-00", data)
    f.turn("site-00")
    assert set(f.run().values()) == {""}


def test_once_sends_again_what_was_lost_after_its_end(tmp_path):
    f = Federation(tmp_path, n=3)
    late = "site-02"
    for _ in range(4):
        f.turn("server", "site-00", "site-01", *([late] if _ < 2 else []))
    f.turn(late)
    (tmp_path / "place" / name_of("shares", 1, "site-00")).unlink()
    for _ in range(5):
        f.begin()  # a new process each, as with --once
        waits = f.turn("server", *f.names)
    assert set(waits.values()) == {""}


def test_a_write_that_is_refused_is_said_and_goes_on_later(tmp_path):
    f = Federation(tmp_path, n=3)
    f.turn("server", *f.names, "server")
    (tmp_path / "place" / name_of("sums", 1, "site-00")).mkdir()
    for _ in range(2):
        with pytest.raises(UnreachableError, match=r"(?i)is a ?directory"):
            f.turn("site-00")
    (tmp_path / "place" / name_of("sums", 1, "site-00")).rmdir()
    assert set(f.run().values()) == {""}


def test_idle_poll_bytes(tmp_path, monkeypatch):
    """While one is late, a look costs each other one under 10 kB, however large the sums are."""
    rng = np.random.default_rng(0)
    rows = {f"site-{k:02d}": (rng.integers(-900, 900, (20, 60)).astype(np.int16),
                              rng.integers(0, 3, 20)) for k in range(5)}  # fmt: skip
    f = Federation(tmp_path, ("linear", {"ridge": 1.0}), n=5, rows=rows)
    late, read, count = "site-04", Place.read, [0]
    f.turn("server", *f.names, "server", *f.names[:4], "server")

    def counted(self, name, most):
        data = read(self, name, most)
        count[0] += len(data or b"")
        return data

    monkeypatch.setattr(Place, "read", counted)
    assert (tmp_path / "place" / name_of("sums", 1, "site-00")).stat().st_size > 15_000
    for one in ("server", *f.names[:4]):
        for _ in range(2):
            f.turn(one)
            count[0] = 0
        assert late in f.turn("server")["server"]
        f.turn(one)
        assert count[0] < 10_000, (one, count)


def test_a_member_is_its_own_class(tmp_path):
    """A subclass may answer otherwise, as the tests' liars do; the honest one is `Member`."""
    assert type(Federation(tmp_path, n=3).sites["site-00"]) is Member
