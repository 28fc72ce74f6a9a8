"""Sessions that end with an evaluation: what the solved head gets right at all sites together."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from sites_apart import NAMES, Apart, rows
from test_courier import mischief

import afltool
from afltool.courier.party import status
from afltool.errors import MismatchError, UsageError
from afltool.files.counts import read_counts
from afltool.files.statistics import load_statistics
from afltool.stages.inspect import check_all

ALL = {"protection": "masked", "threshold": "all"}
DEEPAFL = {"head": "deepafl", "layers": 2, "width": 8, "compute": "fixed"}
SOFTMAX = {"head": "softmax", "rounds": 4}
DISCRIMINANT = [{"head": "discriminant", "rule": rule} for rule in ("fed3r", "nearest-mean", "lda")]


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return rows(tmp_path_factory.mktemp("rows"), np.random.default_rng(0))


@pytest.fixture(scope="module")
def test(tmp_path_factory):
    return rows(tmp_path_factory.mktemp("test"), np.random.default_rng(1))


def check_end(apart: Apart, found: dict) -> None:
    """The total is that of the pooled rows, and each site has it beside its own counts alone."""
    total, head = apart.pooled()
    assert (found["totals"][-1], found["head"]) == (total, head)
    for name in ("server", *NAMES):
        at = apart.at / name
        assert afltool.info(at / "head-final.h5")["digest"] == head
        [pooled] = [p for p in at.glob("round-*/total.h5") if afltool.info(p)["digest"] == total]
        assert afltool.info(pooled)["evaluations"][0]["head"]["digest"] == head
    for name in NAMES:
        at = apart.at / name
        own = [p for p in at.rglob("*.h5") if counts_one(p)]
        assert {one for p in own for one in afltool.info(p)["client_names"]} == {name}
        [kept] = [p for p in own if p.parent.name == "kept"]
        alone = afltool.counts(at / "head-final.h5", apart.test[name], at / "again", client=name)
        assert afltool.info(kept)["digest"] == afltool.info(alone)["digest"]


def counts_one(path: Path) -> bool:
    """Whether a file has the counts of one site, hidden or not."""
    found = afltool.info(path)
    return found.get("phase") == "counts" and len(found.get("client_names", "")) == 1


def test_a_session_ends_with_the_counts_of_the_pooled_rows(tmp_path, features, test, caplog):
    caplog.set_level("INFO")
    apart = Apart(tmp_path, features, test=test, **ALL)
    found = apart.play()
    assert [one["phase"] for one in found["rounds"]] == ["gram", "solved", "counts"]
    assert status(apart.url)["state"] == "solved"
    told = json.loads((tmp_path / "west" / "summary.json").read_text())
    assert (told["rounds"], told["head"]) == (found["rounds"], found["head"])
    check_end(apart, found)
    head = tmp_path / "west" / "head-final.h5"
    every, own = (afltool.evaluate(head, test[name])["top1"] for name in ("pooled", "west"))
    said = [line for line in caplog.messages if f"of your own rows {own:.2%}" in line]
    assert {f"top-1 of all {every:.2%}" in one for one in said if "client-west" in one} == {True}


@pytest.mark.slow
def test_the_page_of_a_site_has_its_own_accuracy_beside_that_of_all(tmp_path, features, test):
    apart = Apart(tmp_path, features, test=test, **ALL)
    apart.play()
    page = afltool.report(tmp_path / "north", tmp_path / "page.html").read_text()
    for path in ("kept/client-north.h5", "round-3/total.h5"):
        counted = read_counts(tmp_path / "north" / path).heads[0]
        assert f"{counted.right / counted.confusion.sum():.4f} (" in page
    assert "readable, not signed" not in page, "what was kept has not left"


@pytest.mark.parametrize(
    "agreed",
    [
        pytest.param(one, id=one["rule"], marks=[pytest.mark.slow][:n])
        for n, one in enumerate(DISCRIMINANT)
    ],
)
def test_a_rule_with_probabilities_and_those_without_have_their_usual_bins(
    tmp_path, features, test, agreed
):
    apart = Apart(tmp_path, features, test=test, **agreed)
    check_end(apart, apart.play())
    (counted,) = read_counts(tmp_path / "north" / "round-3" / "total.h5").heads
    assert counted.probabilities == (agreed["rule"] == "lda")
    assert counted.edges[0] == (0.0 if counted.probabilities else -0.5)


@pytest.mark.slow
@pytest.mark.parametrize(
    "agreed",
    [{}, {"protection": "signed"}, {"protection": "masked"}, {**DEEPAFL, **ALL}, SOFTMAX],
    ids=["plain", "signed", "threshold", "deepafl under masks", "softmax"],
)
def test_heads_of_many_rounds_are_evaluated_too(tmp_path, features, test, agreed):
    apart = Apart(tmp_path, features, test=test, **agreed)
    check_end(apart, apart.play())


def test_a_site_says_at_the_beginning_what_it_lacks(tmp_path, features, test):
    """Before anything is computed or sent."""
    (tmp_path / "other").mkdir()
    other = rows(tmp_path / "other", np.random.default_rng(2), backbone="other")
    apart = Apart(tmp_path / "a", features, test=test)
    apart.serve()
    with pytest.raises(UsageError, match="--test FILE"):
        apart.join("north", test=None)
    with pytest.raises(MismatchError, match="backbone"):
        apart.join("north", test=other["north"])
    assert not list((tmp_path / "a" / "north").rglob("*.h5"))
    assert "north" not in str(list(Path(apart.url).rglob("*")))
    without = Apart(tmp_path / "b", features)
    without.serve()
    with pytest.raises(UsageError, match="leave --test out"):
        without.join("north", test=test["north"])


def test_the_digest_covers_the_evaluation(tmp_path, features, test):
    """Without it the session says nothing of it, as before there was one."""
    plain = json.loads(Apart(tmp_path / "a", features).session.read_text())["body"]
    ends = json.loads(Apart(tmp_path / "b", features, test=test).session.read_text())["body"]
    assert plain.keys() == ends.keys()
    assert (plain["phases"], ends["phases"]) == (["gram"], ["gram", "counts"])


@pytest.mark.slow
def test_only_the_usual_round_of_the_solved_head_is_counted(tmp_path, features, test):
    """Whoever gives a site another round by hand is refused by the site's own command."""
    apart = Apart(tmp_path, features, test=test, protection="signed")
    apart.play()
    key, head = apart.keys / "north.key", tmp_path / "north" / "head-final.h5"
    total = tmp_path / "server" / "round-1" / "total.h5"
    other = afltool.solve(total, tmp_path / "other.h5", ridge=9.0)
    for number, (heads, how, says) in enumerate([
        ([head], {"bins": "0:1:30"}, "bins"), ([head, other], {}, "one head: 2"),
        ([other], {}, "ridge"),
    ]):  # fmt: skip
        made = afltool.evaluation(heads, tmp_path / f"{number}.h5", **how)
        with pytest.raises(MismatchError, match=says):
            afltool.local_stats(test["north"], made, tmp_path / "o", client="north", sign=key,
                                roster=apart.session)  # fmt: skip


@pytest.mark.slow
def test_a_hostile_place_changes_nothing(tmp_path, features, test):
    """Also the letter of the solved head may be lost when its evaluation has begun."""
    draw, kept = random.Random(4), tmp_path / "kept"
    kept.mkdir()
    apart = Apart(tmp_path / "all", features, test=test, **ALL)
    solved = Path(apart.url) / "letters" / "002-head-server.json"

    def harm(turn: int) -> None:
        if turn < 20:
            mischief(Path(apart.url), draw, kept)
            solved.unlink(missing_ok=True)

    check_end(apart, apart.play(harm))


@pytest.mark.slow
def test_a_site_that_was_late_gets_the_head_and_what_was_counted(tmp_path, features, test):
    apart = Apart(tmp_path, features, test=test, protection="masked", threshold=2)
    apart.serve()
    for name in NAMES:
        apart.join(name)
    for _ in range(12):
        apart.serve(deadline=1.0)
        apart.clock.time += 3601
        apart.join("north")
        apart.join("south")
    apart.join("west")
    summary = json.loads((tmp_path / "server" / "summary.json").read_text())
    assert summary["rounds"][2]["members"] == ["north", "south"]
    for path, digest in (("head-final.h5", summary["head"]),
                         ("round-3/total.h5", summary["totals"][-1])):  # fmt: skip
        assert afltool.info(tmp_path / "west" / path)["digest"] == digest
    assert afltool.info(tmp_path / "west" / "kept" / "client-west.h5")["rows"] == 52


def test_who_is_in_training_and_test_can_be_told_where_both_have_the_same_rows(tmp_path, features):
    """Of a site that is in the first sum alone, class by class; other rows of test hide it."""
    apart = Apart(tmp_path, features, test=features, protection="masked", threshold=2)
    apart.serve()
    for _ in range(3):
        for name in NAMES:
            apart.join(name)
        apart.serve()
    assert afltool.info(tmp_path / "server" / "head-3.h5")["phase"] == "counts"
    for _ in range(4):
        for name in ("north", "south"):
            apart.join(name)
        apart.clock.time += 3601
        apart.serve(deadline=1.0)
    trained, counted = (
        load_statistics(tmp_path / "server" / f"round-{k}" / "total.h5") for k in (1, 3)
    )
    told = json.loads((tmp_path / "server" / "summary.json").read_text())["rounds"]
    assert (told[0]["members"], told[2]["members"]) == (list(NAMES), ["north", "south"])
    plain = afltool.local_stats(
        features["west"], tmp_path / "server" / "head-1.h5", tmp_path / "o", client="west"
    )
    left = trained.class_counts - counted.class_counts
    np.testing.assert_array_equal(left, load_statistics(plain).class_counts)


def test_noise_of_training_and_of_the_evaluation_are_two_releases(tmp_path, features, test):
    """Each total says its own ε; whoever has rows in both loses the sum."""
    noise = {"dp_epsilon": 5.0, "dp_delta": 1e-5, "clip": 3.0}
    apart = Apart(tmp_path, features, test=test, protection="masked", **noise)
    apart.play()
    at = tmp_path / "server"
    found = [load_statistics(at / f"round-{k}" / "total.h5").context.noise for k in (1, 3)]
    assert [one["epsilon"] for one in found] == [5.0, 5.0]
    assert found[0]["sigma"].keys() != found[1]["sigma"].keys()
    noisy = load_statistics(at / "round-3" / "total.h5").arrays["scores-0"]
    assert (noisy < 0).any(), "noise of σ = 1.8 makes some of 1,440 cells negative; most are empty"


@pytest.mark.slow
def test_a_member_leaves_the_sums_of_training(tmp_path, features, test):
    """The evaluation is no round that the head depends on."""
    apart = Apart(tmp_path, features, test=test, protection="signed")
    apart.play()
    at = tmp_path / "server"
    given = {"total": at / "round-1" / "total.h5", "head": at / "head-final.h5"}
    sent = at / "round-1" / "statistics" / "client-west.h5"
    paper = afltool.session_leave(
        apart.session, tmp_path / "out", statistics=sent, key=apart.keys / "server.key", **given
    )
    after = [tmp_path / "out" / name for name in ("total.h5", "head.h5")]
    assert check_all([paper, apart.session, *given.values(), *after])[-1]["intact"]
