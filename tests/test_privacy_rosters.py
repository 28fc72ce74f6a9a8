"""What a roster says, and that every step of a member and of the server keeps to it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from federations import SERVER, new_roster
from rounds_under_masks import Round, digest

import afltool
from afltool.errors import CorruptFileError, InvalidDataError, MismatchError, UsageError
from afltool.files.hdf5 import read_header
from afltool.files.statistics import load_statistics, save_statistics
from afltool.privacy import identity, messages
from afltool.privacy.roster import load
from afltool.privacy.sealing import sealing
from afltool.privacy.terms import Budget, Terms
from afltool.stages.inspect import info

BUDGET = {"dp_epsilon": 1.0, "dp_delta": 1e-5, "clip": 60.0}


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Four sites; each test makes the rosters that it needs."""
    return Round(tmp_path_factory.mktemp("sites"), 4, 3)


@pytest.fixture
def fresh(sites, request):
    """The same sites, another folder of rounds."""

    def make(**options):
        name = request.node.name.replace("[", "-").replace("]", "")
        sites.new_roster(f"{name}{len(list(sites.folder.glob('*.json')))}.json", 3, **options)
        return sites

    return make


def members(n):
    return [identity.Identity.new(f"site-{i}").member for i in range(n)]


# ---------------------------------------------------------------- the file


def test_every_field_comes_back_and_is_in_the_digest(tmp_path):
    space = {"backbone": "b", "dim": 3, "dtype": "int16", "fraction_bits": 9, "mean": ["0.5"]}
    full = Terms("masked", Budget(0.1, 1e-5, 3.0), space, ("a", "b"))
    made = new_roster(members(5), 4, terms=full)
    assert load(messages.write(tmp_path / "r.json", messages.Message(made.as_dict()))) == made
    other = identity.Identity.new("other").member
    changed = [
        {"server": other}, {"colluding": 1}, {"terms": replace(full, noise=None)},
        {"terms": replace(full, noise=Budget(0.2, 1e-5, 3.0))},
        {"terms": replace(full, mode="signed")}, {"terms": replace(full, classes=("b", "a"))},
        {"terms": replace(full, space={**space, "mean": ["0.25"]})},
    ]  # fmt: skip
    digests = {replace(made, **one).digest for one in [{}, *changed]}
    assert len(digests) == 1 + len(changed)


def test_a_roster_of_version_1_is_refused_with_what_to_do(tmp_path):
    body = new_roster(members(3)).as_dict()
    for key in ("version", "server", "colluding", "protection", "space", "classes"):
        del body[key]
    messages.write(tmp_path / "old.json", messages.Message(body))
    with pytest.raises(CorruptFileError, match=r"old\.json is a roster of version 1.*new one"):
        load(tmp_path / "old.json")


def test_what_is_in_the_file_but_not_in_the_roster_is_refused(tmp_path):
    """A field that changes the file and not the digest could tell members different things."""
    made = new_roster(members(3), terms=Terms("masked", Budget(0.5, 1e-5, 1.0)))
    for change in (
        lambda b: b["members"][0].update(note="x"),
        lambda b: b["server"].update(note="x"),
        lambda b: b["protection"].update(note="x"),
        lambda b: b["protection"]["noise"].update(note="x"),
        lambda b: b["protection"]["noise"].update(epsilon="0.50"),
        lambda b: b["protection"]["noise"].update(epsilon=0.5),
        lambda b: b["protection"].update(mode="plain"),
        lambda b: b["head"].update(note="x"),
        lambda b: b.update(note="x"),
    ):
        body = json.loads(json.dumps(made.as_dict()))
        change(body)
        path = tmp_path / "r.json"
        path.write_text(json.dumps({"afltool": 1, "body": body, "signature": ""}))
        with pytest.raises(CorruptFileError, match=r"r\.json"):
            load(path)


@pytest.mark.parametrize("what", ["name", "sign", "agree"])
def test_the_server_is_no_member(what):
    some = members(3)
    server = replace(SERVER.member, **{what: getattr(some[1], what)})
    with pytest.raises(MismatchError, match="and the server, makes a key pair"):
        new_roster(some, server=server)


def test_members_that_differ_by_capitals_alone_are_refused():
    """Their files would be one on Windows and macOS."""
    both = [identity.Identity.new(name).member for name in ("north", "North", "south")]
    with pytest.raises(InvalidDataError, match="'North' and 'north' would have one file"):
        new_roster(both, 3)


def test_a_roster_of_nobody_is_refused(tmp_path, cli):
    (tmp_path / "keys").mkdir()
    done = cli("roster", tmp_path / "keys", "--head", "linear", "-o", tmp_path / "r.json")
    assert done.exit_code == 2
    assert "threshold of 0 members" in done.stderr


def test_a_private_key_is_named_as_what_it_is(sites, tmp_path, cli):
    base = ["roster", "--head", sites.head, "-o", tmp_path / "r.json"]
    key, public = sites.key("site-0"), sites.folder / "keys"
    for given in ([key], [public, "--server", sites.server.with_suffix(".key")]):
        done = cli(*base, *given)
        assert done.exit_code == 2
        assert f"{given[-1]} is a private key, which never leaves its owner" in done.stderr
        assert f"give the public file {given[-1].with_suffix('.pub')}" in done.stderr


def test_masks_need_a_server():
    with pytest.raises(MismatchError, match="--server"):
        new_roster(members(3), server=None)
    assert new_roster(members(3), server=None, terms=Terms("signed")).server is None


@pytest.mark.parametrize(
    ("n", "c", "t", "noise", "good"),
    [
        (4, 0, 3, False, True), (4, 1, 3, False, True), (4, 2, 3, False, False),
        (7, 1, 4, False, False), (7, 1, 5, False, True), (5, 3, 4, False, False),
        (3, 0, 2, True, False), (3, 0, 3, True, True), (5, 1, 3, True, False),
        (5, 1, 4, True, True),
    ],
)  # fmt: skip
def test_colluding_members_raise_the_threshold(n, c, t, noise, good):
    """More than (n + c)/2, so that two requests never find enough answers; c + 2 for the sum of
    others; c + 3 where the noise of all who do not tell theirs must be enough."""
    terms = Terms("masked", Budget(1.0, 1e-5, 1.0) if noise else None)
    if good:
        assert new_roster(members(n), t, terms=terms, colluding=c).sharing == t - 1 - c
    else:
        with pytest.raises(UsageError, match="threshold"):
            new_roster(members(n), t, terms=terms, colluding=c)


def test_the_default_threshold_holds_for_those_who_collude():
    for n in range(2, 12):
        for c in range(n - 1):
            found = new_roster(members(n), colluding=c).threshold
            assert found == max(2 * n // 3 + 1, (n + c) // 2 + 1, c + 2) <= n


def test_the_command_says_what_was_agreed(sites, tmp_path, cli):
    base = ["roster", sites.folder / "keys", "--head", sites.head]
    masked = cli(*base, "--server", sites.server, "-o", tmp_path / "m.json", *noise())
    assert masked.exit_code == 0, masked.stderr
    assert info(tmp_path / "m.json")["protection"] == {
        "mode": "masked",
        "noise": {"epsilon": "1.0", "delta": "1e-05", "clip": "60.0"},
    }
    assert "3 of 4 members must stay until the end, so 1 may drop out" in masked.stderr
    assert "--dp-epsilon 1.0 --dp-delta 1e-05 --clip 60.0" in masked.stderr
    assert "whoever has masked cannot leave the sum later" in masked.stderr
    assert "next, each member: afltool mask offer m.json" in masked.stderr
    three = [sites.folder / "keys" / f"site-{i}.pub" for i in range(3)]
    three = cli("roster", *three, *base[2:], "--server", sites.server, "-o", tmp_path / "3.json")
    assert "3 of 3 members must stay until the end, so nobody may drop out" in three.stderr
    signed = cli(*base, "-o", tmp_path / "s.json")
    assert "leave their members signed, without noise" in signed.stderr
    for options, what in (
        (["--protection", "masked"], "needs --server"),
        (["--dp-epsilon", "1"], "takes --dp-epsilon, --dp-delta and --clip"),
        (["--protection", "open"], "is signed or masked"),
    ):
        refused = cli(*base, *options, "-o", tmp_path / "r.json")
        assert refused.exit_code == 2
        assert what in refused.stderr


def noise():
    return ["--dp-epsilon", "1", "--dp-delta", "1e-5", "--clip", "60"]


# ---------------------------------------------------------------- a member's steps


def test_without_mask_nothing_leaves_where_the_roster_says_masked(fresh):
    """After `mask offer` only --mask is forgotten: statistics would be open to read."""
    one = fresh()
    one.offer(one.sites)
    with pytest.raises(UsageError, match=r"leave under masks: give --mask OFFERS"):
        one.signed("site-0")
    assert not (one.where / "signed").exists()


def test_masks_are_refused_where_the_roster_says_signed(fresh):
    one = fresh(protection="signed")
    with pytest.raises(UsageError, match="statistics are signed, so mask offer"):
        one.offer(["site-0"])
    with pytest.raises(UsageError, match="statistics are signed, so --mask OFFERS"):
        one.masked("site-0")
    assert not one.where.exists()


@pytest.mark.parametrize("protection", ["signed", "masked"])
def test_noise_is_that_of_the_roster(fresh, protection):
    one = fresh(protection=protection, **BUDGET)
    if protection == "masked":
        one.offer(one.sites)
    send = one.masked if protection == "masked" else one.signed
    with pytest.raises(UsageError, match=r"--dp-epsilon 2\.0.*roster.*says --dp-epsilon 1\.0"):
        send("site-0", **{**BUDGET, "dp_epsilon": 2.0})
    assert not list(one.where.rglob("*.h5"))
    found = info(send("site-0"))["context"]["noise"]
    assert (found["epsilon"], found["delta"], found["clip"]) == (1.0, 1e-5, 60.0)
    before = send("site-0").read_bytes()
    assert send("site-0", **BUDGET).read_bytes() == before
    without = fresh(protection=protection)
    if protection == "masked":
        without.offer(without.sites)
    send = without.masked if protection == "masked" else without.signed
    with pytest.raises(UsageError, match="says that nobody adds noise"):
        send("site-0", **BUDGET)


def test_features_of_another_space_or_classes_are_refused_by_field(fresh, tmp_path):
    one = fresh(space=fresh().folder / "site-0.h5")
    one.offer(one.sites)
    with np.load(one.folder / "site-0.npz") as raw:
        np.savez(tmp_path / "x.npz", **raw)
    other = afltool.import_embeddings(tmp_path / "x.npz", tmp_path / "a.h5", backbone="other")
    more = afltool.import_embeddings(
        tmp_path / "x.npz", tmp_path / "b.h5", classes=[*map(str, range(6))]
    )
    for path, what in ((other, r"space\.backbone is 'other'"), (more, "classes has 6 entries")):
        with pytest.raises(MismatchError, match=what) as error:
            afltool.local_stats(
                path, one.head, tmp_path / "out", client="site-0", sign=one.key("site-0"),
                roster=one.roster, mask=(one.where / "offers",), again=True,
            )  # fmt: skip
        assert str(path) in str(error.value)
        assert str(one.roster) in str(error.value)
    assert not (tmp_path / "out").exists()
    one.masked("site-0")  # and its masks are not spent


# ---------------------------------------------------------------- the server's steps


def test_the_server_takes_only_what_the_roster_says(fresh, tmp_path):
    """Files that a member signed for this round, but with other noise, classes or space."""
    one = fresh(protection="signed", space=fresh().folder / "site-0.h5", **BUDGET)
    good = [one.signed(name) for name in one.sites]
    plain = load_statistics(one.plain("site-1"))
    header = read_header(good[1])
    of_noise = load_statistics(good[1])
    for k, (statistics, what) in enumerate(
        (
            (plain, r"site-1.*not protected as the roster.*noise"),
            (noisy(of_noise, epsilon=8.0), r"not protected as the roster.*noise\.epsilon is 8"),
            (noisy(of_noise, form="distributed"), r"noise\.form"),
            (in_context(of_noise, classes=("a", "b", "c", "d")), r"does not fit the roster.*class"),
            (in_context(of_noise, space={**of_noise.context.space, "node": "n"}), r"space\.node"),
        )
    ):
        path = tmp_path / f"{k}-site-1.h5"
        seal = sealing(identity.load(one.key("site-1")), load(one.roster))
        save_statistics(path, statistics, header["recipe"], seal=seal)
        with pytest.raises(MismatchError, match=what):
            afltool.aggregate([good[0], path], tmp_path / "t.h5", roster=one.roster)
    assert not (tmp_path / "t.h5").exists()
    assert digest(afltool.aggregate(good, tmp_path / "t.h5", roster=one.roster))


def in_context(statistics, **changes):
    return replace(statistics, context=replace(statistics.context, **changes))


def noisy(statistics, **changes):
    return in_context(statistics, noise={**statistics.context.noise, **changes})


def test_a_sum_with_masks_or_without_is_what_the_roster_says(fresh, tmp_path):
    one = fresh()
    with pytest.raises(UsageError, match="under masks: give --offers"):
        afltool.aggregate([one.plain("site-0")], tmp_path / "t.h5", roster=one.roster)
    one = fresh(protection="signed")
    with pytest.raises(UsageError, match="are signed, so --offers"):
        one.aggregate([one.plain("site-0")])
