"""`slurm`: its scripts line by line, what they do when a stage ends, a run with a stand-in queue.

The stand-in takes jobs by `sbatch` and runs them one after another, so the scripts are carried out
everywhere; a real Slurm carries them out in test_slurm_real.py.
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
from pathlib import Path

import numpy as np
import pytest
from hostile_names import NAME, WORD, Programs
from hypothesis import given
from hypothesis import strategies as st

import afltool
from afltool.errors import CorruptFileError, OutputExistsError, RidgeNeededError, UsageError
from afltool.plans.config import RunConfig, read_config
from afltool.plans.layout import RunFolder
from afltool.plans.plan import SPLITS
from afltool.plans.slurm import jobs as slurm
from afltool.plans.slurm.site import Site, make_site, quoted
from afltool.plans.slurm.states import status

GOLDEN = Path(__file__).with_name("golden") / "slurm"
SITE = """\
partition-name = "cpu"
account = "physics"
modules = ["python/3.11", "cuda/12.4"]
venv = "/home/me/venv"
setup = ["export AFLTOOL_DATA=/scratch/data"]

[extract]
partition-name = "gpu"
time = "08:00:00"
memory = "16G"
cpus = 8

[solve]
memory = "64G"
"""
RUNS = {
    "images": [
        *["--backbone", "resnet18", "--data", "cifar100", "--clients", 10_000, "--head", "linear"],
        *["--ridge", "auto", "--gpus", 1, "--shards", 32, "--at-once", 16],
        *["--clients-per-task", 100],
    ],
    "rounds": [
        *[
            "--train-features",
            "/data/my train.h5",
            "--test-features",
            "/data/test.h5",
            "--head",
            "safle",
        ],
        *["--held-out", 0.1, "--participation", 0.5, "--clients", 200, "--cache", "/scratch/cache"],
    ],
    "kept": [
        *[
            "--train-features",
            "/data/train.h5",
            "--test-features",
            "/data/test.h5",
            "--keep-clients",
        ],
        *["--head", "/data/head0.h5", "--scheme", "iid"],
    ],
}


@pytest.mark.parametrize("name", RUNS)
def test_the_scripts_are_these_line_by_line(name, road, cli, tmp_path, monkeypatch):
    """AFLTOOL_WRITE_GOLDEN=1 pytest writes them anew; read the difference before committing it."""
    monkeypatch.chdir("/")
    monkeypatch.setenv("AFLTOOL_STORE", "/scratch/store")
    site = tmp_path / "site.toml"
    site.write_text(SITE if name == "images" else "")
    files = {"/data/my train.h5": road.train, "/data/train.h5": road.train,
             "/data/test.h5": road.test, "/data/head0.h5": road.head0}  # fmt: skip
    given = [files.get(word, word) for word in RUNS[name]]
    args = [*given, "-o", "/scratch/run", "--site", site, "--dry-run"]
    printed = json.loads(cli("slurm", *args, "--json").stdout)
    names = {str(path): name for name, path in files.items() if name != "/data/my train.h5"}
    texts = {k: re.sub("|".join(names), lambda m: names[m[0]], v) for k, v in printed.items()}
    if os.environ.get("AFLTOOL_WRITE_GOLDEN"):
        (GOLDEN / name).mkdir(parents=True, exist_ok=True)
        for script, text in texts.items():
            (GOLDEN / name / script).write_text(text)
    assert {p.name for p in (GOLDEN / name).iterdir()} == set(texts)
    for script, text in texts.items():
        assert text.splitlines() == (GOLDEN / name / script).read_text().splitlines(), script
        words = ["bash", "-n"] if script != "run.toml" else ["true"]
        assert subprocess.run(words, input=text, text=True).returncode == 0, script
    assert cli("slurm", *args).stdout.count("#####") == len(texts)
    assert not Path("/scratch/run").exists()


@given(st.integers(1, 20_000), st.integers(1, 200))
def test_every_task_has_at_most_so_many_clients_and_no_task_is_too_many(clients, each):
    config = RunConfig(data="digits", backbone="resnet18", clients=clients)
    site = Site(clients_per_task=each, max_array=10**6)
    planned = slurm.missing(config, site, RunFolder("/no/such/run"))
    [tasks] = [len(job.tasks) for job in planned if job.stage == "local-stats"]
    assert tasks * each >= clients > (tasks - 1) * each
    assert len({s.name for s in planned}) == len(planned)


# ------------------------------------------------------------ what a site says


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
        ("cpus = 'two'", r"cpus takes a whole number; found 'two'"),
        ("cpus = 0", r"--cpus is 1 to 1000000; found 0"),
        ("fan-in = 16", r"'fan-in' is no option of a site"),
        ("time = 'long'", r"--time is like 90, 01:30:00 or 2-12:00, and above 0; found 'long'"),
        ("[solve]\nmemory = 'lots'", r"--memory is like 4000M or 4G, and above 0; found 'lots'"),
        ("[slove]\nmemory = '4G'", r"\[slove\] is not a stage"),
        ("[solve]\nshards = 4", r"'shards' is no option of a site"),
        ("account = 'a b'", r"--account is one word; found 'a b'"),
        ("setup = 'module load x'", r"setup is a list of lines"),
        ("at-once = 1\nat_once = 2", r"'at-once' and 'at_once': these are one option, twice"),
        ("at-once = 0", r"--at-once is 1 to 1000000; found 0"),
        ("time = '1'\nwarn = 60", r"--warn 60 .* --time 1 is 60 s"),
        ("time = '00:00'", r"--time .* above 0; found '00:00'"),
        ("memory = '0G'", r"--memory .* above 0; found '0G'"),
        ("cpus = ", r"not valid TOML"),
    ],
)
def test_a_wrong_site_is_refused(text, message, tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises((UsageError, CorruptFileError), match=message):
        make_site({}, path)


# ------------------------------------------------------------ the options of a run, kept


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
            "cache": st.text("ab/ '\"\\", min_size=1).map(Path),
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
    assert RunConfig(**config.given()) == config


def run_of(road, **more):
    given = {"train_features": road.train, "test_features": road.test, "clients": 6}
    return RunConfig(**{**given, **more})


@pytest.mark.parametrize(
    ("time", "seconds"),
    [("1", 60), ("90", 5400), ("2:30", 150), ("01:30:00", 5400), ("2-1", 176400),
     ("1-1:30", 91800), ("1-00:00:30", 86430)],
)  # fmt: skip
def test_a_task_is_asked_to_stop_well_before_its_limit(time, seconds):
    site = Site(time=time)
    assert site.seconds() == seconds
    assert 1 <= site.warning() <= min(120, seconds // 4)
    assert Site(time=time, warn=30).warning() == 30


def test_preparing_again_is_nothing_new_and_another_run_is_refused(road, tmp_path):
    at = tmp_path / "run"
    script = slurm.prepare(run_of(road), Site(), at)
    before = {p: p.read_text() for p in script.parent.glob("*.*")}
    assert slurm.prepare(run_of(road), Site(), at) == script
    assert {p: p.read_text() for p in script.parent.glob("*.*")} == before
    with pytest.raises(OutputExistsError, match=r"run\.toml is of a run with other options: alpha"):
        slurm.prepare(run_of(road, alpha=7.0), Site(), at)
    assert {p: p.read_text() for p in script.parent.glob("*.*")} == before
    slurm.prepare(run_of(road), Site(clients_per_task=1, time="5"), at)
    assert "--time=5" in slurm.next_lines(at)
    assert "--array=0-5" in slurm.next_lines(at)


def test_what_solve_and_evaluate_alone_use_may_differ_until_they_are_done(road, tmp_path):
    """The job that solves is told what is new; what was gathered is kept."""
    at, place = tmp_path / "run", RunFolder(tmp_path / "run")
    slurm.prepare(run_of(road, ridge=0), Site(), at)
    made = place.first_head.stat().st_ino
    slurm.prepare(run_of(road, ridge="auto", separability=True), Site(), at)
    assert place.first_head.stat().st_ino == made
    config = RunConfig(**read_config(place.options))
    assert config.head_options == {"ridge": "auto"}
    for name in ("02-clients", "04-total", "05-head"):
        slurm.carry_out(config, at, name)
    assert afltool.info(at / "05-head.h5")["options"]["ridge"] == "auto"
    assert afltool.run(config, at) == at
    assert place.first_head.stat().st_ino == made
    for more in ({"ridge": 2.0, "separability": True}, {"ridge": "auto"}, {"gamma": 1.0}):
        with pytest.raises(OutputExistsError, match="is of a run with other options"):
            slurm.prepare(run_of(road, **more), Site(), at)


def test_a_job_without_a_ridge_says_the_command_that_goes_on(road, tmp_path):
    at = tmp_path / "run"
    with np.load(road.folder / "train.npz") as given:
        np.savez(tmp_path / "twice.npz", x=np.hstack([given["x"]] * 2), y=given["y"])
    rows = afltool.import_embeddings(tmp_path / "twice.npz", tmp_path / "twice.h5")
    config = run_of(road, train_features=rows, test_features=rows, ridge=0)
    slurm.prepare(config, Site(), at)
    for name in ("02-clients", "04-total"):
        slurm.carry_out(config, at, name)
    with pytest.raises(RidgeNeededError) as caught:
        slurm.carry_out(config, at, "05-head")
    said = str(caught.value)
    words = shlex.split(said[said.index("afltool slurm") :])
    assert words == ["afltool", "slurm", f"{at}/run.toml", "-o", str(at), "--ridge", "auto",
                     "--submit"]  # fmt: skip
    slurm.prepare(RunConfig(**{**config.given(), "ridge": "auto"}), Site(), at)
    assert [job.name for job in missing(at)] == ["05-head"]


def missing(at, site=None):
    config = RunConfig(**read_config(at / "run.toml"))
    return slurm.missing(config, site or Site(), RunFolder(at))


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--step", "04-sums"], "has no such step now; it has "),
     (["--step", "04-total-2"], "no such step"),
     (["--part", "0/2"], "only with --step"), (["--join", 2], "only with --step"),
     (["--step", "04-total", "--part", "2/2"], "--part is I/N"),
     (["--step", "04-total", "--part", "0/2", "--join", 2], "--part is not used with --join"),
     (["--step", "05-head", "--part", "0/2"], "has no parts")],
)  # fmt: skip
def test_a_step_that_is_none_is_refused(road, cli, tmp_path, words, said):
    at = tmp_path / "run"
    slurm.prepare(run_of(road), Site(), at)
    done = cli("run", at / "run.toml", "-o", at, *words)
    assert done.exit_code == 2
    assert said in done.stderr


def test_wrong_options_are_refused_before_anything_is_written(road, cli, tmp_path):
    args = ["--train-features", road.train, "--test-features", road.test, "-o", tmp_path / "run"]
    assert cli("slurm", *args, "--dry-run", "--submit").exit_code == 2
    assert cli("slurm", *args, "--fan-in", 16).exit_code == 2
    assert cli("slurm", *args, "--head", "safle", "--buckets", 1).exit_code == 2
    assert not list(tmp_path.glob("run/slurm/*.sh"))


def test_without_slurm_submitting_says_so(road, cli, tmp_path, monkeypatch):
    empty = tmp_path / "bin"
    empty.mkdir()
    for name in ("bash", "sleep", "mkdir", "grep", "flock", "tail", "awk"):
        (empty / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    (empty / "sleep").unlink()
    (empty / "sleep").write_text("#!/bin/bash\n")
    (empty / "sleep").chmod(0o755)
    monkeypatch.setenv("PATH", str(empty))
    done = cli(
        "slurm", "--train-features", road.train, "--test-features", road.test, "--submit",
        "-o", tmp_path / "run",
    )  # fmt: skip
    assert done.exit_code == 3
    assert "is sbatch on this machine's PATH?" in done.stderr


# ------------------------------------------------------------ text of the user in scripts


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    bash = Programs(tmp_path, monkeypatch)
    yield bash
    bash.check()


def test_names_of_the_user_arrive_as_they_are(hostile, road, cli):
    """A run's folder, working directory, head, cache, environment and words of the site."""
    at, run = hostile.at, hostile.at / "run"
    shutil.copy(road.head0, at / f"{NAME}.h5")
    (at / "env" / "bin").mkdir(parents=True)
    (at / "env" / "bin" / "activate").write_text('echo "$PWD" >"$STUB/activated"\n')
    site = at / "site.toml"
    site.write_text("""setup = ['echo "$((1 + 1))" >"$STUB/setup"']\n""")
    given = ["--train-features", road.train, "--test-features", road.test]
    given += ["--cache", "c $(touch X5)"]
    words = [word for name in ("partition-name", "account", "qos") for word in (f"--{name}", WORD)]
    args = [*given, *words, "--head", f"{NAME}.h5", "--venv", "env", "-o", "run", "--site", site]
    printed = json.loads(cli("slurm", *args, "--dry-run", "--json").stdout)
    assert cli("slurm", *args).exit_code == 0
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
    assert config.local_stats.cache == at / "c $(touch X5)"


def test_jobs_with_gpus_extract_on_them_or_fail(cli, tmp_path):
    images = ["--backbone", "resnet18", "--weights", "random", "--data", "digits", "--clients", 2]
    done = cli("slurm", *images, "--gpus", 1, "-o", tmp_path / "run", "--dry-run", "--json")
    lines = json.loads(done.stdout)["jobs"].splitlines()
    with_gpus = [one for one in lines if "--gres=gpu:1" in one]
    assert [one.split()[1] for one in with_gpus] == [f"01-features-{x}.parts" for x in SPLITS]
    assert all(one.endswith("--device cuda") for one in with_gpus)
    assert sum("--device" in one for one in lines) == 2


#: What no script may have in it, and places where a user could write it.
UNFIT = ["a\ntouch X\n#", "a\rb", "\x1b[31m", "\u202e", "\udcff"]
PLACES = {
    "the folder": ["-o", "{}"],
    "the environment": ["-o", "run", "--venv", "{}"],
    "an account": ["-o", "run", "--account", "{}"],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("unfit", UNFIT)
def test_what_cannot_be_printed_is_in_no_script(place, unfit, road, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["--train-features", road.train, "--test-features", road.test]
    for how in ([], ["--dry-run"]):
        done = cli("slurm", *given, *how, *(one.format(unfit) for one in PLACES[place]))
        assert done.exit_code == 2, done.stdout
        assert "Traceback" not in done.stderr
        assert not list(Path().iterdir())


@pytest.mark.parametrize("unfit", UNFIT)
def test_the_working_directory_is_in_no_script(unfit, road, cli, tmp_path, monkeypatch):
    (tmp_path / unfit).mkdir()
    monkeypatch.chdir(tmp_path / unfit)
    given = ["--train-features", road.train, "--test-features", road.test]
    assert cli("slurm", *given, "-o", tmp_path / "run").exit_code == 0
    written = [p.read_text() for p in (tmp_path / "run").rglob("*.*") if p.suffix != ".h5"]
    assert not [text for text in written if unfit in text]


def test_a_backslash_would_give_all_tasks_one_log(road, cli, tmp_path):
    given = ["--train-features", road.train, "--test-features", road.test]
    done = cli("slurm", *given, "-o", tmp_path / "a\\b")
    assert done.exit_code == 2
    assert "without a backslash in its path" in done.stderr
    assert not list(tmp_path.iterdir())


@given(
    st.text(
        st.characters(blacklist_categories=("C", "Zl", "Zp", "Zs"))
        | st.sampled_from(" '\"\\#%;`$("),
        min_size=1,
    )
)
def test_what_can_be_printed_arrives_in_a_script(text):
    assert shlex.split(quoted(text)) == [text]


# ------------------------------------------------------------ a job's script alone


STUB = """#!/bin/bash
trap 'echo told >>"$STUB/signals"; exit 75' USR1 TERM
echo "$*" >>"$STUB/calls"
touch "$STUB/started"
for i in $(seq "${WAIT:-0}"); do sleep 0.05; done
[ "${CODE:-0}" -le 128 ] || kill -9 $$
exit "${CODE:-0}"
"""


@pytest.fixture
def job(road, tmp_path):
    """Starts a job script with stand-ins for afltool and scontrol; says what they were told."""
    stub = tmp_path / "stub"
    stub.mkdir()
    for name, text in (
        ("afltool", STUB),
        ("scontrol", '#!/bin/bash\necho "$*" >>"$STUB/requeued"\n'),
    ):
        (stub / name).write_text(text)
        (stub / name).chmod(0o755)
    slurm.prepare(run_of(road, held_out=0.2), Site(clients_per_task=2), tmp_path / "run")
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

    start.said, start.folder = said, stub
    return start


PART = ("--step", "04-total", "--part", "%I/3")


def test_a_task_calls_its_step_with_its_part(job):
    assert job(*PART).wait() == 0
    assert job.said("calls") == ["run run.toml -o . --step 04-total --part 1/3"]


def test_the_job_after_the_last_round_is_the_run(job):
    assert job().wait() == 0
    assert job.said("calls") == ["run run.toml -o ."]


@pytest.mark.parametrize(
    ("code", "restarts", "again"),
    [(0, 0, False), (75, 0, True), (75, 99, True), (75, 100, False), (3, 0, False),
     (137, 4, True), (137, 5, False), (1, 0, False), (2, 0, False), (4, 0, False), (5, 0, False)],
)  # fmt: skip
def test_what_a_second_try_may_mend_goes_back_into_the_queue_alone(job, code, restarts, again):
    task = job(*PART, CODE=code, SLURM_RESTART_COUNT=restarts)
    assert task.wait() == code
    assert job.said("requeued") == (["requeue 7_1"] if again else [])


@pytest.mark.parametrize(("number", "again"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_signal_to_the_script_stops_its_stage_and_only_a_warning_requeues(job, number, again):
    task = job(*PART, WAIT=200)
    while not (job.folder / "started").exists():
        time.sleep(0.01)
    task.send_signal(number)
    assert task.wait() == 75
    assert job.said("signals") == ["told"]
    assert job.said("requeued") == (["requeue 7_1"] if again else [])


def test_a_job_that_is_no_array_is_requeued_by_its_own_number(job):
    task = job("--step", "02-clients", CODE=75, SLURM_ARRAY_TASK_ID="", SLURM_ARRAY_JOB_ID="")
    assert task.wait() == 75
    assert job.said("requeued") == ["requeue 9"]


# ------------------------------------------------------------ a whole run, one job after another


class StandIn:
    """`sbatch` puts jobs into a file; `work` runs them in order, the tasks of an array too."""

    def __init__(self, at: Path) -> None:
        self.at, self.number, self.done = at, 0, []
        at.mkdir()
        for name, text in {
            "sbatch": 'printf "%s\\t" "$PWD" "$@" >>"$QUEUE/jobs"; echo >>"$QUEUE/jobs"\n'
            'wc -l <"$QUEUE/jobs"',
            "scontrol": "echo UP",
            "squeue": "",
        }.items():
            (at / name).write_text(f"#!/bin/bash\n{text}\n")
            (at / name).chmod(0o755)
        path = f"{at}:{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, "QUEUE": str(at)}

    def jobs(self) -> list[str]:
        path = self.at / "jobs"
        return path.read_text().splitlines() if path.exists() else []

    def submit(self, script: Path) -> None:
        subprocess.run(["bash", str(script)], env=self.env, check=True, capture_output=True)

    def work(self) -> None:
        while self.number < len(self.jobs()):
            folder, *words = self.jobs()[self.number].strip().split("\t")
            self.number += 1
            array = next((w.split("=")[1] for w in words if w.startswith("--array")), None)
            for task in [None] if array is None else _numbers(array):
                self.run(Path(folder), words, task)

    def run(self, folder: Path, words: list[str], task: int | None) -> None:
        script = words.index("slurm/job.sh")
        more = {"SLURM_JOB_ID": str(self.number)}
        if task is not None:
            more |= {"SLURM_ARRAY_JOB_ID": str(self.number), "SLURM_ARRAY_TASK_ID": str(task)}
        done = subprocess.run(
            ["bash", *words[script:]], cwd=folder, env={**self.env, **more},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.done.append((" ".join(words[script + 1 :]), task))


def _numbers(array: str) -> list[int]:
    found: list[int] = []
    for part in array.split("%")[0].split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


HEADS = {
    "safle": {"head": "safle", "experts": 4, "group_size": 2, "buckets": 4},
    "held-out": {"held_out": 0.3, "ridge": "auto"},
    "softmax": {"head": "softmax", "rounds": 2, "each_round": True, "clients": 4},
    "kept": {"keep_clients": True},
}


def by_jobs(config, at, tmp_path):
    queue = StandIn(tmp_path / "queue")
    queue.submit(slurm.prepare(config, Site(clients_per_task=3, shards=2), at))
    queue.work()
    return queue


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_jobs_make_the_files_of_a_run(name, road, tmp_path):
    """Equal digests and figures; `run` finds everything done, and nothing is missing."""
    config, at = run_of(road, **HEADS[name]), tmp_path / "my run's"
    queue = by_jobs(config, at, tmp_path)
    laptop = afltool.run(config, tmp_path / "laptop")
    for path in laptop.glob("*.h5"):
        assert afltool.info(at / path.name)["digest"] == afltool.info(path)["digest"], path.name
    assert {p.name for p in at.iterdir()} == {p.name for p in laptop.iterdir()} | {"slurm"}
    ours, theirs = (json.loads((x / "summary.json").read_text()) for x in (at, laptop))
    assert ours["top1"] == theirs["top1"]
    rounds = [[(r["phase"], r.get("top1")) for r in one["rounds"]] for one in (ours, theirs)]
    assert rounds[0] == rounds[1]
    assert queue.done[-1][0] == ""  # the run itself

    assert status(at)["state"] == "done"
    times = {p: p.stat().st_mtime_ns for p in at.glob("0*.h5")}
    afltool.run(config, at)
    assert {p: p.stat().st_mtime_ns for p in at.glob("0*.h5")} == times
    before = len(queue.jobs())
    queue.submit(at / "slurm" / "submit.sh")
    assert len(queue.jobs()) == before


@pytest.mark.slow
def test_only_what_is_missing_is_submitted(road, tmp_path):
    at = tmp_path / "run"
    queue = by_jobs(run_of(road, **HEADS["safle"]), at, tmp_path)
    before = len(queue.jobs())
    for name in ("04-total-2.h5", "05-head-2.h5", "head-final.h5", "06-metrics.json",
                 "summary.json", "slurm/parts/04-total-2-of-2/1.h5"):  # fmt: skip
        (at / name).unlink()
    assert status(at)["state"] in ("failed", "unfinished")
    queue.submit(at / "slurm" / "submit.sh")
    new = queue.jobs()[before:]
    assert len(new) == 3, "a task of the clients, their sum, the solve"
    assert "--array=1\t" in new[0]
    assert f"--dependency=afterok:{before + 1}\t" in new[1]


@pytest.mark.slow
def test_images_in_shards_are_those_of_a_run(tmp_path):
    config = RunConfig(
        data="digits", backbone="resnet18", weights="random", limit=40, image_size=32, clients=3,
        scheme="iid", ridge=1,
    )  # fmt: skip
    by_jobs(config, tmp_path / "run", tmp_path)
    laptop = afltool.run(config, tmp_path / "laptop")
    for path in laptop.glob("*.h5"):
        found = afltool.info(tmp_path / "run" / path.name)["digest"]
        assert found == afltool.info(path)["digest"], path.name


# ------------------------------------------------------------ the queue


def squeue(queue, text):
    (queue.at / "squeue").write_text(f"#!/bin/bash\n{text}\n")


@pytest.fixture
def submitted(road, tmp_path):
    """A run whose jobs have been submitted: its queue, script and what its names end with."""
    queue, at = StandIn(tmp_path / "queue"), tmp_path / "run"
    (queue.at / "sleep").write_text("#!/bin/bash\n")
    (queue.at / "sleep").chmod(0o755)
    script = slurm.prepare(run_of(road), Site(clients_per_task=3), at)
    queue.submit(script)
    assert len(queue.jobs()) == 4
    return queue, script, slurm.tag(at)


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED",
                                   "REQUEUED", "COMPLETING", "RESV_DEL_HOLD"])  # fmt: skip
def test_what_may_still_run_is_not_submitted_again(submitted, state):
    queue, script, tag = submitted
    squeue(queue, f"echo '7|{state}|04-total{tag}'\necho '8|{state}|02-clients@other'")
    queue.submit(script)
    new = queue.jobs()[4:]
    assert [re.search(r"--step\t(\S+)", one)[1] for one in new] == [
        "02-clients", "04-total", "05-head"
    ]  # fmt: skip
    assert "--part" in new[1]
    assert "--dependency=afterok:7\t" in new[2]


def test_what_has_ended_is(submitted):
    queue, script, tag = submitted
    lines = [f"{i}|{state}|04-total{tag}" for i, state in enumerate(slurm.ENDED.split("|"))]
    squeue(queue, "\n".join(f"echo '{one}'" for one in lines))
    queue.submit(script)
    assert len(queue.jobs()) == 8


def test_nothing_is_submitted_while_the_queue_does_not_answer(submitted):
    queue, script, _ = submitted
    squeue(queue, "echo 'slurm_load_jobs error: timed out' >&2\nexit 1")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        queue.submit(script)
    assert caught.value.returncode == 3
    assert b"squeue does not answer" in caught.value.stderr
    assert len(queue.jobs()) == 4


def test_a_plan_that_cannot_be_read_submits_nothing(submitted):
    queue, script, _ = submitted
    (script.parents[1] / "run.toml").write_text("clients = 0\n")
    with pytest.raises(subprocess.CalledProcessError):
        queue.submit(script)
    assert len(queue.jobs()) == 4


ODD = {
    "another line": 'echo "this job is charged to physics, 99 % remain"\necho "$number;north"',
    "no answer": "exit 1",
    "nonsense": "echo '<html>502</html>'",
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_sbatch_answers_no_job_is_submitted_twice(road, tmp_path, name):
    """A job that it took is found by its name."""
    queue, at = StandIn(tmp_path / "queue"), tmp_path / "run"
    script = slurm.prepare(run_of(road), Site(clients_per_task=3), at)
    for program, text in {
        "sleep": "",
        "sbatch": 'for word in "$@"; do case $word in --job-name=*) name=${word#*=} ;;\n'
        '--dependency=*) after=${word#*:} ;; esac; done\necho "$name ${after:-}" >>"$QUEUE/jobs"\n'
        f'number=$(wc -l <"$QUEUE/jobs")\n{ODD[name]}',
        "squeue": """cut -d' ' -f1 "$QUEUE/jobs" 2>/dev/null | awk '{print NR "|PENDING|" $1}'""",
    }.items():
        (queue.at / program).write_text(f"#!/bin/bash\n{text}\n")
        (queue.at / program).chmod(0o755)
    queue.submit(script)
    tag, names = slurm.tag(at), ("02-clients", "04-total.parts", "04-total", "05-head")
    after = ("", "1", "2", "3")
    assert queue.jobs() == [f"{a}{tag} {b}" for a, b in zip(names, after, strict=True)]
    queue.submit(script)
    assert len(queue.jobs()) == 4
