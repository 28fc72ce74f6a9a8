"""What somebody can do who reads every file of a round, and what a second round gives away."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from damage import forge
from rounds_under_masks import Round, digest

import afltool
from afltool import lock_key
from afltool.errors import AflError, CorruptFileError, MismatchError, UsageError
from afltool.files.hdf5 import read_header
from afltool.privacy import identity, messages
from afltool.privacy.identity import Identity
from afltool.privacy.offers import Offers
from afltool.privacy.reveal import Request, load_reveals
from afltool.privacy.roster import load
from afltool.privacy.sealing import SEAL
from afltool.stages.inspect import info


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Four sites A, B, C, D, three of whom must stay, and their masked files of a first round."""
    one = Round(tmp_path_factory.mktemp("reader"), 4, 3)
    one.offer(one.sites)
    for name in one.sites:
        one.masked(name)
    return one


@pytest.fixture
def first(sites):
    """The first round, whatever other rounds a test has made."""
    sites.roster, sites.where = sites.folder / "roster.json", sites.folder / "round-roster.json"
    return sites


def reader(one: Round) -> tuple[Offers, Request]:
    """From the files alone: a request for A, B and C, from the seals of their masked files."""
    offers = Offers.load(load(one.roster), [one.where / "offers"])
    headers = {n: read_header(one.where / "masked" / f"client-{n}.h5") for n in one.sites[:3]}
    seals = {n: messages.message_of(n, h["seal"], "seal", SEAL) for n, h in headers.items()}
    return offers, Request.new(offers, seals)


def answered(one: Round, name: str) -> bool:
    rounds = one.folder / "keys" / f"{name}.rounds" / load(one.roster).digest[:32]
    return (rounds / "answered").exists()


# ---------------------------------------------------------------- the request


@pytest.mark.parametrize("who", ["nobody", "a member", "another server", "the server, elsewhere"])
def test_members_answer_only_what_the_server_has_signed(first, tmp_path, who):
    """A request without D, made from three seals: it used to spend the answers of A, B and C, and
    to open their sum to whoever wrote it."""
    _, request = reader(first)
    body = dict(request.body)
    signature = ""
    if who == "a member":
        signature = identity.load(first.key("site-0")).sign(body).signature
    elif who == "another server":  # of the same name
        signature = Identity.new("server").sign(body).signature
    elif who == "the server, elsewhere":  # what it signed in another round
        first.new_roster(f"{tmp_path.name}.json", 3)
        other = {**body, "roster": load(first.roster).digest}
        server = identity.load(first.server.with_suffix(".key"))
        signature = server.sign(other).signature
        first.roster, first.where = first.folder / "roster.json", first.folder / "round-roster.json"
    path = messages.write(tmp_path / "forged.json", messages.Message(body, signature))
    for name in first.sites[:3]:
        with pytest.raises(CorruptFileError, match=r"forged\.json is not.*(by 'server'|signature)"):
            first.reveal([name], path, tmp_path.name)
        assert not answered(first, name)
    assert not (first.where / tmp_path.name).exists()


def test_a_signed_request_that_was_changed_is_refused(first, tmp_path):
    request = first.aggregate([first.where / "masked"], out="changed.h5")
    found = json.loads(request.read_text())
    found["body"]["seals"].pop()
    (tmp_path / "x.json").write_text(json.dumps(found))
    with pytest.raises(CorruptFileError, match="is not signed by 'server'"):
        first.reveal(["site-0"], tmp_path / "x.json")


def test_only_the_servers_key_of_the_roster_makes_a_request(first, tmp_path):
    afltool.keys(["server", "mallory"], tmp_path)
    for key, what in (
        (first.key("site-0"), "is of 'site-0', but the roster .* names 'server' as its server"),
        (tmp_path / "mallory.key", "is of 'mallory'"),
        (tmp_path / "server.key", "is of 'server'.*with other keys"),
    ):
        with pytest.raises(MismatchError, match=what):
            first.aggregate([first.where / "masked"], out=f"{key.parent.name}.h5", key=key)
        assert not (first.where / f"{key.parent.name}.request.json").exists()
    with pytest.raises(UsageError, match="--offers needs --key"):
        first.aggregate([first.where / "masked"], out="none.h5", key=None)
    (tmp_path / "words").write_text("horse\n")
    private = first.server.with_suffix(".key")
    locked = lock_key(private, tmp_path / "locked", new_passphrase_file=tmp_path / "words")
    with pytest.raises(UsageError, match="needs a passphrase"):
        first.aggregate([first.where / "masked"], out="locked.h5", key=locked)
    options = {"key": locked, "passphrase_file": tmp_path / "words"}
    assert first.aggregate([first.where / "masked"], out="locked.h5", **options).exists()


# ---------------------------------------------------------------- the answers


@pytest.fixture(scope="module")
def whole(sites):
    """The first round's honest end: request, answers, total."""
    files = [sites.where / "masked"]
    request = sites.aggregate(files)
    answers = sites.reveal(sites.sites, request)
    return request, answers, sites.aggregate(files, (answers,))


def test_answers_are_read_with_the_servers_key_alone(first, whole, tmp_path):
    """With all files of the round and other private keys, a member's among them."""
    request, answers, total = whole
    assert digest(total) == first.wanted(first.sites)
    offers = Offers.load(load(first.roster), [first.where / "offers"])
    asked = Request.load(request, offers)
    true = identity.load(first.server.with_suffix(".key"))
    assert load_reveals(asked, [answers], true).keys() == set(first.sites)
    for other in (Identity.new("server"), identity.load(first.key("site-0"))):
        with pytest.raises(MismatchError, match="names 'server' as its server"):
            load_reveals(asked, [answers], other)
        # Who leaves that check out has the wrong key all the same.
        posing = Identity(true.member, other.signing, other.agreeing)
        with pytest.raises(CorruptFileError, match="cannot be decrypted"):
            load_reveals(asked, [answers], posing)


def test_answers_tell_no_share(first, whole):
    """Neither in the file nor by its size; two answers to one request have nothing in common."""
    request, answers, _ = whole
    offers = Offers.load(load(first.roster), [first.where / "offers"])
    asked = Request.load(request, offers)
    found = {p: messages.parse(p)["body"] for p in sorted(answers.glob("*.json"))}
    assert len({body["sealed"] for body in found.values()}) == 4
    assert {len(body["sealed"]) for body in found.values()} == {2 * (4 * 33 + 16)}
    for path, body in found.items():
        me = identity.load(first.key(body["member"]))
        for giver in offers.by_member:
            share = offers.open(giver, me)[asked.kind(giver)].hex()
            assert share not in path.read_text()


def test_the_same_answer_is_given_again_and_no_other(first, whole, tmp_path):
    """Also when its file was lost: the round folder keeps it, encrypted as it was."""
    request, answers, _ = whole
    before = (answers / "reveal-site-1.json").read_bytes()
    first.reveal(["site-1"], request, tmp_path.name)
    assert (first.where / tmp_path.name / "reveal-site-1.json").read_bytes() == before
    _, fewer = reader(first)
    server = identity.load(first.server.with_suffix(".key"))
    other = messages.write(tmp_path / "other.json", fewer.message(server))
    with pytest.raises(MismatchError, match="'site-1' has answered another request"):
        first.reveal(["site-1"], other, tmp_path.name)


# ---------------------------------------------------------------- the second round


def test_the_same_statistics_are_not_masked_in_a_second_round(first, whole, tmp_path):
    """ABC in one round and ABCD in another: their difference is D, whoever subtracts."""
    first.new_roster(f"{tmp_path.name}.json", 3)
    first.offer(first.sites)
    for name in first.sites:
        with pytest.raises(MismatchError, match=f"'{name}' has masked the same rows before.*one "
                           "sum less the other.*--again"):  # fmt: skip
            first.masked(name, again=False)
    assert not (first.where / "masked").exists()
    name = first.sites[0]
    with pytest.raises(MismatchError, match="has masked the same rows before"):
        afltool.local_stats(  # another class list is another file, of the same numbers
            more_classes(first, name, tmp_path), first.head, tmp_path, client=name,
            sign=first.key(name), roster=first.roster, mask=(first.where / "offers",),
        )  # fmt: skip
    sent = first.masked(name, again=True)
    before = sent.read_bytes()
    sent.unlink()
    assert first.masked(name, again=False).read_bytes() == before  # the same step of one round


def test_a_step_that_was_killed_between_its_two_records_goes_on(first, tmp_path):
    """The ledger knows the statistics, the round does not yet: the same command ends the step."""
    name = first.sites[1]
    first.new_roster(f"{tmp_path.name}.json", 3)
    first.offer(first.sites)
    raw = dict(np.load(first.folder / f"{name}.npz"))
    np.savez(tmp_path / "x.npz", **{k: a[2:] for k, a in raw.items()})
    fewer = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "x.h5")
    options = {"client": name, "sign": first.key(name), "roster": first.roster}
    options["mask"] = (first.where / "offers",)
    sent = afltool.local_stats(fewer, first.head, tmp_path / "out", **options)
    before = sent.read_bytes()
    rounds = first.folder / "keys" / f"{name}.rounds" / load(first.roster).digest[:32]
    (rounds / "used").unlink()
    sent.unlink()
    assert afltool.local_stats(fewer, first.head, tmp_path / "out", **options) == sent
    assert sent.read_bytes() == before


def test_what_a_round_refuses_is_not_in_the_ledger(first, tmp_path):
    """Other rows under masks that are used: refused, and so free for another round."""
    name = first.sites[1]
    raw = dict(np.load(first.folder / f"{name}.npz"))
    np.savez(tmp_path / "x.npz", **{k: a[3:] for k, a in raw.items()})
    fewer = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "x.h5")

    def send(out):
        return afltool.local_stats(
            fewer, first.head, tmp_path / out, client=name, sign=first.key(name),
            roster=first.roster, mask=(first.where / "offers",),
        )  # fmt: skip

    first.new_roster(f"{tmp_path.name}.json", 3)
    first.offer(first.sites)
    first.masked(name)
    with pytest.raises(MismatchError, match="were used for other statistics"):
        send("a")
    first.new_roster(f"{tmp_path.name}-2.json", 3)
    first.offer(first.sites)
    assert send("b").exists()


def more_classes(one: Round, name: str, folder):
    """The same rows, and a class more that has none."""
    header = read_header(one.folder / f"{name}.h5")
    path = folder / "more.h5"
    forge(one.folder / f"{name}.h5", path, {"classes": [*header["classes"], "none"]})
    return path


def test_other_rows_are_masked_without_asking(first, tmp_path):
    """Data that have grown; `test_heads_with_integer_sums_go_under_masks` has rounds of a head."""
    name = first.sites[0]
    first.new_roster(f"{tmp_path.name}.json", 3)
    first.offer(first.sites)
    raw = dict(np.load(first.folder / f"{name}.npz"))
    np.savez(tmp_path / "x.npz", **{k: a[1:] for k, a in raw.items()})
    fewer = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "x.h5")
    options = {"client": name, "sign": first.key(name), "roster": first.roster}
    options["mask"] = (first.where / "offers",)
    assert info(afltool.local_stats(fewer, first.head, tmp_path / "a", **options))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linear", {"gamma": 1.0}), ("linear", {"intercept": True}), ("softmax", {"rounds": 2}),
        ("discriminant", {}), ("random-features", {"width": 6, "with_linear": True}),
    ],
)  # fmt: skip
def test_another_head_is_no_other_round(first, tmp_path, name, options):
    """Each of these sums holds the gram of the linear head, or a part of it, and class counts."""
    head = afltool.head(name, tmp_path / "h.h5", options=options)
    made = afltool.roster(
        first.public, tmp_path / "r.json", head=str(head), server=first.server, threshold=3
    )
    offers = tmp_path / "offers"
    for site in first.sites:
        afltool.mask_offer(made, offers, key=first.key(site))
    with pytest.raises(MismatchError, match="has masked the same rows before"):
        afltool.local_stats(
            first.folder / "site-0.h5", head, tmp_path / "out", client="site-0",
            sign=first.key("site-0"), roster=made, mask=(offers,),
        )  # fmt: skip


def test_the_ledger_tells_others_nothing(first, whole):
    """Its names are digests under the member's key; the rows' digest is in no file."""
    for name in first.sites:
        ledger = first.folder / "keys" / f"{name}.rounds" / "masked"
        files = list(ledger.iterdir())
        assert files
        rosters = {load(p).digest for p in first.folder.glob("*.json") if p.is_file()}
        for path in files:
            assert messages.SHA256(path.name)
            assert path.read_text() in rosters
            assert path.stat().st_mode & 0o777 == 0o600
        features = info(first.folder / f"{name}.h5")["digest"]
        assert not any(features in p.read_text(errors="replace") + p.name for p in files)
        assert not {p.name for p in files} & {
            p.name for other in first.sites if other != name
            for p in (first.folder / "keys" / f"{other}.rounds" / "masked").iterdir()
        }  # fmt: skip


def test_a_damaged_ledger_is_no_leave(first, whole, tmp_path):
    name = first.sites[2]
    shutil.copytree(first.folder / "keys" / f"{name}.rounds", tmp_path / f"{name}.rounds")
    shutil.copy(first.key(name), tmp_path)
    for path in (tmp_path / f"{name}.rounds" / "masked").iterdir():
        path.write_bytes(b"")
    first.new_roster(f"{tmp_path.name}.json", 3)
    first.offer([s for s in first.sites if s != name])
    afltool.mask_offer(first.roster, first.where / "offers", key=tmp_path / f"{name}.key")
    with pytest.raises(CorruptFileError, match="is damaged: it holds no digest of a roster"):
        first.masked(name, again=False, sign=tmp_path / f"{name}.key")


# ---------------------------------------------------------------- leaving


def test_nobody_leaves_a_sum_under_masks_and_the_reason_is_given(first, whole, tmp_path):
    why = "cancel only in the whole sum.*whoever knows both totals knows the statistics of that one"
    masked = first.where / "masked" / "client-site-3.h5"
    for item in (masked, first.plain("site-3")):
        with pytest.raises(AflError, match=why) as error:
            afltool.aggregate([whole[2]], tmp_path / "t.h5", subtract=(item,))
        assert str(item) in str(error.value)
    with pytest.raises(UsageError, match=f"--subtract: nobody can leave.*{why}"):
        first.aggregate([first.where / "masked"], subtract=(masked,))
    with pytest.raises(UsageError, match=r"is a file under masks.*--offers and --key"):
        afltool.aggregate([masked], tmp_path / "t.h5")
    assert not (tmp_path / "t.h5").exists()


# ---------------------------------------------------------------- all of it, as it was done


def test_every_step_of_the_differencing_attack_is_refused(first, whole, tmp_path):
    """n = 4, t = 3: ABC by a forged request, ABCD by the round repeated, D by subtraction."""
    _, request = reader(first)
    forged = messages.write(tmp_path / "forged.json", messages.Message(request.body))
    with pytest.raises(CorruptFileError, match="signature is ''"):  # 1. A, B, C answer
        first.reveal(first.sites[:3], forged, tmp_path.name)
    with pytest.raises(AflError):  # 2. their answers are read
        first.aggregate(
            [first.where / "masked"], [first.where / "reveals"], key=first.key("site-0")
        )
    first.new_roster(f"{tmp_path.name}.json", 3)
    first.offer(first.sites)
    with pytest.raises(MismatchError, match="before"):  # 3. the honest round is repeated
        first.masked(first.sites[0], again=False)
