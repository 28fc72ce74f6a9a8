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
from afltool.errors import InputError
from afltool.runs.config import RunConfig
from afltool.runs.slurm import jobs as slurm
from afltool.runs.slurm.site import Site
from afltool.runs.slurm.states import queue, status


def config(road, **more):
    given = {"train_features": road.train, "test_features": road.test, "clients": 6}
    return RunConfig(**{**given, **more})


@pytest.fixture(scope="module")
def made(road, tmp_path_factory):
    """A finished run of several rounds with held-out clients; tests that change it copy it."""
    one = config(road, head="safle", experts=4, group_size=2, held_out=0.3)
    return afltool.run(one, tmp_path_factory.mktemp("made") / "a run")


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "a run", copy_function=shutil.copy2)


@pytest.fixture(scope="module")
def other(road, tmp_path_factory):
    """A run of the same kind on other rows, with other clients."""
    at = tmp_path_factory.mktemp("other")
    rows = afltool.import_embeddings(embeddings(at / "x.npz", 60, seed=3), at / "x.h5")
    more = {"head": "safle", "experts": 4, "group_size": 2, "held_out": 0.3, "clients": 5}
    both = {"train_features": rows, "test_features": rows}
    return afltool.run(config(road, alpha=9.0, **both, **more), at / "other")


def states(folder):
    return {p["name"]: p["state"] for p in status(folder)["parts"]}


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


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_has_its_state_and_what_follows_is_stale(damage, run, other, cli):
    """The command that continues mends it; another file of features is somebody's."""
    for name, following in FOLLOWED.items():
        at = shutil.copytree(run, run.with_name(f"{damage} {name}"), copy_function=shutil.copy2)
        DAMAGES[damage](at / name, other)
        found = states(at)
        order = list(found)
        assert {found[one] for one in order[: order.index(name)]} <= {"done"}, name
        unfinished = damage == "unfinished" and name == "06-metrics.json"  # written at once
        assert found[name] == damage or unfinished or name.startswith("01"), name
        if following is not None:
            why = {p["name"]: p["why"] for p in status(at)["parts"]}[following]
            assert found[following] == "stale", (name, following)
            assert name in why or "is not done" in why or "other test features" in why
        words = shlex.split(status(at)["continue"])
        if "&&" in words:
            cutting = words.index("&&")
            for path in words[1:cutting]:
                Path(path).unlink()
            words = words[cutting + 1 :]
        (at / f"{name}.partial").unlink(missing_ok=True)
        done = cli(*words[1:])
        if damage == "stale" and name.startswith("01"):
            assert (done.exit_code, "move it away" in done.stderr) == (2, True)
            continue
        assert done.exit_code == 0, (name, done.stderr)
        assert status(at)["state"] == "done"
        assert states(at) == states(run)


def test_a_given_partition_of_other_rows_is_stale(road, tmp_path):
    files = {"train_features": road.train, "test_features": road.test, "partition": road.clients}
    run = afltool.run(RunConfig(**files), tmp_path / "run")
    assert status(run)["state"] == "done"
    other = afltool.import_embeddings(embeddings(tmp_path / "o.npz", 50), tmp_path / "o.h5")
    os.replace(other, run / "01-features-train.h5")
    parts = {p["name"]: p for p in status(run)["parts"]}
    assert "is of other rows, labels or classes than" in parts["04-total.h5"]["why"]


def test_a_total_that_lacks_clients_is_stale(road, tmp_path):
    run = afltool.run(config(road), tmp_path / "run")
    (run / "04-total.h5").unlink()
    afltool.local_stats(
        road.train, run / "03-head0.h5", run / "04-total.h5", partition=run / "02-clients.h5",
        only="0-4", sum=True,
    )  # fmt: skip
    why = {p["name"]: p["why"] for p in status(run)["parts"]}["04-total.h5"]
    assert why == "clients 5 → 6 entries"


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
    slurm.prepare(config(road), Site(clients_per_task=2), run)
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
    slurm.prepare(config(road), Site(), run)
    (run / "slurm/log/02-clients-1.log").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = status(run)
    assert found["queue"] == "unknown"
    assert {w["name"]: w["state"] for w in found["jobs"]}["02-clients"] == "unknown"
    assert found["state"] == "unfinished"
    assert shlex.split(found["continue"])[-1].endswith("submit.sh")


def test_other_folders_are_refused(tmp_path, cli):
    with pytest.raises(InputError, match="is not the folder of a run"):
        status(tmp_path)
    assert cli("status", tmp_path).exit_code == 3


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
    slurm.prepare(config(road), Site(clients_per_task=2), tmp_path / "run")
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
