"""The commands of sessions: what a person sees, what is refused, what a session leaves."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from apart import CLASSES, NAMES, Apart, rows
from conftest import installed
from place_servers import PLACES
from sklearn.preprocessing import StandardScaler

import afltool
from afltool.files.counts import read_counts
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.plugins import install

slow = pytest.mark.slow


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch, request):
    """And codes that cost nothing: 128 MiB each would be most of the time of tests in here."""
    monkeypatch.setenv("AFLTOOL_STATE", str(tmp_path / "state"))
    if not request.node.get_closest_marker("slow"):
        real, cheap = hashlib.scrypt, {"n": 2, "r": 1, "p": 1}
        monkeypatch.setattr(hashlib, "scrypt", lambda d, **how: real(d, **{**how, **cheap}))


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture
def apart(cli, tmp_path, features):
    """A session that has begun: nobody has come."""
    made = Apart(cli, tmp_path, features)
    cli(*made.serve("--once"))
    return made


def refused(done, *words, codes=(2, 3, 4, 5)):
    """The command has ended with one paragraph that has these words."""
    assert done.exit_code in codes, (done.exit_code, done.stderr)
    about = "session: ", "import: ", "data.h5", "/"  # the last two: of which file it is
    lines = [line for line in done.stderr.splitlines() if not line.startswith(about)]
    assert [line[:7] for line in lines] == ["error: "]
    assert all(word in done.stderr for word in words), done.stderr


# ---------------------------------------------------------------- one command a site


def test_one_command_a_site(cli, apart):
    """Status says who is waited for; the head is that of the pooled rows; costs are summed up."""
    line = cli("session", "status", apart.url).stdout.splitlines()[-1]
    assert line == "roll-call: waiting for the hello of north, south, west"
    cli(*apart.join("north", "--once"))
    line = cli("session", "status", apart.url).stdout.splitlines()[-1]
    assert line == "roll-call: waiting for the hello of south, west"
    assert apart.play()["head"] == apart.pooled()
    assert cli("session", "status", apart.url).stdout.endswith("round 1 of 1 at most: solved\n")
    for name in ("server", *NAMES):
        one = apart.summary(name)
        assert (one["head"], one["members"]) == (apart.pooled(), list(NAMES))
        assert afltool.info(apart.at / name / "head.h5")["digest"] == one["head"]
        session = (Path(apart.url) / "session.json").stat().st_size * (name == "server")
        sent = session + sum(p.stat().st_size for p in Path(apart.url).glob(f"*-{name}"))
        assert one["bytes_up"] == sent
        assert one["bytes_down"] > one["bytes_up"] / 2
    assert apart.summary("west")["signed"] == ["north", "server", "south", "west"]
    again = cli(*apart.join("north", "--once"))
    assert again.stdout == f"{apart.at / 'north/head.h5'}\n"


def grouped(path):
    """TABLE:COLUMN with the group of each row of a feature file."""
    with open_features(path) as opened:
        ids = [one.decode() for one in opened.row_ids]
        of = [("icu", "ward")[k] for k in opened.read_stored(0, len(opened))[:, 0] % 2]
    lines = [f"{one},{group}" for one, group in zip(ids, of, strict=True)]
    path.with_suffix(".csv").write_text("\n".join(["row,unit", *lines]) + "\n")
    return f"{path.with_suffix('.csv')}:unit"


def test_a_site_gives_its_table_once(cli, tmp_path):
    """Scaled by the session, as scikit-learn scales all rows; test rows are counted at the end, as
    `evaluate --counts --group-by` counts them in one place."""
    data, test = rows(tmp_path / "rows"), rows(tmp_path / "test", seed=1)
    table = {n: path.with_suffix(".npz") for n, path in data.items()}
    tested = {n: path.with_suffix(".npz") for n, path in test.items()}
    by = {n: grouped(path) for n, path in test.items()}
    groups = ("--groups", "icu", "--groups", "ward", "--min-cell", 2)
    new = ("--scale", "standard", "--max-value", 100, "--max-rows", 100, *groups)
    apart = Apart(cli, tmp_path / "all", table, test=tested, new=new)
    cli(*apart.serve("--once"))
    refused(cli(*apart.join("north", "--once")), "--group-by TABLE:COLUMN", "'ward'", codes=(2,))
    odd = tmp_path / "odd.csv"
    odd.write_text((tmp_path / "test/north.csv").read_text().replace("icu", "er"))
    wrong = apart.join("north", "--once", "--group-by", f"{odd}:unit")
    refused(cli(*wrong), "the group 'er', which is")
    assert apart.sent_by("north") == []
    apart.join = lambda name, *more, join=apart.join: join(name, "--group-by", by[name], *more)
    found = apart.play()
    scaling = load_head(apart.at / "north/scaling.h5").head.state_dict()
    known = StandardScaler().fit(np.load(table["pooled"])["x"].astype(np.float32).astype(float))
    np.testing.assert_allclose(scaling["centre"], known.mean_, rtol=1e-6)
    np.testing.assert_allclose(scaling["spread"], known.scale_, rtol=1e-6)
    folders = (apart.at / name for name in ("west", "server", "west-state"))
    assert not any(p.stat().st_mode & 0o077 for p in folders)  # raw rows, totals, known people
    how = {"scale": apart.at / "north/scaling.h5"}
    pooled = afltool.import_embeddings(tested["pooled"], tmp_path / "tests.h5", **how)
    words = ["--counts", "--group-by", by["pooled"], "--min-group", 2, *groups[:4]]
    words += ["-o", tmp_path / "o"]
    assert cli("evaluate", apart.at / "west/head.h5", pooled, *words).exit_code == 0
    found_at = apart.at / "west/total-3.h5", next((tmp_path / "o").glob("*.h5"))
    of_sites, of_all = (read_counts(path).heads[0].groups for path in found_at)
    assert np.array_equal(of_sites.sum((1, 2)), of_all.sum((1, 2)))
    assert np.abs(of_sites - of_all).sum() <= 2  # ties of rounding
    accuracy = found["evaluation"]["metrics"]["accuracy"]["value"]
    page = tmp_path / "page.html"
    assert cli("session", "report", apart.at / "west", "-o", page).exit_code == 0
    assert f"{accuracy:.4f}" in page.read_text()
    assert json.loads(cli("session", "report", apart.at / "west").stdout)["party"] == "west"


def test_what_columns_become_is_agreed_on(cli, tmp_path):
    """A site gives its table without a word; one with other categories is refused by name."""
    lines = {name: [f"{30 + 5 * k % 9 + i},{'fm'[k % 2]},{CLASSES[k * k % 7 % 3]}"
                    for k in range(40)] for i, name in enumerate(NAMES)}  # fmt: skip
    lines["odd"] = [*lines["north"], "31,x,a"]
    lines["pooled"] = [line for name in NAMES for line in lines[name]]
    tables = {name: tmp_path / f"{name}.csv" for name in lines}
    for name, path in tables.items():
        path.write_text("\n".join(["age,sex,y", *lines[name]]) + "\n")
    (other := tmp_path / "other.csv").write_text(tables["north"].read_text().replace("sex", "ward"))
    given = ("--categories", "sex", "--max-rows", 99)
    pooled = afltool.import_embeddings(tables["pooled"], tmp_path / "p.h5", categories=("sex=f,m",))
    apart = Apart(cli, tmp_path / "all", {**tables, "pooled": pooled}, new=given)
    assert "columns ['age', 'sex = f', 'sex = m'], dim 3" in apart.said
    cli(*apart.serve("--once"))
    join = apart.join("north", "--once", data=tables["odd"])
    refused(cli(*join), "'x' in sex; the values are f, m", codes=(3,))
    refused(cli(*join, "--categories", "sex=f,m,x"), "columns has 4 entries", "sex = x", codes=(4,))
    refused(cli(*apart.join("north", "--once", data=other)), "sex", codes=(3,))
    (own := tmp_path / "own/data.h5").parent.mkdir()
    own.write_bytes(b"mine")
    refused(cli(*apart.join("north", "--once"), "-o", own.parent), "data.h5", codes=(2, 3))
    assert own.read_bytes() == b"mine"
    assert apart.sent_by("north") == []
    assert apart.play()["head"] == apart.pooled()


# ---------------------------------------------------------------- what is approved


def newcomers(said):
    return [line.split()[1:] for line in said.splitlines() if line[:12].split() == ["new"]]


def test_what_is_agreed_is_shown_before_it_is_approved(cli, apart):
    """And who is new here; a list of whom the site has met that is damaged makes them new. That the
    code is never shown is blind_approve in tests/attacks."""
    said = cli(*apart.join("north", approve=False)).stdout
    assert apart.code not in said
    for word in ("north", "server", "masked", "3 of 3 must stay", "none: sums", "linear",
                 "1 at most: gram", "dim 5", "'a', 'b', 'c'", "0 to 1000"):  # fmt: skip
        assert word in said, word
    new_here = [[n, "is", "new", "here"] for n in ("server", "south", "west")]
    assert sorted(newcomers(said)) == new_here
    short = cli(*apart.join("north", "--approve", apart.code[:-1], approve=False))
    refused(short, "malformed", codes=(2,))
    assert apart.sent_by("north") == []
    code = ("--approve", apart.code.upper().replace(" ", "-"))
    assert cli(*apart.join("north", "--once", *code, approve=False)).exit_code == 0
    shutil.rmtree(apart.at / "north")
    assert newcomers(cli(*apart.join("north", approve=False)).stdout) == []
    people = list((Path(os.environ["AFLTOOL_STATE"]) / "people").glob("[0-9a-f]*"))
    (south,) = (path for path in people if path.read_text() == "south")
    south.rename(other := south.with_name(f"{0:064x}"))
    said = cli(*apart.join("north", approve=False)).stdout
    assert newcomers(said) == [["south", "has", "ANOTHER", "KEY", "than", "before"]]
    for path in {*people, other} - {south}:
        path.write_bytes(b"\xff[")
    done = cli(*apart.join("north", approve=False))
    refused(done, "Nothing was sent")
    assert sorted(newcomers(done.stdout)) == new_here


# ---------------------------------------------------------------- bad input: named, nothing sent


def test_rows_that_are_not_those_agreed_leave_nothing(cli, tmp_path, features):
    """By name, before anything of them is sent."""
    apart = Apart(cli, tmp_path, features, new=("--max-rows", 100, "--min-rows", 10))
    cli(*apart.serve("--once"))
    for n in NAMES[1:]:
        cli(*apart.join(n, "--once"))
    x, y = np.random.default_rng(0).normal(size=(40, 6)), np.array(CLASSES)[np.arange(40) % 3]
    lacking = x[:, :5].copy()
    lacking[3, 2] = np.nan
    bad = {"features": (x, y, "6"), "NaN": (lacking, y, "row 3"), "few": (x[:9, :5], y[:9], "9"),
           "classes": (x[:, :5], np.where(y == "c", "d", y), "d")}  # fmt: skip
    for what, (x, y, says) in bad.items():
        np.savez(path := tmp_path / f"{what}.npz", x=x, y=y)
        done = cli(*apart.join("north", "--once", data=path))
        cli(*apart.serve("--once"))
        if not done.exit_code:
            done = cli(*apart.join("north", "--once", data=path))
        refused(done, says)
    assert [n for n in apart.sent_by("north") if "hello" not in n] == []


def test_keys_are_those_of_ssh_and_their_passphrases(cli, apart, tmp_path):
    for name, text in {"word": "secret\n", "other": "another\n", "empty": ""}.items():
        (tmp_path / name).write_text(text)
    locked = tmp_path / "locked/north"
    done = cli("keys", "new", "north", "-o", locked.parent, "--passphrase-file", tmp_path / "word")
    assert done.stdout == f"{locked}.pub\n"
    words, own = apart.join("north", "--once"), apart.keys / "north"
    refused(cli(*words, "--key", locked), "passphrase", codes=(2,))
    for file, says, code in (("other", "passphrase", 2), ("empty", "no passphrase", 3),
                             ("word", "is the key of no member", 4)):  # fmt: skip
        more = ("--key", locked, "--passphrase-file", tmp_path / file)
        refused(cli(*words, *more), says, codes=(code,))
    own.chmod(0o644)
    refused(cli(*words), "chmod 600", codes=(3,))
    own.chmod(0o600)
    own.with_suffix(".pub").write_bytes((apart.keys / "west.pub").read_bytes())
    refused(cli(*words), "ssh-keygen -y")
    refused(cli("keys", "new", "north", "-o", apart.keys), "never overwritten", codes=(2,))
    refused(cli("keys", "new", "a/b", "-o", apart.keys), "is no name of a party", codes=(2,))
    refused(cli(*words, "--key", tmp_path / "nowhere"), "cannot read the key", codes=(3,))
    assert apart.sent_by("north") == []


def test_a_library_that_is_not_installed_is_named(cli, tmp_path, monkeypatch):
    def halted(*_):
        raise ModuleNotFoundError("No module named 'nacl'", name="nacl")

    monkeypatch.setattr("afltool.federation.commands.report", halted)
    done = cli("session", "report", tmp_path, "-o", tmp_path / "page.html")
    refused(done, f"nacl is missing: {install('session')}", codes=(2,))


def test_another_session_in_the_place(cli, tmp_path, features):
    apart, other = (Apart(cli, tmp_path / n, features, url=str(tmp_path / "place")) for n in "ab")
    cli(*apart.serve("--once"))
    refused(cli(*other.serve("--once")), "another session", codes=(4,))
    cli(*apart.join("north", "--once"))
    shutil.rmtree(tmp_path / "place")
    cli(*other.serve("--once"))
    refused(cli(*apart.join("north", "--once")), "another session", codes=(4,))
    refused(cli("session", "status", tmp_path / "empty"), "holds no session", codes=(3,))
    (tmp_path / "place/session.json").write_bytes(b"[" * 100_000)
    refused(cli("session", "status", tmp_path / "place"), "session file", codes=(3,))
    cli(*other.serve("--once"))  # rubbish counts as not there
    assert cli("session", "status", tmp_path / "place").exit_code == 0


def test_what_does_not_go_together(cli, tmp_path, apart, features):
    words, limit = apart.new("-o", tmp_path / "n"), ("--max-rows", 9)
    for more, says in [((), "--max-rows"), (("--dp-delta", 1), "together"),
                       (("--scale", "minmax"), "minmax"), (("--threshold", 1), "threshold"),
                       (("--scale", "standard", "--max-value", "nan"), "max-value")]:  # fmt: skip
        refused(cli(*words, *(limit if more else ()), *more), says)
        assert not (tmp_path / "n/session.json").exists()
    for more in (("--y", "y"), ("--fraction-bits", 8)):  # of a table
        refused(cli(*words, *limit, *more), "is for a table", codes=(2,))
    serve = apart.serve("--once")
    refused(cli(*serve[:-3], "--out", apart.url, "--once"), "the place that all reach")
    refused(cli(*apart.join("north", "--once", "--test", features["west"])), "evaluation")
    refused(cli("session", "report", tmp_path), "no session that is over", codes=(3,))
    noise = ("--dp-epsilon", 1, "--dp-delta", 1e-5, "--clip", 4)
    assert "ε = 1, δ = 1e-05 for one row" in cli(*apart.new(*noise, "-o", tmp_path / "p")).stdout
    cli("keys", "new", *(f"site-{i}" for i in range(33)), "server", "-o", tmp_path / "many")
    apart.keys = tmp_path / "many"
    assert "above 32 members" in cli(*apart.new(*limit, "-o", tmp_path / "n")).stderr


# ---------------------------------------------------------------- leaving


def test_who_leaves_has_signed_it(cli, apart, tmp_path):
    """The next session names the one before and has the leaver's consent, or there is none."""
    cli("keys", "new", "east", "-o", apart.keys)
    assert cli(*apart.new("--max-rows", 99, "-o", tmp_path / "four")).exit_code == 0
    leave = ("session", "leave", tmp_path / "four", "-o")
    for name in ("west", "south"):
        done = cli(*leave, tmp_path / f"{name}.consent", "--key", apart.keys / name)
        assert done.exit_code == 0, done.stderr
    forged = json.loads((tmp_path / "west.consent").read_text()) | {"name": "east"}
    (tmp_path / "forged").write_text(json.dumps(forged))
    (tmp_path / "rubbish").write_text("{}")
    without, west = (tmp_path / "next", "--without"), ("west", "--consent")
    for words, says, code in [((*without, "west"), "west must sign", 2),
                              ((*without, "nobody"), "no members", 2),
                              ((*without, *west, tmp_path / "south.consent"), "west must sign", 2),
                              ((*without, "east", "--consent", tmp_path / "forged"), "has not", 4),
                              ((*without, *west, tmp_path / "rubbish"), "rubbish is damaged", 3),
                              ((tmp_path / "c", "--key", apart.keys / "server"), "no member", 4),
                              ((tmp_path / "c",), "--key", 2)]:  # fmt: skip
        refused(cli(*leave, *words), says, codes=(code,))
    done = cli(*leave, *without, *west, tmp_path / "west.consent")
    assert done.exit_code == 0, done.stderr
    assert "has left" in done.stdout
    made = json.loads((tmp_path / "next/session.json").read_text())
    assert [p["name"] for p in made["members"]] == ["east", "north", "south"]
    assert made["follows"]


# ---------------------------------------------------------------- real processes


@slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", sorted(PLACES))
def test_four_processes_over_a_real_place(cli, tmp_path, features, kind):
    """The installed command, one a site, all at the same time; north is killed when it has sent its
    sums, and the same command goes on."""
    with PLACES[kind](tmp_path) as (url, env):
        apart = Apart(cli, tmp_path / "all", features, url)
        words = {"server": apart.serve("--poll", 0.3)}
        words |= {n: apart.join(n, "--poll", 0.3) for n in NAMES}

        def started(name):
            own = {**env, "AFLTOOL_STATE": str(tmp_path / f"state-{name}")}
            return installed(*words[name], wait=False, env=own)

        jobs = {"server": started("server")}
        while installed("session", "status", url, env=env).returncode:
            assert jobs["server"].poll() is None, jobs["server"].communicate()
        jobs |= {name: started(name) for name in NAMES}
        while not (tmp_path / "all/north/sent/001-sums-north").exists():
            assert jobs["north"].poll() is None, jobs["north"].communicate()
        jobs["north"].kill()
        jobs["north"].communicate()
        jobs["north"] = started("north")
        try:
            said = {name: job.communicate(timeout=240)[1] for name, job in jobs.items()}
        finally:
            for job in jobs.values():
                job.kill()
        assert {j.returncode for j in jobs.values()} == {0}, said
        assert {apart.summary(n)["head"] for n in jobs} == {apart.pooled()}


@slow
def test_a_place_that_is_away_is_waited_for_in_one_line(cli, apart, tmp_path):
    """And a signal ends the command with 75: the same one goes on."""
    job = installed(*apart.join("north", "--poll", 0.1), wait=False)
    place = Path(apart.url)
    while not apart.sent_by("north"):
        time.sleep(0.1)
    place.rename(tmp_path / "moved")
    place.write_text("no directory")
    time.sleep(2)
    place.unlink()
    (tmp_path / "moved").rename(place)
    time.sleep(1)
    job.send_signal(signal.SIGTERM)
    said = job.communicate(timeout=60)[1]
    assert job.returncode == 75, said
    away = [line for line in said.splitlines() if "the place" in line]
    assert len(away) == 1
    assert apart.url in away[0]
