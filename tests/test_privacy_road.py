"""Signatures, masks and noise through files and commands, as members and a server use them."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from damage import forge
from federations import locked
from rounds_under_masks import Round, digest, numbers

import afltool
from afltool.errors import AflError, CorruptFileError, InputError, MismatchError, UsageError
from afltool.files.masked import load_masked
from afltool.files.statistics import load_statistics
from afltool.privacy import identity, masking, roster
from afltool.privacy.offers import Offers
from afltool.privacy.rounds import RoundFolder
from afltool.stages.inspect import info


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Four sites, three of whom must stay."""
    return Round(tmp_path_factory.mktemp("federation"), 4, 3)


@pytest.fixture
def fresh(federation, request):
    """The same sites, a new round."""
    name = request.node.name.replace("[", "-").replace("]", "")
    federation.new_roster(f"{name}.json", 3)
    return federation


@pytest.fixture(scope="module")
def signers(tmp_path_factory):
    """Four sites with keys for rounds without masks."""
    return Round(tmp_path_factory.mktemp("signers"), 4, 3)


@pytest.fixture
def signing(signers, request):
    """These sites, a new round of signed statistics."""
    name = request.node.name.replace("[", "-").replace("]", "")
    signers.new_roster(f"{name}.json", 3, protection="signed")
    return signers


# ---------------------------------------------------------------- masks


def test_a_round_with_drop_outs_gives_the_digest_of_the_plain_sum(fresh):
    """One member never offers, one... all who stay: 3 of 4, in another order than the roster's."""
    stayed = ["site-3", "site-0", "site-2"]
    total = fresh.whole(stayed, stayed)
    assert digest(total) == fresh.wanted(stayed)
    assert info(total)["client_names"] == sorted(stayed)
    assert info(total)["rows_per_client"] == [None, None, None]


def test_a_member_that_drops_out_after_its_offer_and_its_late_file(fresh, caplog):
    stayed = ["site-0", "site-1", "site-3"]
    assert digest(fresh.whole(fresh.sites, stayed)) == fresh.wanted(stayed)
    fresh.masked("site-2", "late")
    files = [fresh.where / "masked", fresh.where / "late"]
    again = fresh.aggregate(files, (fresh.where / "reveals",), out="total.h5")
    assert digest(again) == fresh.wanted(stayed)
    request = fresh.where / "total.request.json"
    with pytest.raises(MismatchError, match="counts 'site-2' as dropped out"):
        fresh.reveal(["site-2"], request)


def test_any_threshold_of_the_answers_is_enough_and_fewer_are_refused(fresh):
    fresh.offer(fresh.sites)
    files = [fresh.masked(name) for name in fresh.sites]
    request = fresh.aggregate(files)
    with pytest.raises(MismatchError, match=r"2 of 4.*'site-1', 'site-3'"):
        fresh.aggregate(files, (fresh.reveal(["site-0", "site-2"], request),))
    total = fresh.aggregate(files, (fresh.reveal(["site-3"], request),))
    assert digest(total) == fresh.wanted(fresh.sites)


def test_below_the_threshold_nothing_is_asked_or_summed(fresh):
    fresh.offer(fresh.sites)
    files = [fresh.masked(name) for name in fresh.sites[:2]]
    with pytest.raises(MismatchError, match=r"2 of 4 members.*at least 3.*'site-2', 'site-3'"):
        fresh.aggregate(files)
    assert not (fresh.where / "total.request.json").exists()


def test_every_step_repeats_with_the_same_bytes(fresh):
    first = fresh.whole(fresh.sites, fresh.sites)
    before = {p: p.read_bytes() for p in fresh.where.rglob("*") if p.is_file()}
    assert len(before) == 3 * 4 + 3  # request, total, what the server signed of it
    assert fresh.whole(fresh.sites, fresh.sites) == first
    assert {p: p.read_bytes() for p in fresh.where.rglob("*") if p.is_file()} == before
    assert digest(first) == fresh.wanted(fresh.sites)


def test_when_files_are_lost_every_step_gives_the_same_bytes_until_the_answer(fresh):
    """Then the round is over: offers and answers come again, masked files do not."""
    for step in (fresh.offer, lambda names: [fresh.masked(name) for name in names]):
        step(fresh.sites)
        before = {p: p.read_bytes() for p in fresh.where.rglob("*") if p.is_file()}
        for path in before:
            path.unlink()
        fresh.offer(fresh.sites)
        if step != fresh.offer:
            step(fresh.sites)
        assert {p: p.read_bytes() for p in fresh.where.rglob("*") if p.is_file()} == before
    files = sorted((fresh.where / "masked").iterdir())
    answers = fresh.reveal(fresh.sites, fresh.aggregate(files))
    before = {p: p.read_bytes() for p in answers.parent.rglob("*.json")}
    for folder in (answers, fresh.where / "offers"):
        shutil.rmtree(folder)
    fresh.offer(fresh.sites)
    fresh.reveal(fresh.sites, fresh.where / "total.request.json")
    assert {p: p.read_bytes() for p in answers.parent.rglob("*.json")} == before
    assert fresh.masked("site-0") == files[0]
    with pytest.raises(MismatchError, match="is over for 'site-0', who has answered"):
        fresh.masked("site-0", "again")


def test_a_stolen_key_opens_no_round_that_is_over(fresh, tmp_path):
    """A thief has the key, its folder of rounds and all files; before the answer it is enough."""

    def stolen():
        shutil.rmtree(tmp_path, ignore_errors=True)
        shutil.copytree(fresh.key("site-0").parent, tmp_path)
        offers = Offers.load(roster.load(fresh.roster), [fresh.where / "offers"])
        me = identity.load(tmp_path / "site-0.key")
        drawn = RoundFolder.of(offers.roster, me).secrets()
        mine = load_masked(fresh.where / "masked" / "client-site-0.h5")
        nothing = {name: np.zeros_like(a) for name, a in mine.items()}
        masking.mask(offers, "site-0", drawn, nothing)
        return {name: (a - nothing[name]).view(np.int64) for name, a in mine.items()}

    fresh.offer(fresh.sites)
    files = [fresh.masked(name) for name in fresh.sites]
    truth = load_statistics(fresh.plain("site-0")).arrays["gram"]
    np.testing.assert_array_equal(stolen()["gram"], truth)
    request = fresh.aggregate(files)
    reveals = fresh.reveal(fresh.sites, request)
    with pytest.raises(MismatchError, match="secrets are deleted"):
        stolen()
    folder = tmp_path / "site-0.rounds" / roster.load(fresh.roster).digest[:32]
    assert {p.name for p in folder.iterdir()} == {"offer", "used", "answered"}
    assert digest(fresh.aggregate(files, (reveals,))) == fresh.wanted(fresh.sites)


def test_secrets_that_a_kill_left_after_the_answer_are_not_used_and_go(fresh):
    fresh.offer(fresh.sites)
    request = fresh.aggregate([fresh.masked(name) for name in fresh.sites])
    secrets = {
        p: p.read_bytes() for p in fresh.key("site-0").parent.glob("site-0.rounds/*/secrets")
    }
    fresh.reveal(["site-0"], request)
    path = next(p for p in secrets if not p.exists())
    path.write_bytes(secrets[path])
    with pytest.raises(MismatchError, match="is over for 'site-0'"):
        fresh.masked("site-0", "again")
    fresh.reveal(["site-0"], request)
    assert not path.exists()


@pytest.mark.parametrize("after", ["nothing", "the offer", "masking"])
def test_a_round_that_was_given_up_is_never_used_again(fresh, after):
    if after != "nothing":
        fresh.offer(fresh.sites)
    if after == "masking":
        files = [fresh.masked(name) for name in fresh.sites]
        request = fresh.aggregate(files)
    for _ in range(2):
        (folder,) = afltool.mask_forget(fresh.roster, key=fresh.key("site-0"))
        assert not (folder / "secrets").exists()
        assert (folder / "forgotten").exists()
    over = "is over for 'site-0', who has given it up"
    with pytest.raises(MismatchError, match=over):
        fresh.offer(["site-0"])
    if after == "the offer":
        with pytest.raises(MismatchError, match=over):
            fresh.masked("site-0")
    if after == "masking":
        with pytest.raises(MismatchError, match=over):
            fresh.reveal(["site-0"], request)
        rest = fresh.sites[1:]  # a file that was sent may still be in the sum
        assert digest(fresh.aggregate(files, (fresh.reveal(rest, request),)))


def test_masks_are_never_used_for_other_rows(fresh):
    fresh.offer(fresh.sites)
    fresh.masked("site-0")
    other = fresh.folder / "site-1.h5"
    options = {
        "client": "site-0", "sign": fresh.key("site-0"), "roster": fresh.roster,
        "mask": (fresh.where / "offers",), "again": True,
    }  # fmt: skip
    with pytest.raises(MismatchError, match="were used for other statistics"):
        afltool.local_stats(other, fresh.head, fresh.where / "other", **options)
    assert not list((fresh.where / "other").glob("*.h5"))
    with pytest.raises(UsageError, match="made differently"):
        afltool.local_stats(other, fresh.head, fresh.where / "masked", **options)


def test_masks_are_never_used_for_other_offers(fresh):
    fresh.offer(fresh.sites[:3])
    fresh.masked("site-0")
    fresh.offer(["site-3"])
    with pytest.raises(MismatchError, match="other offers"):
        fresh.masked("site-0", "again")


def test_two_sets_of_offers_in_one_round_are_refused_by_name(fresh):
    fresh.offer(fresh.sites[:3])
    first = fresh.masked("site-1")
    fresh.offer(["site-3"])
    rest = [fresh.masked(name) for name in ("site-0", "site-2", "site-3")]
    with pytest.raises(MismatchError, match="'site-1' was masked with another set of offers"):
        fresh.aggregate([first, *rest])


def test_a_member_answers_one_request_in_a_round(fresh):
    fresh.offer(fresh.sites)
    files = [fresh.masked(name) for name in fresh.sites]
    fresh.reveal(fresh.sites, fresh.aggregate(files))
    other = fresh.aggregate(files[:3], out="other.h5")
    with pytest.raises(MismatchError, match="'site-0' has answered another request"):
        fresh.reveal(["site-0"], other, "others")
    with pytest.raises(MismatchError, match="answers another request"):
        fresh.aggregate(files[:3], (fresh.where / "reveals",), out="other.h5")


def test_nobody_answers_who_has_not_masked(fresh, tmp_path):
    """A copied key without the round folder, and one that only made an offer."""
    fresh.offer(fresh.sites)
    request = fresh.aggregate([fresh.masked(name) for name in fresh.sites])
    shutil.copy(fresh.key("site-0"), tmp_path / "site-0.key")
    options = {"roster": fresh.roster, "offers": (fresh.where / "offers",)}
    with pytest.raises(MismatchError, match="'site-0' has not masked"):
        afltool.mask_reveal(request, tmp_path, key=tmp_path / "site-0.key", **options)


def test_what_a_masked_file_tells(fresh):
    """Neither rows, class counts, digests of features nor paths; its size is that of any rows."""
    fresh.offer(fresh.sites)
    one, two = fresh.masked("site-0"), fresh.masked("site-3")
    found = json.dumps({**info(one), "path": ""})
    features = info(fresh.folder / "site-0.h5")["digest"]
    assert features in json.dumps(info(fresh.plain("site-0")))
    assert features not in found
    assert load_statistics(fresh.plain("site-0")).digest() not in found
    assert str(fresh.folder) not in found
    assert "rows" not in info(one)
    assert abs(one.stat().st_size - two.stat().st_size) < 64
    truth = numbers(fresh.plain("site-0"))
    assert not np.isin(truth, numbers(one).view(np.int64)).any()


def test_float_statistics_are_refused_before_masking(fresh, tmp_path):
    with np.load(fresh.folder / "site-0.npz") as raw:
        np.savez(tmp_path / "x.npz", **raw)
    real = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "x.h5", dtype="float32")
    fresh.offer(fresh.sites)
    with pytest.raises(AflError, match="integers"):
        afltool.local_stats(
            real, fresh.head, tmp_path / "out", client="site-0", sign=fresh.key("site-0"),
            roster=fresh.roster, mask=(fresh.where / "offers",),
        )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("safle", {"experts": 4, "group_size": 2, "buckets": 4}),
        pytest.param("softmax", {}, marks=pytest.mark.slow),
        pytest.param("random-features", {"width": 16, "compute": "fixed"}, marks=pytest.mark.slow),
    ],
)
def test_heads_with_integer_sums_go_under_masks(fresh, tmp_path, name, options):
    """Two phases: histograms and codes of SAFLe, softmax's gram and first gradient."""
    head = afltool.head(name, tmp_path / "head0.h5", options=options)
    keys = fresh.folder / "keys"
    for phase in range(2):
        at = tmp_path / str(phase)
        roster = afltool.roster(
            fresh.public, at / "roster.json", head=str(head), server=fresh.server
        )
        both = {"roster": roster, "offers": (at / "offers",)}
        key = fresh.server.with_suffix(".key")
        afltool.mask_offer(roster, at / "offers", key=keys)
        for site in fresh.sites:
            rows = fresh.folder / f"{site}.h5"
            # Rows that other tests have masked; the second round of a head is another sum.
            protection = {"sign": keys, "roster": roster, "mask": both["offers"]}
            protection["again"] = phase == 0
            afltool.local_stats(rows, head, at / "plain", client=site)
            afltool.local_stats(rows, head, at / "masked", client=site, **protection)
        wanted = afltool.aggregate([at / "plain"], at / "plain.h5")
        request = afltool.aggregate([at / "masked"], at / "total.h5", key=key, **both)
        afltool.mask_reveal(request, at / "reveals", key=keys, **both)
        reveals = (at / "reveals",)
        found = afltool.aggregate([at / "masked"], at / "total.h5", key=key, reveal=reveals, **both)
        assert digest(found) == digest(wanted)
        head = afltool.solve(found, at / "head.h5", head=head)
        if info(head)["phase"] is None:
            break


def test_simulated_clients_of_a_partition_give_the_same_total_too(fresh, tmp_path):
    """Two partitions of the same rows among 4 clients: one digest, with masks and without."""
    rows = fresh.folder / "site-0.h5"
    plain = afltool.local_stats(rows, fresh.head, tmp_path / "one", client="all")
    for k, alpha in enumerate((0.1, 100.0)):
        folder = tmp_path / str(k)
        dealt = afltool.partition(
            rows, folder / "p.h5", scheme="dirichlet", alpha=alpha, clients=4, seed=k
        )
        public = afltool.keys([str(i) for i in range(4)], folder / "keys")
        keys = folder / "keys"
        roster = afltool.roster(
            public, folder / "r.json", head=str(fresh.head), server=fresh.server
        )
        afltool.mask_offer(roster, folder / "offers", key=keys)
        offers = (folder / "offers",)
        masked = afltool.local_stats(
            rows, fresh.head, folder / "m", partition=dealt, sign=keys, roster=roster, mask=offers
        )
        both = {"roster": roster, "offers": offers}
        key = fresh.server.with_suffix(".key")
        request = afltool.aggregate([masked], folder / "t.h5", key=key, **both)
        afltool.mask_reveal(request, folder / "reveals", key=keys, **both)
        reveals = (folder / "reveals",)
        total = afltool.aggregate([masked], folder / "t.h5", key=key, reveal=reveals, **both)
        assert digest(total) == digest(plain)


def test_a_member_that_masks_something_else_spoils_the_round_and_is_noticed(fresh, monkeypatch):
    """Numbers that no rows have: the sum is refused. Who it was nobody can tell."""
    honest = masking.plain

    def negative(roster, me, statistics):
        arrays = honest(roster, me, statistics)
        if me == "site-1":
            arrays["gram"][:1] -= np.uint64(2**40)  # wraps around: a negative square
        return arrays

    fresh.offer(fresh.sites)
    monkeypatch.setattr(masking, "plain", negative)
    files = [fresh.masked(name) for name in fresh.sites]
    request = fresh.aggregate(files)
    with pytest.raises(AflError, match="over 4 members makes no sense"):
        fresh.aggregate(files, (fresh.reveal(fresh.sites, request),))
    assert not (fresh.where / "total.h5").exists()


# ---------------------------------------------------------------- signatures


def test_signed_files_add_up_as_unsigned_ones_do(signing):
    files = [signing.signed(name) for name in signing.sites]
    total = afltool.aggregate(files, signing.where / "t.h5", roster=signing.roster)
    assert digest(total) == signing.wanted(signing.sites)
    assert signing.signed("site-0") == files[0]  # up to date


def test_a_sum_that_has_to_be_complete_has_every_member(signing):
    files = [signing.signed(name) for name in signing.sites]
    out, asked = signing.where / "t.h5", {"roster": signing.roster, "complete": True}
    with pytest.raises(InputError, match=r"3 of 4 members of the roster .*, missing: 1"):
        afltool.aggregate(files[1:], out, **asked)
    assert not out.exists()
    assert digest(afltool.aggregate(files, out, **asked)) == signing.wanted(signing.sites)


def test_a_sum_under_masks_that_has_to_be_complete_has_every_member(fresh):
    fresh.offer(fresh.sites)
    files = [fresh.masked(name) for name in fresh.sites]
    with pytest.raises(InputError, match=r"3 of 4 members of the roster .*, missing: 1"):
        fresh.aggregate(files[1:], complete=True)
    assert not (fresh.where / "total.request.json").exists()
    assert fresh.aggregate(files, complete=True).exists()


def test_a_file_that_came_after_the_request_does_not_make_a_sum_complete(fresh):
    fresh.offer(fresh.sites)
    files = [fresh.masked(name) for name in fresh.sites]
    answers = fresh.reveal(fresh.sites[:3], fresh.aggregate(files[:3]))
    with pytest.raises(InputError, match=r"3 of 4 members of the roster .*, missing: 1"):
        fresh.aggregate(files, (answers,), complete=True)
    assert not (fresh.where / "total.h5").exists()
    assert digest(fresh.aggregate(files, (answers,))) == fresh.wanted(fresh.sites[:3])


def test_who_has_offered_masks_cannot_sign_readable_statistics(tmp_path):
    """Without --roster and --mask nothing else says that the masks were forgotten."""
    ours = Round(tmp_path, 3)
    ours.offer(ours.sites)
    with pytest.raises(MismatchError, match="'site-0' has made an offer for a round under masks"):
        ours.signed("site-0", roster=None)
    assert not (ours.where / "signed").exists()
    afltool.mask_forget(ours.roster, key=ours.key("site-1"))
    assert ours.signed("site-1", roster=None)


def test_another_roster_in_the_place_of_one_with_masks_gives_nothing_away(tmp_path):
    ours = Round(tmp_path, 3)
    offers = ours.offer(ours.sites)
    ours.new_roster("other.json", 3, protection="signed")
    with pytest.raises(UsageError, match="compare its digest with the others"):
        ours.signed("site-0", mask=(offers,))
    with pytest.raises(MismatchError, match="'site-0' has made an offer for a round under masks"):
        ours.signed("site-0")
    assert not (ours.where / "signed").exists()


def test_the_digest_of_a_roster_without_masks_is_told(tmp_path, caplog):
    ours = Round(tmp_path, 3)
    there = ours.new_roster("other.json", 3, protection="signed")
    caplog.set_level(logging.INFO, "afltool")
    ours.signed("site-0")
    assert roster.load(there).digest in caplog.text


def test_what_no_member_signed_for_this_round_is_refused_by_name(signing, tmp_path):
    good = [signing.signed(name) for name in signing.sites]

    def add(*files):
        return afltool.aggregate(files, tmp_path / "t.h5", roster=signing.roster)

    for files, what in (
        ([signing.plain("site-1")], "'site-1' is not signed"),
        ([good[0], shutil.copy(good[0], tmp_path / "copy.h5")], "'site-0' is given twice"),
        ([signing.signed("site-2", "none", roster=None)], "'site-2' is signed for no roster"),
        ([forge(good[1], tmp_path / "a.h5", {"phase": "codes"})], "'site-1' was altered"),
        ([forge(good[1], tmp_path / "b.h5", {"digest": "0" * 64})], "'site-1' was altered"),
    ):
        with pytest.raises(AflError, match=what):
            add(*files)
    with pytest.raises(CorruptFileError, match=r"c\.h5 is damaged"):
        add(forge(good[1], tmp_path / "c.h5", class_counts=np.array([1, 2, 3, 4])))
    before = signing.roster
    signing.new_roster("another.json", 3, protection="signed")
    with pytest.raises(MismatchError, match=r"'site-0' belongs to the roster"):
        afltool.aggregate(good, tmp_path / "t.h5", roster=signing.roster)
    signing.roster = before
    assert not (tmp_path / "t.h5").exists()


def test_a_stranger_and_another_head_are_refused_by_name(signing, tmp_path):
    afltool.keys(["eve"], tmp_path)
    rows = signing.folder / "site-0.h5"
    eve = afltool.local_stats(
        rows, signing.head, tmp_path, client="eve", sign=tmp_path / "eve.key", roster=signing.roster
    )
    with pytest.raises(MismatchError, match="'eve', who is not among the 4 members"):
        afltool.aggregate([eve], tmp_path / "t.h5", roster=signing.roster)
    other = afltool.head("linear", tmp_path / "h.h5", options={"intercept": True})
    with pytest.raises(
        MismatchError,
        match=r"the head .*h\.h5 does not fit the roster .*json: the digest of the head",
    ):
        afltool.local_stats(
            rows, other, tmp_path / "o", client="site-0", sign=signing.key("site-0"),
            roster=signing.roster,
        )  # fmt: skip
    with pytest.raises(MismatchError, match="belongs to 'site-1', the client is 'site-0'"):
        signing.signed("site-0", sign=signing.key("site-1"))


def test_options_that_need_others_are_refused(fresh):
    for options, what in (
        ({"roster": fresh.roster}, "--roster is used only with --sign"),
        ({"mask": (fresh.folder,)}, "needs --sign KEY and --roster"),
        ({"dp_epsilon": 1.0, "dp_delta": 1e-5, "clip": 1.0}, "needs --sign"),
        ({"dp_epsilon": 1.0}, "takes --dp-epsilon, --dp-delta and --clip"),
    ):
        with pytest.raises(UsageError, match=what):
            afltool.local_stats(
                fresh.folder / "site-0.h5", fresh.head, fresh.where, client="site-0", **options
            )
    with pytest.raises(UsageError, match="--offers is used only with --roster"):
        afltool.aggregate([fresh.folder], fresh.where / "t.h5", offers=(fresh.folder,))
    with pytest.raises(UsageError, match="--offers needs --key"):
        fresh.aggregate([fresh.folder], key=None)
    with pytest.raises(UsageError, match="--key is used only with --roster"):
        fresh.aggregate([fresh.folder], roster=None, offers=())
    with pytest.raises(UsageError, match="--again is used only with --mask"):
        fresh.signed("site-0", again=True)
    with pytest.raises(UsageError, match="is not used with --offers"):
        fresh.aggregate([fresh.folder], law="pairwise")


class Exchange(logging.Handler):
    """Puts another file in the place of one as soon as a message is logged."""

    def __init__(self, message: str, other: Path, place: Path) -> None:
        super().__init__()
        self.message, self.other, self.place = message, other, place

    def emit(self, record: logging.LogRecord) -> None:
        if self.message in record.getMessage() and self.other.exists():
            os.replace(self.other, self.place)

    def __enter__(self) -> None:
        logging.getLogger("afltool").addHandler(self)

    def __exit__(self, *_: object) -> None:
        logging.getLogger("afltool").removeHandler(self)
        assert not self.other.exists(), "the message was not logged"


@pytest.mark.parametrize("which", ["unsigned", "for another round", "header"])
def test_what_is_summed_is_what_was_checked(signing, tmp_path, which, caplog):
    """A file that another one replaces after its seal was checked is refused, not summed."""
    caplog.set_level("INFO", "afltool")
    files = [signing.signed(name) for name in signing.sites]
    if which == "unsigned":
        other = afltool.local_stats(
            signing.folder / "site-3.h5", signing.head, tmp_path, client="site-1"
        )
    elif which == "header":
        other = forge(files[1], tmp_path / "o.h5", {"provenance": {"head_file": "elsewhere.h5"}})
    else:
        now = signing.roster, signing.where
        signing.new_roster("earlier.json", 3, protection="signed")
        other = signing.signed("site-1")
        signing.roster, signing.where = now
    out = signing.where / "t.h5"
    with (
        Exchange("4 of 4 members", other, files[1]),
        pytest.raises(MismatchError, match=r"client-site-1\.h5 has changed since its header"),
    ):
        afltool.aggregate(files, out, roster=signing.roster)
    assert not out.exists()


def test_what_is_unmasked_is_what_was_checked(fresh, tmp_path, caplog):
    """The same under masks: the digest of the numbers is not all that was signed."""
    caplog.set_level("INFO", "afltool")
    fresh.offer(fresh.sites)
    files = [fresh.masked(name) for name in fresh.sites]
    reveals = fresh.reveal(fresh.sites, fresh.aggregate(files))
    other = forge(files[1], tmp_path / "o.h5", {"provenance": {}})
    with (
        Exchange("have sent a masked file", other, files[1]),
        pytest.raises(MismatchError, match=r"client-site-1\.h5 has changed since its header"),
    ):
        fresh.aggregate(files, (reveals,))
    assert not (fresh.where / "total.h5").exists()


# ---------------------------------------------------------------- keys and rosters as commands


def test_keys_and_rosters_are_made_once(tmp_path):
    public = afltool.keys(["a", "b", "c"], tmp_path)
    before = (tmp_path / "a.key").read_bytes()
    (tmp_path / "a.pub").unlink()
    assert afltool.keys(["a", "b", "c"], tmp_path) == public
    assert (tmp_path / "a.key").read_bytes() == before
    made = afltool.roster([tmp_path], tmp_path / "r.json", head="linear")
    first = made.read_bytes()
    assert afltool.roster(public, made, head="linear").read_bytes() == first
    with pytest.raises(UsageError, match="threshold is 2 now, 3 in the file"):
        afltool.roster(public, made, head="linear", threshold=2)
    afltool.roster(public, made, head="linear", overwrite=True)
    assert made.read_bytes() != first  # another round


def test_a_passphrase_comes_from_a_file(tmp_path):
    (tmp_path / "secret").write_text("horse\nbattery\n")
    (tmp_path / "empty").write_text("")
    options = {"passphrase_file": tmp_path / "secret"}
    one = identity.Identity.new("a")
    locked(tmp_path / "a.key", one, b"horse")
    public = [identity.save_public(one, tmp_path), *afltool.keys(["b"], tmp_path)]
    server = afltool.keys(["server"], tmp_path)[0]
    roster = afltool.roster(public, tmp_path / "r.json", head="linear", server=server)
    afltool.mask_offer(roster, tmp_path / "offers", key=tmp_path / "a.key", **options)
    for path, what in (
        (None, "needs a passphrase"),
        (tmp_path / "empty", "is empty"),
        (tmp_path / "none", "cannot read"),
    ):
        with pytest.raises(UsageError, match=what):
            afltool.mask_offer(
                roster, tmp_path / "offers", key=tmp_path / "a.key", passphrase_file=path
            )


def test_info_shows_a_roster_and_the_messages(fresh):
    offers = fresh.offer(fresh.sites)
    found = info(fresh.roster)
    assert found["kind"] == "roster"
    assert found["digest"] == info(fresh.where / "offers" / "offer-site-0.json")["roster"]
    assert [m["name"] for m in found["members"]] == fresh.sites
    assert info(fresh.public[0])["kind"] == "public-key"
    assert len(list(offers.glob("*.json"))) == 4
    with pytest.raises(InputError):
        info(fresh.key("site-0"))


# ---------------------------------------------------------------- noise


def noisy(federation, name, epsilon=1.0, **options):
    budget = {"dp_epsilon": epsilon, "dp_delta": 1e-5, "clip": 60.0, "roster": None}
    out = options.pop("out", f"noisy-{epsilon:g}")
    return federation.signed(name, out, **{**budget, **options})


def test_noise_is_the_same_again_and_its_file_tells_of_no_rows(fresh):
    path = noisy(fresh, "site-0")
    first = path.read_bytes()
    assert noisy(fresh, "site-0").read_bytes() == first
    path.unlink()
    assert digest(noisy(fresh, "site-0")) == load_statistics(path).digest()
    other = digest(noisy(fresh, "site-0", 2.0))
    assert other != digest(path)
    text = json.dumps(info(path))
    assert info(fresh.folder / "site-0.h5")["digest"] not in text
    assert info(path)["rows_per_client"] == [None]
    assert "(ε = 1, δ = 1e-05)-differentially private" in info(path)["privacy"]


def test_a_noisy_solve_equals_the_plain_one_as_epsilon_grows(fresh):
    total = afltool.aggregate([noisy(fresh, n, 1e300) for n in fresh.sites], fresh.where / "t.h5")
    assert digest(total) == fresh.wanted(fresh.sites)
    heads = [
        afltool.solve(path, fresh.where / f"{k}.h5")
        for k, path in enumerate((total, fresh.folder / "plain.h5"))
    ]
    assert digest(heads[0]) == digest(heads[1])
    close = afltool.aggregate([noisy(fresh, n, 1e14) for n in fresh.sites], fresh.where / "c.h5")
    a, b = (numbers(afltool.solve(p, fresh.where / f"{p.stem}-head.h5")) for p in (close, total))
    assert 0 < np.abs(a - b).max() < 1e-4 * np.abs(b).max()


def test_solve_takes_adassps_ridge_where_there_is_noise(fresh):
    total = afltool.aggregate([noisy(fresh, n) for n in fresh.sites], fresh.where / "t.h5")
    report = info(afltool.solve(total, fresh.where / "h.h5"))["report"]
    assert report["ridge_by"] == "AdaSSP"
    sigma = info(total)["context"]["noise"]["sigma"]["gram"] * 2.0**-18 * np.sqrt(4)
    bound = sigma * (np.sqrt(2 * 8) + np.sqrt(2 * np.log(2 / 0.05))) + 4 * 8 * 4 * 2.0**-18
    assert 0 < report["ridge"] <= 1.5 * bound * (1 + 1e-12)
    given = afltool.solve(total, fresh.where / "g.h5", options={"ridge": 1e7})
    assert info(given)["report"]["ridge"] == 1e7
    assert info(given)["report"]["ridge_by"] == "given"


def test_noise_under_masks_is_shared_by_the_members(fresh):
    budget = {"dp_epsilon": 1.0, "dp_delta": 1e-5, "clip": 60.0}
    fresh.new_roster("noise.json", 3, **budget)
    fresh.offer(fresh.sites)
    files = [fresh.masked(n, **budget) for n in fresh.sites]
    assert fresh.masked("site-0", "again").read_bytes() == files[0].read_bytes()
    request = fresh.aggregate(files)
    total = fresh.aggregate(files, (fresh.reveal(fresh.sites, request),))
    found = load_statistics(total)
    assert found.context.noise["form"] == "distributed"
    plain = load_statistics(fresh.folder / "plain.h5") if fresh.wanted(fresh.sites) else None
    for name in ("gram", "cross"):
        spread = (found.arrays[name] - plain.arrays[name]).std()
        assert 0.5 < spread / (2 * found.context.noise["sigma"][name]) < 2
    assert "The sum over 4 clients is (ε = 0.68" in info(total)["privacy"]
    assert "a member, who knows its own noise, ε = 0.80" in info(total)["privacy"]
    with pytest.raises(MismatchError, match=r"context\.noise|noise"):
        afltool.aggregate([total, fresh.plain("site-0")], fresh.where / "x.h5")


def test_noise_is_refused_where_its_sensitivity_is_not_derived(fresh, tmp_path):
    budget = {"dp_epsilon": 1.0, "dp_delta": 1e-5, "clip": 60.0, "client": "site-0"}
    for head in ("safle", "deepafl", "softmax", "random-features"):
        with pytest.raises(UsageError, match="is not derived"):
            afltool.local_stats(
                fresh.folder / "site-0.h5", head, tmp_path / head, sign=fresh.key("site-0"),
                **budget,
            )  # fmt: skip
    with pytest.raises(UsageError, match="less than one step"):
        noisy(fresh, "site-0", clip=1e-3)


# ---------------------------------------------------------------- the installed command


NEXT = (  # what each step says, from the roster on
    "each member: afltool mask offer roster.json", "everybody gets the 4 files in offers",
    "send the 4 files to 'server'", "send t.request.json to these 4", "send the 4 files in reveals",
    None,
)  # fmt: skip


def test_a_round_as_commands(tmp_path, road, cli, monkeypatch):
    """keys, roster, offer, mask, aggregate, reveal, aggregate: as docs/privacy.md has them."""
    names = ["0", "1", "2", "3"]
    folder = Path(tmp_path)
    monkeypatch.chdir(folder)
    afltool.partition(road.train, folder / "p.h5", scheme="iid", clients=4)
    steps = [
        ["keys", "new", *names, "-o", "keys"],
        ["keys", "new", "server", "-o", "server"],
        ["roster", "keys", "--head", str(road.head0), "--server", "server/server.pub",
         "-o", "roster.json"],
        ["mask", "offer", "roster.json", "--key", "keys", "-o", "offers"],
        ["local-stats", str(road.train), "--partition", "p.h5", "--head", str(road.head0),
         "--sign", "keys", "--roster", "roster.json", "--mask", "offers", "-o", "masked"],
        ["aggregate", "masked", "--roster", "roster.json", "--offers", "offers",
         "--key", "server/server.key", "-o", "t.h5"],
        ["mask", "reveal", "t.request.json", "--roster", "roster.json", "--offers", "offers",
         "--key", "keys", "-o", "reveals"],
        ["aggregate", "masked", "--roster", "roster.json", "--offers", "offers",
         "--key", "server/server.key", "--reveal", "reveals", "-o", "t.h5"],
    ]  # fmt: skip
    for step, following in zip(steps, [None, None, *NEXT], strict=True):
        done = cli(*step)
        assert done.exit_code == 0, done.stderr
        assert following is None or f"next, {following}" in done.stderr, step
    assert done.stdout.strip() == "t.h5"
    assert digest(folder / "t.h5") == digest(road.total)
