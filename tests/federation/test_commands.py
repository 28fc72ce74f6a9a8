"""The commands of sessions: what a person sees, what is refused, what a session leaves."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from apart import CLASSES, DEEPAFL, HEADS, NAMES, Apart, cheap_codes, rows  # noqa: F401
from conftest import installed
from place_servers import PLACES

import afltool
from afltool.files.counts import read_counts
from afltool.files.features import open_features
from afltool.files.heads import load_head
from afltool.plugins import install

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return rows(tmp_path_factory.mktemp("rows"))


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("AFLTOOL_STATE", str(tmp_path / "state"))


@pytest.fixture
def apart(cli, tmp_path, features):
    return Apart(cli, tmp_path, features)


def new(keys, data, *more):
    server = keys / "server.pub"
    return ("session", "new", "--members", keys, "--server", server, "--data", data, *more)


def refused(done, *words, codes=(2, 3, 4, 5)):
    """The command has ended with one paragraph that has these words."""
    assert done.exit_code in codes, (done.exit_code, done.stderr)
    lines = [
        line for line in done.stderr.splitlines() if not line.startswith(("session: ", "import: "))
    ]
    assert [line[:7] for line in lines] == ["error: "]
    for word in words:
        assert word in done.stderr, done.stderr


# ---------------------------------------------------------------- one command a site


def test_one_command_a_site(cli, apart):
    """Status says who is waited for; the head is that of the pooled rows; costs are summed up."""
    cli(*apart.serve("--once"))
    line = cli("session", "status", apart.url).stdout.splitlines()[-1]
    assert line == "roll-call: waiting for the hello of north, south, west"
    cli(*apart.join("north", "--once"))
    found = json.loads(cli("session", "status", apart.url, "--json").stdout)
    assert found["waiting_for"] == ["south", "west"]
    assert apart.play()["head"] == apart.pooled()
    assert cli("session", "status", apart.url).stdout.endswith("round 1 of 1: solved\n")
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


def test_a_site_gives_its_table_once(cli, tmp_path):
    """Scaled by the session, as scikit-learn scales all rows; the head is measured at the end."""
    from sklearn.preprocessing import StandardScaler

    rows(tmp_path / "rows")
    rows(tmp_path / "test", seed=1)
    table = {n: tmp_path / f"rows/{n}.npz" for n in (*NAMES, "pooled")}
    test = {n: tmp_path / f"test/{n}.npz" for n in (*NAMES, "pooled")}
    new = ("--scale", "standard", "--max-value", 100, "--max-rows", 100)
    apart = Apart(cli, tmp_path / "all", table, test=test, new=new)
    found = apart.play()
    raw = np.load(table["pooled"])["x"].astype(np.float32)
    scaling = load_head(apart.at / "north/scaling.h5").head.arrays()
    known = StandardScaler().fit(raw.astype(float))
    np.testing.assert_allclose(scaling["centre"], known.mean_, rtol=1e-6)
    np.testing.assert_allclose(scaling["spread"], known.scale_, rtol=1e-6)
    scaled = {}
    for name, files in (("train", table), ("test", test)):
        scaled[name] = afltool.import_embeddings(
            files["pooled"], tmp_path / f"{name}.h5", scale=apart.at / "north/scaling.h5"
        )
    stats = afltool.local_stats(scaled["train"], apart.first, tmp_path / "s", client="all")
    pooled = afltool.solve(stats, tmp_path / "pooled.h5", head=apart.first)
    ours, theirs = (load_head(p).head for p in (apart.at / "west/head.h5", pooled))
    X = np.random.default_rng(0).normal(size=(50, 5))
    np.testing.assert_allclose(ours.scores(X), theirs.scores(X), atol=2e-3)
    for folder in (apart.at / "west", apart.at / "server", apart.at / "west-state"):
        assert not folder.stat().st_mode & 0o077  # raw rows, totals, whom the site has met
    report = afltool.evaluate(apart.at / "west/head.h5", scaled["test"])
    accuracy = found["evaluation"]["metrics"]["accuracy"]["value"]
    assert accuracy == pytest.approx(report["top1"], abs=0.01)
    page = tmp_path / "page.html"
    assert cli("session", "report", apart.at / "west", "-o", page).exit_code == 0
    assert f"{accuracy:.4f}" in page.read_text()
    assert json.loads(cli("session", "report", apart.at / "west").stdout)["party"] == "west"


@slow
def test_test_rows_are_counted_by_groups(cli, tmp_path, features):
    """As `evaluate --counts --by` counts the rows of all sites in one place."""
    test, ward, groups = rows(tmp_path / "test", seed=1), {}, ("icu", "ward", "home")
    for n, path in test.items():
        with open_features(path) as opened:
            ids = [one.decode() for one in opened.row_ids]
            of = [groups[k] for k in (opened.stored(0, len(opened))[:, 0] % 2)]
        lines = [f"{one},{group}" for one, group in zip(ids, of, strict=True)]
        (tmp_path / f"{n}.csv").write_text("\n".join(["row,unit", *lines]) + "\n")
        ward[n] = f"{tmp_path / n}.csv:unit"
    new = ("--max-rows", 100, "--min-cell", 2, *(w for g in groups for w in ("--groups", g)))
    apart = Apart(cli, tmp_path / "all", features, test=test, new=new)
    assert "groups: 'icu', 'ward', 'home'" in apart.said
    cli(*apart.serve("--once"))
    refused(cli(*apart.join("north", "--once")), "--by TABLE:COLUMN", "'home'", codes=(2,))
    (tmp_path / "odd.csv").write_text((tmp_path / "north.csv").read_text().replace("icu", "er"))
    odd = cli(*apart.join("north", "--once", "--by", f"{tmp_path / 'odd.csv'}:unit"))
    refused(odd, "has the group 'er', which is not one of icu, ward, home")
    assert apart.sent_by("north") == []
    apart.join = lambda name, *more, join=apart.join: join(name, "--by", ward[name], *more)
    apart.play()
    words = ("--counts", "--by", ward["pooled"], "--min-group", 2, "-o", tmp_path / "o")
    head, total = apart.at / "west/head.h5", apart.at / "west/total-2.h5"
    more = [w for g in groups for w in ("--groups", g)]
    done = cli("evaluate", head, test["pooled"], *words, *more)
    assert done.exit_code == 0, done.stderr
    ours, theirs = (read_counts(p).heads[0] for p in (total, next((tmp_path / "o").glob("*.h5"))))
    assert np.array_equal(ours.groups, theirs.groups)
    assert ours.groups.sum() == 123


# ---------------------------------------------------------------- what is approved


def test_the_code_comes_by_telephone_alone(cli, apart):
    """Neither join nor status ever prints it, whatever was typed."""
    cli(*apart.serve("--once"))
    digits = apart.code.replace(" ", "")
    wrong = digits[:-1] + ("0" if digits[-1] != "0" else "1")
    tries = {
        "": "Nothing was sent",
        digits[:-1]: "malformed",
        f"{digits}0": "malformed",
        f"{digits[:-1]}g": "malformed",
        wrong: "another session",
        "0" * 32: "another session",
    }
    for typed, what in tries.items():
        more = ("--approve", typed) if typed else ()
        done = cli(*apart.join("north", *more, approve=False))
        refused(done, what)
        status = cli("session", "status", apart.url).output
        for text in (done.output, status):
            assert digits not in re.sub(r"[\s-]", "", text)
    assert apart.sent_by("north") == []
    assert not (apart.at / "north").exists()
    goods = (digits.upper(), "-".join(apart.code.split()), f" {apart.code} ")
    for name, good in zip(NAMES, goods, strict=True):
        assert cli(*apart.join(name, "--once", "--approve", good, approve=False)).exit_code == 0


def newcomers(said):
    return [line.split()[1:] for line in said.splitlines() if line[:12].split() == ["new"]]


def test_what_is_agreed_is_shown_before_it_is_approved(cli, apart):
    """And who is new here; a list of whom the site has met that is damaged makes them new."""
    cli(*apart.serve("--once"))
    said = cli(*apart.join("north", approve=False)).stdout
    for word in ("north", "south", "west", "server", "masked", "3 of 3 must stay", "none: sums",
                 "linear", "1 at most: gram", "dim 5", "'a', 'b', 'c'", "0 to 1000"):  # fmt: skip
        assert word in said, word
    new_here = [[n, "is", "new", "here"] for n in ("server", "south", "west")]
    assert sorted(newcomers(said)) == new_here
    cli(*apart.join("north", "--once"))
    shutil.rmtree(apart.at / "north")
    assert newcomers(cli(*apart.join("north", approve=False)).stdout) == []
    keys = apart.at / "other/keys"
    shutil.copytree(apart.at / "keys", keys)
    for path in keys.glob("south*"):
        path.unlink()
    assert cli("keys", "new", "south", "-o", keys).exit_code == 0
    apart.at /= "other"
    words = ("--max-rows", 99, "-o", apart.at / "server")
    assert cli(*new(keys, apart.features["north"]), *words).exit_code == 0
    apart.url = str(apart.at / "place")
    cli(*apart.serve("--once"))
    said = cli(*apart.join("north", approve=False)).stdout
    assert newcomers(said) == [["south", "has", "ANOTHER", "KEY", "than", "before"]]
    for path in (Path(os.environ["AFLTOOL_STATE"]) / "people").glob("[0-9a-f]*"):
        path.write_bytes(b"\xff[")
    done = cli(*apart.join("north", approve=False))
    refused(done, "Nothing was sent")
    assert sorted(newcomers(done.stdout)) == new_here


def test_what_the_server_reads_needs_a_yes(cli, tmp_path, features):
    apart = Apart(cli, tmp_path, features, new=("--protection", "signed", "--max-rows", 99))
    cli(*apart.serve("--once"))
    refused(cli(*apart.join("north")), "--allow signed", codes=(2,))
    more = cli(*apart.join("north", "--allow", "signed", "--once", "--by", "a.csv:unit"))
    refused(more, "agreed: none", codes=(2,))
    assert apart.sent_by("north") == []
    assert cli(*apart.join("north", "--allow", "signed", "--once")).exit_code == 0


def test_many_sites_are_warned_of(cli, tmp_path, features):
    names = [f"site-{i}" for i in range(33)]
    cli("keys", "new", *names, "server", "-o", tmp_path / "keys")
    words = ("--max-rows", 99, "-o", tmp_path / "server")
    assert "above 32 members" in cli(*new(tmp_path / "keys", features["north"]), *words).stderr


# ---------------------------------------------------------------- bad input: named, nothing sent


def test_names_that_are_no_file_names_or_look_alike(cli, tmp_path, features):
    zurich = (unicodedata.normalize(form, "Zürich") for form in ("NFC", "NFD"))
    for name in ("a/b", "../north", *zurich, "a b", "", ".", "nord.", "x" * 65, "a\nb"):
        refused(cli("keys", "new", name, "-o", tmp_path), "is no name of a party", codes=(2,))
    assert not list(tmp_path.iterdir())
    for name in ("north", "North", "south", "server"):
        assert cli("keys", "new", name, "-o", tmp_path / name).exit_code == 0
    members = (w for n in ("north", "North", "south") for w in ("--members", tmp_path / n))
    made = cli("session", "new", *members, "--server", tmp_path / "server/server.pub",
               "--data", features["north"], "--max-rows", 99, "-o", tmp_path / "o")  # fmt: skip
    refused(made, "'north', or one like it")


def bad_file(tmp_path, what):
    """A feature file, or a table, that is not of the session."""
    x = np.random.default_rng(0).normal(size=(40, 6 if what == "features" else 5))
    y = np.array(CLASSES)[np.arange(40) % 3]
    if what == "classes":
        y = np.where(y == "c", "d", y)
    if what == "NaN":
        x[3, 2] = np.nan
    if what == "few":
        x, y = x[:9], y[:9]
    np.savez(tmp_path / "bad.npz", x=x, y=y)
    return tmp_path / "bad.npz"


def test_rows_that_are_not_those_agreed_leave_nothing(cli, tmp_path, features):
    """By name, before anything of them is sent: as a table, and as a feature file."""
    apart = Apart(cli, tmp_path, features, new=("--max-rows", 100, "--min-rows", 10))
    cli(*apart.serve("--once"))
    for n in NAMES[1:]:
        cli(*apart.join(n, "--once"))
    for what, says in {"features": "6", "classes": "d", "NaN": "row 3", "few": "9 rows"}.items():
        data = [bad_file(tmp_path, what)]
        if what in ("features", "classes"):
            at = tmp_path / f"{what}.h5"
            data += [afltool.import_embeddings(data[0], at, fraction_bits=10)]
        for one in data:
            shutil.rmtree(apart.at / "north", ignore_errors=True)
            first = cli(*apart.join("north", "--once", data=one))
            cli(*apart.serve("--once"))
            second = first if first.exit_code else cli(*apart.join("north", "--once", data=one))
            refused(second, says)
    assert [n for n in apart.sent_by("north") if "hello" not in n] == []


def test_keys_and_passphrases(cli, tmp_path, features):
    (tmp_path / "word").write_text("secret\n")
    (tmp_path / "other").write_text("another\n")
    (tmp_path / "empty").write_text("")
    done = cli(
        "keys", "new", "north", "-o", tmp_path / "locked", "--passphrase-file", tmp_path / "word"
    )
    assert done.stdout == f"{tmp_path / 'locked/north.pub'}\n"
    apart = Apart(cli, tmp_path / "all", features)
    cli(*apart.serve("--once"))
    words = apart.join("north", "--once")
    key = ("--key", tmp_path / "locked/north")
    refused(cli(*words, *key), "passphrase")
    refused(cli(*words, *key, "--passphrase-file", tmp_path / "other"), "passphrase")
    refused(cli(*words, *key, "--passphrase-file", tmp_path / "empty"), "no passphrase", codes=(3,))
    done = cli(*words, *key, "--passphrase-file", tmp_path / "word")
    refused(done, "is the key of no member", codes=(4,))
    (apart.at / "keys/north").chmod(0o644)
    refused(cli(*words), "chmod 600", codes=(3,))
    (apart.at / "keys/north").chmod(0o600)
    refused(cli("keys", "new", "north", "-o", apart.at / "keys"), "never overwritten")
    refused(cli(*words, "--key", tmp_path / "nowhere"), "cannot read the key")
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
    words = new(apart.at / "keys", features["north"], "-o", tmp_path / "n")
    rows = ("--max-rows", 9)
    for more, says in [
        ((), "--max-rows"),
        (("--max-rows", 0), "max_rows"),
        ((*rows, "--dp-delta", 1), "together"),
        ((*rows, "--scale", "minmax"), "minmax"),
        ((*rows, "--threshold", 1), "threshold"),
        ((*rows, "--protection", "plain"), "plain"),
        ((*rows, "--head", "nothing"), "nothing"),
    ]:
        refused(cli(*words, *more), says)
        assert not (tmp_path / "n/session.json").exists()
    for value in (0.1, 0, -1, "nan", 2**31):
        done = cli(*words, *rows, "--scale", "standard", "--max-value", value)
        assert (done.exit_code, "max-value" in done.stderr) == (2, True), done.stderr
    cli(*apart.serve("--once"))
    here = ("--out", apart.url)
    refused(cli(*apart.serve("--once")[:-3], *here, "--once"), "the place that all reach")
    refused(cli(*apart.join("north", "--once", "--test", features["west"])), "evaluation")
    refused(cli("session", "report", tmp_path), "no session that is over", codes=(3,))


# ---------------------------------------------------------------- leaving


def test_who_leaves_has_signed_it(cli, tmp_path, features):
    """The next session names the one before and has the leaver's consent, or there is none."""
    keys = tmp_path / "keys"
    cli("keys", "new", *NAMES, "east", "server", "-o", keys)
    four = new(keys, features["north"], "--max-rows", 99, "-o", tmp_path / "four")
    assert cli(*four).exit_code == 0
    leave = ("session", "leave", tmp_path / "four", "-o")
    for name in ("west", "south"):
        done = cli(*leave, tmp_path / f"{name}.consent", "--key", keys / name)
        assert done.exit_code == 0, done.stderr
    forged = json.loads((tmp_path / "west.consent").read_text()) | {"name": "east"}
    (tmp_path / "forged").write_text(json.dumps(forged))
    (tmp_path / "rubbish").write_text("{}")
    without, west = (tmp_path / "next", "--without"), ("west", "--consent")
    for words, says, code in [
        ((*without, "west"), "west must sign", 2),
        ((*without, "nobody"), "no members", 2),
        ((*without, *west, tmp_path / "south.consent"), "west must sign", 2),
        ((*without, "east", "--consent", tmp_path / "forged"), "has not signed", 4),
        ((*without, *west, tmp_path / "rubbish"), "rubbish is damaged", 3),
        ((tmp_path / "c", "--key", keys / "server"), "no member", 4),
        ((tmp_path / "c",), "--key", 2),
    ]:
        refused(cli(*leave, *words), says, codes=(code,))
    done = cli(*leave, *without, *west, tmp_path / "west.consent")
    assert done.exit_code == 0, done.stderr
    assert "has left" in done.stdout
    made = json.loads((tmp_path / "next/session.json").read_text())
    assert [p["name"] for p in made["members"]] == ["east", "north", "south"]
    assert made["follows"]


# ---------------------------------------------------------------- real processes


def started(words, env=None):
    return installed(*words, wait=False, env=env)


@slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", sorted(PLACES.keys() - {"memory"}))
def test_four_processes_over_a_real_place(cli, tmp_path, features, kind):
    """The installed command, one a site, all at the same time; status says that it is solved."""
    with PLACES[kind](tmp_path) as (url, env):
        env = {**env, "AFLTOOL_STATE": ""}
        apart = Apart(cli, tmp_path / "all", features, url)
        jobs = {
            "server": started(apart.serve("--poll", 0.3), {**env, "AFLTOOL_STATE": str(tmp_path)})
        }
        while installed("session", "status", url, env=env).returncode:
            assert jobs["server"].poll() is None, jobs["server"].communicate()
        for name in NAMES:
            own = {**env, "AFLTOOL_STATE": str(tmp_path / f"state-{name}")}
            jobs[name] = started(apart.join(name, "--poll", 0.3), own)
        said = ended(jobs)
        assert {j.returncode for j in jobs.values()} == {0}, said
        assert {apart.summary(n)["head"] for n in jobs} == {apart.pooled()}
        done = installed("session", "status", url, env=env)
        assert done.stdout.endswith("solved\n"), done.stderr


def ended(jobs, seconds: float = 240):
    try:
        return {name: job.communicate(timeout=seconds)[1] for name, job in jobs.items()}
    finally:
        for job in jobs.values():
            job.kill()


@slow
@pytest.mark.parametrize("head", ["linear", "deepafl"])
def test_killed_at_any_moment_the_same_commands_go_on(cli, tmp_path, features, head):
    """kill -9, again and again; what was sent stays, and the head is that of the pooled rows."""
    options = HEADS[head] if head == "linear" else {**DEEPAFL, "layers": 1}
    apart = Apart(cli, tmp_path, features, head=head, options=options)
    draw, kills, sent = random.Random(3), 0, {}
    words = {"server": apart.serve("--poll", 0.1)}
    words |= {n: apart.join(n, "--poll", 0.1) for n in NAMES}
    env = {n: {"AFLTOOL_STATE": str(tmp_path / f"state-{n}")} for n in words}
    jobs = {n: started(w, env[n]) for n, w in words.items()}
    end = time.monotonic() + 300
    while any(job.poll() is None or job.returncode for job in jobs.values()):
        assert time.monotonic() < end, {n: j.poll() for n, j in jobs.items()}
        for path in (p for n in words for p in (tmp_path / n / "sent").glob("[0-9]*")):
            if path.name.count("partial") == 0:
                assert sent.setdefault(path, path.read_bytes()) == path.read_bytes(), path
        name = draw.choice([*words])
        if kills < 25 and jobs[name].poll() is None:
            time.sleep(draw.uniform(0.1, 2.0))
            jobs[name].send_signal(signal.SIGKILL)
            jobs[name].communicate()
            kills += 1
        for n, job in jobs.items():  # killed, or too early for a session
            if job.poll() in (-signal.SIGKILL, 3):
                job.communicate()
                jobs[n] = started(words[n], env[n])
            assert job.poll() in (None, 0, 3, -signal.SIGKILL), job.communicate()
        time.sleep(0.2)
    ended(jobs)
    assert kills >= 10
    assert {apart.summary(n)["head"] for n in words} == {apart.pooled()}


@slow
def test_a_place_that_is_away_is_waited_for_in_one_line(cli, tmp_path, features):
    """And a signal ends the command with 75: the same one goes on."""
    apart = Apart(cli, tmp_path, features)
    cli(*apart.serve("--once"))
    job = started(apart.join("north", "--poll", 0.1))
    place = Path(apart.url)
    while not apart.sent_by("north"):
        time.sleep(0.1)
    place.rename(tmp_path / "moved")
    place.write_text("no directory")
    time.sleep(3)
    place.unlink()
    (tmp_path / "moved").rename(place)
    time.sleep(2)
    job.send_signal(signal.SIGTERM)
    said = job.communicate(timeout=60)[1]
    assert job.returncode == 75, said
    away = [line for line in said.splitlines() if "the place" in line]
    assert len(away) == 1
    assert apart.url in away[0]
    refused(cli("session", "status", tmp_path / "rows.npz" / "trial"), codes=(3,))
