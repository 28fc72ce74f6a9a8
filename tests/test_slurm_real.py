"""Runs on a real Slurm, undisturbed and under faults: the laptop's digests, every time.

`AFLTOOL_REQUIRE_SLURM=1` turns the skip on a machine without Slurm into a failure. The safle head
takes 10 faults, or as many as AFLTOOL_SLURM_FAULTS says, and then DeepAFL, too: with 50 and
`pytest -s` the counts are printed that docs/slurm.md reports.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from conftest import embeddings
from helpers_images import write_imagefolder
from slurm_cluster import Cluster, missing
from slurm_faults import Faults, disturb, look

import afltool
from afltool.files.heads import load_head
from afltool.lab.studies.cells import StudyFolder
from afltool.lab.studies.results import load_current
from afltool.lab.studies.spec import find
from afltool.runs.config import RunConfig

pytestmark = pytest.mark.slow

SMALL = ["--clients-per-task", 4, "--warn", 10, "--memory", "500M"]
MEMORY_MB = 250  # of every task of the run with 1,000 clients × 512 features


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    lacking = missing()
    if lacking:
        message = f"no Slurm here ({', '.join(lacking)}): apt-get install slurm-wlm munge"
        if os.environ.get("AFLTOOL_REQUIRE_SLURM"):
            pytest.fail(message)
        pytest.skip(message)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
    found = Cluster(tmp_path_factory.mktemp("slurm"), environment)
    try:
        found.start()
        yield found
    finally:
        found.stop()
    assert not found.processes(), "daemons are left"


@pytest.fixture(autouse=True)
def nothing_left_in_the_queue(cluster):
    """Faults may leave jobs that wait for ever; the next test waits for its own jobs alone."""
    yield
    for job, _ in cluster.queue():
        cluster.call("scancel", job, check=False)


def rows(at, n, d=12):
    """Training and test features of n rows."""
    train = afltool.import_embeddings(embeddings(at / "train.npz", n, d), at / "train.h5")
    test = afltool.import_embeddings(embeddings(at / "test.npz", 100, d), at / "test.h5")
    return train, test


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    train, test = rows(tmp_path_factory.mktemp("features"), 1000)
    return {"train_features": train, "test_features": test, "clients": 24, "ridge": 1.0}


HEADS = {
    "linear": {"head": "linear"},
    "safle": {"head": "safle", "experts": 4, "group_size": 2, "buckets": 4},
    "deepafl": {"head": "deepafl", "layers": 1, "width": 16, "head_seed": 3, "compute": "float64"},
}


@pytest.fixture(scope="module")
def laptop(options, tmp_path_factory):
    """The same run on this machine without Slurm, made once a head."""
    made: dict[str, Path] = {}

    def run(name, **more):
        key = f"{name} {more}"
        if key not in made:
            config = RunConfig(**{**options, **HEADS[name], **more})
            made[key] = afltool.run(config, tmp_path_factory.mktemp(name) / "run")
        return made[key]

    return run


def submit(cluster, at, given, *site):
    """Write a run's options and submit it, as a user does."""
    toml = at / "options.toml"
    toml.write_text(RunConfig(**given).to_toml())
    cluster.call("afltool", "slurm", toml, *site, "-o", at / "run", "--submit")
    return at / "run"


def finish(cluster, run, seconds=150):
    """Wait for the end of a run; a job whose end Slurm has not heard of is put away."""
    end = time.monotonic() + seconds
    while (found := look(cluster, run))["state"] != "done" or cluster.running():
        assert time.monotonic() < end, found
        if found["state"] == "done" and not cluster.of_jobs():
            Faults(cluster, seed=0).put_away()
        time.sleep(1)
    return found


def empty(cluster, seconds=120):
    """Wait until nothing is queued; a job without a process for 20 s is put away."""
    end, lost = time.monotonic() + seconds, 0
    while not cluster.answers() or cluster.queue():
        assert time.monotonic() < end, (cluster.queue(), cluster.log("slurmctld"))
        lost = 0 if cluster.of_jobs() else lost + 1
        if lost == 20:
            Faults(cluster, seed=0).put_away()
        time.sleep(1)


STUDY = """
train-features = "{train_features}"
test-features = "{test_features}"
clients = 6
[[method]]
head = "linear"
[[method]]
head = "linear"
ridge = 1
min-rows = 100000
[[method]]
baseline = "fedavg"
rounds = 1
"""


def test_a_study_is_an_array_over_its_cells(cluster, options, tmp_path):
    (tmp_path / "three.toml").write_text(STUDY.format(**options))
    site = ["--slurm", "--submit", "--job-memory", "1G"]
    cluster.call("afltool", "study", tmp_path / "three.toml", "-o", tmp_path / "S", *site)

    def look():
        return json.loads(cluster.call("afltool", "status", tmp_path / "S", "--json"))

    end = time.monotonic() + 100
    while set((found := look())["counts"]) != {"done", "failed"}:
        assert time.monotonic() < end, found
        time.sleep(1)
    assert found["counts"] == {"done": 2, "failed": 1}
    failed = next(one for one in found["cells"] if one["state"] == "failed")
    assert failed["name"] == "linear, ridge 1, min-rows 100000"
    assert "fewer than 100000 rows" in failed["why"]
    wanted, folder = find(str(tmp_path / "S")), StudyFolder(tmp_path / "S")
    here = load_current(folder, wanted.cells[0])
    alone = afltool.run(wanted.cells[0].config, tmp_path / "alone")
    assert here["digests"] == json.loads((alone / "summary.json").read_text())["digests"]


def digests(run):
    names = sorted(p.name for p in run.glob("0[45]-*.h5"))
    return {name: afltool.verify(run / name)["digest"] for name in names}


def check_equal(name, run, laptop):
    """Bit-equal totals and heads; for deepafl, whose later sums are real numbers, within 1e-7."""
    if name != "deepafl":
        assert digests(run) == digests(laptop)
        return
    assert digests(run).keys() == digests(laptop).keys()
    ours, theirs = (load_head(at / "05-head-3.h5")[0].state_dict() for at in (run, laptop))
    assert ours.keys() == theirs.keys()
    for key, array in theirs.items():
        error = np.linalg.norm(ours[key] - array) / np.linalg.norm(array)
        assert error < 1e-7, f"{key}: {error:.3g}"


def logs(run, name="*"):
    """What the tasks of a step have said."""
    return [path.read_text() for path in sorted((run / "slurm" / "log").glob(f"{name}-*.log"))]


def test_an_undisturbed_run_is_the_laptops(cluster, options, laptop, tmp_path):
    """Submitted by the example."""
    words = {k.replace("_", "-"): v for k, v in options.items()}
    given = " ".join(f"--{k} {v}" for k, v in words.items())
    env = {"RUN_OPTIONS": given, "SLURM_OPTIONS": " ".join(map(str, SMALL))}
    script, run = Path(__file__).parents[1] / "examples" / "slurm.sh", tmp_path / "run"
    said = cluster.call("env", *(f"{k}={v}" for k, v in env.items()), script, run)
    assert "04-total.parts: job" in said
    end = time.monotonic() + 60
    while (seen := look(cluster, run))["queue"] == "unknown":  # a loaded machine answers late
        assert time.monotonic() < end, seen
    assert seen["state"] in ("running", "pending", "done"), seen
    found = finish(cluster, run)
    assert {p["state"] for p in found["parts"]} == {"done"}
    assert found["continue"] is None
    check_equal("linear", run, laptop("linear"))
    assert not [text for text in logs(run) if "exit code" in text]
    assert len(logs(run, "04-total*.parts")) == 6 * len(list(run.glob("05-*.h5")))
    times = {p: p.stat().st_mtime_ns for p in run.glob("0*.h5")}
    cluster.call("afltool", "run", run / "run.toml", "-o", run)
    assert {p: p.stat().st_mtime_ns for p in run.glob("0*.h5")} == times, "run finds all valid"


def test_images_in_shards_are_the_laptops(cluster, tmp_path):
    images = write_imagefolder(tmp_path / "images")
    net = afltool.backbone("resnet18", tmp_path / "net.afl", weights="random", image_size=32)
    given = {
        "data": f"imagefolder:{images}", "backbone": str(net), "clients": 3,
        "ridge": 1.0,
    }  # fmt: skip
    run = submit(cluster, tmp_path, given, "--shards", 3, "--memory", "1500M")
    local = {**given, "store": tmp_path / "store"}
    laptop = afltool.run(RunConfig(**local), tmp_path / "laptop")
    finish(cluster, run)
    for name in ("01-features-train.h5", "01-features-test.h5", "02-clients.h5"):
        assert afltool.verify(run / name)["digest"] == afltool.verify(laptop / name)["digest"]
    assert digests(run) == digests(laptop)


FAULTS = os.environ.get("AFLTOOL_SLURM_FAULTS")
MORE = pytest.mark.skipif(not FAULTS, reason="AFLTOOL_SLURM_FAULTS=50")
CAMPAIGNS = [
    ("safle", int(FAULTS or 10)),  # each of the ten kinds comes
    pytest.param("deepafl", 10, marks=MORE),
]


@pytest.mark.parametrize(("name", "wanted"), CAMPAIGNS)
def test_random_faults_change_nothing(name, wanted, cluster, options, laptop, tmp_path):
    """Kills of tasks, scripts and daemons, lost and drained nodes, warnings, requeues, limits."""
    site = ["--clients-per-task", 4 if name == "deepafl" else 1, *SMALL[2:]]
    more = {"clients": 72} if wanted > 10 else {}
    faults, continued, runs = Faults(cluster, seed=wanted), 0, 0
    while faults.done.total() < wanted:  # a run that ends before is followed by another
        runs += 1
        at = tmp_path / f"{runs}"
        at.mkdir()
        run = submit(cluster, at, {**options, **HEADS[name], **more}, *site)
        continued += disturb(cluster, run, faults, wanted, patience=900)
        check_equal(name, run, laptop(name, **more))
        for log in (run / "slurm" / "log").glob("*.log"):
            assert "Traceback" not in log.read_text(errors="replace"), log
    print(f"\n{name}: {faults.done.total()} faults, {runs} runs, continued {continued} times")
    for kind, count in sorted(faults.done.items()):
        print(f"    {count:3d} {kind}")
    assert runs < 5


def test_a_task_that_is_warned_before_its_limit_goes_on_by_itself_and_a_cancelled_run_does_not(
    cluster, options, laptop, tmp_path
):
    """Slurm itself sends SIGUSR1; a stage that hangs meanwhile hears it when it wakes.

    The run is cancelled first; the command that `status` gives continues it.
    """
    run = submit(cluster, tmp_path, {**options, **HEADS["linear"]}, *SMALL)
    cluster.until(lambda: cluster.stages("04-total --part"), "stage", 60)
    words = Path(f"/proc/{cluster.stages('04-total --part')[0]}/environ").read_bytes().split(b"\0")
    array = next(w.partition(b"=")[2] for w in words if w.startswith(b"SLURM_ARRAY_JOB_ID="))
    cluster.call("scancel", array.decode())
    empty(cluster)
    found = look(cluster, run)
    assert found["state"] == "failed"
    failed = {w["name"]: w for w in found["jobs"]}["04-total.parts"]
    assert failed["state"] == "failed"
    assert 0 < failed["tasks"] <= 6, "the tasks that lack"
    cluster.call("bash", "-c", found["continue"])
    cluster.until(lambda: cluster.stages("04-total --part"), "stage", 60)
    pid = cluster.stages("04-total --part")[0]
    cluster.until(lambda: catches(pid, signal.SIGUSR1), "handler of the stage", 30)
    os.kill(pid, signal.SIGSTOP)
    job = job_of(pid)
    cluster.call("scontrol", "update", f"JobId={job}", "EndTime=now+50")
    cluster.until(lambda: signal_waits(pid, signal.SIGUSR1), "warning", 70)
    os.kill(pid, signal.SIGCONT)
    finish(cluster, run)
    check_equal("linear", run, laptop("linear"))
    again = [text for text in logs(run) if "back into the queue" in text]
    assert len(again) == 1, "only that task was put back"


def job_of(pid):
    words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return next(w[13:].decode() for w in words if w.startswith(b"SLURM_JOB_ID="))


def catches(pid, number):
    """Whether a process has a handler for a signal; a process that is gone needs none."""
    with suppress(OSError):
        found = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        return bool(found and int(found[1], 16) >> (number - 1) & 1)
    return True


def signal_waits(pid, number):
    """Whether a signal has been sent to a stopped process."""
    with suppress(OSError):
        found = re.search(r"ShdPnd:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        return bool(found and int(found[1], 16) >> (number - 1) & 1)
    return True


def test_a_thousand_clients_through_the_array(cluster, tmp_path):
    """1,000 clients × 512 features, 50 a task: under 10 minutes, every task within its memory."""
    train, test = rows(tmp_path, 20_000, 512)
    given = {"train_features": train, "test_features": test, "clients": 1000, "ridge": 1.0}
    begun = time.monotonic()
    site = tmp_path / "site.toml"
    measured = f"{sys.executable} {Path(__file__).with_name('measured.py')} {tmp_path}/peaks"
    site.write_text(f"""setup = ['afltool() {{ {measured} "$@"; }}']""")
    run = submit(cluster, tmp_path, given, "--memory", f"{MEMORY_MB}M", "--site", site)
    finish(cluster, run, 600)
    seconds = time.monotonic() - begun
    flat = afltool.local_stats(
        train, "linear", tmp_path / "flat.h5", partition=run / "02-clients.h5", sum=True
    )
    assert afltool.info(run / "04-total.h5")["digest"] == afltool.info(flat)["digest"]
    told = [line.split() for line in (tmp_path / "peaks").read_text().splitlines()]
    peaks = {name: float(mb) for mb, name in sorted(told, key=lambda one: float(one[0]))}
    assert peaks.keys() >= {"02-clients", "04-total", "05-head", "run", "slurm"}
    print(f"\n1,000 clients × 512 features: {seconds:.0f} s, peak MB {peaks}")
    assert max(peaks.values()) < MEMORY_MB
    assert seconds < 600
