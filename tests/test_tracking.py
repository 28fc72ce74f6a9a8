"""`--track mlflow:URI`: what a store has of runs, baselines and studies, read by MLflow itself."""

from __future__ import annotations

import json
import signal
import sqlite3
import time

import pytest
from conftest import GIVEN, installed

from afltool.files.hdf5 import read_header


def mlflow(test):
    """Its import alone takes a second, and warns of what it uses itself."""
    return pytest.mark.slow(pytest.mark.filterwarnings("ignore")(test))


@pytest.fixture
def store(tmp_path):
    pytest.importorskip("alembic")
    return f"sqlite:///{tmp_path}/runs.db"


def read(store, every=False):
    """Every run in the store, by its name unless ``every``, as MLflow sees it."""
    from mlflow import MlflowClient

    client, found = MlflowClient(tracking_uri=store), []
    experiment = client.get_experiment_by_name("afltool")
    for run in client.search_runs([experiment.experiment_id], order_by=["attributes.start_time"]):
        number, data = run.info.run_id, run.data
        points = {
            k: [(m.step, m.value) for m in client.get_metric_history(number, k)]
            for k in data.metrics
        }
        files = sorted(one.path for one in client.list_artifacts(number))
        about = {"name": run.info.run_name, "id": number, "status": run.info.status}
        found.append({**about, "params": data.params, "tags": data.tags, "points": points,
                      "files": files})  # fmt: skip
    by_name = {one["name"]: one for one in found}
    assert every or len(by_name) == len(found), "one run of MLflow for a folder"
    return found if every else by_name


def test_what_names_no_store_is_refused(road, tmp_path, cli):
    for text in ("runs.db", "wandb:x", "mlflow:"):
        done = cli("run", *road.words, "--track", text, "-o", tmp_path / "run")
        assert done.exit_code == 2
        assert "mlflow:URI" in done.stderr
    study = ["study", "quick", "-o", tmp_path / "run", "--slurm"]
    done = cli(*study, "--track", f"mlflow:{tmp_path / 'runs'}")
    assert done.exit_code == 2
    assert {"--track", "--slurm"} <= {*done.stderr.replace(":", "").split()}
    assert not (tmp_path / "run").exists()


@mlflow
def test_a_store_has_options_rounds_figures_digests_and_files(
    road, tmp_path, store, cli, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "run"
    words = ["run", *road.words, "--track", f"mlflow:{store}", "-o", out]
    words += ["--head", "deepafl", "--layers", 2, "--width", 8, "--each-round"]
    assert cli(*words).exit_code == 0
    [(name, first)] = read(store).items()
    summary = json.loads((out / "summary.json").read_text())
    assert (name, first["status"]) == ("run", "FINISHED")
    options = {k: str(v) for k, v in summary["options"].items() if v is not None}
    assert options.items() <= first["params"].items()
    digests = {f"digest.{k}": v for k, v in summary["digests"].items()}
    assert digests.items() <= first["tags"].items()
    for key in ("top1", "ridge", "solve_seconds", "upload_bytes"):
        rounds = {n: one[key] for n, one in enumerate(summary["rounds"], 1) if key in one}
        assert rounds.items() <= dict(first["points"][key]).items()
    assert sorted(first["files"]) == ["head-final.h5", "summary.json"]
    # Again: a second run, which has the same.
    assert cli(*words).exit_code == 0
    again = next(one for one in read(store, every=True) if one["id"] != first["id"])
    assert [again[k] for k in ("status", "params", "files")] == [
        first[k] for k in ("status", "params", "files")
    ]
    assert dict(again["points"]["top1"]) == dict(first["points"]["top1"])
    # The head is the one of a run that was not tracked.
    plain = [one for one in words if "track" not in str(one) and "mlflow:" not in str(one)]
    plain[plain.index(out)] = tmp_path / "plain"
    assert cli(*plain).exit_code == 0
    assert digests["digest.head"] == read_header(tmp_path / "plain" / "head-final.h5")["digest"]


@mlflow
def test_a_study_is_a_run_with_its_cells_below(described, tmp_path, store, cli):
    text = GIVEN + '[[method]]\nhead = "linear"\nridge = [1, 2]\n'
    text += '[[method]]\nbaseline = "fedavg"\nrounds = 3\n'
    words = ["study", described(text), "-o", tmp_path / "S"]
    assert cli(*words).exit_code == 0  # first without it
    tracked = [*words, "--track", f"mlflow:{store}", "--jobs", 2]
    assert installed(*tracked, cwd=tmp_path).returncode == 0
    found = read(store)
    study = found.pop("S")
    assert dict(study["points"]["cells"]) == {0: 3}
    assert {one["tags"]["mlflow.parentRunId"] for one in found.values()} == {study["id"]}
    [baseline] = [one for name, one in found.items() if name.startswith("fedavg")]
    assert [step for step, _ in sorted(baseline["points"]["top1"])] == [1, 2, 3]
    assert len(found) == 3


@mlflow
def test_an_interrupted_baseline_is_killed_and_the_next_run_has_all_rounds(
    road, tmp_path, store, cli, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "base"
    words = ["baseline", "fedavg", road.train, "--test", road.test, "--partition", road.clients]
    words += ["--rounds", 15, "--track", f"mlflow:{store}", "-o", out]
    running = installed(*words, wait=False, cwd=tmp_path)
    while running.poll() is None:
        if points_in(tmp_path / "runs.db") > 5:
            running.send_signal(signal.SIGTERM)
            break
        time.sleep(0.02)
    running.communicate(timeout=60)
    assert running.returncode == 75
    [before] = read(store).values()
    assert before["status"] == "KILLED"
    assert 0 < len(before["points"]["top1"]) < 15
    assert cli(*words).exit_code == 0
    after = next(one for one in read(store, every=True) if one["id"] != before["id"])
    assert after["status"] == "FINISHED"
    assert sorted({step for step, _ in after["points"]["top1"]}) == list(range(1, 16))


@mlflow
def test_a_store_that_fails_later_is_a_warning_and_the_work_goes_on(
    road, tmp_path, store, cli, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    out, words = tmp_path / "run", ["run", *road.words, "--track", f"mlflow:{store}"]
    assert cli(*words, "-o", out).exit_code == 0
    with sqlite3.connect(tmp_path / "runs.db") as file:
        file.execute(
            "create trigger full before insert on metrics begin select raise(fail, 'full'); end"
        )
    events = tmp_path / "events.jsonl"
    done = cli("--events", events, *words, "-o", out, "--overwrite")
    assert done.exit_code == 0
    assert done.stderr.count("warning: --track") == 1
    told = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert told.count("warning") == 1
    assert json.loads((out / "summary.json").read_text())["top1"]


def points_in(database):
    try:
        with sqlite3.connect(database) as file:
            return file.execute("select count(*) from metrics").fetchone()[0]
    except sqlite3.Error:
        return 0


@mlflow
def test_a_store_that_does_not_serve_ends_the_command_before_the_work(road, tmp_path, cli):
    (tmp_path / "no.db").write_text("this is no database, and long enough to be read as one" * 9)
    for uri in (f"sqlite:///{tmp_path}/no.db", "http://127.0.0.1:9", f"file://{tmp_path}/mlruns"):
        done = cli("run", *road.words, "--track", f"mlflow:{uri}", "-o", tmp_path / "run")
        assert done.exit_code == 3, done.stderr
        assert uri in done.stderr
        assert len(done.stderr) < 500
        assert not (tmp_path / "run").exists()
