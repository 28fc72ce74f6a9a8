"""`slurm`: its jobs, what their script does when a step ends, a run with a stand-in queue.

The stand-in takes jobs by `sbatch` and runs them one after another, in this process; a real Slurm
carries them out by their scripts in test_slurm_real.py.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hostile_names import NAME, WORD, Programs
from hypothesis import given, settings
from hypothesis import strategies as st

import afltool
from afltool.errors import AflError, CorruptFileError, OutputExistsError, UsageError
from afltool.runs.config import RunConfig, read_config
from afltool.runs.folder import RunFolder
from afltool.runs.slurm import jobs as slurm
from afltool.runs.slurm.site import Site, make_site
from afltool.runs.slurm.states import status

# ------------------------------------------------------------ what a site says

SITE = """\
partition-name = "cpu"
account = "physics"
modules = ["python/3.11", "cuda/12.4"]
venv = "/home/me/venv"
[extract]
partition-name = "gpu"
cpus = 8
[solve]
memory = "64G"
"""


def test_a_site_file_gives_defaults_and_options_win(tmp_path, monkeypatch):
    path = tmp_path / "site.toml"
    path.write_text(SITE)
    site = make_site({"account": "mine", "gpus": 2}, path)
    assert (site.account, site.modules, site.venv) == (
        "mine", "python/3.11,cuda/12.4", Path("/home/me/venv"),
    )  # fmt: skip
    extract, solve = site.of("extract"), site.of("solve")
    assert (extract.partition_name, extract.cpus, extract.gpus) == ("gpu", 8, 2)
    assert (solve.partition_name, solve.memory, solve.gpus) == ("cpu", "64G", 0)
    monkeypatch.setenv("AFLTOOL_SITE", str(path))
    assert make_site({}) == make_site({}, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acount = 'a'", "'acount' is no option of a site"),
        ("cpus = 'two'", r"cpus should be a valid integer; found 'two'"),
        ("time = 'long'", r"--time is like 90, 01:30:00 or 2-12:00, and above 0; found 'long'"),
        ("[solve]\nmemory = 'lots'", r"--memory is like 4000M or 4G, and above 0; found 'lots'"),
        ("[slove]\nmemory = '4G'", r"\[slove\] is not a stage"),
        ("[solve]\nshards = 4", r"'shards' is no option of a site"),
        ("account = 'a b'", r"--account is one word; found 'a b'"),
        ("setup = 'module load x'", r"setup is a list of lines"),
        ("at-once = 1\nat_once = 2", r"'at-once' and 'at_once': these are one option, twice"),
        ("time = '1'\nwarn = 60", r"--warn 60 .* --time 1 is 60 s"),
        ("time = '00:00'", r"--time .* above 0; found '00:00'"),
        ("container = 'x.sif'\nvenv = '.'", "--container has its own afltool"),
        ("cpus = ", r"not valid TOML"),
    ],
)
def test_a_wrong_site_is_refused(text, message, tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises((UsageError, CorruptFileError), match=message):
        make_site({}, path)


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("1", 60), ("2:30", 150), ("01:30:00", 5400), ("2-1", 176400), ("1-1:30", 91800),
     ("1-00:00:30", 86430)],
)  # fmt: skip
def test_a_task_is_asked_to_stop_well_before_its_limit(time, seconds):
    site = Site(time=time)
    assert site.seconds() == seconds
    assert 1 <= site.warning() <= min(120, seconds // 4)
    assert Site(time=time, warn=30).warning() == 30


# ------------------------------------------------------------ the options of a run, kept


@settings(max_examples=20)
@given(
    st.fixed_dictionaries(
        {
            "data": st.sampled_from(["digits", "imagefolder:/a b/ü"]),
            "backbone": st.text(min_size=1),
        },
        optional={
            "alpha": st.floats(1e-6, 1e6),
            "clients": st.integers(1, 10**6),
            "keep_clients": st.booleans(),
            "classes": st.text("ab/ '\"\\", min_size=1).map(Path),
            "ridge": st.sampled_from(["auto", "1e-3:1e3:5", "2"]),
            "intercept": st.booleans(),
        },
    )
)
def test_options_written_as_toml_are_read_as_the_same_run(tmp_path_factory, given_options):
    path = tmp_path_factory.mktemp("toml") / "run.toml"
    config = RunConfig(**given_options)
    path.write_text(config.to_toml())
    assert RunConfig(**read_config(path)) == config
    assert RunConfig(**config.given_options()) == config


def lines_of(config, site, at):
    """What submit.sh would submit of a run: for each job its name, what it waits for, its words."""
    lines = slurm.script_texts(config, site, at)["jobs"].splitlines()
    return {name: (after, words) for _, name, after, *words in map(shlex.split, lines)}


def test_jobs_are_the_steps_of_the_plan_with_what_the_site_says(road, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    images = RunConfig(
        data="digits", backbone="resnet18", weights="random", clients=1000, ridge="auto"
    )
    site = Site(account="physics", shards=3, at_once=16, gpus=1, clients_per_task=30, time="08:00")
    jobs = lines_of(images, site, tmp_path / "run")
    assert [(name, after) for name, (after, _) in jobs.items()] == [
        ("01-features-train.parts", ""), ("01-features-train", "01-features-train.parts"),
        ("01-features-test.parts", ""), ("01-features-test", "01-features-test.parts"),
        ("02-clients", "01-features-train"),
        ("04-total.parts", "01-features-train 02-clients"), ("04-total", "04-total.parts"),
        ("05-head", "04-total"),
    ]  # fmt: skip
    asked = {name: words[: words.index("slurm/job.sh")] for name, (_, words) in jobs.items()}
    for name, words in asked.items():
        wanted = {"--requeue", "--account=physics", "--time=08:00", "--signal=B:USR1@120"}
        assert wanted <= {*words}, name
        parts = name.endswith(".parts")
        log = f"--output={tmp_path}/run/slurm/log/{name}-{'%A_%a' if parts else '%j'}.log"
        assert log in words
        on_gpu = name.startswith("01") and parts
        assert ("--gres=gpu:1" in words, jobs[name][1][-2:] == ["--device", "cuda"]) == (
            on_gpu, on_gpu,
        ), "a GPU that does not work is an error"  # fmt: skip
    assert "--array=0-2%16" in asked["01-features-train.parts"]
    assert "--array=0-33%16" in asked["04-total.parts"]
    assert jobs["04-total"][1][-4:] == ["--step", "04-total", "--join", "34"]
    fewer = lines_of(images, replace(site, max_array=20), tmp_path / "run")
    assert "--array=0-19%16" in fewer["04-total.parts"][1], "no array is longer than Slurm takes"
    for one, text in slurm.script_texts(road.config(), site, tmp_path / "run").items():
        if one.endswith(".sh"):
            assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0, one
    assert not list(tmp_path.iterdir())


@given(st.integers(1, 20_000), st.integers(1, 200))
@settings(max_examples=25)
def test_every_task_has_at_most_so_many_clients_and_no_task_is_too_many(clients, each):
    config = RunConfig(train_features="/no", test_features="/no", clients=clients)
    site, folder = Site(clients_per_task=each, max_array=20_000), RunFolder("/no/such/run")
    step = next(
        one for one in slurm.list_known_steps(config, folder) if one.stage.name == "local-stats"
    )
    tasks = slurm.get_cut(step, config, site, folder).count
    assert tasks * each >= clients > (tasks - 1) * each


def test_preparing_again_is_nothing_new_and_another_run_is_refused(road, tmp_path):
    at = tmp_path / "run"
    script = slurm.prepare(road.config(), Site(), at)
    before = {p: p.read_text() for p in script.parent.glob("*.*")}
    assert slurm.prepare(road.config(), Site(), at) == script
    with pytest.raises(OutputExistsError, match=r"run\.toml is of a run with other options: alpha"):
        slurm.prepare(road.config(alpha=7.0), Site(), at)
    assert {p: p.read_text() for p in script.parent.glob("*.*")} == before
    slurm.prepare(road.config(), Site(clients_per_task=1, time="5"), at)
    assert "--time=5" in slurm.next_lines(at)
    assert "--array=0-5" in slurm.next_lines(at)


def test_what_solve_alone_uses_may_differ_until_it_is_done(road, tmp_path):
    """The job that solves is told what is new; what was gathered is kept."""
    at, place = tmp_path / "run", RunFolder(tmp_path / "run")
    slurm.prepare(road.config(ridge=0), Site(), at)
    made = place.first_head.stat().st_ino
    slurm.prepare(road.config(ridge="auto"), Site(), at)
    assert place.first_head.stat().st_ino == made
    config = RunConfig(**read_config(place.options))
    assert config.head_options == {"ridge": "auto"}
    for name in ("02-clients", "04-total", "05-head"):
        slurm.carry_out(config, at, name)
    assert afltool.info(at / "05-head.h5")["options"]["ridge"] == "auto"
    assert afltool.run(config, at) == at
    assert place.first_head.stat().st_ino == made
    for more in ({"ridge": 2.0}, {"separability": True}, {"ridge": "auto", "gamma": 1.0}):
        with pytest.raises(OutputExistsError, match="is of a run with other options"):
            slurm.prepare(road.config(**more), Site(), at)


def test_what_jobs_cannot_do_is_refused(road, cli, tmp_path, monkeypatch):
    at = tmp_path / "run"
    for wrong in (
        ["--dry-run", "--submit"], ["--fan-in", 16], ["--head", "safle", "--buckets", 1],
        ["--memory", "4G", "--keep-rounds", "last"],
    ):  # fmt: skip
        assert cli("slurm", *road.words, "-o", at, *wrong).exit_code == 2
    monkeypatch.setenv("PATH", str(tmp_path))
    done = cli("slurm", *road.words, "-o", at, "--submit")
    assert done.exit_code == 3
    assert "is sbatch on this machine's PATH?" in done.stderr
    assert not list(tmp_path.rglob("*.sh"))
    slurm.prepare(road.config(), Site(), at)
    for words, said in (
        (["--step", "04-sums"], "has no such step now; it has "), (["--part", "0/2"], "only with"),
        (["--step", "04-total", "--part", "2/2"], "--part is I/N"),
        (["--step", "04-total", "--part", "0/2", "--join", 2], "--part is not used with --join"),
        (["--step", "05-head", "--part", "0/2"], "has no parts"),
    ):  # fmt: skip
        done = cli("run", at / "run.toml", "-o", at, *words)
        assert done.exit_code == 2
        assert said in done.stderr


# ------------------------------------------------------------ text of the user in scripts


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    bash = Programs(tmp_path, monkeypatch)
    yield bash
    bash.check()


def test_names_of_the_user_arrive_as_they_are(hostile, road, cli):
    """A run's folder, working directory, head, environment and words of the site."""
    at, run = hostile.at, hostile.at / "run"
    shutil.copy(road.head0, at / f"{NAME}.h5")
    (at / "env" / "bin").mkdir(parents=True)
    (at / "env" / "bin" / "activate").write_text('echo "$PWD" >"$STUB/activated"\n')
    site = at / "site.toml"
    site.write_text("""setup = ['echo "$((1 + 1))" >"$STUB/setup"']\n""")
    words = [word for name in ("partition-name", "account", "qos") for word in (f"--{name}", WORD)]
    words += ["--head", f"{NAME}.h5", "--venv", "env", "-o", "run", "--site", site]
    printed = json.loads(cli("slurm", *road.words, *words, "--dry-run", "--json").stdout)
    assert cli("slurm", *road.words, *words).exit_code == 0
    written = {p.name: p.read_text() for p in (run / "slurm").glob("*.sh")}
    assert written == {name: printed[name] for name in ("job.sh", "submit.sh")}
    assert (run / "run.toml").read_text() == printed["run.toml"]
    lines = cli("slurm", "--next", "-o", "run").stdout
    assert lines == printed["jobs"]

    (hostile.stub / "lines").write_text(lines)
    hostile(run / "slurm" / "submit.sh")
    assert hostile.told("afltool") == [["slurm", "--next", "-o", "."]]
    calls, steps = hostile.told("sbatch"), ("02-clients", "04-total.parts", "04-total", "05-head")
    assert len(calls) == len(steps)
    for name, call in zip(steps, calls, strict=True):
        asked = dict(word.partition("=")[::2] for word in call)
        assert {asked[f"--{one}"] for one in ("partition", "account", "qos")} == {WORD}
        assert asked["--job-name"] == name + slurm.tag(run)
        pattern = asked["--output"].replace("%%", "\0")
        logs = {str(run / "slurm" / "log" / f"{name}-{one}.log") for one in ("N", "N_N")}
        assert re.sub("%[A-Za-z]", "N", pattern).replace("\0", "%") in logs
        assert asked.keys() >= {"--time", "--mem"}
        assert call[call.index("slurm/job.sh") + 1 :][:2] == ["--step", name.removesuffix(".parts")]

    part = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_JOB_ID": "7"}
    hostile(run / "slurm" / "job.sh", "--step", "04-total", "--part", "%I/2", **part)
    words = ["run", "run.toml", "-o", ".", "--step", "04-total", "--part", "1/2"]
    assert hostile.told("afltool") == [words]
    assert (hostile.stub / "activated").read_text() == f"{run}\n"
    assert (hostile.stub / "setup").read_text() == "2\n", "setup lines are meant to be shell"
    config = RunConfig(**read_config(run / "run.toml"))
    assert config.first_head == at / f"{NAME}.h5"


def test_what_cannot_be_printed_is_in_no_script(road, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for unfit in ("a\ntouch X\n#", "\x1b[31m", "\u202e", "\udcff"):
        for places in (["-o", unfit], ["-o", "run", "--venv", unfit]):
            for how in ([], ["--dry-run"]):
                done = cli("slurm", *road.words, *how, *places)
                assert done.exit_code == 2, done.stdout
                assert "Traceback" not in done.stderr
                assert not list(Path().iterdir())
    (tmp_path / "a\ntouch X\n#").mkdir()
    monkeypatch.chdir(tmp_path / "a\ntouch X\n#")  # it is in no script
    assert cli("slurm", *road.words, "-o", tmp_path / "run").exit_code == 0
    assert not [p for p in (tmp_path / "run").rglob("*.*") if b"touch X" in p.read_bytes()]


# ------------------------------------------------------------ a job's script alone


AFLTOOL = """#!/bin/bash
trap 'echo told >>"$STUB/signals"; exit 75' USR1 TERM
echo "$*" >>"$STUB/calls"
touch "$STUB/started"
for i in $(seq "${WAIT:-0}"); do sleep 0.05; done
[ "${CODE:-0}" -le 128 ] || kill -9 $$
exit "${CODE:-0}"
"""
APPTAINER = """#!/bin/bash
printf '%s\\n' "$@" >>"$STUB/apptainer"
while [ "$1" != /images/afltool.sif ]; do shift; done
shift
PATH=$STUB/image:$PATH exec "$@"
"""


def programs(place, texts):
    place.mkdir(parents=True)
    for name, text in texts.items():
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    return place


@pytest.fixture
def job(road, tmp_path):
    """Starts a job script with stand-ins for afltool and scontrol; says what they were told."""
    requeue = '#!/bin/bash\necho "$*" >>"$STUB/requeued"\n'
    stub = programs(tmp_path / "stub", {"afltool": AFLTOOL, "scontrol": requeue})
    slurm.prepare(road.config(held_out=0.2), Site(clients_per_task=2), tmp_path / "run")
    environment = {
        **os.environ, "PATH": f"{stub}:{os.environ['PATH']}", "STUB": str(stub),
        "SLURM_JOB_ID": "9", "SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1",
    }  # fmt: skip

    def start(*words, **more):
        script = tmp_path / "run" / "slurm" / "job.sh"
        env = {**environment, **{k: str(v) for k, v in more.items()}}
        return subprocess.Popen(["bash", script, *words], env=env)

    def said(name):
        path = stub / name
        return path.read_text().splitlines() if path.exists() else []

    start.said, start.folder, start.run = said, stub, tmp_path / "run"
    return start


PART = ("--step", "04-total", "--part", "%I/3")


@pytest.mark.parametrize(
    ("code", "restarts", "again"),
    [(0, 0, False), (75, 99, True), (75, 100, False), (137, 4, True), (137, 5, False),
     (2, 0, False), (3, 0, False), (5, 0, False)],
)  # fmt: skip
def test_what_a_second_try_may_mend_goes_back_into_the_queue_alone(job, code, restarts, again):
    task = job(*PART, CODE=code, SLURM_RESTART_COUNT=restarts)
    assert task.wait() == code
    assert job.said("calls") == ["run run.toml -o . --step 04-total --part 1/3"]
    assert job.said("requeued") == (["requeue 7_1"] if again else [])


@pytest.mark.parametrize(
    ("number", "how"),
    [(signal.SIGUSR1, "an array"), (signal.SIGTERM, "an array"), (signal.SIGUSR1, "an image")],
)
def test_a_signal_to_the_script_stops_its_stage_and_only_a_warning_requeues(job, number, how):
    more = {}
    if how == "an image":  # and a job that is no array is requeued by its own number
        programs(job.folder / "image", {"afltool": AFLTOOL})
        (job.folder / "afltool").unlink()
        programs(job.folder / "bin", {"apptainer": APPTAINER})
        site = Site(container="/images/afltool.sif")
        texts = slurm.scripts(job.run, site, "run run.toml -o .", "")
        (job.run / "slurm" / "job.sh").write_text(texts["job.sh"])
        more = {"PATH": f"{job.folder}/bin:{job.folder}:/usr/bin:/bin", "SLURM_JOB_GPUS": 0}
        more |= {"SLURM_ARRAY_TASK_ID": "", "SLURM_ARRAY_JOB_ID": ""}
    task = job("--step", "02-clients", WAIT=200, **more)
    while not (job.folder / "started").exists():
        time.sleep(0.01)
    task.send_signal(number)
    assert task.wait() == 75
    assert job.said("signals") == ["told"]
    assert job.said("calls") == ["run run.toml -o . --step 02-clients"]
    requeued = {"an array": "requeue 7_1", "an image": "requeue 9"}[how]
    assert job.said("requeued") == [requeued] * (number == signal.SIGUSR1)
    if how == "an image":
        binds = ["--bind", str(job.run), "--bind", os.environ["AFLTOOL_STORE"]]
        start = ["exec", "--nv", *binds, "/images/afltool.sif", "afltool", "run"]
        assert job.said("apptainer")[: len(start)] == start


# ------------------------------------------------------------ a whole run, one job after another


class StandIn:
    """`sbatch` puts jobs into a file; `work` carries them out in order, each task of an array."""

    def __init__(self, at: Path) -> None:
        self.at, self.number = at, 0
        texts = {
            "sbatch": 'printf "%s\\t" "$PWD" "$@" >>"$QUEUE/jobs"; echo >>"$QUEUE/jobs"\n'
            'wc -l <"$QUEUE/jobs"',
            "squeue": "",
            "sleep": "",
            "afltool": 'cat "$QUEUE/lines"',  # what `slurm --next` says is asked of this process
        }
        programs(at, {name: f"#!/bin/bash\n{text}\n" for name, text in texts.items()})
        self.env = {**os.environ, "PATH": f"{at}:{os.environ['PATH']}", "QUEUE": str(at)}

    def jobs(self) -> list[str]:
        path = self.at / "jobs"
        return path.read_text().splitlines() if path.exists() else []

    def answers(self, text: str) -> None:
        """What squeue does from now on."""
        (self.at / "squeue").write_text(f"#!/bin/bash\n{text}\n")

    def submit(self, script: Path, lines: Any = slurm.next_lines) -> None:
        (self.at / "lines").unlink(missing_ok=True)
        with suppress(AflError):
            (self.at / "lines").write_text(lines(script.parents[1]))
        subprocess.run(["bash", str(script)], env=self.env, check=True, capture_output=True)

    def work(self, cli: Any) -> None:
        while self.number < len(self.jobs()):
            folder, *words = self.jobs()[self.number].strip().split("\t")
            self.number += 1
            array = next((w.split("=")[1] for w in words if w.startswith("--array")), None)
            own = words[words.index("slurm/job.sh") + 1 :]
            for task in [None] if array is None else _numbers(array):
                self.call(cli, folder, own, task)

    def call(self, cli: Any, folder: str, words: list[str], task: int | None) -> None:
        own = [word.replace("%I", str(task)) for word in words]
        done = cli("run", f"{folder}/run.toml", "-o", folder, *own)
        assert done.exit_code == 0, done.stderr
        if own[1:2] and own[1].startswith("05-head"):
            self.submit(Path(folder, "slurm", "submit.sh"))


def _numbers(array: str) -> list[int]:
    found: list[int] = []
    for part in array.split("%")[0].split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


SAFLE = {"head": "safle", "experts": 4, "group_size": 2, "buckets": 4}
RUNS = {
    "safle": SAFLE,
    "held out and kept": {"held_out": 0.3, "ridge": "auto", "keep_clients": True},
    "softmax": {"head": "softmax", "rounds": 1, "each_round": True},
}


@pytest.mark.parametrize("name", RUNS)
def test_jobs_make_the_files_of_a_run(name, road, tmp_path, cli):
    """Equal digests and figures; `run` finds everything done, and nothing is missing."""
    config, at = road.config(**RUNS[name]), tmp_path / "my run's"
    queue = StandIn(tmp_path / "queue")
    script = slurm.prepare(config, Site(clients_per_task=3, shards=2), at)
    queue.submit(script)
    queue.work(cli)
    laptop = afltool.run(config, tmp_path / "laptop")
    for path in laptop.glob("*.h5"):
        assert afltool.info(at / path.name)["digest"] == afltool.info(path)["digest"], path.name
    assert {p.name for p in at.iterdir()} == {p.name for p in laptop.iterdir()} | {"slurm"}
    ours, theirs = (json.loads((x / "summary.json").read_text()) for x in (at, laptop))
    assert ours["top1"] == theirs["top1"]
    rounds = [[(r["phase"], r.get("top1")) for r in one["rounds"]] for one in (ours, theirs)]
    assert rounds[0] == rounds[1]

    assert status(at)["state"] == "done"
    times = {p: p.stat().st_mtime_ns for p in at.glob("0*.h5")}
    afltool.run(config, at)
    assert {p: p.stat().st_mtime_ns for p in at.glob("0*.h5")} == times
    before = len(queue.jobs())
    queue.submit(script)
    assert len(queue.jobs()) == before
    if name != "safle":
        return
    for lost in ("04-total-2.h5", "05-head-2.h5", "head-final.h5", "06-metrics.json",
                 "summary.json", "slurm/parts/04-total-2-of-2/1.h5"):  # fmt: skip
        (at / lost).unlink()
    assert status(at)["state"] in ("failed", "unfinished")
    queue.submit(script)
    new = queue.jobs()[before:]
    assert len(new) == 3, "a task of the clients, their sum, the solve"
    assert "--array=1\t" in new[0]
    assert f"--dependency=afterok:{before + 1}\t" in new[1]


# ------------------------------------------------------------ the queue


@pytest.fixture
def submitted(road, tmp_path):
    """A run whose jobs have been submitted: its queue, script and what its names end with."""
    queue, at = StandIn(tmp_path / "queue"), tmp_path / "run"
    script = slurm.prepare(road.config(), Site(clients_per_task=3), at)
    queue.submit(script)
    assert len(queue.jobs()) == 4
    return queue, script, slurm.tag(at)


@pytest.mark.parametrize("state", ["PENDING", "RESV_DEL_HOLD"])
def test_what_may_still_run_is_not_submitted_again(submitted, state):
    queue, script, tag = submitted
    queue.answers(f"echo '7|{state}|04-total{tag}'\necho '8|{state}|02-clients@other'")
    queue.submit(script)
    new = queue.jobs()[4:]
    assert [re.search(r"--step\t(\S+)", one)[1] for one in new] == [
        "02-clients", "04-total", "05-head"
    ]  # fmt: skip
    assert "--part" in new[1]
    assert "--dependency=afterok:7\t" in new[2]


def test_what_has_ended_is_and_nothing_while_the_queue_or_the_plan_does_not_answer(submitted):
    queue, script, tag = submitted
    queue.answers("echo 'slurm_load_jobs error: timed out' >&2\nexit 1")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        queue.submit(script)
    assert caught.value.returncode == 3
    assert b"squeue does not answer" in caught.value.stderr
    assert len(queue.jobs()) == 4
    lines = [f"{i}|{state}|04-total{tag}" for i, state in enumerate(slurm.ENDED.split("|"))]
    queue.answers("\n".join(f"echo '{one}'" for one in lines))
    queue.submit(script)
    assert len(queue.jobs()) == 8
    queue.answers("")
    (script.parents[1] / "run.toml").write_text("clients = 0\n")
    with pytest.raises(subprocess.CalledProcessError):
        queue.submit(script)
    assert len(queue.jobs()) == 8


@pytest.mark.parametrize("odd", [
    'echo "this job is charged to physics, 99 % remain"\necho "$number;north"',
    "exit 1",
    "echo '<html>502</html>'",
], ids=["another line", "no answer", "nonsense"])  # fmt: skip
def test_whatever_sbatch_answers_no_job_is_submitted_twice(road, tmp_path, odd):
    """A job that it took is found by its name."""
    queue, at = StandIn(tmp_path / "queue"), tmp_path / "run"
    script = slurm.prepare(road.config(), Site(clients_per_task=3), at)
    (queue.at / "sbatch").write_text(
        '#!/bin/bash\nfor word in "$@"; do case $word in --job-name=*) name=${word#*=} ;;\n'
        '--dependency=*) after=${word#*:} ;; esac; done\necho "$name ${after:-}" >>"$QUEUE/jobs"\n'
        f'number=$(wc -l <"$QUEUE/jobs")\n{odd}\n'
    )
    mine = """{print NR "|PENDING|" $1}"""
    queue.answers(f"cut -d' ' -f1 \"$QUEUE/jobs\" 2>/dev/null | awk '{mine}'")
    queue.submit(script)
    tag, names = slurm.tag(at), ("02-clients", "04-total.parts", "04-total", "05-head")
    after = ("", "1", "2", "3")
    assert queue.jobs() == [f"{a}{tag} {b}" for a, b in zip(names, after, strict=True)]
    queue.submit(script)
    assert len(queue.jobs()) == 4
