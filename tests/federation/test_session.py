"""A session over a folder: the pooled head for every protection, and what adversaries reach."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from afltool.errors import AflError, CorruptFileError, IncompleteError, MismatchError, UsageError
from afltool.federation import keys as keys_
from afltool.federation import masking
from afltool.federation.agreement import Agreement, usual_threshold
from afltool.federation.envelope import canonical, name_of
from afltool.federation.ledger import Ledger, meaning
from afltool.federation.noise import clip_rows
from afltool.federation.place import Place
from afltool.federation.session import Member, Server
from afltool.heads import make_head
from afltool.heads.base import binding
from afltool.math.gram import FixedPoint
from afltool.sources.embeddings import imported_space
from afltool.values.statistics import Context

DIM, CLASSES, BITS = 6, ("a", "b", "c"), 10
SPACE = imported_space("made-up", DIM, "int16", BITS)
HEADS = {
    "linear": ("linear", {"gamma": 1.0}),
    "random-features": ("random-features", {"width": 12, "compute": "fixed"}),
    "softmax": ("softmax", {"rounds": 3}),
    "deepafl": ("deepafl", {"layers": 2, "width": 8, "compute": "fixed"}),
    "discriminant": ("discriminant", {}),
}


class Federation:
    """n sites, a server and a place in a folder."""

    def __init__(self, root: Path, head="linear", n=4, threshold=None, **terms) -> None:
        self.root, self.place = root, Place(str(root / "place"))
        name, options = HEADS[head]
        self.first = make_head(name, options).bind(DIM, len(CLASSES))
        self.names = [f"site-{i}" for i in range(n)]
        for one in (*self.names, "server"):
            keys_.new(one, root / "keys")
        self.keys = {one: keys_.load(root / "keys" / one) for one in (*self.names, "server")}
        about = {
            "name": name,
            "options": self.first.options.as_dict(),
            "digest": self.first.digest(),
            "phases": list(map(str, self.first.phases())),
        }
        self.agreed = Agreement(
            members=tuple(sorted(self.keys[k].party for k in self.names)), head=about,
            server=self.keys["server"].party, space=SPACE, classes=CLASSES,
            threshold=usual_threshold(n) if threshold is None else threshold,
            max_rows=1 << 16, bits_of_row=39, **terms)  # fmt: skip
        rng = np.random.default_rng(1)
        self.rows = {}
        for i, one in enumerate(self.names):
            y = rng.integers(0, 3, 30 + i)
            X = rng.integers(-900, 900, (len(y), DIM)) + 800 * np.eye(3, DIM)[y]
            self.rows[one] = X.astype(np.int16), y.astype(np.int64)
        self.server = self.new_server()
        self.sites = {one: self.new_site(one) for one in self.names}

    def new_server(self) -> Server:
        return Server(self.place, self.root / "server", self.agreed, self.keys["server"])

    def new_site(self, name: str, **other) -> Member:
        what = {"folder": self.root / name, "me": self.keys[name], "place": self.place, **other}
        gather = lambda head, radius: self.gathered(head, name, radius=radius)  # noqa: E731
        return Member(agreed=self.agreed, gather=gather, **what)

    def gathered(self, head, *names, radius=None):
        X, y = (np.concatenate([self.rows[n][k] for n in names]) for k in (0, 1))
        X = X if radius is None else clip_rows(X, radius)
        s, _ = head.gather([(FixedPoint(X, BITS), y)])
        return replace(s, context=Context(SPACE, CLASSES, binding(head)))

    def run(self, *names, turns=200):
        """Turns of these until nobody has anything to do; returns what each waits for."""
        names = names or ("server", *self.names)
        parties = {**self.sites, "server": self.server}
        before = None
        for _ in range(turns):
            waits = {n: parties[n].turn() for n in names}
            if waits == before:
                break
            before = waits
        return waits

    def pooled(self, *names):
        """The head that one place makes of all these rows."""
        head = self.first
        while head.phase() is not None:
            head, _ = head.absorb(self.gathered(head, *(names or self.names)))
        return head

    def solved(self, name):
        one = self.server if name == "server" else self.sites[name]
        return one.head(one.known())


@pytest.mark.parametrize("protection", ["masked", "signed"])
@pytest.mark.parametrize("head", HEADS)
def test_everybody_has_the_head_of_the_pooled_rows(tmp_path, head, protection):
    f = Federation(tmp_path, head, protection=protection)
    assert set(f.run().values()) == {""}
    assert {f.solved(n).digest() for n in ("server", *f.names)} == {f.pooled().digest()}


def test_a_member_drops_out_at_each_step(tmp_path):
    for step in ("hello", "sums", "shares"):
        f = Federation(tmp_path / step, n=4, threshold=3)
        f.server.deadline = 0.0
        gone, others = "site-3", ("server", "site-0", "site-1", "site-2")
        if step != "hello":
            f.server.deadline = None
            f.run("server", *f.names[:3])
            f.sites[gone].turn()  # its hello
            if step == "shares":
                f.run(*others)
                f.sites[gone].turn()  # its sums
            f.server.deadline = 0.0
        assert set(f.run(*others).values()) == {""}
        inside = f.names if step == "shares" else f.names[:3]
        assert f.solved("server").digest() == f.pooled(*inside).digest()
        if step != "shares":
            with pytest.raises(IncompleteError, match="goes on without"):
                f.run(gone)


def test_below_the_threshold_nothing_is_opened(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.server.deadline = 0.0
    f.run("server", "site-0", "site-1")
    assert not list((tmp_path / "place").glob("000-close*"))


def test_killed_anywhere_the_same_bytes_are_sent(tmp_path, monkeypatch):
    """Every write of every party fails once, after it or before it; then all begin anew."""
    f = Federation(tmp_path, "deepafl", n=3)
    sent, write = {}, Place.write
    rng = np.random.default_rng(0)

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
    f.server, f.sites = f.new_server(), {n: f.new_site(n) for n in f.names}
    assert f.solved("server").digest() == f.solved("site-1").digest() == f.pooled().digest()


def test_a_hostile_place_changes_nothing(tmp_path):
    f = Federation(tmp_path, "softmax", n=3)
    rng, folder = np.random.default_rng(2), tmp_path / "place"
    for _ in range(60):
        f.server, f.sites = f.new_server(), {n: f.new_site(n) for n in f.names}
        waits = f.run(turns=1)
        if set(waits.values()) == {""}:
            break
        for path in folder.glob("[0-9]*"):
            if rng.random() < 0.3:
                data = bytearray(path.read_bytes())
                how = rng.integers(4)
                if how == 0:
                    path.unlink()
                elif how == 1:
                    path.write_bytes(data[: len(data) // 2])
                elif how == 2:
                    data[rng.integers(len(data))] ^= 1
                    path.write_bytes(data)
                else:
                    path.write_bytes(rng.choice(list(folder.glob("[0-9]*"))).read_bytes())
    assert set(waits.values()) == {""}
    assert f.solved("site-2").digest() == f.pooled().digest()


# ---------------------------------------------------------------- what a site approves


def test_everything_approved_is_in_one_code(tmp_path):
    f = Federation(tmp_path, n=4)
    a = f.agreed
    assert Agreement.parse(a.text) == a
    others = [replace(a, threshold=4), replace(a, protection="signed"), replace(a, nonce="0" * 32),
              replace(a, classes=("a", "b", "d")), replace(a, max_rows=7), replace(a, colluding=1),
              replace(a, head={**a.head, "phases": []}), replace(a, follows="ab" * 32)]  # fmt: skip
    assert len({x.digest for x in (a, *others)}) == len(others) + 1
    with pytest.raises(UsageError, match="masked"):
        a.check_approved(None)
    with pytest.raises(UsageError, match="31 of 32"):
        a.check_approved(a.code[:-1])
    with pytest.raises(MismatchError, match="not the one approved"):
        a.check_approved(others[0].code)
    a.check_approved(a.code.replace(" ", "-").upper())
    with pytest.raises(UsageError, match="--allow signed"):
        others[1].check_approved(others[1].code)
    for damage in (a.text + b" ", a.text.replace(b'"follows": ""', b'"more": 1, "follows": ""')):
        with pytest.raises(CorruptFileError):
            Agreement.parse(damage)


def test_thresholds_that_protect_nobody_and_names_that_look_alike_are_refused(tmp_path):
    a = Federation(tmp_path, n=4).agreed
    for threshold, colluding in ((2, 0), (5, 0), (3, 2), (4, 3)):
        with pytest.raises(UsageError, match="threshold"):
            replace(a, threshold=threshold, colluding=colluding)
    for name in ("sіte-0", "../site", "a b", "", "x" * 65):  # the i of the first is Cyrillic
        with pytest.raises(UsageError, match="no name"):
            replace(a.members[3], name=name)
    twin = replace(a.members[3], name="SITE-0")
    with pytest.raises(MismatchError, match="one like it"):
        replace(a, members=tuple(sorted((*a.members[:3], twin))))


def test_keys_of_small_order_are_refused():
    for key in ("01" + "00" * 31, "00" * 32, "ec" + "ff" * 30 + "7f"):
        with pytest.raises(CorruptFileError, match="no Ed25519 key"):
            keys_.Party("eve", key)


def test_keys_are_those_of_ssh(tmp_path):
    keys_.new("north", tmp_path, b"secret")
    assert keys_.load(tmp_path / "north", b"secret").name == "north"
    with pytest.raises(UsageError):
        keys_.load(tmp_path / "north", b"other")
    (tmp_path / "north").chmod(0o644)
    with pytest.raises(AflError, match="chmod 600"):
        keys_.load(tmp_path / "north", b"secret")


# ---------------------------------------------------------------- adversaries


def test_a_site_sends_nothing_but_numbers_of_a_known_length(tmp_path):
    """Two sites that differ in one row, in groups, names of files …: lengths and all that is not
    encrypted or masked are the same bytes."""
    outside = []
    for k in (0, 1):
        f = Federation(tmp_path / str(k), n=3)
        X, y = f.rows["site-0"]
        f.rows["site-0"] = (X, y) if not k else (X[:-1], y[:-1])
        f.run()
        data = {p.name: p.read_bytes() for p in (tmp_path / str(k) / "place").glob("*-site-0")}
        heads = {n: json.loads(d.partition(b"\n")[0])[1:4] for n, d in data.items()}
        outside.append(
            {n: (len(d) - len(d.partition(b"\n")[0]), heads[n]) for n, d in data.items()}
        )
    assert outside[0] == outside[1]


def test_a_reader_of_the_place_has_no_key(tmp_path):
    f = Federation(tmp_path, n=3, protection="signed")
    f.run()
    plain = f.server.layout(1).joined(f.gathered(f.first, "site-0")).tobytes()
    everything = b"".join(p.read_bytes() for p in (tmp_path / "place").iterdir())
    assert plain[:64] not in everything
    site = f.sites["site-1"]
    with pytest.raises(CorruptFileError, match="another key"):  # nor does another member
        data = (tmp_path / "place" / name_of("sums", 1, "site-0")).read_bytes()
        site.box.open("sums", 1, f.keys["site-0"].party, data)


def test_masked_numbers_are_uniform_and_one_total_is_all_there_is(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.run()
    n = f.server.layout(1).size
    y = np.frombuffer(f.server.sums(1, "site-0"), "<u8", n)
    x = f.server.layout(1).joined(f.gathered(f.first, "site-0"))
    assert 20 < np.mean([bin(int(a ^ b)).count("1") for a, b in zip(x, y, strict=True)]) < 44
    assert not list(tmp_path.glob("site-*/secrets-1"))  # a thief opens no round that is over


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
    assert not (tmp_path / "place" / name_of("sums", 2, "site-0")).exists()


def test_the_bits_of_the_servers_machine_are_taken(tmp_path):
    f = Federation(tmp_path, n=3)
    real = f.server.keep_head

    def other_machine(number, head):
        arrays = {k: a * (1 + 2**-50) for k, a in head.arrays().items()}
        real(number, head.restore(head.phase(), arrays) if number > 1 else head)

    f.server.keep_head = other_machine
    f.run()
    assert f.solved("site-0").digest() == f.solved("server").digest() != f.pooled().digest()


def test_a_server_that_says_different_things_makes_no_sum(tmp_path):
    """It closes round 0 with others for site-0: their masks do not cancel, and nobody is open."""
    f = Federation(tmp_path, n=4, threshold=3)
    for n in ("server", *f.names, "server"):
        (f.server if n == "server" else f.sites[n]).turn()
    said = json.loads(f.server.take("close", 0, "server", 1 << 20).payload)
    other = {k: v for k, v in said.items() if k != "site-3"}
    name = name_of("close", 0, "server")
    real = (tmp_path / "place" / name).read_bytes()
    (tmp_path / "place" / name).write_bytes(f.server.box.seal("close", 0, canonical(other)))
    f.sites["site-0"].turn()
    (tmp_path / "place" / name).write_bytes(real)
    with pytest.raises(AflError, match="may be in it|makes no sense"):
        f.run()


def test_a_member_answers_once_a_round_and_two_answers_need_more_than_there_are(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.run("server", *f.names, turns=2)
    site = f.sites["site-0"]
    inside = f.server.closed(0)
    lists = [dict(inside), {k: v for k, v in inside.items() if k != "site-3"}]
    answers = [
        site.answer(1, one)
        for one in lists
        if not (tmp_path / "site-0/sent/001-shares-site-0").exists()
    ]
    first = site.post("shares", 1, lambda: answers[0] if answers else b"")
    assert site.post("shares", 1, lambda: pytest.fail("a second answer")) == first
    assert 2 * f.agreed.threshold > len(f.names)


def test_a_restored_site_stops(tmp_path):
    f = Federation(tmp_path, "deepafl", n=3)
    f.run(turns=4)
    (tmp_path / "site-0/sent/001-sums-site-0").unlink()
    for path in [*(tmp_path / "site-0").glob("head-[2-9]*")]:
        path.unlink()
    with pytest.raises(MismatchError, match="restored from a backup"):
        f.new_site("site-0").turn()


def test_what_claims_to_be_large_is_not_read_and_rubbish_stops_nobody(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    f.server.deadline = 0.0
    f.run("server", "site-0")
    huge = tmp_path / "place" / name_of("hello", 0, "site-3")
    with huge.open("wb") as file:
        file.truncate(1 << 40)
    assert set(f.run("server", "site-0", "site-1", "site-2").values()) == {""}
    assert f.solved("server").digest() == f.pooled(*f.names[:3]).digest()


def test_a_member_cannot_frame_the_server_or_send_in_anothers_name(tmp_path):
    f = Federation(tmp_path, n=3)
    f.run("server", "site-0", "site-1", turns=3)
    eve = f.keys["site-1"]
    forged = Member(
        f.place, tmp_path / "forger", f.agreed, eve, lambda h, _: f.gathered(h, "site-1")
    )
    forged.box.group = f.sites["site-1"].box.group
    data = forged.box.seal("hello", 0, b"\0" * masking.offer_size(f.agreed))
    (tmp_path / "place" / name_of("hello", 0, "site-2")).write_bytes(data)
    assert f.server.take("hello", 0, "site-2", 1 << 16) is None
    f.run()  # site-2 writes its own; what site-1 exchanges later changes no digest of `close`
    (tmp_path / "place" / name_of("sums", 1, "site-1")).write_bytes(
        f.sites["site-1"].box.seal("sums", 1, b"\0" * 8)
    )
    assert set(f.run().values()) == {""} and f.solved("site-0").digest() == f.pooled().digest()


def test_wrong_shares_are_found_and_right_ones_suffice(tmp_path):
    f = Federation(tmp_path, n=4, threshold=3)
    liar = f.sites["site-2"]
    real = liar.answer
    liar.answer = lambda number, inside: bytes(len(real(number, inside)))
    for _ in range(6):
        for n in ("server", "site-0", "site-1", "site-3", "site-2"):
            (f.server if n == "server" else f.sites[n]).turn()
    f.run()
    assert f.solved("site-0").digest() == f.pooled().digest()


@pytest.mark.parametrize("liar", range(4))
def test_a_member_that_gives_wrong_shares_excludes_nobody(tmp_path, liar):
    f = Federation(tmp_path, n=4, threshold=3)
    eve, real = f.sites[f"site-{liar}"], masking.Secrets.offer

    def offer(self, agreed, me, number):
        good = real(self, agreed, me, number)
        bad = (liar + 1) % 4 if me is eve.me else None
        at = None if bad is None else 64 + masking.BOX * bad
        return good if at is None else good[:at] + bytes(masking.BOX) + good[at + masking.BOX :]

    masking.Secrets.offer = offer
    try:
        assert set(f.run().values()) == {""}
    finally:
        masking.Secrets.offer = real
    assert f.solved("server").digest() == f.pooled().digest()


def test_the_ledger_knows_rows_by_what_they_are(tmp_path):
    f = Federation(tmp_path, n=4)
    X, y = f.rows["site-0"]
    order = np.random.default_rng(0).permutation(len(X))
    assert meaning(X, y, CLASSES) == meaning(X[order], y[order] + 1, ("z", *CLASSES))
    assert meaning(X, y, CLASSES) != meaning(X[:-1], y[:-1], CLASSES)
    ledger = Ledger(tmp_path / "masked.json")
    for _ in range(2):
        ledger.claim(meaning(X, y, CLASSES), f.agreed, again=False)
    without = replace(f.agreed, members=f.agreed.members[:3], threshold=3)
    with pytest.raises(MismatchError, match="differ by site-3"):
        ledger.claim(meaning(X[order], y[order], CLASSES), without, again=False)
    ledger.claim(meaning(X, y, CLASSES), without, again=True)


def test_shamir_and_wikipedias_example(monkeypatch):
    secret = bytes(range(32))
    shares = dict(enumerate(masking.split(secret, 3, range(1, 6)), 1))
    assert masking.join({k: shares[k] for k in (2, 3, 5)}) == secret
    assert masking.join({k: shares[k] for k in (2, 3)}) != secret
    monkeypatch.setattr(masking, "PRIME", 1613)
    points = {1: 1494, 2: 329, 3: 965}
    assert int.from_bytes(masking.join({k: v.to_bytes(33) for k, v in points.items()})) == 1234


# ---------------------------------------------------------------- noise


def test_noise_is_shared_and_everybody_solves_with_the_same_ridge(tmp_path):
    for epsilon, close in ((1e9, True), (1.0, False)):
        noise = {"epsilon": epsilon, "delta": 1e-5, "clip": 4.0}
        f = Federation(tmp_path / str(epsilon), n=4, noise=noise)
        assert set(f.run().values()) == {""}
        assert f.solved("site-0").digest() == f.solved("server").digest()
        W, pooled = (h.affine()[0] for h in (f.solved("site-0"), f.pooled()))
        assert bool(np.abs(W - pooled).max() < 0.2) == close


def test_noise_is_what_the_old_accountant_asks_for(tmp_path):
    from afltool.federation import accountant
    from afltool.federation.noise import Noise, discrete_gaussian
    from afltool.privacy import accountant as old
    from afltool.privacy.differential import Noise as Old

    f = Federation(tmp_path, n=7, noise={"epsilon": 1.0, "delta": 1e-5, "clip": 4.0})
    f.server.turn()
    layout = f.server.layout(1)
    new = Noise.of(f.agreed, layout)
    sizes = {"gram": 21, "cross": 18, "class_counts": 3}
    was = Old(1.0, 1e-5, 4.0, BITS, members=f.agreed.threshold - 1).sigmas(sizes)
    assert [new.sigma[k] for k in ("gram", "cross", "class counts")] == pytest.approx(
        [was[k] for k in ("gram", "cross", "class_counts")], rel=1e-6
    )
    for rho in (1e-4, 0.03, 2.0):
        assert accountant.epsilon(rho, 1e-5) == pytest.approx(old.concentrated_epsilon(rho, 1e-5))
    for sigma in (2.0, 15.0, 1e6):
        draws = discrete_gaussian(200_000, sigma)
        assert abs(draws.std() / sigma - 1) < 0.01 and abs(draws.mean()) < 0.02 * sigma
    with pytest.raises(UsageError, match="δ from"):
        Noise.of(replace(f.agreed, noise={**f.agreed.noise, "delta": 1e-40}), layout)
    with pytest.raises(UsageError, match="without --min-rows"):
        replace(f.agreed, min_rows=5)
