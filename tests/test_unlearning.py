"""A member leaves a session: exact, certified, and what of it nobody can forge."""

from __future__ import annotations

import json
import shutil

import pytest
from rounds_under_masks import digest
from trials import Trial

import afltool
from afltool.errors import AflError, InputError, MismatchError, UsageError
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
        ({"threshold": "all"}, "nobody can leave a sum under masks.*Make a new round"),
        ({"head": "softmax", "protection": "signed"}, "has 21 rounds.*make a new session"),
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
