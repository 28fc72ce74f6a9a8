"""A server that tells members different things, with the members that work with it: no sum of few
is opened. The thief of a key, the restored backup, and who has left."""

from __future__ import annotations

import json
import shutil
from itertools import combinations

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from parties import Federation, key_of

from afltool.errors import AflError, IncompleteError, MismatchError
from afltool.federation import masking
from afltool.federation.agreement import Agreement, usual_threshold
from afltool.federation.keys import Box, canonical, cipher_between, name_of


def least_honest(n, t, c):
    """Of how few honest members a sum can be opened if each answers once, whatever it has seen.

    The best strategy over members of three kinds: k in the sum, q whose s are opened, and others; a
    flow of answers, checked as Gale and Ryser do.
    """
    m, f = n - c, n - t

    def flows(k, q):
        r, most = m - k - q, k + q + c - t
        return all(
            s * (m - f)
            <= k * min(most, s) + s * min(f, s - 1) + (q - s) * min(f, s) + r * min(f, s)
            for s in range(1, q + 1)
        )

    return next(
        k for k in range(1, m + 1) for q in range(m - k + 1)
        if k + q + c >= t and k + q >= m - f and flows(k, q))  # fmt: skip


def test_equivocation_isolates_nobody():
    """Without `seen` one answer a round suffices only if m > f (f + 1); with it always."""
    points = [(n, t, c) for n in range(3, 10) for t in range(3, n + 1) for c in range(t - 2)
              if 2 * t > n + c]  # fmt: skip
    for n, t, c in points:
        m, f = n - c, n - t
        assert (least_honest(n, t, c) >= t - c) == (m > f * (f + 1)), (n, t, c)
        answered = [k for k in range(m + 1) if k + c >= t]  # honest ones who have seen one close
        assert all(a + b > m for a in answered for b in answered)  # no two closes have so many
    for n in range(3, 201):
        t = usual_threshold(n)
        assert 2 * t > n + min(2 * t - n - 1, t - 3)


class Liar:
    """A server that closes rounds 0 and 1 with other members for each of the honest ones."""

    def __init__(self, f, colluders=()):
        self.f, self.colluders = f, colluders
        self.f.server.turn()
        self.f.turn(*f.names)
        self.hellos = {n: f.server.take("hello", 0, n).digest for n in f.names}
        self.sums = {}

    def close(self, number, names, before):
        digests = self.sums if number else self.hellos
        said = {"before": before, "members": {n: digests[n] for n in names}}
        data = self.f.server.box.seal("close", number, canonical(said))
        (self.f.root / "place" / name_of("close", number, "server")).write_bytes(data)
        return data

    def first(self, name, names):
        """Round 0, for one member; returns its close."""
        data = self.close(0, names, "")
        self.f.sites[name].turn()
        self.sums[name] = self.f.server.take("sums", 1, name).digest
        return self.digest(data)

    @staticmethod
    def digest(data):
        import hashlib

        return hashlib.sha256(data).hexdigest()

    def second(self, name, names, before):
        """Round 1: who colludes says that it has seen the same, to each."""
        digest = self.digest(self.close(1, names, before))
        for other in self.colluders:
            data = self.f.sites[other].box.seal("seen", 1, bytes.fromhex(digest))
            (self.f.root / "place" / name_of("seen", 1, other)).write_bytes(data)
        (self.f.root / name / "taken").mkdir(exist_ok=True)
        self.f.sites[name].turn()
        for other in self.colluders:
            (self.f.root / "place" / name_of("seen", 1, other)).unlink()
            (self.f.root / name / "taken" / name_of("seen", 1, other)).unlink(missing_ok=True)
        return digest

    def answered(self):
        return [n for n in self.f.names
                if (self.f.root / "place" / name_of("shares", 1, n)).exists()]  # fmt: skip


# n, t, targets, whose s shall be opened, who colludes, and who is told that whom dropped out
POINTS = [
    (5, 3, [0], [1, 2], [], {1: [2], 2: [1], 3: [1, 2], 4: [1, 2]}),
    (7, 4, [0, 1], [2, 3, 4], [],
     {w: [v for v in (2, 3, 4) if v != w] for w in range(2, 7)}),
    (7, 5, [0], [1, 2], [5, 6], {1: [2], 2: [1], 3: [1, 2], 4: [1, 2]}),
    (12, 9, [0], [1, 2, 3, 4], [8, 9, 10, 11],
     {**{w: [v for v in (1, 2, 3, 4) if v != w] for w in (1, 2, 3, 4)},
      5: [1, 2, 3], 6: [2, 3, 4], 7: [3, 4, 1]}),
]  # fmt: skip


@pytest.mark.parametrize(("n", "t", "targets", "q", "colluders", "told"), POINTS)
def test_no_shares_before_t_have_seen(tmp_path, n, t, targets, q, colluders, told):
    f = Federation(tmp_path, n=n, threshold=t)
    liar = Liar(f, [f.names[k] for k in colluders])
    views, closes = {}, {}
    for k, name in enumerate(f.names):
        inside = [*targets[:1], *q, *colluders] if k in targets else range(n)
        views[name] = sorted({*(f.names[i] for i in inside), name})
        closes[name] = liar.first(name, views[name])
    salts = {name: f.sites[name].salt(1) for name in f.names}
    for a, b in combinations(f.names, 2):  # masks cancel between those alone who were told the same
        assert (salts[a] == salts[b]) == (closes[a] == closes[b])
    for k, name in enumerate(f.names):
        if k not in colluders:
            inside = [v for v in views[name] if f.names.index(v) not in told.get(k, [])]
            liar.second(name, inside, closes[name])
    assert liar.answered() == []
    waits = f.sites[f.names[0]].turn()  # also after a start of its process
    assert "to have seen who is in round 1" in waits
    assert "to have seen" in f.new_site(f.names[0]).turn()


def test_two_sums_of_a_round(tmp_path):
    """n = 7, t = 4: two members are told of each other's absence; one sum at most is opened."""
    f = Federation(tmp_path, n=7, threshold=4)
    liar = Liar(f)
    closes = {name: liar.first(name, f.names) for name in f.names}
    for _ in range(3):
        for k, name in enumerate(f.names):
            inside = [n for n in f.names if n != f.names[6 if k < 4 else 0]]
            if name in inside:
                liar.second(name, inside, closes[name])
    seen = {n: f.sites[n].closed(1) for n in liar.answered()}
    assert len({canonical(s) for s in seen.values()}) <= 1


def test_so_many_have_seen_and_not_one_less(tmp_path):
    f = Federation(tmp_path, n=6, threshold=4)
    f.turn("server", *f.names, "server", *f.names, "server")
    for k, name in enumerate(f.names[:4]):
        assert not list((tmp_path / "place").glob("001-shares*"))
        f.turn(name)
        assert len(list((tmp_path / "place").glob("001-seen*"))) == k + 1
    assert [p.name for p in (tmp_path / "place").glob("001-shares*")] == ["001-shares-site-03"]


def test_a_liar_in_seen_stops_nobody(tmp_path):
    f = Federation(tmp_path, n=5, threshold=4)
    f.run(turns=2)
    liar = f.sites["site-04"]
    liar.turn()
    path = tmp_path / "place" / name_of("seen", 1, "site-04")
    (tmp_path / "site-04/sent" / path.name).unlink(missing_ok=True)
    path.write_bytes(liar.box.seal("seen", 1, bytes(32)))
    others = ("server", *f.names[:4])
    f.server.deadline = 0.0
    assert set(f.run(*others).values()) == {""}
    assert f.solved("site-00").digest() == f.pooled().digest()


# ---------------------------------------------------------------- thief, backup, excluded


@pytest.mark.parametrize("protection", ["masked", "signed"])
@pytest.mark.parametrize("whose", ["site-00", "site-01", "server"])
def test_one_stolen_key_opens_nothing_old(tmp_path, whose, protection):
    """A key and all that ever was in the place, after the end: of a member the totals that it has
    known, and nobody's sums; of the server nothing at all."""
    f = Federation(tmp_path, n=4, threshold=3, protection=protection)
    assert set(f.run().values()) == {""}
    key, agreed = f.keys[whose], f.agreed
    assert not list(tmp_path.glob("*/secrets-*"))
    assert not (tmp_path / "server/group-key").exists()
    place = tmp_path / "place"
    box = Box(agreed.digest, key)
    if whose == "server":
        for k, member in enumerate(agreed.members, 1):
            data = (place / name_of("key", k, "server")).read_bytes()
            for guess in (key.agreeing, None):
                with pytest.raises(AflError):
                    box.open("key", k, agreed.server, data, guess)
            assert member.agreeing  # the keys of its readers are not the thief's
        for name in f.names:
            data = (place / name_of("sums", 1, name)).read_bytes()
            with pytest.raises(AflError):
                box.open("sums", 1, agreed.people[name], data, key.agreeing)
        return
    mine = agreed.places[whose]
    data = (place / name_of("key", mine, "server")).read_bytes()
    box.group = box.open("key", mine, agreed.server, data, key.agreeing).payload[:32]
    if protection == "signed":
        for name in f.names:
            data = (place / name_of("sums", 1, name)).read_bytes()
            with pytest.raises(AflError):
                box.open("sums", 1, agreed.people[name], data, key.agreeing)
        return
    known = dict.fromkeys(f.names, 0)  # shares of s_u that the thief opens
    for giver in f.names:
        data = (place / name_of("hello", 0, giver)).read_bytes()
        offer = box.open("hello", 0, agreed.people[giver], data).payload[32:]
        offer = masking.Offer(agreed, 1, giver, offer)
        known[giver] += any(offer.held(key)["pairs"])
        for holder in agreed.members:  # boxes that the thief's member has given, or others have
            if holder.name == whose:
                continue
            _, sealed = offer.part(holder.name)
            for theirs in (offer.data[64:96], holder.agreeing, offer.public):
                with pytest.raises(InvalidTag):
                    cipher_between(key.agreeing, theirs, offer.about, holder.key).decrypt(
                        bytes(12), sealed, None
                    )
    assert max(known.values()) == 1 < agreed.threshold


def test_secrets_go_with_their_round(tmp_path):
    f = Federation(tmp_path, "softmax", n=3)
    while f.server.known() < 2:
        f.turn("server", *f.names)
    assert not list(tmp_path.glob("*/secrets-1"))
    assert len(list(tmp_path.glob("*/secrets-[23]"))) >= 3
    assert set(f.run().values()) == {""}
    assert not list(tmp_path.glob("*/secrets-*"))
    assert not (tmp_path / "place" / name_of("seen", 1, "site-00")).exists()  # t = n needs none


def test_excluded_keeps_no_secrets(tmp_path):
    f = Federation(tmp_path / "late", n=4, threshold=3)
    f.turn("server", *f.names, "server", *f.names[:3])
    f.server.deadline = 0.0
    f.run("server", *f.names[:3])
    assert list((tmp_path / "late/site-03").glob("secrets-1"))
    with pytest.raises(IncompleteError, match="goes on without"):
        f.turn("site-03")
    assert not list((tmp_path / "late").glob("*/secrets-*"))


@pytest.mark.parametrize("spoiled", [False, True])
def test_a_restored_backup_sends_nothing_else(tmp_path, spoiled):
    """Nor if somebody spoils what it has sent: its ledger is not in the folder."""
    f = Federation(tmp_path, n=4, threshold=4)
    f.turn("server", *f.names, "server")
    shutil.copytree(tmp_path / "site-00", tmp_path / "backup")
    f.turn("site-00")
    sent = tmp_path / "place" / name_of("sums", 1, "site-00")
    if spoiled:
        sent.write_bytes(b"rubbish")
    before = sent.read_bytes()
    with pytest.raises(MismatchError, match="restored from a backup"):
        f.new_site("site-00", folder=tmp_path / "backup").turn()
    assert sent.read_bytes() == before


def test_a_thief_of_a_members_key_and_folder_cannot_take_part_beside_it(tmp_path):
    f = Federation(tmp_path, n=3)
    f.turn("server", *f.names)
    with pytest.raises(MismatchError, match="another copy of your key"):
        f.new_site("site-00", folder=tmp_path / "thief").turn()


# ---------------------------------------------------------------- what a reader, a member see


def test_a_reader_of_the_place_has_no_key(tmp_path):
    f = Federation(tmp_path, n=3, protection="signed")
    f.run()
    plain = f.server.layout(1).joined(f.gathered(f.first, "site-00")).tobytes()
    everything = b"".join(p.read_bytes() for p in (tmp_path / "place").iterdir())
    assert plain[:64] not in everything
    for _, a in f.solved("server").arrays().items():
        assert a.tobytes()[:64] not in everything
    data = (tmp_path / "place" / name_of("sums", 1, "site-00")).read_bytes()
    with pytest.raises(AflError, match="another key"):  # nor does another member
        f.sites["site-01"].box.open("sums", 1, f.keys["site-00"].party, data)
    data = (tmp_path / "place" / name_of("done", 2, "server")).read_bytes()
    with pytest.raises(AflError, match="another key"):
        Box(f.agreed.digest, key_of("eve")).open("done", 2, f.agreed.server, data)


def test_masked_numbers_are_uniform(tmp_path):
    f = Federation(tmp_path, n=4)
    f.run()
    n = f.server.layout(1).size
    y = np.frombuffer(f.server.take("sums", 1, "site-00").payload, "<u8", n)
    x = f.server.layout(1).joined(f.gathered(f.first, "site-00"))
    assert 20 < np.mean([bin(int(a ^ b)).count("1") for a, b in zip(x, y, strict=True)]) < 44


def test_a_site_sends_nothing_but_numbers_of_a_known_length(tmp_path):
    """Two sites that differ in one row: lengths and all that is not encrypted are the same."""
    outside = []
    for k in (0, 1):
        f = Federation(tmp_path / str(k), n=3)
        X, y = f.rows["site-00"]
        f.rows["site-00"] = (X[:-1], y[:-1]) if k else (X, y)
        f.begin()
        f.run()
        data = {p.name: p.read_bytes() for p in (f.root / "place").glob("*-site-00")}
        lines = {n: d.partition(b"\n") for n, d in data.items()}
        outside.append({n: (len(d[2]), json.loads(d[0])[1:4]) for n, d in lines.items()})
    assert outside[0] == outside[1]


def test_shamir_and_wikipedias_example(monkeypatch):
    secret = bytes(range(32))
    shares = dict(enumerate(masking.split(secret, 3, range(1, 6)), 1))
    for some in combinations(shares, 3):
        assert masking.join({k: shares[k] for k in some}) == secret
    assert masking.join({k: shares[k] for k in (2, 3)}) != secret
    monkeypatch.setattr(masking, "PRIME", 1613)
    points = {1: 1494, 2: 329, 3: 965}
    assert int.from_bytes(masking.join({k: v.to_bytes(33) for k, v in points.items()})) == 1234


def test_fewer_than_t_shares_open_nothing(tmp_path):
    f = Federation(tmp_path, n=5, threshold=4)
    drawn = bytes(range(64))
    offer = masking.Offer(f.agreed, 1, "site-00", masking.offered(f.agreed, 1, "site-00", drawn))
    shares = {n: offer.held(f.keys[n]) for n in f.names}
    for kind, secret in (("own", drawn[32:]), ("pairs", drawn[:32])):
        of_kind = {f.agreed.places[n]: s[kind] for n, s in shares.items()}
        for k in (2, 3, 4, 5):
            for some in combinations(of_kind, k):
                assert (masking.join({x: of_kind[x] for x in some}) == secret) == (k >= 4)


def test_terms_of_a_threshold(tmp_path):
    a = Federation(tmp_path, n=7).agreed
    assert (a.threshold, a.colluding) == (5, 2)
    text = json.loads(a.text)
    assert "colluding" not in text
    assert Agreement.parse(a.text) == a
