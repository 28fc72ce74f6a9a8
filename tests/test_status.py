"""`status`: what is done, missing, unfinished, damaged or stale, and the command that continues."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import time

import pytest
from conftest import embeddings

import afltool
from afltool.errors import InputError
from afltool.plans.config import RunConfig
from afltool.plans.slurm import jobs as slurm
from afltool.plans.slurm.site import Site
from afltool.plans.slurm.states import last_log, queue, status


def config(road, **more):
    given = {"train_features": road.train, "test_features": road.test, "clients": 6}
    return RunConfig(**{**given, **more})


@pytest.fixture
def run(road, tmp_path):
    return afltool.run(config(road), tmp_path / "a run")


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


def test_no_digest_is_cut_however_narrow_the_terminal_is(run, cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    shown = cli("status", run).stdout
    digests = [p["why"] for p in status(run)["parts"] if len(p["why"]) == 64]
    assert len(digests) > 4
    assert all(one in shown for one in digests)


def test_one_entry_is_printed_for_scripts(run, cli):
    assert cli("status", run, "--field", "state").stdout == "done\n"
    assert json.loads(cli("status", run, "--field", "parts").stdout) == status(run)["parts"]
    unknown = cli("status", run, "--field", "stat")
    assert unknown.exit_code == 2
    assert "has no field 'stat'" in unknown.stderr
    assert str(run) in unknown.stderr


@pytest.mark.parametrize("lost", ["02-clients.h5", "05-head.h5"])
def test_what_is_missing_is_made_by_the_command_that_is_given(lost, run, cli):
    (run / lost).unlink()
    found = status(run)
    assert found["state"] in ("unfinished", "stale")
    assert states(run)[lost] == "missing"
    subprocess.run(["bash", "-c", found["continue"]], check=True, capture_output=True)
    assert status(run)["state"] == "done"
    shown = cli("status", run)
    assert shown.exit_code == 0
    assert json.loads(cli("status", run, "--json").stdout) == status(run)


def test_what_was_made_of_something_else_is_stale(road, run, tmp_path):
    """A partition by other options: what was made of the one before is stale, too."""
    shutil.copy(road.clients, run / "02-clients.h5")
    for name in ("02-clients.h5", "04-total.h5", "05-head.h5", "06-metrics.json"):
        assert states(run)[name] == "stale"
    assert "02-clients.h5" in {p["name"]: p["why"] for p in status(run)["parts"]}["04-total.h5"]
    (run / "02-clients.h5").unlink()
    other = afltool.import_embeddings(road.embeddings, tmp_path / "o.h5", fraction_bits=8)
    os.replace(other, run / "01-features-train.h5")
    assert states(run)["04-total.h5"] == "stale"


def test_a_given_partition_of_other_rows_is_stale(road, tmp_path):
    files = {"train_features": road.train, "test_features": road.test, "partition": road.clients}
    run = afltool.run(RunConfig(**files), tmp_path / "run")
    assert status(run)["state"] == "done"
    other = afltool.import_embeddings(embeddings(tmp_path / "o.npz", 50), tmp_path / "o.h5")
    os.replace(other, run / "01-features-train.h5")
    parts = {p["name"]: p for p in status(run)["parts"]}
    assert "is of other rows, labels or classes than" in parts["04-total.h5"]["why"]


def test_a_total_that_lacks_clients_is_stale(road, run):
    (run / "04-total.h5").unlink()
    afltool.local_stats(
        road.train, run / "03-head0.h5", run / "04-total.h5", partition=run / "02-clients.h5",
        only="0-4", sum=True,
    )  # fmt: skip
    why = {p["name"]: p["why"] for p in status(run)["parts"]}["04-total.h5"]
    assert why == "clients 5 → 6 entries"


def test_damage_and_what_was_being_written_are_seen(run):
    total = run / "04-total.h5"
    data = total.read_bytes()
    total.write_bytes(data[: len(data) // 2])
    assert states(run)["04-total.h5"] == "damaged"
    assert status(run)["continue"].startswith("rm ")
    total.rename(run / "04-total.h5.partial")
    assert states(run)["04-total.h5"] == "unfinished"
    (run / "06-metrics.json").write_text("{")
    assert states(run)["06-metrics.json"] == "damaged"


def test_rounds_are_shown_as_far_as_they_are(road, tmp_path):
    run = afltool.run(config(road, head="safle", experts=4, group_size=2), tmp_path / "run")
    assert states(run)["05-head-2.h5"] == "done"
    (run / "05-head-2.h5").unlink()
    assert states(run)["05-head-2.h5"] == "missing"
    assert states(run)["04-total-2.h5"] == "done"


#: Lines of the queue, where {p} are the tasks that sum clients up and {t} is their total.
QUEUES = {
    "running": ("7|0|RUNNING|None|{p}\n7|1|PENDING|Resources|{p}\n", "running", None),
    "ending": ("7|0|COMPLETING|None|{p}\n", "running", None),
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
    with pytest.raises(InputError, match="there is no folder"):
        status(tmp_path / "nothing")
    with pytest.raises(InputError, match="is not the folder of a run"):
        status(tmp_path)
    assert cli("status", tmp_path).exit_code == 3


# ------------------------------------------------------------ folders that somebody damaged


@pytest.fixture
def jobs(road, tmp_path):
    """A Slurm run whose files are all there, with jobs that squeue may be asked for."""
    at = afltool.run(config(road, held_out=0.2), tmp_path / "run")
    slurm.prepare(config(road, held_out=0.2), Site(clients_per_task=2), at)
    return at


@pytest.mark.parametrize(
    "site",
    ["", "{", "[]", "7", '{"steps": 7}', "[" * 100_000, '{"cpus": "many"}', '{"cpus": 0}',
     '{"cpus": ' + "9" * 5000 + "}", '{"time": "long"}', '{"setup": 3}', '{"stages": 1}'],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_damaged_settings_are_said_at_once(site, jobs, cli):
    (jobs / "slurm" / "site.json").write_text(site)
    begun = time.process_time()
    done = cli("status", jobs)
    assert done.exit_code == 3, done.stdout
    assert "site.json" in done.stderr
    assert "Traceback" not in done.stderr
    assert time.process_time() - begun < 5


def test_swapped_files_are_damaged_and_named(jobs):
    one, other = jobs / "04-total.h5", jobs / "05-head.h5"
    for source, to in ((one, jobs / "x"), (other, one), (jobs / "x", other)):
        source.rename(to)
    found = status(jobs)
    assert found["state"] == "damaged"
    assert {p["name"] for p in found["parts"] if p["state"] == "damaged"} == {one.name, other.name}
    assert shlex.join(["rm", str(one), str(other), ""])[:-2] in found["continue"]


def test_held_out_sums_are_of_held_out_clients(jobs):
    assert states(jobs)["04-held-out.h5"] == "done"
    shutil.copy(jobs / "04-total.h5", jobs / "04-held-out.h5")
    assert states(jobs)["04-held-out.h5"] == "stale", "it is the sum of the other clients"


SQUEUE = {
    "garbage": "printf 'what?\\n\\n|||\\n7|0\\nx|y|PENDING|z|a\\n'",
    "other bytes": r"printf '\377\376|\200\n'",
    "few fields": "echo '7|0|RUNNING|None'",
    "strange digits": "printf '²|0|RUNNING|None|a\\n'",
    "without end": "yes '7|0|garbage'",
    "never": "sleep 100",
    "failing": "echo '7|0|RUNNING|None|a'; exit 1",
}


@pytest.mark.parametrize("answer", SQUEUE)
def test_a_queue_that_answers_strangely_is_unknown(answer, jobs, tmp_path, monkeypatch):
    place = tmp_path / "bin"
    place.mkdir()
    (place / "squeue").write_text(f"#!/bin/bash\n{SQUEUE[answer]}\n")
    (place / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    monkeypatch.setattr("afltool.plans.slurm.states.PATIENCE", 1.0)
    begun = time.monotonic()
    assert status(jobs)["queue"] == "unknown"
    assert time.monotonic() - begun < 20


def test_of_a_queue_with_some_garbage_the_rest_is_read(jobs, tmp_path, monkeypatch):
    place = tmp_path / "bin"
    place.mkdir()
    lines = "warning: slow\\n7|N/A|RUNNING|None|a\\n8|3|PENDING|job held|b|c\\n"
    (place / "squeue").write_text(f"#!/bin/bash\nprintf '{lines}'\n")
    (place / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    assert queue() == [("7", "N/A", "running", "a"), ("8", "3", "held", "b|c")]


def test_the_end_of_a_huge_log_is_enough(jobs):
    with (jobs / "slurm/log/05-head-7.log").open("wb") as file:
        file.truncate(300 << 20)  # one line of zeros
        file.seek(0, os.SEEK_END)
        file.write(b" error: no space left" + b"x" * 5000)
    path, said = last_log(jobs, "05-head")
    assert path.name == "05-head-7.log"
    assert len(said) <= 300


@pytest.mark.parametrize("text", ["", "clients = ", "[" * 100_000, "x = 1", "\xff", "clients = 0"])
def test_damaged_options_are_said(text, jobs, cli):
    (jobs / "run.toml").write_text(text, encoding="latin-1")
    done = cli("status", jobs)
    assert done.exit_code in (2, 3)
    assert "Traceback" not in done.stderr
