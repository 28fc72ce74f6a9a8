"""Who attacks a session, and what that reaches: a test for each statement of docs/privacy.md."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from rounds_under_masks import digest
from scipy.stats import kstest
from trials import Trial

import afltool
from afltool.errors import AflError, CorruptFileError, InputError, MismatchError
from afltool.files.masked import load_masked
from afltool.files.session_folder import SessionFolder
from afltool.files.statistics import load_statistics
from afltool.privacy import identity, masking, messages, reveal, rounds, shamir, totals
from afltool.privacy.offers import Secrets
from afltool.privacy.reveal import Request
from afltool.privacy.rounds import RoundFolder
from afltool.stages.inspect import info

ROUNDS = {"head": "softmax", "rounds": 2}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A session of four sites: the last one drops out of round 1 after its offer, and comes back.

    Before its answer to round 1 a copy of the folder of site-0 is kept.
    """
    trial = Trial(tmp_path_factory.mktemp("played"), 4)
    trial.at = at = trial.begin("s", **ROUNDS, threshold=3)
    trial.offer(at)
    shutil.copytree(trial.folder / "keys", trial.folder / "keys-at-the-offer")
    trial.whole(at, 1, trial.sites[:3])
    trial.solve(at, 1)
    for name in trial.sites:
        trial.send(at, 2, name)
    trial.add_up(at, 2)
    return trial


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """A session of three sites where all must stay, with the files of round 1."""
    trial = Trial(tmp_path_factory.mktemp("alone"))
    trial.at = trial.begin("s", **ROUNDS, threshold="all")
    trial.offer(trial.at)
    for name in trial.sites:
        trial.send(trial.at, 1, name)
    return trial


def opened_by_server(trial, number: int) -> tuple[Request, dict[str, bytes]]:
    """All that the answers of a round tell the server."""
    offers = trial.offers(trial.at, number)
    request = Request.load(trial.at.request(number), offers)
    answers = reveal.load_reveals(
        request, [trial.at.reveal(number, "x").parent], trial.me("server")
    )
    return request, reveal.secrets_of(request, answers)


def words(path: Path) -> np.ndarray:
    found = load_masked(path)
    return np.concatenate([found[k].ravel() for k in sorted(found)])


def unmasked(trial, number: int, name: str, mask: bytes, own: bytes) -> np.ndarray:
    """A member's file of a round less the masks that these two secrets give."""
    offers = trial.offers(trial.at, number)
    found = load_masked(trial.at.statistics(number, name))
    nothing = {k: np.zeros_like(a) for k, a in found.items()}
    offer = offers.by_member[name]
    masking.mask(offers, name, Secrets(mask, own, offer), nothing)
    return np.concatenate([(found[k] - nothing[k]).ravel() for k in sorted(found)]).view(np.int64)


def truth(trial, number: int, name: str) -> np.ndarray:
    out = trial.at.round(number) / "plain"
    path = afltool.local_stats(trial.rows(name), trial.at.head(number), out, client=name)
    s = load_statistics(path)
    found = {**s.arrays, masking.COUNTS: s.class_counts}
    return np.concatenate([found[k].ravel() for k in sorted(found)])


# ---------------------------------------------------------------- rounds of one offer


def test_the_premise_with_its_secrets_a_file_is_opened(played):
    """Site-0's key and folder from before round 1 open its files of all rounds."""
    me = identity.load(played.folder / "keys-at-the-offer" / "site-0.key")
    for number in (1, 2):
        drawn = RoundFolder.of(played.roster(played.at, number), me).secrets()
        found = unmasked(played, number, "site-0", drawn.mask, drawn.self)
        np.testing.assert_array_equal(found, truth(played, number, "site-0"))


def test_the_secrets_of_a_round_that_was_opened_do_not_open_another(played):
    """The server has the pairwise secret of site-3 of round 1, and the self-masks of the others."""
    request, secrets = opened_by_server(played, 1)
    assert [request.kind(name) for name in played.sites] == ["self", "self", "self", "mask"]
    mask, true = secrets["site-3"], truth(played, 2, "site-3")
    for guess in secrets.values():
        assert not np.isin(unmasked(played, 2, "site-3", mask, guess), true[true != 0]).any()
    offers = [played.offers(played.at, number).by_member["site-3"].body for number in (1, 2)]
    key = X25519PrivateKey.from_private_bytes(mask).public_key().public_bytes_raw().hex()
    assert key == offers[0]["mask_key"] != offers[1]["mask_key"]


def test_shares_of_one_round_are_no_shares_of_another(played):
    """All that holders decrypt for round 1 and for round 2 is different, for both secrets."""
    offers = [played.offers(played.at, number) for number in (1, 2)]
    found = [one.open("site-3", played.me(holder)) for one in offers for holder in played.sites]
    shares = [share for pair in found for share in pair.values()]
    assert len(set(shares)) == len(shares) == 2 * 2 * 4
    one, other = (o.share("site-3", "site-0") for o in offers)
    assert {*one.values()} & {*other.values()} == set()
    swapped = {**offers[0].by_member["site-3"].body, "shares": ["".join(other.values())] * 4}
    forged = {**offers[0].by_member, "site-3": messages.Message(swapped)}
    with pytest.raises(CorruptFileError, match=r"offer of 'site-3'.*cannot be decrypted"):
        type(offers[0])(offers[0].roster, forged).open("site-3", played.me("site-0"))


def test_the_chain_is_hkdf_and_only_goes_forward(played):
    """Keys, secrets and rounds are all different; the known solution is HKDF by hand."""
    session, key = "ab" * 32, bytes(32)
    found = [key]
    for number in range(1, 5):
        mask, own = rounds.of_round(key, session, number)
        key = rounds.next_key(key, session, number)
        found += [mask, own, key]
        assert mask == identity.derive(
            found[-4], bytes.fromhex(session), "session", "mask", str(number)
        )
    assert len(set(found)) == len(found)
    assert rounds.of_round(bytes(32), "cd" * 32, 1) != rounds.of_round(bytes(32), session, 1)


def test_a_thief_opens_no_round_that_was_answered(played):
    """The key and the folder after round 1: what is left gives round 2, not round 1."""
    me, roster = played.me("site-0"), played.roster(played.at, 1)
    folder = me.path.parent / "site-0.rounds" / roster.series.session[:32]
    assert {p.name for p in folder.iterdir()} == {"offer", "secrets-2"}
    with pytest.raises(MismatchError, match="'site-0' has no secrets of round 1"):
        rounds.Chain(folder, roster.series.session, roster.series.rounds, me).key(1)
    path = folder / "secrets-2"
    key = bytes.fromhex(me.unlock(path, path.read_bytes(), "chain")["key"])
    true = truth(played, 1, "site-0")
    for number in (1, 2, 3):
        secrets = rounds.of_round(key, roster.series.session, number)
        assert not np.isin(unmasked(played, 1, "site-0", *secrets), true[true != 0]).any()


def test_rounds_only_go_on(played):
    with pytest.raises(MismatchError, match=r"no secrets of round 1 .*rounds only go on"):
        played.send(played.at, 1, "site-3")  # who missed it, and has masked round 2


# ---------------------------------------------------------------- a malicious server


def another_head(trial, tmp_path, number: int) -> Path:
    """A head of the same phase and options with other weights, as a server may make it."""
    rows = trial.rows("site-1")
    head = trial.at.head(1)
    for one in range(1, number):
        total = afltool.local_stats(rows, head, tmp_path / str(one), client="x")
        head = afltool.solve(total, tmp_path / f"head-{one}.h5", head=head)
    return head


def test_a_round_has_one_head_for_each_member(played, tmp_path):
    """Two heads under the masks of one round would be two sums to subtract."""
    other = another_head(played, tmp_path, 2)
    assert info(other)["phase"] == info(played.at.head(2))["phase"]
    with pytest.raises(MismatchError, match="masks of 'site-0' for this round were used"):
        played.send(played.at, 2, "site-0", head=other, out=tmp_path / "out")
    assert not list(tmp_path.glob("out/*.h5"))


def test_members_who_were_shown_other_heads_make_no_sum(tmp_path):
    trial = Trial(tmp_path)
    trial.at = at = trial.begin("s", **ROUNDS, threshold="all")
    trial.offer(at)
    trial.whole(at, 1)
    trial.solve(at, 1)
    other = another_head(trial, tmp_path, 2)
    files = [trial.send(at, 2, "site-0", head=other, out=tmp_path / "out")]
    files += [trial.send(at, 2, name) for name in trial.sites[1:]]
    with pytest.raises(MismatchError, match="'site-1' belongs to the roster"):
        trial.add_up(at, 2, files)


def test_a_member_answers_one_request_of_a_round(played, tmp_path):
    """With another one the server would have both secrets of somebody."""
    files = [played.at.statistics(2, name) for name in played.sites]
    played.answer(played.at, 2, ["site-1"])
    other = played.add_up(played.at, 2, files[:3], out=tmp_path / "other.h5")
    with pytest.raises(MismatchError, match="'site-1' has answered another request"):
        afltool.mask_reveal(
            other, tmp_path, key=played.key("site-1"), roster=played.at.session,
            offers=(played.at.offers,),
        )  # fmt: skip


@pytest.mark.parametrize("by", ["site-1", "stranger"])
def test_members_answer_only_the_server_of_the_session(played, tmp_path, by):
    """Nor does a request of one round do for another."""
    me = played.me("site-1") if by == "site-1" else identity.Identity.new("server")
    body = json.loads(played.at.request(2).read_text())["body"]
    forged = messages.write(tmp_path / "r.json", me.sign(body))
    given = {
        "key": played.key("site-2"),
        "roster": played.at.session,
        "offers": (played.at.offers,),
    }
    with pytest.raises(AflError, match="is not signed by 'server'"):
        afltool.mask_reveal(forged, tmp_path, **given)
    body["head"] = json.loads(played.at.request(1).read_text())["body"]["head"]
    mixed = messages.write(tmp_path / "m.json", played.me("server").sign(body))
    with pytest.raises(AflError, match="is for another roster"):
        afltool.mask_reveal(mixed, tmp_path, **given)


def test_offers_that_differ_between_members_are_refused_by_name(tmp_path):
    """The server shows site-3 to some only."""
    trial = Trial(tmp_path, 4)
    trial.at = at = trial.begin("s", threshold=3)
    trial.offer(at, trial.sites[:3])
    trial.send(at, 1, "site-0")
    trial.offer(at, trial.sites[3:])
    for name in trial.sites[1:]:
        trial.send(at, 1, name)
    with pytest.raises(MismatchError, match="'site-0' was masked with another set of offers"):
        trial.add_up(at, 1)
    with pytest.raises(MismatchError, match="other offers"):
        trial.send(at, 1, "site-0", out=tmp_path / "again")


def test_an_offer_of_another_session_or_of_fewer_rounds_is_refused_by_name(played, tmp_path):
    path = played.at.offer("site-2")
    body = json.loads(path.read_text())["body"]
    me, roster = played.me("site-2"), played.roster(played.at, 1)
    for changed, what in (
        ({"roster": "ab" * 32}, "of 'site-2' belongs to the roster"),
        ({"rounds": body["rounds"][:1]}, "of 'site-2' is for 1 rounds, the session has 3"),
        ({"rounds": [{**r, "shares": r["shares"][:2]} for r in body["rounds"]]}, "has 2 shares"),
    ):
        messages.write(tmp_path / "o.json", me.sign({**body, **changed}), overwrite=True)
        given = [*(played.at.offer(name) for name in ("site-0", "site-1")), tmp_path / "o.json"]
        with pytest.raises(AflError, match=what):
            type(played.offers(played.at, 1)).load(roster, given)


# ---------------------------------------------------------------- all must stay


def test_without_one_file_the_others_tell_nothing(alone):
    """Every two of three masked files, and their sum, look uniform; the third one is the key."""
    files = [words(alone.at.statistics(1, name)) for name in alone.sites]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        together = files[i] + files[j]
        for seen in (files[i], together):
            assert kstest(seen.astype(np.float64) / 2.0**64, "uniform").pvalue > 1e-4
        both = truth(alone, 1, alone.sites[i]) + truth(alone, 1, alone.sites[j])
        assert not np.isin(together.view(np.int64), both[both != 0]).any()
    whole = sum(truth(alone, 1, name) for name in alone.sites)
    np.testing.assert_array_equal(sum(files).view(np.int64), whole)  # any reader of all has the sum


def test_a_missing_site_stops_the_phase_and_opens_nothing(alone):
    files = [alone.at.statistics(1, name) for name in alone.sites[:2]]
    with pytest.raises(MismatchError, match=r"2 of 3 members.*at least 3.*Missing: 'site-2'"):
        alone.add_up(alone.at, 1, files, out=alone.folder / "none.h5")
    assert not list(alone.folder.glob("none*"))


def test_there_are_no_shares_to_ask_for(alone, played):
    for name in alone.sites:
        body = json.loads(alone.at.offer(name).read_text())["body"]
        assert set(body) == {"kind", "member", "roster", "rounds"}
        assert [set(one) for one in body["rounds"]] == [{"mask_key"}] * 3
    path = alone.at.offer("site-0")
    assert path.stat().st_size < played.at.offer("site-0").stat().st_size / 4
    assert digest(alone.add_up(alone.at, 1)) == alone.pooled(alone.at, 1)
    assert not alone.at.request(1).exists()


def test_a_roster_takes_all_too(alone, tmp_path, cli):
    for name in alone.sites:
        alone.end(alone.at, [name])
    keys = [alone.key(name) for name in alone.sites]
    done = cli("roster", *alone.public, "--server", alone.server, "--head", alone.at.head(1),
               "--threshold", "all", "-o", tmp_path / "r.json")  # fmt: skip
    assert "3 of 3 members must stay until the end, so nobody may drop out" in done.stderr
    for step in ("offer", "send"):
        for name, key in zip(alone.sites, keys, strict=True):
            if step == "offer":
                cli("mask", "offer", tmp_path / "r.json", "--key", key, "-o", tmp_path / "o")
            else:
                alone.send(alone.at, 1, name, tmp_path / "m", roster=tmp_path / "r.json",
                           mask=(tmp_path / "o",))  # fmt: skip
    done = cli("aggregate", tmp_path / "m", "--roster", tmp_path / "r.json", "--offers",
               tmp_path / "o", "--key", alone.key("server"), "-o", tmp_path / "t.h5")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert digest(tmp_path / "t.h5") == alone.pooled(alone.at, 1)


# ---------------------------------------------------------------- what the server says of a sum


def lying(trial, tmp_path, **changed) -> Path:
    """A copy of the total of round 1, and what the server signs of it with other words."""
    total = Path(shutil.copy(trial.at.total(1), tmp_path / "total.h5"))
    body = json.loads(totals.place(trial.at.total(1)).read_text())["body"]
    messages.write(totals.place(total), trial.me("server").sign({**body, **changed}), True)
    return total


def checked(trial, name: str, total: Path, **more) -> Path:
    return trial.check(trial.at, 1, name, out=total, **more)


def test_every_member_adds_up_what_the_server_has_added_up(played, caplog):
    for name in played.sites:
        assert checked(played, name, played.at.total(1)) == played.at.total(1)
    assert "'site-3' is not in this sum" in caplog.text


def test_a_server_that_says_another_sum_is_found_out(played, tmp_path):
    for changed, what in (
        ({"members": played.sites[:2]}, "at least 3 must"),
        ({"members": [*played.sites[:2], "site-3"]}, "files are not given: site-3"),
        ({"request": "ab" * 32}, "holds nothing for 'site-0'"),
        ({"roster": "ab" * 32}, "of another round"),
        ({"key": None, "sealed": {}}, "holds nothing for 'site-0'"),
    ):
        with pytest.raises((MismatchError, CorruptFileError, InputError), match=what):
            checked(played, "site-0", lying(played, tmp_path, **changed))


def test_a_server_that_signs_other_numbers_is_found_out(played, tmp_path):
    """With all that an honest one signs beside them."""
    request, secrets = opened_by_server(played, 1)
    total, other = Path(shutil.copy(played.at.total(1), tmp_path / "total.h5")), "ab" * 32
    roster, server = played.roster(played.at, 1), played.me("server")
    totals.tell(total, server, roster, request.survivors, other, request, secrets)
    with pytest.raises(MismatchError, match=f"does not hold: the server has signed {other}"):
        checked(played, "site-0", total)


def test_a_total_that_was_exchanged_is_found_out(played, tmp_path):
    """The signed message is right, the file beside it is another sum."""
    total = lying(played, tmp_path)
    plain = afltool.local_stats(played.rows("site-0"), played.at.head(1), tmp_path, client="site-0")
    total.write_bytes(plain.read_bytes())
    with pytest.raises(MismatchError, match="is not the sum of the 3 files"):
        checked(played, "site-0", total)


def test_only_the_server_signs_a_total(played, tmp_path):
    total = lying(played, tmp_path)
    body = json.loads(totals.place(played.at.total(1)).read_text())["body"]
    messages.write(totals.place(total), played.me("site-1").sign(body), True)
    with pytest.raises(CorruptFileError, match="is not signed by 'server'"):
        checked(played, "site-0", total)


def test_a_reader_without_a_key_cannot_add_up(played, tmp_path):
    """Neither a stranger's key nor the text of what was signed gives the secrets of the sum."""
    _, secrets = opened_by_server(played, 1)
    text = totals.place(played.at.total(1)).read_text()
    assert not any(secret.hex() in text for secret in secrets.values())
    stranger = afltool.keys(["site-1"], tmp_path)[0].with_suffix(".key")
    with pytest.raises(CorruptFileError, match="holds nothing for 'site-1'"):
        played.add_up(played.at, 1, key=stranger, check=True)


@pytest.mark.parametrize("how", ["signed", "plain"])
def test_readable_sums_are_checked_too(tmp_path, how):
    trial = Trial(tmp_path)
    trial.at = at = trial.begin("s", protection=how)
    trial.whole(at, 1)
    assert checked(trial, "site-1", at.total(1)) == at.total(1)
    with pytest.raises(MismatchError, match="does not hold: the server has signed"):
        checked(trial, "site-1", lying(trial, tmp_path, members=trial.sites[:2]))
    with pytest.raises(MismatchError, match=r"2 of 3 members.*Missing: 'site-2'"):
        checked(trial, "site-1", at.total(1), files=[at.statistics(1, n) for n in trial.sites[:2]])


# ---------------------------------------------------------------- somebody leaves


def numbers(path: Path) -> np.ndarray:
    s = load_statistics(path)
    found = {**s.arrays, masking.COUNTS: s.class_counts}
    return np.concatenate([found[k].ravel() for k in sorted(found)])


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """The totals of five sites and of sessions that follow, without one and without two of them."""
    trial = Trial(tmp_path_factory.mktemp("followed"), 5)
    at = trial.begin("s", threshold="all")
    totals = []
    for gone in ([], ["site-1"], ["site-1", "site-2"]):
        if gone:
            out = trial.folder / f"without-{len(gone)}"
            afltool.session_leave(at.session, out, without=gone, again=len(gone) == 1)
        now = SessionFolder(out) if gone else at
        stay = [name for name in trial.sites if name not in gone]
        trial.offer(now, stay)
        totals.append(numbers(trial.whole(now, 1, stay)))
    trial.at = at
    return trial, totals


def test_the_totals_with_and_without_one_tell_all_of_it(followed):
    """Whoever has both, the server first; so `session leave` refuses it, unless with `again`."""
    trial, (all_five, without_one, _) = followed
    np.testing.assert_array_equal(all_five - without_one, truth(trial, 1, "site-1"))


def test_two_who_leave_together_hide_each_other(followed):
    """Their sum is known, and neither of them; unless a session without one is held, too."""
    trial, (all_five, without_one, without_two) = followed
    one, other = (truth(trial, 1, name) for name in ("site-1", "site-2"))
    np.testing.assert_array_equal(all_five - without_two, one + other)
    np.testing.assert_array_equal(without_one - without_two, other)


def test_noise_stays_in_the_difference_of_two_totals(tmp_path):
    """Each total has noise of its own: neither cancels, and ε of the first holds for who left."""
    trial = Trial(tmp_path, 5, rows=40)
    noise = {"dp_epsilon": 1.0, "dp_delta": 1e-5, "clip": 1.0}
    at = trial.at = trial.begin("s", threshold=5, **noise)
    after = SessionFolder(tmp_path / "next")
    afltool.session_leave(at.session, after.root, without=["site-1"])
    totals = []
    for now, stay in ((at, trial.sites), (after, [n for n in trial.sites if n != "site-1"])):
        trial.offer(now, stay)
        totals.append(load_statistics(trial.whole(now, 1, stay)))
    before, later = (t.arrays["gram"].astype(float) for t in totals)
    path = afltool.local_stats(trial.rows("site-1"), at.head(1), tmp_path / "p", client="site-1")
    left = load_statistics(path).arrays["gram"]
    sigma = [t.context.noise["sigma"]["gram"] for t in totals]
    assert np.std(before - later - left) > 0.2 * min(sigma), "the noise of both is still there"


# ---------------------------------------------------------------- who works together


def without_pairs(trial, number: int, name: str, others: list[str]) -> np.ndarray:
    """A member's masked numbers less its masks with ``others``, whose secrets are known."""
    offers = trial.offers(trial.at, number)
    found = masking.flat(load_masked(trial.at.statistics(number, name)))
    streams = []
    for other in others:
        drawn = RoundFolder.of(offers.roster, trial.me(other)).secrets()
        key = masking.pair_key(offers, drawn.mask_key, other, name)
        streams.append(masking.pair_stream(key, name, other, subtract=True))
    masking.add_streams(streams, found)
    return np.concatenate(found)


def test_where_all_stay_and_some_collude_their_sum_and_nothing_else(tmp_path):
    """The server and two of five know their own numbers, and all their masks."""
    trial = Trial(tmp_path, 5)
    at = trial.at = trial.begin("s", threshold="all", colluding=2)
    trial.offer(at)
    for name in trial.sites:
        trial.send(at, 1, name)
    honest, bad = trial.sites[:3], trial.sites[3:]
    files = {name: without_pairs(trial, 1, name, bad) for name in honest}
    for some in (["site-0"], ["site-1"], ["site-2"], honest[:2], honest[1:], honest[::2]):
        seen = sum(files[name] for name in some)
        true = sum(truth(trial, 1, name) for name in some)
        assert not np.isin(seen.view(np.int64), true[true != 0]).any()
        assert kstest(seen.astype(np.float64) / 2.0**64, "uniform").pvalue > 1e-4
    whole = sum(truth(trial, 1, name) for name in honest)
    np.testing.assert_array_equal(sum(files.values()).view(np.int64), whole)
    with pytest.raises(AflError, match="threshold of 5 members, 4 of them colluding"):
        trial.begin("more", threshold="all", colluding=4)


@pytest.mark.parametrize(("n", "t", "c"), [(3, 2, 0), (4, 3, 0), (5, 3, 0), (5, 4, 1), (6, 4, 1)])
def test_requests_that_differ_open_few_pairwise_secrets(n, t, c):
    """Every way to ask each honest member one thing; those who collude answer everything."""
    most = (n - t) * (n - c) // (t - c)
    honest, found = range(n - c), 0
    asked = [frozenset(s) for k in range(n - t + 1) for s in combinations(range(n), k)]
    mine = [[one for one in asked if me not in one] for me in honest]
    if np.prod([float(len(one)) for one in mine]) < 2e5:
        ways = product(*mine)
    else:
        draw = np.random.default_rng(0)
        ways = ([one[draw.integers(len(one))] for one in mine] for _ in range(50_000))
    for way in ways:
        answers = Counter(way)
        enough = {who for one, many in answers.items() if many + c >= t for who in one}
        single = Counter(who for one in way for who in one)
        opened = {who for who in honest if single[who] + c >= t}
        assert len(opened) <= most
        assert enough & set(honest) <= opened
        found = max(found, len(opened))
    assert found, "the premise: some secret can be opened"


def test_a_server_that_asks_members_different_things_opens_nobody(tmp_path):
    """Two requests, each answered by two of four members: both secrets of all stay closed."""
    trial = Trial(tmp_path, 4)
    at = trial.at = trial.begin("s", threshold=3)
    trial.offer(at)
    files = [trial.send(at, 1, name) for name in trial.sites]
    groups = ((files[:3], trial.sites[:3:2]), ((*files[:2], files[3]), trial.sites[1::2]))
    shares = []
    for number, (given, answering) in enumerate(groups):
        out, total = tmp_path / f"answers-{number}", tmp_path / f"asked-{number}.h5"
        asked = trial.add_up(at, 1, list(given), out=total)
        for name in answering:
            afltool.mask_reveal(asked, out, key=trial.key(name), roster=at.session,
                                offers=(at.offers,))  # fmt: skip
        with pytest.raises(MismatchError, match=r"2 of 3 members have .*at least 3"):
            trial.add_up(at, 1, list(given), out=total, reveal=(out,))
        request = Request.load(asked, trial.offers(at, 1))
        shares.append((request, reveal.load_reveals(request, [out], trial.me("server"))))
    digests = {request.digest for request, _ in shares}
    assert len(digests) == 2, "members who compare them see it"
    for request, answers in shares:  # all that Shamir's scheme gives with two shares of three
        for name in trial.sites:
            places = [request.offers.roster.place(holder) for holder in answers]
            joined = shamir.join(shamir.weights(places), [one[name] for one in answers.values()])
            with pytest.raises((CorruptFileError, MismatchError, OverflowError)):
                reveal.checked(request, name, joined.to_bytes(32, "big"))


def test_a_server_that_signs_two_sums_has_signed_both(tmp_path):
    """Each member finds its own right, and two of them compare the digests."""
    trial = Trial(tmp_path)
    at = trial.at = trial.begin("s", protection="signed", threshold=2)
    files = {name: trial.send(at, 1, name) for name in trial.sites}
    shown = {"site-0": trial.sites, "site-1": trial.sites[:2]}
    said = {}
    for name, members in shown.items():
        given, out = [files[one] for one in members], tmp_path / name / "total.h5"
        trial.add_up(at, 1, given, out=out)
        assert trial.check(at, 1, name, files=given, out=out) == out
        said[name] = totals.Told.load(totals.place(out), trial.roster(at, 1)).body
    assert said["site-0"]["digest"] != said["site-1"]["digest"]
    given, out = [files["site-0"], files["site-1"]], tmp_path / "site-0" / "total.h5"
    with pytest.raises(AflError):  # an honest server signs no second one in its place
        trial.add_up(at, 1, given, out=out)


def test_where_all_stay_a_thief_opens_a_file_until_the_next_round(tmp_path):
    """There is no answer that would end it: the next round does, or `mask forget`."""
    trial = Trial(tmp_path)
    at = trial.at = trial.begin("s", **ROUNDS, threshold="all")
    trial.offer(at)
    trial.whole(at, 1)
    roster, true = trial.roster(at, 1), {n: truth(trial, 1, n) for n in trial.sites}
    for name in trial.sites[:2]:
        drawn = RoundFolder.of(roster, trial.me(name)).secrets()
        np.testing.assert_array_equal(unmasked(trial, 1, name, drawn.mask, drawn.self), true[name])
    trial.solve(at, 1)
    trial.send(at, 2, "site-0")
    trial.end(at, ["site-1"])
    for name in trial.sites[:2]:
        with pytest.raises(MismatchError):
            RoundFolder.of(roster, trial.me(name)).secrets()
        folder = tmp_path / "keys" / f"{name}.rounds" / roster.series.session[:32]
        assert [p.name for p in folder.glob("secrets*")] == ["secrets-2"] * (name == "site-0")


# ---------------------------------------------------------------- the end


def test_at_the_end_the_secrets_are_gone_and_the_records_stay(tmp_path):
    trial = Trial(tmp_path)
    trial.at = at = trial.begin("s", **ROUNDS, threshold="all")
    trial.offer(at)
    trial.whole(at, 1)
    trial.end(at)
    rounds = tmp_path / "keys" / "site-0.rounds"
    assert not list(rounds.rglob("secrets*"))
    assert len(list(rounds.glob("*/forgotten"))) == 3
    assert len(list(rounds.glob("*/used"))) == 1
    with pytest.raises(MismatchError, match="is over for 'site-0', who has given it up"):
        trial.send(at, 1, "site-0", out=tmp_path / "again")
    assert trial.offer(at) == at.offers  # public, and the same


def test_the_same_rows_under_a_second_session_are_refused(tmp_path):
    trial = Trial(tmp_path)
    for name in "ab":
        trial.at = trial.begin(name, threshold="all")
        trial.offer(trial.at)
        if name == "a":
            trial.whole(trial.at, 1)
    with pytest.raises(MismatchError, match="has masked the same rows before"):
        trial.send(trial.at, 1, "site-0", again=False)


def test_a_step_that_was_killed_before_its_secrets_were_deleted_goes_on(tmp_path):
    """Keys of two rounds are there: the later one counts."""
    trial = Trial(tmp_path)
    trial.at = at = trial.begin("s", **ROUNDS)
    trial.offer(at)
    folder = next((tmp_path / "keys" / "site-0.rounds").glob("*/secrets-1")).parent
    first = (folder / "secrets-1").read_bytes()
    trial.whole(at, 1)
    trial.solve(at, 1)
    (folder / "secrets-1").write_bytes(first)
    assert digest(trial.whole(at, 2)) == trial.pooled(at, 2)
    assert not (folder / "secrets-1").exists()
