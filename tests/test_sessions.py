"""Sessions: one agreement for all phases of a head, and what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from rounds_under_masks import digest
from trials import Trial

import afltool
from afltool.errors import (
    CorruptFileError,
    InvalidDataError,
    MismatchError,
    NumericalError,
    OutputExistsError,
    UsageError,
)
from afltool.files.heads import load_head
from afltool.heads import make_head
from afltool.privacy import session, totals
from afltool.stages.inspect import info


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """Three sites with keys."""
    return Trial(tmp_path_factory.mktemp("trial"))


@pytest.fixture
def begin(trial, request):
    """Begins sessions of these sites, in folders of their own; they end with the test."""
    made = []

    def one(name="s", **options):
        made.append(trial.begin(f"{request.node.name}-{name}", **options))
        return made[-1]

    yield one
    for at in made:
        if at.offers.exists():
            trial.end(at)


# ---------------------------------------------------------------- what is agreed on


HEADS = [
    ("linear", {}), ("discriminant", {}), ("safle", {"experts": 4, "group_size": 2, "buckets": 4}),
    ("softmax", {"rounds": 2}), ("deepafl", {"layers": 2, "width": 3}),
    ("deepafl", {"layers": 2, "width": 3, "identity_omega": True}),
    ("deepafl", {"layers": 2, "width": 3, "from_phi0": True, "single_round": True}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), HEADS)
def test_a_head_goes_through_the_phases_that_it_names(name, options):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((40, 4)).astype(np.float32), np.arange(40) % 3
    head = make_head(name, options).bind(4, 3)
    every = head.phases()
    for number, phase in enumerate(every):
        assert head.phases() == every[number:]
        assert head.phase() == phase
        head, _ = head.absorb(head.gather([(X, y)])[0])
        if head.phase() is None:
            break
    assert head.phases() == ()
    assert number + 1 == len(every) or name == "softmax"  # which may end early


def test_a_session_comes_back_and_says_what_was_agreed(trial, begin):
    at = begin(head="softmax", rounds=3, threshold="all", min_rows=5, space=trial.rows("site-0"))
    found = session.load(at.session)
    assert found.phases == ("gram", "gradient-1", "gradient-2", "gradient-3")
    assert [found.number(p) for p in found.phases] == [1, 2, 3, 4]
    assert (found.agreed.names(), found.agreed.all, found.agreed.min_rows) == (trial.sites, True, 5)
    assert found.agreed.server.name == "server"
    told = info(at.session)
    assert told["digest"] == found.digest
    assert (told["threshold"], told["protection"]["mode"]) == ("all", "masked")
    assert told["head"]["options"]["rounds"] == 3
    assert load_head(at.head(1)).head.phases() == found.phases


def test_every_field_is_in_the_digest(begin):
    body = session.load(begin().session).as_dict()
    changed = [
        {"threshold": "all"}, {"min_rows": 7}, {"phases": ["gram", "x"]}, {"max_rows": 7},
        {"colluding": 1}, {"members": body["members"][:-1]}, {"classes": ["a"]},
        {"head": {**body["head"], "options": {}}}, {"round": "00" * 16},
        {"protection": {"mode": "signed", "noise": None}},
    ]  # fmt: skip
    from afltool.privacy.messages import digest_of

    assert len({digest_of({**body, **one}) for one in [{}, *changed]}) == 1 + len(changed)


def test_the_same_command_keeps_the_session_and_another_one_is_refused(trial, begin):
    at = begin()
    before = at.session.read_bytes()
    assert begin().session.read_bytes() == before
    with pytest.raises(OutputExistsError, match=r"another session: min_rows is 4 now, 0"):
        begin(min_rows=4)
    assert at.session.read_bytes() == before


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.update(note="x"), lambda b: b.update(version=2),
        lambda b: b.update(phases=["other"]), lambda b: b.update(threshold="most"),
        lambda b: b["members"].reverse(), lambda b: b["protection"].update(mode="open"),
        lambda b: b["head"].update(note="x"), lambda b: b.update(min_rows=-1),
        lambda b: b.update(max_rows=2**60), lambda b: b["members"].pop(),
    ],
)  # fmt: skip
def test_a_session_that_was_changed_is_refused_or_has_another_digest(begin, tmp_path, change):
    at = begin()
    found = json.loads(at.session.read_text())
    change(found["body"])
    (tmp_path / "s.json").write_text(json.dumps(found))
    try:
        other = session.load(tmp_path / "s.json").digest
    except (CorruptFileError, MismatchError, NumericalError, UsageError):
        pass
    else:
        assert other != session.load(at.session).digest


def test_what_protects_nobody_is_no_session(trial, begin):
    for options, what in (
        ({"server": None}, "needs --server"),
        ({"threshold": 1}, "from 2 on, or all; found '1'"),
        ({"threshold": "2.5"}, "from 2 on, or all"),
        ({"protection": "open"}, "plain, signed or masked"),
        ({"threshold": "all", "colluding": 2}, "at most 3"),
    ):
        with pytest.raises(UsageError, match=what):
            begin(**options)
    with pytest.raises(MismatchError, match="one name"):
        begin(members=[*trial.public, trial.public[0]])


# ---------------------------------------------------------------- sums


SHORT = [
    ("masked", {}), ("all", {"threshold": "all"}), ("signed", {"protection": "signed"}),
    ("plain", {"protection": "plain"}),
]  # fmt: skip
LONG = [
    (f"{name}-{how}", {**head, **more})
    for name, head in (
        ("deepafl", {"head": "deepafl", "layers": 5, "width": 6, "compute": "fixed"}),
        ("softmax", {"head": "softmax", "rounds": 20}),
        ("safle", {"head": "safle", "experts": 4, "group_size": 2, "buckets": 4}),
    )
    for how, more in (("masked", {}), ("all", {"threshold": "all"}),
                      ("signed", {"protection": "signed"}))
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [*SHORT, *(pytest.param(*one, marks=pytest.mark.slow) for one in LONG)],
)
def test_every_total_is_that_of_the_pooled_rows(trial, begin, name, options):
    """Over all phases, from one offer; and a member finds the same when it checks."""
    at = begin(**options)
    if session.load(at.session).agreed.terms.masked:
        trial.offer(at)
    for number in range(1, 1 + len(session.load(at.session).phases)):
        assert digest(trial.whole(at, number)) == trial.pooled(at, number)
        assert trial.check(at, number, "site-1") == at.total(number)
        if load_head(trial.solve(at, number)).head.phase() is None:
            break
    asked = at.request(1).exists()
    assert asked == (session.load(at.session).agreed.terms.masked and "all" not in name)
    assert totals.place(at.total(1)).exists()


def test_noise_is_shared_in_a_session_too(trial, begin):
    at = begin(dp_epsilon=1.0, dp_delta=1e-5, clip=4.0, threshold="all")
    trial.offer(at)
    found = info(trial.whole(at, 1))["context"]["noise"]
    assert (found["form"], found["epsilon"]) == ("distributed", 1.0)
    assert trial.check(at, 1, "site-2") == at.total(1)


@pytest.mark.slow
def test_a_member_that_missed_a_round_comes_back(tmp_path):
    trial = Trial(tmp_path, 4)
    at = trial.begin("s", head="softmax", rounds=2)
    trial.offer(at)
    for number, names in enumerate((trial.sites, trial.sites[:3], trial.sites), start=1):
        assert digest(trial.whole(at, number, names)) == trial.pooled(at, number, names)
        trial.solve(at, number)


# ---------------------------------------------------------------- what is refused


def test_a_site_that_does_not_fit_is_refused_before_it_computes(trial, begin, tmp_path):
    at = begin(
        space=trial.rows("site-0"), min_rows=13, protection="signed", head="softmax", rounds=2
    )
    raw = dict(np.load(trial.folder / "site-1.npz"))

    def rows(**changed):
        given, name = {k: changed.pop(k, raw[k]) for k in raw}, "-".join(changed) or "y"
        np.savez(tmp_path / f"{name}.npz", **given)
        return afltool.import_embeddings(
            tmp_path / f"{name}.npz", tmp_path / f"{name}.h5", **changed
        )

    head = afltool.head("softmax", tmp_path / "other.h5", rounds=3)
    for more, what in (
        ({"rows": rows(backbone="another")}, r"space\.backbone"),
        ({"rows": rows(y=raw["y"] % 2)}, "classes"),
        ({"head": head}, r"head does not fit the session.*options\.rounds"),
        ({"head": afltool.head("linear", tmp_path / "linear.h5")}, "does not fit the session"),
        ({"rows": trial.rows("site-0"), "name": "site-0"}, "fewer than 13 rows"),
        ({"sign": trial.key("server")}, "belongs to 'server', the client is 'site-1'"),
        ({"mask": (tmp_path,)}, "--mask OFFERS does not belong here"),
    ):  # fmt: skip
        name = more.pop("name", "site-1")
        with pytest.raises((MismatchError, UsageError, InvalidDataError), match=what):
            trial.send(at, 1, name, out=tmp_path / "out", **more)
    assert not list(tmp_path.glob("out/*"))


def test_statistics_that_can_be_read_are_refused_where_masks_were_agreed(trial, begin, tmp_path):
    at = begin()
    with pytest.raises(UsageError, match="leave under masks: give --mask"):
        trial.send(at, 1, "site-0", mask=(), again=False)
    trial.offer(at)
    open_ = afltool.local_stats(trial.rows("site-0"), at.head(1), tmp_path, client="site-0")
    with pytest.raises(MismatchError, match=r"of 'site-0' is a statistics file.*leave.*masked"):
        trial.add_up(at, 1, [open_])
    other = begin("signed", protection="signed")
    with pytest.raises(MismatchError, match="'site-0' is not signed"):
        trial.add_up(other, 1, [open_])
    with pytest.raises(MismatchError, match="made an offer for a round under masks"):
        trial.send(other, 1, "site-0")


@pytest.mark.parametrize("how", ["signed", "plain"])
def test_fewer_than_were_agreed_on_make_no_sum(trial, begin, how):
    at = begin(protection=how)
    for name in trial.sites[:2]:
        trial.send(at, 1, name)
    with pytest.raises(MismatchError, match=r"2 of 3 members.*at least 3.*Missing: 'site-2'"):
        trial.add_up(at, 1)
    assert not at.total(1).exists()


def test_a_file_of_another_session_or_round_is_refused_by_name(trial, begin):
    first, second = (begin(name, protection="signed", head="softmax", rounds=2) for name in "ab")
    for at in (first, second):
        for name in trial.sites:
            trial.send(at, 1, name)
    mixed = [*(first.statistics(1, n) for n in trial.sites[:2]), second.statistics(1, "site-2")]
    with pytest.raises(MismatchError, match="of 'site-2' belongs to the roster"):
        trial.add_up(first, 1, mixed)
    trial.add_up(first, 1)
    trial.solve(first, 1)
    trial.send(first, 2, "site-2")
    late = [*(first.statistics(1, n) for n in trial.sites[:2]), first.statistics(2, "site-2")]
    with pytest.raises(MismatchError, match="of 'site-2' belongs to the roster"):
        trial.add_up(first, 1, late, out=first.root / "t.h5")


def test_the_first_head_is_that_of_the_session(trial, begin, tmp_path):
    """Round 1 has one head; later ones are known by their options and by who signed."""
    at = begin(protection="signed")
    agreed = session.load(at.session)
    told = {**agreed.agreed.head, "options": agreed.options}
    assert agreed.round(told).head == agreed.agreed.head
    with pytest.raises(MismatchError, match="digest"):
        agreed.round({**told, "digest": "ab" * 32})
    with pytest.raises(MismatchError, match="the phase 'other' is not in the session"):
        agreed.round({**told, "phase": "other"})
    one = replace(agreed.agreed, series=None)
    assert agreed.round(told).digest not in (one.digest, agreed.digest)
