"""`status`: what is done, missing, unfinished, damaged or stale, and the command that continues."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from pathlib import Path

import pytest
from conftest import embeddings
from damage import cut

import afltool
from afltool.runs.config import RunConfig
from afltool.runs.slurm import jobs as slurm
from afltool.runs.slurm.site import Site
from afltool.runs.slurm.states import queue, status

#: Of several rounds, with held-out clients.
ROUNDS = {"head": "safle", "experts": 4, "group_size": 2, "held_out": 0.3}


@pytest.fixture
def made(done_run):
    return done_run(**ROUNDS)


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "a run", copy_function=shutil.copy2)


@pytest.fixture(scope="module")
def other(road, tmp_path_factory):
    """A run of the same kind on other rows, with other clients."""
    at = tmp_path_factory.mktemp("other")
    rows = afltool.import_embeddings(embeddings(at / "x.npz", 60, seed=3), at / "x.h5")
    both = {"train_features": rows, "test_features": rows}
    return afltool.run(road.config(alpha=9.0, clients=5, **both, **ROUNDS), at / "other")


def states(folder):
    return {p["name"]: p["state"] for p in status(folder)["parts"]}


def after_removing(found):
    """The command that continues, after what it removes first is removed."""
    words = shlex.split(found["continue"])
    cutting = words.index("&&") if "&&" in words else -1
    for path in words[1 : max(cutting, 1)]:
        Path(path).unlink()
    return words[cutting + 2 :]


def test_a_run_that_is_done_needs_nothing(run):
    found = status(run)
    assert (found["state"], found["continue"], found["jobs"]) == ("done", None, [])
    assert set(states(run).values()) == {"done"}
    assert set(states(run)) == {p.name for p in run.glob("0*")} - {
        "06-confusion.csv",
        "06-rounds.csv",
    }


#: Each file, and the first later one that is made of it.
FOLLOWED = {
    "01-features-test.h5": "06-metrics.json", "02-clients.h5": "04-total.h5",
    "04-total.h5": "05-head.h5", "05-head-2.h5": "06-metrics.json", "06-metrics.json": None,
}  # fmt: skip
DAMAGES = {
    "missing": lambda path, _: path.unlink(),
    "damaged": lambda path, _: cut(path, path, -100),
    "unfinished": lambda path, _: path.rename(f"{path}.partial"),
    "stale": lambda path, other: shutil.copy(other / path.name, path),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_each_damage_has_its_state_and_what_follows_is_stale(name, run, other, cli):
    """The command that continues mends it; another file of features is somebody's."""
    following, left = FOLLOWED[name], []
    for damage, harm in DAMAGES.items():
        at = shutil.copytree(run, run.with_name(damage), copy_function=shutil.copy2)
        harm(at / name, other)
        found = status(at)
        parts = {part["name"]: part for part in found["parts"]}
        order = list(parts)
        assert {parts[one]["state"] for one in order[: order.index(name)]} <= {"done"}, damage
        unfinished = damage == "unfinished" and name == "06-metrics.json"  # written at once
        assert parts[name]["state"] == damage or unfinished or name.startswith("01"), damage
        if following is not None:
            assert parts[following]["state"] == "stale", damage
            why = parts[following]["why"]
            assert name in why or "is not done" in why or "other test features" in why
        (at / f"{name}.partial").unlink(missing_ok=True)
        words = after_removing(found)
        if damage == "stale" and name.startswith("01"):
            done = cli(*words)
            assert (done.exit_code, "move it away" in done.stderr) == (2, True)
        else:
            left.append(sorted(path.name for path in at.iterdir()))
    assert left == [left[0]] * len(left), "whatever the damage was, the same is to be made"
    at = run.with_name("missing")
    words = [word.replace(str(run.with_name(damage)), str(at)) for word in words]
    done = cli(*words)
    assert done.exit_code == 0, done.stderr
    assert status(at)["state"] == "done"
    assert states(at) == states(run)


def test_sums_of_other_rows_or_of_fewer_clients_are_stale(road, done_run, tmp_path):
    files = {"train_features": road.train, "test_features": road.test, "partition": road.clients}
    given = afltool.run(RunConfig(**files), tmp_path / "given")
    other = afltool.import_embeddings(embeddings(tmp_path / "o.npz", 50), tmp_path / "o.h5")
    os.replace(other, given / "01-features-train.h5")
    fewer = shutil.copytree(done_run(), tmp_path / "fewer")
    (fewer / "04-total.h5").unlink()
    how = {"partition": fewer / "02-clients.h5", "only": "0-1", "sum": True}
    afltool.local_stats(road.train, fewer / "03-head0.h5", fewer / "04-total.h5", **how)
    for run, said in (
        (given, "is of other rows, labels or classes than"), (fewer, "clients 2 → 3 entries")
    ):  # fmt: skip
        assert said in {p["name"]: p["why"] for p in status(run)["parts"]}["04-total.h5"]


#: Lines of the queue, where {p} are the tasks that sum clients up and {t} is their total.
QUEUES = {
    "running": ("7|0|RUNNING|None|{p}\n7|1|PENDING|Resources|{p}\n", "running", None),
    "pending": ("7|0|PENDING|Dependency|{p}\n", "pending", None),
    "held": (
        "7|1|PENDING|launch failed requeued held|{p}\n8|N/A|PENDING|Dependency|{t}\n",
        "held",
        "scontrol release 7",
    ),
    "held, with its files": (
        "7|N/A|PENDING|launch failed requeued held|{c}\n8|0|PENDING|Dependency|{p}\n",
        "held",
        "scontrol release 7",
    ),
    "of others": ("7|1|PENDING|held|04-total.parts@other\n", "failed", "submit.sh"),
    "failed": ("", "failed", "submit.sh"),
}


@pytest.mark.parametrize("name", QUEUES)
def test_jobs_are_as_the_queue_says(name, road, tmp_path, monkeypatch):
    rows, state, command = QUEUES[name]
    stub, run = tmp_path / "bin", tmp_path / "run"
    stub.mkdir()
    slurm.prepare(road.config(), Site(clients_per_task=2), run)
    names = {"p": "04-total.parts", "t": "04-total", "c": "02-clients"}
    names = {key: f"{name}{slurm.tag(run)}" for key, name in names.items()}
    (stub / "squeue").write_text(f"#!/bin/bash\nprintf '{rows.format(**names)}'\n")
    (stub / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{stub}:{os.environ['PATH']}")
    afltool.partition(road.train, run / "02-clients.h5", alpha=0.1, clients=6)
    (run / "slurm/log/04-total.parts-7_0.log").write_text("error: no space left\n{}\n")
    found = status(run)
    work = next(w for w in found["jobs"] if w["name"] == "04-total.parts")
    assert (found["state"], work["tasks"]) == (state, 3)
    if name != "held, with its files":
        assert work["state"] == state
        assert work["job"] == (None if state == "failed" else "7")
    assert found["continue"] is command or command in found["continue"]
    assert work["said"] == ("error: no space left" if state == "failed" else None)


def test_without_slurm_jobs_are_unknown_and_files_are_not(road, tmp_path, monkeypatch):
    run = tmp_path / "run"
    slurm.prepare(road.config(), Site(), run)
    (run / "slurm/log/02-clients-1.log").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = status(run)
    assert found["queue"] == "unknown"
    assert {w["name"]: w["state"] for w in found["jobs"]}["02-clients"] == "unknown"
    assert found["state"] == "unfinished"
    assert shlex.split(found["continue"])[-1].endswith("submit.sh")


def test_other_folders_are_refused(tmp_path, cli):
    done = cli("status", tmp_path)
    assert (done.exit_code, "is not the folder of a run" in done.stderr) == (3, True)


# ------------------------------------------------------------ folders that somebody damaged


def test_swapped_files_are_damaged_and_named_and_sums_are_of_their_clients(run):
    shutil.copy(run / "04-total.h5", run / "04-held-out.h5")
    assert states(run)["04-held-out.h5"] == "stale", "it is the sum of the other clients"
    one, other = run / "04-total.h5", run / "05-head.h5"
    for source, to in ((one, run / "x"), (other, one), (run / "x", other)):
        source.rename(to)
    found = states(run)
    assert {name for name, state in found.items() if state == "damaged"} == {one.name, other.name}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("slurm/site.json", "{"), ("slurm/site.json", "[]"), ("slurm/site.json", "[" * 100_000),
        ("slurm/site.json", '{"cpus": "many"}'), ("slurm/site.json", '{"time": "long"}'),
        ("run.toml", "clients = "), ("run.toml", "clients = 0"), ("run.toml", "\xff"),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_damaged_settings_are_said(name, text, road, tmp_path, cli):
    slurm.prepare(road.config(), Site(clients_per_task=2), tmp_path / "run")
    (tmp_path / "run" / name).write_text(text, encoding="latin-1")
    done = cli("status", tmp_path / "run")
    assert done.exit_code in (2, 3), done.stdout
    assert "Traceback" not in done.stderr
    assert name.rpartition("/")[2] in done.stderr or "a run needs --data" in done.stderr


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("printf 'what?\\n\\n|||\\n7|0\\nx|y|PENDING|z|a\\n'", None),
        ("sleep 100", None),
        ("echo '7|0|RUNNING|None|a'; exit 1", None),
        ("printf 'warning: slow\\n7|N/A|RUNNING|None|a\\n8|3|PENDING|job held|b|c\\n'",
         [("7", "running", "a"), ("8", "held", "b|c")]),
    ],
    ids=["garbage", "never", "failing", "some garbage"],
)  # fmt: skip
def test_of_what_a_queue_answers_only_jobs_are_read(answer, found, tmp_path, monkeypatch):
    (tmp_path / "squeue").write_text(f"#!/bin/bash\n{answer}\n")
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("afltool.runs.slurm.states.PATIENCE", 0.3)
    begun = time.monotonic()
    assert queue() == found
    assert time.monotonic() - begun < 20
