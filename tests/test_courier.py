"""Sites that are apart: one command each, over a place that may do to files whatever it likes."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from sites_apart import NAMES, Apart, Watch, rows

import afltool
from afltool.courier.depot import Depot
from afltool.courier.letters import Letters, Parcel
from afltool.courier.party import status
from afltool.errors import (
    AflError,
    CorruptFileError,
    IncompleteError,
    MismatchError,
    NumericalError,
    UnreachableError,
    UsageError,
)
from afltool.files.heads import load_head
from afltool.files.session_folder import SessionFolder
from afltool.privacy import identity, messages
from afltool.show.tables import print_session

PROTECTIONS = {
    "plain": {"protection": "plain"},
    "signed": {"protection": "signed"},
    "masked": {"protection": "masked"},
    "all": {"protection": "masked", "threshold": "all"},
}


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return rows(tmp_path_factory.mktemp("rows"), np.random.default_rng(0))


@pytest.mark.parametrize("how", PROTECTIONS)
def test_a_session_makes_the_head_of_the_pooled_rows(tmp_path, features, how):
    apart = Apart(tmp_path, features, **PROTECTIONS[how])
    found = apart.play()
    total, head = apart.pooled()
    assert (found["totals"][-1], found["head"]) == (total, head)
    for name in ("server", *NAMES):
        assert afltool.info(tmp_path / name / "head-final.h5")["digest"] == head
    sent = json.loads((tmp_path / "north" / "summary.json").read_text())["rounds"]
    assert sent == found["rounds"], "everybody tells the same of the session"
    assert sum(found["rounds"][0]["sent"].values()) == found["sent_bytes"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("layers", [3, 20])
def test_a_later_head_brings_only_new_arrays(tmp_path, features, layers):
    """Of each array in the place there is one copy, and a site fetches what it has not."""
    apart = Apart(tmp_path, features, head="deepafl", layers=layers, width=16)
    found = apart.play()
    files = [path.stat().st_size for path in (Path(apart.url) / "files").iterdir()]
    assert sum(files) == found["sent_bytes"] + found["given_bytes"]
    heads = [tmp_path / "server" / f"head-{k}.h5" for k in range(1, 2 * layers + 3)]
    arrays = [sum(a.nbytes for a in load_head(path).head.arrays().values()) for path in heads]
    assert len(found["rounds"]) == len(heads)
    letters = (tmp_path / "server" / "letters").glob("*-head-server.json")
    named = [one for path in letters for one in json.loads(path.read_text())["body"]["files"]]
    headers = sum(one["bytes"] for one in named if one["name"] == "header")
    print(f"arrays {arrays[-1]} bytes instead of {sum(arrays)}, and {headers} of headers")
    assert found["head_bytes"] - headers == arrays[-1], "each array is sent once"
    assert headers < 12_000 * len(heads)


# ---------------------------------------------------------------- a place that nobody trusts


def mischief(place: Path, draw: random.Random, kept: Path) -> None:
    """Do something to a file there: cut it, swap two, alter, lose, hold back or repeat one."""
    there = sorted(p for p in place.rglob("*") if p.is_file() and p.name != "session.json")
    held = sorted(kept.iterdir())
    if not there:
        return
    one, other, what = draw.choice(there), draw.choice(there), draw.randrange(6)
    data = one.read_bytes()
    if what == 0:
        one.write_bytes(data[: draw.randrange(len(data))])
    elif what == 1:
        one.write_bytes(other.read_bytes())
        other.write_bytes(data)
    elif what == 2:
        one.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif what == 3:
        one.unlink()
    elif what == 4:  # held back, and given later in place of whatever is there then
        shutil.move(one, kept / f"{len(held)}+{one.parent.name}+{one.name}")
    elif held:
        late = draw.choice(held)
        shutil.copy(late, place / late.name.split("+")[1] / late.name.split("+", 2)[2])


@pytest.mark.parametrize("how", ["plain", "masked"])
def test_a_hostile_place_changes_nothing(tmp_path, features, how):
    """What it cuts, swaps, alters, loses, delays and repeats is sent again: the same head."""
    draw = random.Random(3)
    apart = Apart(tmp_path, features, **PROTECTIONS[how])
    (tmp_path / "kept").mkdir()
    found = apart.play(
        lambda turn: turn < 25 and mischief(Path(apart.url), draw, tmp_path / "kept")
    )
    assert (found["totals"][-1], found["head"]) == apart.pooled()
    assert len(list((tmp_path / "server" / "round-1" / "statistics").glob("*.h5"))) == 3


def test_another_session_in_the_place_is_refused_by_everybody(tmp_path, features):
    apart, other = Apart(tmp_path / "a", features), Apart(tmp_path / "b", features)
    apart.serve()
    apart.join("north")
    shutil.copy(other.session, Path(apart.url) / "session.json")
    with pytest.raises(MismatchError, match="holds another session"):
        apart.join("north")
    with pytest.raises(MismatchError, match=f"{other.digest}, not {apart.digest}"):
        apart.join("south")
    with pytest.raises(MismatchError, match="holds another session"):
        apart.serve()


def test_a_digest_is_compared_before_anything_is_computed(tmp_path, features):
    apart = Apart(tmp_path, features)
    apart.serve()
    for said in (None, "0" * 64, apart.digest[:8]):
        with pytest.raises((UsageError, MismatchError), match=apart.digest):
            apart.join("north", approve=said)
    assert not list((tmp_path / "north").rglob("*.h5"))
    assert "north" not in str(list(Path(apart.url).rglob("*")))
    apart.join("north", approve=apart.digest[:16])
    apart.join("north", approve=None)  # once is enough


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"classes": 4}, "classes"),
        ({"backbone": "other"}, "backbone"),
        ({"fraction_bits": 5}, "fraction_bits"),
    ],
)
def test_a_site_with_other_rows_stops_before_it_sends(tmp_path, features, changed, says):
    (tmp_path / "other").mkdir()
    other = rows(tmp_path / "other", np.random.default_rng(1), **changed)
    apart = Apart(tmp_path / "a", features)
    apart.serve()
    with pytest.raises(MismatchError, match=says):
        apart.join("north", features=other["north"])
    assert "north" not in str(list(Path(apart.url).rglob("*")))


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """The rows of three sites through another backbone."""
    return rows(tmp_path_factory.mktemp("others"), np.random.default_rng(0), backbone="other")


@pytest.mark.parametrize("how", PROTECTIONS)
def test_who_sends_first_binds_what_the_session_leaves_open(
    tmp_path, features, others, how, caplog
):
    """A session without --space, and two sites at the same time with different backbones."""
    apart = Apart(tmp_path, features, space=None, **PROTECTIONS[how])
    apart.serve()
    what = "offer" if "masked" in PROTECTIONS[how].values() else "statistics"
    apart.join("north")
    apart.join("south", features=others["south"])
    apart.serve()
    wrong = r"south.*as 'north' has bound it.*space.backbone is 'other'"
    assert f"{what} of 'south' refused" in caplog.text
    with pytest.raises(MismatchError, match=f"refused the {what} of 'south'.*{wrong}"):
        apart.join("south", features=others["south"])
    with pytest.raises(MismatchError, match=r"west\.h5.*as 'north' has bound it.*backbone"):
        apart.join("west", features=others["west"])
    assert not list((tmp_path / "west").rglob("client*")), "nothing is computed"
    assert "west" not in str(list(Path(apart.url).rglob("*")))
    (tmp_path / "south").rename(tmp_path / "refused")
    found = apart.play()
    assert (found["totals"][-1], found["head"]) == apart.pooled()


@pytest.mark.parametrize("said", ["{}", "[", '{"space": {}, "classes": ["a", "a"]}'])
def test_an_offer_that_says_nothing_of_its_rows_binds_nothing(tmp_path, features, said, caplog):
    apart = Apart(tmp_path, features, space=None, protection="masked")
    apart.serve()
    given = {"key": apart.keys / "north.key"}
    [path] = afltool.mask_offer(apart.session, tmp_path / "dishonest", **given)
    dishonest(apart, "north", path, "offer", 0, said)
    apart.serve()
    assert "offer of 'north' refused" in caplog.text
    found = apart.play()
    assert (found["totals"][-1], found["head"]) == apart.pooled()


@pytest.mark.parametrize("how", ["plain", "signed"])
def test_the_same_rows_twice_are_refused_and_the_others_go_on(tmp_path, features, how, caplog):
    """Sums under masks cannot tell."""
    caplog.set_level("INFO")
    apart = Apart(tmp_path, features, space=None, threshold=2, protection=how)
    apart.serve()
    for name in NAMES:
        apart.join(name, features=features["north" if name == "south" else name])
    apart.serve(deadline=1.0)
    assert "waiting for the statistics of 'south' (2 of 3 have come)" in caplog.text
    with pytest.raises(MismatchError, match=r"refused the statistics of 'south'.*counted twice"):
        apart.join("south")
    apart.clock.time += 3601
    for _ in range(2):
        apart.serve(deadline=1.0)
        for name in ("north", "west"):
            apart.join(name)
    found = json.loads((tmp_path / "server" / "summary.json").read_text())
    assert found["rounds"][0]["members"] == ["north", "west"]
    alone = [p for p in (tmp_path / "server").rglob("client-*.h5") if p.stem != "client-south"]
    assert found["totals"] == [afltool.info(afltool.aggregate(alone, tmp_path / "t.h5"))["digest"]]


def test_a_stranger_and_a_wrong_server_are_refused(tmp_path, features):
    apart, other = Apart(tmp_path / "a", features), Apart(tmp_path / "b", features)
    apart.serve()
    with pytest.raises(MismatchError, match="has other keys for 'north'"):
        apart.join("north", key=other.keys / "north.key")
    with pytest.raises(MismatchError, match=r"'south', but the roster .* names 'server'"):
        apart.serve(key=apart.keys / "south.key")


def test_who_sends_twice_is_told_that_the_first_counts(tmp_path, features, caplog):
    apart = Apart(tmp_path, features)
    apart.serve()
    apart.join("north")
    apart.serve()
    (tmp_path / "north").rename(tmp_path / "first")
    apart.join("north", features=features["south"])
    apart.serve()
    with pytest.raises(MismatchError, match=r"refused the statistics of 'north'.*had come before"):
        apart.join("north", features=features["south"])
    assert "'north' refused" in caplog.text
    shutil.rmtree(tmp_path / "north")
    (tmp_path / "first").rename(tmp_path / "north")
    assert (apart.play()["totals"][-1]) == apart.pooled()[0]


def dishonest(apart, name, path, what="statistics", number=1, said=""):
    """Send any file under a valid letter of a member."""
    me = identity.load(apart.keys / f"{name}.key")
    people = {me.name: me.member}
    letters = Letters(Depot(apart.url), apart.digest, people, apart.at / "dishonest", me)
    letters.post(what, number, lambda: [] if path is None else [Parcel.of_file(path)], said)


def test_a_place_that_gives_more_than_it_lists_is_left(tmp_path, features):
    """Without end: what is read stops at the bytes that there should be."""

    class Endless(Depot):
        def chunks(self, name):
            yield from super().chunks(name)
            while not name.startswith("letters/"):
                yield bytes(1 << 20)

    apart = Apart(tmp_path, features)
    apart.serve()
    apart.join("north")
    place, me = Endless(apart.url), identity.load(apart.keys / "north.key")
    assert Depot(apart.url).read("session.json", 1 << 20)
    assert place.read("session.json", 1 << 20) == b""
    letters = Letters(place, apart.digest, {me.name: me.member}, tmp_path / "read", me)
    [entry] = letters.find("statistics", 1, "north").body["files"]
    with pytest.raises(CorruptFileError, match="was altered on its way"):
        list(letters.data(entry, "north"))


def of_another_head(apart):
    head = afltool.head("softmax", apart.at / "softmax.h5", rounds=2)
    return afltool.local_stats(apart.features["north"], head, apart.at / "o", client="north")


def of_somebody_else(apart):
    key, head = apart.keys / "south.key", apart.at / "server" / "head-1.h5"
    given = {"client": "south", "sign": key, "roster": apart.session}
    return afltool.local_stats(apart.features["north"], head, apart.at / "o", **given)


def without_the_protection(apart):
    head = apart.at / "server" / "head-1.h5"
    return afltool.local_stats(apart.features["north"], head, apart.at / "o", client="north")


def no_statistics(apart):
    return apart.features["north"]


def no_file(apart):
    return None


@pytest.mark.parametrize(
    ("made", "how", "says"),
    [
        (of_another_head, "plain", "head"),
        (of_somebody_else, "signed", "of 'south', not of 'north'"),
        (without_the_protection, "signed", "is not signed"),
        (no_statistics, "plain", "expected a statistics file"),
        (no_file, "plain", "0 files"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_name_of_the_site(
    tmp_path, features, made, how, says, caplog
):
    """Its own check would stop an honest site; a dishonest one has none. Then it may send again."""
    apart = Apart(tmp_path, features, protection=how)
    apart.serve()
    dishonest(apart, "north", made(apart))
    apart.serve()
    [said] = [one.getMessage() for one in caplog.records if "refused" in one.getMessage()]
    assert "statistics of 'north' refused" in said
    assert says in said
    assert apart.play()["totals"] == [apart.pooled()[0]]


def test_the_place_is_not_the_own_folder(tmp_path, features):
    apart = Apart(tmp_path, features)
    apart.url = str(tmp_path / "server")
    with pytest.raises(UsageError, match="the folder that only you have"):
        apart.serve()


# ---------------------------------------------------------------- is it the sum?


@pytest.mark.parametrize("how", PROTECTIONS)
def test_each_site_adds_up_what_all_have_sent(tmp_path, features, how):
    apart = Apart(tmp_path, features, **PROTECTIONS[how])
    apart.more = {"check_sums": True}
    assert apart.play()["head"] == apart.pooled()[1]
    told = sorted(path.name for path in (Path(apart.url) / "letters").glob("*checked*"))
    assert told == [f"001-checked-{name}.json" for name in NAMES]
    for name in NAMES:
        there = {path.name for path in (tmp_path / name).rglob("client-*.h5")}
        assert there == {f"client-{name}.h5"}, "what others have sent is deleted"


@pytest.mark.parametrize("how", PROTECTIONS)
def test_a_server_that_signs_another_sum_is_found_out(tmp_path, features, how):
    """Also a list of other members; who does not check goes on."""
    apart = Apart(tmp_path, features, **PROTECTIONS[how])
    for _ in range(4):
        apart.serve()
        for name in NAMES:
            if not (Path(apart.url) / "letters" / "001-sum-server.json").exists():
                apart.join(name)
    body = json.loads((tmp_path / "server" / "round-1" / "total.signed.json").read_text())["body"]
    me = identity.load(apart.keys / "server.key")
    forged = messages.write(tmp_path / "total.signed.json", me.sign({**body, "digest": "ab" * 32}))
    dishonest(apart, "server", forged, "sum")
    with pytest.raises(AflError, match=r"signed ababab|holds nothing for 'north'"):
        apart.join("north", check_sums=True)
    assert "checked" not in str(list(Path(apart.url).rglob("*")))
    apart.join("west")
    assert (tmp_path / "west" / "head-final.h5").exists()


def test_a_site_says_whose_statistics_it_lacks_to_check_a_sum(tmp_path, features, caplog):
    """As over Flower, where nobody gets the files of others."""
    caplog.set_level("INFO")
    apart = Apart(tmp_path, features)
    for name in ("", *NAMES):
        apart.join(name) if name else apart.serve()
    apart.serve()
    (Path(apart.url) / "letters" / "001-statistics-west.json").unlink()
    apart.join("north", check_sums=True)
    assert "waiting for the statistics of 'west' in round 1, to check the sum" in caplog.text


# ---------------------------------------------------------------- time


def test_the_place_may_be_away_for_an_hour(tmp_path, features, caplog):
    caplog.set_level("INFO")
    apart = Apart(tmp_path, features)
    apart.serve()
    place, away = Path(apart.url), tmp_path / "away"
    naps = []

    def nap():
        naps.append(apart.clock.time)
        if len(naps) == 1:  # a file where the folder was: no system call succeeds below it
            place.rename(away)
            place.write_text("")
        if apart.clock.time - naps[0] > 3600 and away.exists():
            place.unlink()
            away.rename(place)
        if not away.exists():
            apart.serve()
            for name in ("south", "west"):
                apart.join(name)

    apart.clock.nap = nap
    apart.join("north", once=False, poll=60.0)
    assert naps[-1] - naps[0] > 3600
    assert "which is away" in caplog.text
    assert afltool.info(tmp_path / "north" / "head-final.h5")["phase"] is None


def test_a_place_that_never_was_there_is_an_error(tmp_path, features):
    apart = Apart(tmp_path, features)
    (tmp_path / "place").write_text("")
    with pytest.raises(UnreachableError, match="cannot be reached: NotADirectoryError"):
        apart.join("north", once=False)
    apart.url = "carrier-pigeon://roof"
    with pytest.raises(UsageError, match="no place that fsspec knows"):
        apart.join("north")


def test_a_late_site_is_named_and_left_out_after_the_deadline(tmp_path, features, caplog):
    """It gets the head all the same; before the deadline nobody goes on without it."""
    caplog.set_level("INFO")
    apart = Apart(tmp_path, features, protection="masked", threshold=2)
    for _ in range(2):
        apart.serve(deadline=1.0)
        for name in NAMES:
            apart.join(name) if name != "west" or _ == 0 else None
    apart.serve(deadline=1.0)
    assert "waiting for the statistics of 'west' (2 of 3 have come) in round 1" in caplog.text
    assert status(apart.url)["waiting_for"] == {"what": "statistics", "who": ["west"]}
    apart.clock.time += 3601
    for _ in range(4):
        apart.serve(deadline=1.0)
        apart.join("north")
        apart.join("south")
    apart.join("west")
    summary = json.loads((tmp_path / "server" / "summary.json").read_text())
    assert summary["rounds"][0]["members"] == ["north", "south"]
    assert afltool.info(tmp_path / "west" / "head-final.h5")["digest"] == summary["head"]


@pytest.mark.parametrize(
    ("agreed", "members"),
    [({"head": "deepafl", "layers": 1, "width": 8, "compute": "fixed"}, list(NAMES)),
     pytest.param({"head": "softmax", "rounds": 2}, ["north", "south"], marks=pytest.mark.slow)],
    ids=["deepafl", "softmax"],
)  # fmt: skip
def test_a_late_site_is_in_the_next_round_where_the_head_allows_it(
    tmp_path, features, agreed, members
):
    """West's first file comes in the second round, and counts for nothing: it stays closed. Rounds
    of gradients need the sums of all who are in them."""
    apart = Apart(tmp_path, features, protection="masked", threshold=2, **agreed)
    letter = Path(apart.url) / "letters" / "001-statistics-west.json"
    for _ in range(2):
        apart.serve()
        for name in NAMES:
            apart.join(name)
    letter.rename(tmp_path / "held")
    apart.clock.time += 3601
    apart.serve(deadline=1.0)
    apart.join("north")
    apart.join("south")
    apart.serve()
    assert status(apart.url)["waiting_for"] == {"what": "statistics", "who": members}
    (tmp_path / "held").rename(letter)
    found = apart.play()
    assert [one["members"] for one in found["rounds"][:2]] == [["north", "south"], members]
    head, totals = tmp_path / "server" / "head-1.h5", []
    for number, names in enumerate((["north", "south"], members), 1):
        out = tmp_path / f"plain-{number}"
        files = [afltool.local_stats(features[n], head, out, client=n) for n in names]
        total = afltool.aggregate(files, out / "total.h5")
        totals.append(afltool.info(total)["digest"])
        head = tmp_path / "server" / f"head-{number + 1}.h5"
    assert found["totals"][:2] == totals
    assert not (tmp_path / "server" / "round-1" / "statistics" / "client-west.h5").exists()
    assert afltool.info(tmp_path / "west" / "head-final.h5")["digest"] == found["head"]


def test_an_old_session_of_the_same_members_counts_for_nothing(tmp_path, features, caplog):
    """Its letters, its files under letters of this one, and its digest."""
    old = Apart(tmp_path / "old", features, protection="signed")
    old.play()
    shutil.copytree(old.keys, tmp_path / "new" / "keys")
    apart = Apart(tmp_path / "new", features, protection="signed")
    shutil.copytree(old.url, apart.url)
    (Path(apart.url) / "session.json").unlink()
    apart.serve()
    assert "of 'north' is of the session" in caplog.text
    with pytest.raises(MismatchError, match="not " + old.digest):
        apart.join("north", approve=old.digest)
    sent = old.at / "north" / "round-1" / "statistics" / "client-north.h5"
    dishonest(apart, "north", sent)
    apart.serve()
    assert "statistics of 'north' refused" in caplog.text
    assert "belongs to the roster" in caplog.text
    found = apart.play()
    assert (found["totals"][-1], found["head"]) == apart.pooled()


def test_below_the_threshold_nothing_is_added_up(tmp_path, features, caplog):
    caplog.set_level("INFO")
    apart = Apart(tmp_path, features, protection="masked", threshold="all")
    for _ in range(2):
        apart.serve(deadline=0.1)
        for name in NAMES:
            apart.join(name) if name != "west" or _ == 0 else None
    apart.clock.time += 10**6
    apart.serve(deadline=0.1)
    assert not (tmp_path / "server" / "round-1" / "total.h5").exists()
    assert "'west'" in caplog.records[-1].getMessage()


def test_status_says_who_is_waited_for(tmp_path, features, cli):
    apart = Apart(tmp_path, features)
    with pytest.raises(AflError, match="holds no session"):
        status(apart.url)
    apart.serve()
    apart.join("south")
    found = status(apart.url)
    assert found["state"] == "round 1 (gram)"
    assert found["waiting_for"] == {"what": "statistics", "who": ["north", "west"]}
    assert list(found["rounds"][0]["sent"]) == ["south"]
    apart.play()
    assert status(apart.url)["state"] == "solved"
    shown = cli("session", "status", apart.url).stdout
    assert "round 1 (gram)" in shown
    assert "nobody yet" not in shown


def test_status_says_since_when(tmp_path, features):
    """Since the letter that begins a step, or the last one that it lacked."""
    apart, told = Apart(tmp_path, features, protection="masked"), []

    def look(after: str) -> None:
        found = status(apart.url)
        who = found["waiting_for"]["who"]
        minutes = time.mktime(time.strptime(found["since"], "%Y-%m-%d %H:%M:%S")) - begun
        told.append((after, found["waiting_for"]["what"], len(who), minutes / 60))
        apart.clock.time += 60

    begun = apart.clock.time
    for turn in range(4):
        apart.serve()
        look(f"server {turn}")
        for name in NAMES:
            apart.join(name)
            look(f"{name} {turn}")
    assert told == [
        ("server 0", "offer", 3, 0), ("north 0", "offer", 2, 0), ("south 0", "offer", 1, 0),
        ("west 0", "head", 1, 3),  # all offers are there since then
        ("server 1", "statistics", 3, 4), ("north 1", "statistics", 2, 4),
        ("south 1", "statistics", 1, 4), ("west 1", "head", 1, 7),
        ("server 2", "reveal", 3, 8), ("north 2", "reveal", 2, 8), ("south 2", "reveal", 1, 8),
        ("west 2", "head", 1, 11),
        ("server 3", "done", 3, 12), ("north 3", "done", 2, 12), ("south 3", "done", 1, 12),
        ("west 3", "done", 0, 15),
    ]  # fmt: skip


def test_the_summary_counts_all_files_each_way(tmp_path, features):
    """In the place each lies once: offers go both ways."""
    apart = Apart(tmp_path, features, protection="masked")
    found = apart.play()
    files = sum(path.stat().st_size for path in (Path(apart.url) / "files").iterdir())
    server, first = tmp_path / "server", found["rounds"][0]
    offers = sum(path.stat().st_size for path in (server / "offers").iterdir())
    told = sum(path.stat().st_size for path in (server / "round-1").glob("total.*.json"))
    assert first["given_bytes"] == first["head_bytes"] + offers + told
    assert found["given_bytes"] == first["given_bytes"] + found["rounds"][1]["head_bytes"]
    assert files == found["sent_bytes"] + found["given_bytes"] - offers


def test_only_a_session_loads_fsspec():
    """Neither the help nor plain commands."""
    program = (
        "import sys\nfrom afltool.cli import main\n"
        "sys.argv = ['afltool', 'session', 'join', '-h']\ntry: main()\nexcept SystemExit: pass\n"
        "assert not {'fsspec', 'cryptography'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_the_clock_of_the_tests_has_a_premise():
    watch = Watch()
    watch.sleep(5)
    assert watch.now() == 1_800_000_005


@pytest.mark.parametrize("how", ["plain", "all"])
def test_a_server_that_cannot_go_on_tells_the_sites_and_goes_on_when_it_can(
    tmp_path, features, capsys, how
):
    """A file that lies where the sum goes; when it is away, all send what they have sent."""
    apart = Apart(tmp_path, features, **PROTECTIONS[how])
    for _ in range(2 if how == "all" else 1):  # offers before
        apart.serve()
        for name in NAMES:
            apart.join(name)
    total = SessionFolder(tmp_path / "server").total(1)
    total.parent.mkdir(parents=True, exist_ok=True)
    total.write_text("somebody's notes")
    letters = Path(apart.url) / "letters"
    for _ in range(2):  # it is told once
        with pytest.raises(AflError, match=str(total)):
            apart.serve()
    assert [path.name for path in letters.glob("*stopped*")] == ["001-stopped-server.json"]
    for name in NAMES:
        with pytest.raises(IncompleteError, match=r"'server' has stopped at aggregate: .*again"):
            apart.join(name)
    before = {path.name: path.read_bytes() for path in letters.iterdir()}
    assert "stopped: aggregate: " in status(apart.url)["state"]
    print_session(status(apart.url))
    assert "waiting for resumed of server" in " ".join(capsys.readouterr().out.split())
    total.unlink()
    assert apart.play()["totals"][-1] == apart.pooled()[0]
    assert {name: (letters / name).read_bytes() for name in before} == before
    assert "stopped" not in status(apart.url)["state"]


def test_a_sum_that_gives_no_head_is_told_to_the_sites(tmp_path):
    """Two features are the same number, and the session's ridge is 0."""
    given = dict(np.load(rows(tmp_path, np.random.default_rng(0))["north"].with_suffix(".npz")))
    x = given["x"]
    x[:, 1] = x[:, 0]
    features = {}
    for name in NAMES:
        np.savez(tmp_path / f"{name}.npz", x=x + NAMES.index(name), y=given["y"])
        features[name] = afltool.import_embeddings(
            tmp_path / f"{name}.npz", out=tmp_path / f"same-{name}.h5", backbone="b"
        )
    apart = Apart(tmp_path / "all", features, ridge=0.0)
    apart.serve()
    for name in NAMES:
        apart.join(name)
    with pytest.raises(NumericalError) as caught:
        apart.serve()
    with pytest.raises(IncompleteError) as told:
        apart.join("north")
    assert f"stopped at solve: {caught.value}" in str(told.value)
