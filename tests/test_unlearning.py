"""A member leaves a session: exact, certified, and what of it nobody can forge."""

from __future__ import annotations

import json
import shutil

import pytest
from rounds_under_masks import digest
from trials import Trial

import afltool
from afltool.errors import AflError, InputError, MismatchError, UsageError
from afltool.files.heads import load_head
from afltool.files.session_folder import SessionFolder
from afltool.files.statistics import load_statistics
from afltool.privacy import messages
from afltool.stages.inspect import check_all


@pytest.fixture(scope="module")
def left(tmp_path_factory):
    """Site-1 has left the total of three sites, and signed that."""
    trial = Trial(tmp_path_factory.mktemp("left"))
    trial.at = at = trial.begin("s", protection="signed", space=trial.rows("site-0"))
    trial.whole(at, 1)
    afltool.solve(at.total(1), at.head(2), ridge="auto")
    trial.out = trial.folder / "out"
    paper = leave(trial)
    trial.paper = afltool.session_countersign(
        paper, trial.folder / "final.json", session=at.session, key=trial.key("site-1")
    )
    trial.files = [at.total(1), trial.out / "total.h5", at.head(2), trial.out / "head.h5"]
    return trial


def leave(trial, **more):
    given = {
        "total": trial.at.total(1), "statistics": trial.at.statistics(1, "site-1"),
        "head": trial.at.head(2), "key": trial.key("server"), **more,
    }  # fmt: skip
    return afltool.session_leave(trial.at.session, trial.out, **given)


def verified(trial, paper=None, files=None):
    found = check_all([paper or trial.paper, trial.at.session, *(files or trial.files)])
    return found[-1]


def test_what_is_left_is_the_sum_and_the_head_of_the_others(left):
    """As if the member had never been there."""
    others = [left.at.statistics(1, name) for name in ("site-0", "site-2")]
    never = afltool.aggregate(others, left.folder / "never.h5")
    assert digest(left.out / "total.h5") == digest(never)
    alone = afltool.solve(never, left.folder / "alone.h5", ridge="auto")
    assert digest(left.out / "head.h5") == digest(alone) != digest(left.at.head(2))


def test_anybody_repeats_the_subtraction_and_the_solve(left, cli):
    found = verified(left)
    assert (found["member"], found["countersigned"], found["head_differs_by"]) == (
        "site-1",
        True,
        0,
    )
    assert "copies" in found["says"]
    assert not verified(left, left.out / "certificate.json")["countersigned"]
    done = cli("verify", left.paper, left.at.session, *left.files)
    assert done.exit_code == 0
    assert f"{left.paper}: intact, certificate" in done.stdout
    assert "'site-1' is out of the total, the head solves the rest, bit by bit" in done.stderr


def test_the_same_command_again_writes_nothing(left):
    before = {p: p.read_bytes() for p in left.out.iterdir()}
    leave(left)
    assert {p: p.read_bytes() for p in left.out.iterdir()} == before


def body_of(left):
    return json.loads((left.out / "certificate.json").read_text())["body"]


def forged(left, tmp_path, who="server", **changed):
    signed = left.me(who).sign({**body_of(left), **changed})
    return messages.write(tmp_path / "forged.json", signed, True)


def test_a_certificate_that_says_something_else_is_refused(left, tmp_path):
    """Even the server cannot certify other numbers, another head or another member."""
    body, at = body_of(left), left.at
    sealed = load_statistics(at.statistics(1, "site-0"))
    other = {"numbers": sealed.digest(), "header": body["removed"]["header"]}
    for changed, what in (
        ({"removed": other}, "is not what 'site-1' has sealed"),
        ({"member": "site-0"}, "is not what 'site-1' has sealed"),
        ({"members": {**body["members"], "after": ["site-0"]}}, "names other members"),
        ({"head": {**body["head"], "after": body["head"]["before"]}}, "not the solution"),
        ({"total": {**body["total"], "after": body["total"]["before"]}}, "names other members"),
        ({"session": "ab" * 32}, "of the session abab"),
    ):
        with pytest.raises(MismatchError, match=what):
            verified(left, forged(left, tmp_path, **changed))
    with pytest.raises(AflError, match="is not signed by 'server'"):
        verified(left, forged(left, tmp_path, who="site-0"))


def test_a_seal_that_was_changed_is_refused(left, tmp_path):
    removed = body_of(left)["removed"]
    header = json.loads(removed["header"])
    header["clients"]["rows"] = [7]
    with pytest.raises(AflError, match="was altered"):
        verified(left, forged(left, tmp_path, removed={**removed, "header": json.dumps(header)}))


def test_the_files_are_those_that_are_named(left):
    with pytest.raises(InputError, match="not given: the total after, the head after"):
        verified(left, files=[left.files[0], left.files[2]])
    with pytest.raises(InputError, match=r"give session\.json"):
        check_all([left.paper, *left.files])


def test_only_the_member_that_leaves_countersigns(left, tmp_path):
    given = {"session": left.at.session, "key": left.key("site-0")}
    with pytest.raises(MismatchError, match="is for 'site-1': 'site-0' cannot sign it"):
        afltool.session_countersign(left.out / "certificate.json", tmp_path / "x.json", **given)
    with pytest.raises(MismatchError, match="has been countersigned"):
        afltool.session_countersign(
            left.paper, tmp_path / "x.json", session=left.at.session, key=left.key("site-1")
        )


def test_what_cannot_be_exact_is_refused_with_what_to_do(left, tmp_path):
    trial = Trial(tmp_path)
    for options, what in (
        ({"threshold": "all"}, "nobody can leave a sum under masks.*Make a new round.*--without"),
        (
            {"head": "softmax", "protection": "signed"},
            "has 21 rounds.*make a new session.*--without",
        ),
    ):
        trial.at, trial.out = trial.begin("-".join(options), **options), tmp_path / "out"
        with pytest.raises(UsageError, match=what):
            leave(trial)
    assert not trial.out.exists()


def test_the_key_is_the_servers(left, tmp_path):
    left.out, out = tmp_path, left.out
    with pytest.raises(MismatchError, match="names 'server' as its server"):
        leave(left, key=left.key("site-0"))
    left.out = out
    shutil.rmtree(tmp_path)


# ---------------------------------------------------------------- another session without them


@pytest.mark.parametrize(
    "agreed",
    [{"protection": "signed", "head": "softmax", "rounds": 2}, {"threshold": "all"}, {}],
    ids=["several rounds", "all must stay", "masks"],
)
def test_the_following_session_is_as_if_they_had_never_been_there(tmp_path, agreed):
    """The totals of each of its rounds are those of the rows that stay."""
    trial = Trial(tmp_path, 5)
    at = trial.begin("s", min_rows=3, **agreed)
    gone, stay = ["site-1", "site-4"], ["site-0", "site-2", "site-3"]
    path = afltool.session_leave(at.session, tmp_path / "next", without=gone)
    found, before = (messages.parse(one)["body"] for one in (path, at.session))
    assert [one["name"] for one in found["members"]] == stay
    assert found["threshold"] == {"all": "all", None: 3}[agreed.get("threshold")]
    assert found["round"] != before["round"]
    same = found.keys() - {"members", "threshold", "round"}
    assert {k: found[k] for k in same} == {k: before[k] for k in same}
    assert afltool.session_leave(at.session, tmp_path / "next", without=gone) == path
    trial.at = after = SessionFolder(tmp_path / "next")
    if found["protection"]["mode"] == "masked":
        trial.offer(after, stay)
    for number in range(1, 1 + len(found["phases"])):
        assert digest(trial.whole(after, number, stay)) == trial.pooled(after, number, stay)
        trial.solve(after, number)


def test_who_would_be_known_does_not_leave_alone(tmp_path):
    """Nor with somebody who was not in the sum, or may tell the server; with noise one may."""
    trial = Trial(tmp_path, 5)
    leave = afltool.session_leave

    def refused(at, *names):
        with pytest.raises(
            UsageError, match=r"as the server will, knows the statistics of 'site-1'"
        ):
            leave(at.session, tmp_path / "next", without=names)

    at = trial.begin("s", threshold=4)
    refused(at, "site-1")
    refused(trial.begin("c", threshold=5, colluding=1), "site-1", "site-2")
    trial.offer(at)
    trial.whole(at, 1, trial.sites[:4])
    refused(at, "site-1", "site-4")
    leave(at.session, tmp_path / "one", without=["site-1"], again=True)
    leave(at.session, tmp_path / "late", without=["site-4"])  # who is in no sum
    noise = {"dp_epsilon": 1.0, "dp_delta": 1e-5, "clip": 1.0}
    leave(trial.begin("n", **noise).session, tmp_path / "noise", without=["site-1"])
    with pytest.raises(MismatchError, match="--without is of 'nobody'"):
        leave(at.session, tmp_path / "next", without=["nobody"])
    with pytest.raises(UsageError, match="threshold of 1 members"):
        leave(at.session, tmp_path / "next", without=trial.sites[:4])
    with pytest.raises(UsageError, match="or --without NAME"):
        leave(at.session, tmp_path / "next")
    assert not (tmp_path / "next").exists()


# ---------------------------------------------------------------- a certificate of that session


HEADS = {
    "linear under masks": {"threshold": "all"},
    "deepafl of several rounds": {
        "head": "deepafl", "protection": "plain", "layers": 1, "width": 3, "compute": "fixed",
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=HEADS)
def anew(request, tmp_path_factory):
    """Two of five have left: both sessions are over, and the server has certified it."""
    trial = Trial(tmp_path_factory.mktemp("anew"), 5)
    trial.at = at = trial.begin("s", **HEADS[request.param])
    played(trial, at, trial.sites)
    trial.gone, trial.stay = ["site-1", "site-4"], ["site-0", "site-2", "site-3"]
    trial.next = after = SessionFolder(trial.folder / "next")
    certify = {"without": trial.gone, "key": trial.key("server")}
    with pytest.raises(UsageError, match=r"no .*next/session\.json.*without --key"):
        afltool.session_leave(at.session, after.root, **certify)
    afltool.session_leave(at.session, after.root, without=trial.gone)
    with pytest.raises(InputError, match=r"has not ended: no .*total"):
        afltool.session_leave(at.session, after.root, **certify)
    last = trial.rounds = played(trial, after, trial.stay)
    trial.papers = afltool.session_leave(at.session, after.root, **certify)
    trial.files = [after.total(last), after.head(last + 1), after.head(last)]
    told = [after.round(k + 1) / "total.signed.json" for k in range(last)]
    trial.messages = [at.session, after.session, *told]
    return trial


def played(trial, at, names) -> int:
    """All rounds of a session of these members; returns their number."""
    if json.loads(at.session.read_text())["body"]["protection"]["mode"] == "masked":
        trial.offer(at, names)
    number = 1
    while load_head(at.head(number)).head.phase() is not None:
        trial.whole(at, number, names)
        trial.solve(at, number)
        number += 1
    return number - 1


def test_who_left_gets_a_certificate_of_the_session_without_them(anew, cli, tmp_path):
    done = cli("session", "countersign", anew.papers[0], "--session", anew.at.session,
               "--key", anew.key("site-1"), "-o", tmp_path / "final.json")  # fmt: skip
    assert done.exit_code == 0, done.stderr
    for paper, by in ((tmp_path / "final.json", " and the member"), (anew.papers[1], " alone")):
        done = cli("verify", paper, *anew.messages, *anew.files)
        assert done.exit_code == 0, done.stderr
        assert f"is in none of the {anew.rounds} totals" in done.stderr
        assert f"the head solves the rest, bit by bit; signed by the server{by}" in done.stderr
        assert "Nothing here proves" in done.stderr
    body = json.loads(anew.papers[0].read_text())["body"]
    assert body["members"] == {"before": anew.sites, "after": anew.stay}
    assert body["total"]["after"] == anew.pooled(anew.next, anew.rounds, anew.stay)
    before = {p: p.read_bytes() for p in anew.papers}
    done = cli("session", "leave", anew.at.session, "--without", "site-1", "--without", "site-4",
               "--key", anew.key("server"), "-o", anew.next.root)  # fmt: skip
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split() == [str(path) for path in anew.papers]
    assert {p: p.read_bytes() for p in anew.papers} == before


def signed_anew(anew, tmp_path, **changed):
    body = json.loads(anew.papers[0].read_text())["body"]
    return messages.write(
        tmp_path / "forged.json", anew.me("server").sign({**body, **changed}), True
    )


def test_a_certificate_of_another_session_or_other_rounds_is_refused(anew, tmp_path):
    """Even where the server has signed it."""
    body = json.loads(anew.papers[0].read_text())["body"]
    rounds, total, head = body["rounds"], body["total"], body["head"]
    inside = [{**rounds[0], "members": [*anew.stay[:2], "site-4"]}, *rounds[1:]]
    other = [{**rounds[0], "total": "ab" * 32}, *rounds[1:]]
    for changed, what in (
        ({"member": "site-0"}, "'site-0', who left, is a member of"),
        ({"rounds": inside}, "'site-4' of round 1 is not in"),
        ({"rounds": other}, "say other things of the total of round 1"),
        ({"rounds": rounds[:-1]}, "names no round of"),
        ({"members": {**body["members"], "after": anew.stay[:2]}}, "other members or another"),
        ({"total": {**total, "after": total["before"]}}, "or another total after"),
        ({"head": {**head, "after": "ab" * 32}}, r"does not name .*head-"),
        ({"following": "ab" * 32}, "session that is not given: that of those who stay, abab"),
        ({"session": "ab" * 32}, "of the session abab"),
    ):
        with pytest.raises(AflError, match=what):
            check_all([signed_anew(anew, tmp_path, **changed), *anew.messages, *anew.files])


def test_a_roster_with_who_left_is_refused(anew, tmp_path):
    """A session of all, which the server says to be the one that follows."""
    paths = [anew.at.session, anew.next.session]
    old, new = (json.loads(path.read_text()) for path in paths)
    new["body"]["members"] = old["body"]["members"][:4]
    (tmp_path / "session.json").write_text(json.dumps(new))
    following = afltool.info(tmp_path / "session.json")["digest"]
    forged = signed_anew(anew, tmp_path, following=following)
    given = [anew.at.session, tmp_path / "session.json", *anew.messages[2:]]
    with pytest.raises(MismatchError, match="'site-1', who left, is a member of"):
        check_all([forged, *given, *anew.files])


def test_files_of_something_else_are_named(anew, tmp_path):
    stray = anew.at.statistics(1, "site-0")
    given = [anew.papers[0], *anew.messages]
    with pytest.raises(MismatchError, match=f"does not name {stray}"):
        check_all([*given, *anew.files, stray])
    with pytest.raises(InputError, match="not given: the total after"):
        check_all([*given, *anew.files[1:]])
    with pytest.raises(InputError, match="signed total of round 1 is not given"):
        check_all([*given[:3], *given[4:], *anew.files])
    foreign = anew.at.round(1) / "total.signed.json"
    with pytest.raises(MismatchError, match=f"names no round of {foreign}"):
        check_all([*given, foreign, *anew.files])
    forged = tmp_path / "total.signed.json"
    body = json.loads(anew.messages[2].read_text())["body"]
    messages.write(forged, anew.me("site-0").sign({**body, "members": anew.stay[:2]}))
    with pytest.raises(AflError, match="is not signed by 'server'"):
        check_all([*given[:3], forged, *given[4:], *anew.files])
