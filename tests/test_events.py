"""`--events`: what happened when, a line of JSON an event, as a program would read it."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime

import pytest
from conftest import installed

from afltool.files.hdf5 import read_header

STEPS = ["features train", "features test", "partition", "head", "local-stats", "solve", "evaluate"]


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def given(road):
    return ["--train-features", road.train, "--test-features", road.test]


def of(events, *names):
    return [one for one in events if one["event"] in names]


def test_a_run_says_its_steps_files_rounds_and_figures(road, tmp_path, cli):
    out, place = tmp_path / "run", tmp_path / "new" / "events.jsonl"
    command = ["--events", place, "run", *given(road), "--clients", 20, "-o", out]
    assert installed(*command).returncode == 0
    found = lines(place)
    assert found[0] | {"schema": 1, "command": "run"} == found[0]
    assert found[-1]["event"] == "end"
    assert found[-1]["exit_code"] == 0
    times = [datetime.fromisoformat(one["time"]) for one in found]
    assert times == sorted(times)
    assert len({one["process"] for one in found}) == 1
    steps = of(found, "step_begun", "step_done")
    assert [one["step"] for one in steps] == [step for step in STEPS for _ in range(2)]
    for one in of(found, "step_done")[:-1]:
        assert one["seconds"] >= 0
        assert one["digest"] == read_header(one["path"])["digest"]
    assert {one["path"] for one in of(found, "file")} == {str(path) for path in out.iterdir()}
    summary = json.loads((out / "summary.json").read_text())
    [done], [metrics], [first] = of(found, "run_done"), of(found, "metrics"), of(found, "round")
    assert done["summary"] == summary
    assert metrics["figures"] == {k: summary[k] for k in ("top1", "n")}
    assert first["round"] == 1
    assert first["figures"].items() <= summary["rounds"][0].items()
    # The same folder again, with another option: it is appended, and says how it ended.
    before = place.read_bytes()
    assert cli(*command, "--seed", 1).exit_code == 2  # no such option
    assert cli(*command[:-3], 4, "-o", out).exit_code == 2
    assert place.read_bytes().startswith(before)
    again = lines(place)[len(found) :]
    assert [one["exit_code"] for one in of(again, "end")] == [2, 2]
    assert "clients 20 → 4" in of(again, "error")[0]["text"]


def test_a_single_stage_says_the_file_that_it_makes_or_keeps(road, tmp_path, cli):
    place, out = tmp_path / "events.jsonl", tmp_path / "head.h5"
    for _ in range(2):
        assert cli("--events", place, "solve", road.total, "-o", out).exit_code == 0
    digest = read_header(out)["digest"]
    told = of(lines(place), "file", "file_kept")
    assert [one["event"] for one in told] == ["file", "file_kept"]
    assert all((one["path"], one["digest"]) == (str(out), digest) for one in told)
    on_stderr = cli("-q", "--events", "-", "evaluate", out, road.test, "--json")
    assert [one["event"] for one in map(json.loads, on_stderr.stderr.splitlines())] == [
        "begin", "metrics", "end",
    ]  # fmt: skip
    assert json.loads(on_stderr.stdout)["n"] == 200


@pytest.mark.parametrize("name", ["head.h5", "other.json", "folder", "link"])
def test_nothing_that_holds_no_events_is_appended_to(road, tmp_path, cli, name):
    place = tmp_path / name
    if name == "folder":
        place.mkdir()
    elif name == "link":
        place.symlink_to(road.head)
    else:
        place.write_bytes(road.head.read_bytes() if name == "head.h5" else b'{"a": 1}\n')
    before = place.read_bytes() if place.is_file() else b""
    done = cli("--events", place, "info", road.head)
    assert done.exit_code in (2, 3)
    assert str(place) in done.stderr
    assert not place.is_file() or place.read_bytes() == before


@pytest.mark.slow
def test_events_of_a_study_do_not_depend_on_its_processes(road, tmp_path):
    text = f'train-features = "{road.train}"\ntest-features = "{road.test}"\nclients = 3\n'
    text += '[[method]]\nhead = "linear"\nridge = [1, 2]\n'
    text += '[[method]]\nbaseline = "fedavg"\nrounds = 2\n'
    (tmp_path / "s.toml").write_text(text)
    counted = []
    for jobs in (1, 2):
        place = tmp_path / f"{jobs}.jsonl"
        words = ["study", tmp_path / "s.toml", "-o", tmp_path / f"S{jobs}", "--jobs", jobs]
        assert installed("--events", place, *words).returncode == 0
        found = lines(place)
        assert (found[0]["event"], found[-1]["event"]) == ("begin", "end")
        assert (len({one["process"] for one in found}) > 1) == (jobs > 1)
        whats = of(found, "run_done", "round", "metrics")  # a cell may begin, wait and begin again
        counted.append(Counter(one["event"] for one in whats))
    assert counted[0] == counted[1]
    assert counted[0]["run_done"] == 4  # three cells and the study
