"""The protocol over a folder: everybody has the pooled head, whoever drops out, is killed or lies;
a server that tells members different things opens no sum of few, nor does the thief of a key."""

from __future__ import annotations

import hashlib
import json
import shutil
from itertools import combinations

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from parties import HEADS, Federation, key_of, played

from afltool.errors import AflError, IncompleteError, MismatchError
from afltool.federation import masking
from afltool.federation.agreement import usual_threshold
from afltool.federation.keys import Box, canonical, cipher_between, name_of
from afltool.federation.place import Place

slow = pytest.mark.slow
WIDE = [("linear", {"ridge": 1.0}), ("softmax", {"rounds": 2}),
        ("random-features", {"width": 400, "compute": "fixed", "ridge": 1.0})]  # fmt: skip


@pytest.mark.parametrize("protection", ["masked", "signed"])
@pytest.mark.parametrize("head", HEADS)
def test_everybody_has_the_head_of_the_pooled_rows(head, protection):
    f = played(head, n=3, protection=protection)
    assert f.is_pooled()
    site, number = f.sites["site-01"], f.server.known()
    assert {site.take("done", number, name).payload for name in f.keys} == {site.result(number)}


@pytest.mark.parametrize("n", [2, 5, pytest.param(16, marks=slow)])
def test_any_number_of_sites(n):
    assert played(n=n, **({"protection": "signed"} if n == 2 else {})).is_pooled()


@slow
@pytest.mark.parametrize("n", [5, 16])
@pytest.mark.parametrize("head", HEADS)
def test_every_head_of_many_sites(head, n):
    assert played(head, n=n).is_pooled()


@slow
@pytest.mark.parametrize("head", WIDE)
def test_wide_matrices(tmp_path, head):
    rng, rows = np.random.default_rng(0), {}
    for k in range(5):
        y = rng.integers(0, 3, 60)
        X = rng.integers(-900, 900, (60, 300)) + 400 * np.eye(3, 300)[y]
        rows[f"site-{k:02d}"] = X.astype(np.int16), y
    f = Federation(tmp_path, head, n=5, rows=rows)
    assert f.over()
    assert f.is_pooled()


@pytest.mark.parametrize("step", ["hello", "sums", "shares"])
@pytest.mark.parametrize("n", [5, pytest.param(16, marks=slow)])
def test_a_member_drops_out_at_each_step(tmp_path, n, step):
    f = Federation(tmp_path, n=n, threshold=n - 1)
    gone, others = f.names[-1], ("server", *f.names[:-1])
    f.run(*others)
    if step != "hello":
        f.turn(gone, *others)  # its hello
        if step == "shares":
            f.turn(gone, *others)  # its sums
    assert f.over(*others, late=0.0)
    inside = f.names if step == "shares" else f.names[:-1]
    assert f.solved("server").digest() == f.pooled(*inside).digest()
    if step != "shares":
        with pytest.raises(IncompleteError, match="goes on without"):
            f.run(gone)
        assert not list((tmp_path / gone).glob("secrets-*"))  # excluded keeps no secrets


def test_below_the_threshold_nothing_is_opened(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.server.deadline = 0.0
    waits = f.run("server", "site-00", "site-01")
    assert waits["server"] == "the hello of site-02, site-03 in round 0"
    assert not f.sent("000-close*")


@pytest.mark.parametrize("head", ["linear", pytest.param("softmax", marks=slow)])
def test_killed_anywhere_the_same_bytes_are_sent(tmp_path, monkeypatch, head):
    """Every write of every party fails once, after it or before it; then all begin anew."""
    f = Federation(tmp_path, head, n=3)
    sent, write, rng = {}, Place.write, np.random.default_rng(0)

    def fails(self, name, data):
        assert sent.setdefault(name, data) == data
        if rng.random() < 0.5:
            write(self, name, data)
        raise KeyboardInterrupt

    for _ in range(400):
        with monkeypatch.context() as m:
            m.setattr(Place, "write", fails)
            waits = []
            for one in (f.new_server(), *map(f.new_site, f.names)):
                try:
                    waits.append(one.turn())
                except KeyboardInterrupt:
                    waits.append("killed")
        if set(waits) == {""}:
            break
    assert set(waits) == {""}
    f.begin()
    assert f.is_pooled()


@pytest.mark.parametrize("name", ["finished", "group-key"])
def test_an_end_that_was_interrupted_goes_on(tmp_path, monkeypatch, name):
    """Before the key of the session is deleted: it goes for good, and the summary is made."""
    from afltool.federation import commands, session

    f = Federation(tmp_path, n=3)
    step = "write_once" if name == "finished" else "delete"
    real = getattr(session, step)

    def killed(path, *data):
        found = real(path, *data) if step == "write_once" else None
        if path.name == name:
            raise KeyboardInterrupt
        return found

    with monkeypatch.context() as m:
        m.setattr(session, step, killed)
        with pytest.raises(KeyboardInterrupt):
            f.run()
    assert (tmp_path / "server/group-key").exists()
    f.begin()
    assert f.over()
    assert not (tmp_path / "server/group-key").exists()
    commands.finish(f.server)
    found = json.loads((tmp_path / "server/summary.json").read_bytes())
    assert found["signed"] == sorted(["server", *f.names])


# ---------------------------------------------------------------- one close a round


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
        f.turn("server", *f.names)
        self.of = {0: {n: f.server.take("hello", 0, n).digest for n in f.names}, 1: {}}

    def close(self, number, names, before):
        members = {n: self.of[number][n] for n in names}
        said = canonical({"before": before, "members": members})
        return hashlib.sha256(self.f.put("close", number, "server", said)).hexdigest()

    def first(self, name, names):
        """Round 0, for one member; returns the digest of its close."""
        digest = self.close(0, names, "")
        self.f.turn(name)
        self.of[1][name] = self.f.server.take("sums", 1, name).digest
        return digest

    def second(self, name, names, before):
        """Round 1: who colludes says that it has seen the same, to each."""
        seen = bytes.fromhex(self.close(1, names, before))
        for other in self.colluders:
            self.f.put("seen", 1, other, seen)
        self.f.turn(name)
        for other in self.colluders:
            self.f.at("seen", 1, other).unlink()
            (self.f.root / name / "taken" / name_of("seen", 1, other)).unlink(missing_ok=True)


def but(out, members, also=()):
    """Each of these members is told that the others of ``out`` dropped out."""
    return {w: [*(v for v in out if v != w), *also] for w in members}


# n, t, targets, whose s shall be opened, who colludes, and who is told that whom dropped out
POINTS = [
    (5, 3, [0], [1, 2], [], but([1, 2], [1, 2, 3, 4])),
    (7, 4, [0, 1], [2, 3, 4], [], but([2, 3, 4], range(2, 7))),
    (7, 5, [0], [1, 2], [5, 6], but([1, 2], [1, 2, 3, 4])),
    (12, 9, [0], [1, 2, 3, 4], [8, 9, 10, 11],
     {**but([1, 2, 3, 4], [1, 2, 3, 4]), 5: [1, 2, 3], 6: [2, 3, 4], 7: [3, 4, 1]}),
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
    assert not f.sent("001-shares*")
    assert "to have seen who is in round 1" in f.sites[f.names[0]].turn()
    assert "to have seen" in f.new_site(f.names[0]).turn()  # also after a start of its process


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
    answered = [name.removeprefix("001-shares-") for name in f.sent("001-shares*")]
    assert len({canonical(f.sites[n].closed(1)) for n in answered}) <= 1


def test_so_many_have_seen_and_not_one_less(tmp_path):
    f = Federation(tmp_path, n=6, threshold=4).rolled()
    f.turn(*f.names, "server")
    for k, name in enumerate(f.names[:4]):
        assert not f.sent("001-shares*")
        f.turn(name)
        assert len(f.sent("001-seen*")) == k + 1
    assert f.sent("001-shares*") == ["001-shares-site-03"]


def test_a_liar_in_seen_stops_nobody(tmp_path):
    f = Federation(tmp_path, n=5, threshold=4)
    f.run(turns=2)
    f.turn("site-04")
    (tmp_path / "site-04/sent" / name_of("seen", 1, "site-04")).unlink(missing_ok=True)
    f.put("seen", 1, "site-04", bytes(32))
    assert f.over("server", *f.names[:4], late=0.0)
    assert f.solved("site-00").digest() == f.pooled().digest()


# ---------------------------------------------------------------- thief and backup


@pytest.mark.parametrize("protection", ["masked", "signed"])
def test_one_stolen_key_opens_nothing_old(protection):
    """A key and all that ever was in the place, after the end: of a member the totals that it has
    known, and nobody's sums; of the server nothing at all."""
    f = played(n=4, threshold=3, protection=protection)
    assert not list(f.root.glob("*/secrets-*"))
    assert not (f.root / "server/group-key").exists()

    def opened(box, kind, number, sender, key):
        data = f.at(kind, number, sender).read_bytes()
        return box.open(kind, number, f.agreed.people[sender], data, key).payload

    for whose in ("site-00", "site-01", "server"):
        key = f.keys[whose]
        box = Box(f.agreed.digest, key)
        shut = [("sums", 1, n, key.agreeing) for n in f.names]
        if whose == "server":
            shut += [("key", k, "server", x) for k in range(1, 5) for x in (key.agreeing, None)]
        else:
            mine = f.agreed.places[whose]
            box.group = opened(box, "key", mine, "server", key.agreeing)[:32]
        for what in shut:
            with pytest.raises(AflError):
                opened(box, *what)
        if whose != "server" and protection == "masked":
            check_boxes(f, key, {n: opened(box, "hello", 0, n, None) for n in f.names})


def check_boxes(f, key, hellos):
    """Of each secret a thief opens the one share that its member holds, and no other."""
    for giver, hello in hellos.items():
        offer = masking.Offer.of(f.agreed, 1, giver, hello)
        assert any(offer.held(key)["pairs"])
        for holder in f.agreed.members:
            for theirs in (offer.data[64:96], holder.agreeing, offer.public):
                if holder.name != key.name:
                    cipher = cipher_between(key.agreeing, theirs, offer.about, holder.key)
                    with pytest.raises(InvalidTag):
                        cipher.decrypt(bytes(12), offer.part(holder.name)[1], None)


def test_secrets_go_with_their_round(tmp_path):
    f = Federation(tmp_path, ("softmax", {"rounds": 1}), n=3)
    while f.server.known() < 2:
        f.turn("server", *f.names)
    assert not list(tmp_path.glob("*/secrets-1"))
    drawn = [path.read_bytes() for path in tmp_path.glob("*/secrets-[23]")]
    assert len(drawn) >= 3
    assert len({half for one in drawn for half in (one[:32], one[32:])}) == 2 * len(drawn)
    assert f.over()
    assert not list(tmp_path.glob("*/secrets-*"))
    assert not f.sent("*seen*")  # t = n needs none


@pytest.mark.parametrize("spoiled", [False, True])
def test_a_restored_backup_sends_nothing_else(tmp_path, spoiled):
    """Nor if somebody spoils what it has sent: its ledger is not in the folder."""
    f = Federation(tmp_path, n=4, threshold=4).rolled()
    shutil.copytree(tmp_path / "site-00", tmp_path / "backup")
    f.turn("site-00")
    if spoiled:
        f.at("sums", 1, "site-00").write_bytes(b"rubbish")
    before = f.at("sums", 1, "site-00").read_bytes()
    with pytest.raises(MismatchError, match="restored from a backup"):
        f.new_site("site-00", folder=tmp_path / "backup").turn()
    assert f.at("sums", 1, "site-00").read_bytes() == before


def test_a_thief_of_a_members_key_and_folder_cannot_take_part_beside_it(tmp_path):
    f = Federation(tmp_path, n=3)
    f.turn("server", *f.names)
    with pytest.raises(MismatchError, match="another copy of your key"):
        f.new_site("site-00", folder=tmp_path / "thief").turn()


# ---------------------------------------------------------------- what a reader, a member see


def test_a_reader_of_the_place_has_no_key():
    f = played(n=3, protection="signed")
    everything = b"".join(p.read_bytes() for p in (f.root / "place").iterdir())
    for secret in (f.numbers("site-00"), *f.solved("server").state_dict().values()):
        assert secret.tobytes()[:64] not in everything
    eve = Box(f.agreed.digest, key_of("eve"))
    for box, kind, number, name in ((f.sites["site-01"].box, "sums", 1, "site-00"),
                                    (eve, "done", 2, "server")):  # fmt: skip
        data = f.at(kind, number, name).read_bytes()
        with pytest.raises(AflError, match="another key"):
            box.open(kind, number, f.agreed.people[name], data)


def test_masked_numbers_are_uniform():
    f = played(n=4)
    x = f.numbers("site-00").view(np.uint64)
    y = np.frombuffer(f.server.take("sums", 1, "site-00").payload, "<u8", len(x))
    assert 20 < np.mean([bin(int(a ^ b)).count("1") for a, b in zip(x, y, strict=True)]) < 44


def test_a_site_sends_nothing_but_numbers_of_a_known_length(tmp_path):
    """Two sites that differ in one row: lengths and all that is not encrypted are the same."""
    f = Federation(tmp_path, n=3)
    f.rows["site-00"] = tuple(a[:-1] for a in f.rows["site-00"])
    f.begin()
    assert f.over()
    outside = []
    for one in (f, played(n=3)):
        data = {p.name: p.read_bytes() for p in (one.root / "place").glob("*-site-00")}
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


def test_fewer_than_t_shares_open_nothing():
    f = played(n=5, threshold=4)
    drawn = bytes(range(64))
    made = masking.offered(f.agreed, 1, "site-00", drawn)
    offer = masking.Offer.of(f.agreed, 1, "site-00", made)
    for kind, secret in (("own", drawn[32:]), ("pairs", drawn[:32])):
        shares = {n: offer.held(f.keys[n])[kind] for n in f.names}
        of_kind = {f.agreed.places[n]: share for n, share in shares.items()}
        for k in (2, 3, 4, 5):
            for some in combinations(f.names, k):
                places = [f.agreed.places[n] for n in some]
                assert (masking.join({x: of_kind[x] for x in places}) == secret) == (k >= 4)
                assert offer.opened(kind, {n: shares[n] for n in some})[0] == (
                    secret if k >= 4 else None)  # fmt: skip
