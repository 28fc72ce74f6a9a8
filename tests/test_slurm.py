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

import pytest
from hostile_names import NAME, WORD, Programs, asked_of_sbatch, sbatch_words
from hypothesis import given
from hypothesis import strategies as st

import afltool
from afltool.errors import CorruptFileError, OutputExistsError, UsageError
from afltool.plans.config import RunConfig, read_config
from afltool.plans.layout import RunFolder
from afltool.plans.slurm import jobs as slurm
from afltool.plans.slurm import quoting as shell
from afltool.plans.slurm.site import Site, make_site
from afltool.plans.slurm.steps import jobs

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
    site = tmp_path / "site.toml"
    site.write_text(SITE if name == "images" else "")
    files = {"/data/my train.h5": road.train, "/data/train.h5": road.train,
             "/data/test.h5": road.test, "/data/head0.h5": road.head0}  # fmt: skip
    given = [files.get(word, word) for word in RUNS[name]]
    args = [*given, "-o", "/scratch/run", "--site", site, "--print"]
    printed = json.loads(cli("slurm", *args, "--json").stdout)
    texts = {k: v.replace(str(road.head0), "/data/head0.h5") for k, v in printed.items()}
    if os.environ.get("AFLTOOL_WRITE_GOLDEN"):
        (GOLDEN / name).mkdir(parents=True, exist_ok=True)
        for script, text in texts.items():
            (GOLDEN / name / script).write_text(text)
    assert {p.name for p in (GOLDEN / name).iterdir()} == set(texts)
    for script, text in texts.items():
        assert text.splitlines() == (GOLDEN / name / script).read_text().splitlines(), script
        assert max(map(len, text.splitlines())) <= 110, script
        assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0, script
    assert cli("slurm", *args).stdout.count("#####") == len(texts)
    assert not Path("/scratch/run").exists()


@given(st.integers(1, 20_000), st.integers(1, 200))
def test_every_task_has_at_most_so_many_clients_and_no_task_is_too_many(clients, each):
    config = RunConfig(data="digits", backbone="resnet18", clients=clients)
    planned = jobs(config, Site(clients_per_task=each))
    [tasks] = [job.tasks for job in planned if job.stage == "local-stats"]
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
        ("acount = 'a'", r"'acount' is no option of a site; did you mean 'account'"),
        ("cpus = 'two'", r"cpus takes a whole number; found 'two'"),
        ("cpus = 0", r"--cpus is 1 to 10.6; found 0"),
        ("fan-in = 16", r"'fan-in' is no option of a site"),
        ("time = 'long'", r"--time is like 90, 01:30:00 or 2-12:00, and above 0; found 'long'"),
        ("[solve]\nmemory = 'lots'", r"--memory is like 4000M or 4G, and above 0; found 'lots'"),
        ("[slove]\nmemory = '4G'", r"\[slove\] is not a stage"),
        ("[solve]\nshards = 4", r"'shards' is no option of a site"),
        ("account = 'a b'", r"--account is one word; found 'a b'"),
        ("setup = 'module load x'", r"setup is a list of lines"),
        ("at-once = 1\nat_once = 2", r"'at-once' and 'at_once': these are one option, twice"),
        ("at-once = 0", r"--at-once is 1 to 10.6; found 0"),
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
            "no_momentum": st.booleans(),
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


def test_preparing_again_is_nothing_new_and_another_run_is_refused(road, tmp_path):
    at = tmp_path / "run"
    script = slurm.prepare(run_of(road), Site(), at)
    before = {p: p.read_text() for p in script.parent.glob("*.sh")}
    assert slurm.prepare(run_of(road), Site(), at) == script
    assert {p: p.read_text() for p in script.parent.glob("*.sh")} == before
    with pytest.raises(OutputExistsError, match=r"run\.toml is of a run with other options: alpha"):
        slurm.prepare(run_of(road, alpha=7.0), Site(), at)
    slurm.prepare(run_of(road), Site(clients_per_task=1, time="5"), at)
    assert "--time=5" in (at / "slurm" / "05-solve.sh").read_text()
    slurm.prepare(run_of(road), Site(), at)
    assert {p.name for p in script.parent.glob("*.sh")} == {p.name for p in before}


def test_scripts_of_somebody_else_are_neither_replaced_nor_removed(road, tmp_path):
    """Written or changed by hand; those that were written before there was a record are ours."""
    at = tmp_path / "run"
    slurm.prepare(run_of(road), Site(), at)
    folder = at / "slurm"
    (folder / "my-own.sh").write_text("echo mine\n")
    for name in ("05-solve.sh", "submit.sh"):
        written = (folder / name).read_text()
        (folder / name).write_text(written + "# my line\n")
        before = {p: p.read_bytes() for p in folder.glob("*") if p.is_file()}
        with pytest.raises(OutputExistsError, match=name):
            slurm.prepare(run_of(road), Site(time="7"), at)
        assert {p: p.read_bytes() for p in folder.glob("*") if p.is_file()} == before
        (folder / name).write_text(written)
    (folder / "scripts.json").unlink()
    slurm.prepare(run_of(road), Site(time="7"), at)
    assert "--time=7" in (folder / "05-solve.sh").read_text()
    assert (folder / "my-own.sh").read_text() == "echo mine\n"
    (folder / "plan.json").write_text('{"mine": 1}')
    with pytest.raises(OutputExistsError, match=r"plan\.json"):
        slurm.prepare(run_of(road), Site(), at)


def test_what_solve_and_evaluate_alone_use_may_differ_until_they_are_done(road, tmp_path):
    """The scripts are written again and tell `solve` what is new; what was gathered is kept."""
    at, place = tmp_path / "run", RunFolder(tmp_path / "run")
    slurm.prepare(run_of(road, ridge=0), Site(), at)
    made = place.first_head.stat().st_ino
    script = at / "slurm" / "05-solve.sh"
    assert "--ridge" not in script.read_text().split("stage solve")[1]
    slurm.prepare(run_of(road, ridge="auto", separability=True), Site(), at)
    assert place.first_head.stat().st_ino == made
    assert "--ridge auto" in script.read_text().split("stage solve")[1]
    assert RunConfig(**read_config(place.options)).head_options == {"ridge": "auto"}
    assert afltool.run(RunConfig(**read_config(place.options)), at) == at
    assert afltool.info(at / "05-head.h5")["options"]["ridge"] == "auto"
    for more in ({"ridge": 2.0, "separability": True}, {"ridge": "auto"}, {"gamma": 1.0}):
        with pytest.raises(OutputExistsError, match="is of a run with other options"):
            slurm.prepare(run_of(road, **more), Site(), at)
    other = tmp_path / "other"
    slurm.prepare(run_of(road, min_norm=True), Site(), other)
    with pytest.raises(OutputExistsError, match="made with --min-norm, which a script cannot"):
        slurm.prepare(run_of(road), Site(), other)


def test_a_job_without_a_ridge_says_the_command_that_goes_on(job, tmp_path):
    assert job("05-solve", CODE=5).wait() == 5
    said = (job.folder / "stderr").read_text()
    words = shlex.split(said[said.index("afltool slurm") :])
    run = tmp_path / "run"
    assert words == ["afltool", "slurm", f"{run}/run.toml", "-o", str(run), "--ridge", "auto",
                     "--submit"]  # fmt: skip


def test_wrong_options_are_refused_before_anything_is_written(road, cli, tmp_path):
    args = ["--train-features", road.train, "--test-features", road.test, "-o", tmp_path / "run"]
    assert cli("slurm", *args, "--print", "--submit").exit_code == 2
    assert cli("slurm", *args, "--fan-in", 16).exit_code == 2
    assert cli("slurm", *args, "--head", "safle", "--buckets", 1).exit_code == 2
    assert not list(tmp_path.glob("run/slurm/*.sh"))


def test_without_slurm_submitting_says_so(road, cli, tmp_path, monkeypatch):
    empty = tmp_path / "bin"
    empty.mkdir()
    for name in ("bash", "sleep", "mkdir", "grep", "flock", "tail"):
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
    given = [
        "--train-features",
        road.train,
        "--test-features",
        road.test,
        "--cache",
        "c $(touch X5)",
    ]
    words = [word for name in ("partition-name", "account", "qos") for word in (f"--{name}", WORD)]
    args = [*given, *words, "--head", f"{NAME}.h5", "--venv", "env", "-o", "run", "--site", site]
    printed = json.loads(cli("slurm", *args, "--print", "--json").stdout)
    assert cli("slurm", *args).exit_code == 0
    written = {p.name: p.read_text() for p in (run / "slurm").glob("*.sh")}
    assert written == printed

    hostile(run / "slurm" / "submit.sh")
    calls, steps = hostile.told("sbatch"), ("02-partition", "04-local-stats", "04-aggregate")
    assert [call[-2:] for call in calls] == [[f"{one}.sh", "1"] for one in (*steps, "05-solve")]
    for call in calls:
        asked = asked_of_sbatch(written[call[-2]])
        assert {asked[f"--{name}"] for name in ("partition", "account", "qos")} == {WORD}
        assert asked["--chdir"] == str(at)
        pattern = asked["--output"].replace("%%", "\0")
        assert re.sub("%[A-Za-z]", "N", pattern).replace("\0", "%") in {
            str(run / "slurm" / "log" / one) for one in ("N-N.log", "N-N_N.log")
        }  # fmt: skip
    for name, text in written.items():
        if name[0] == "0":
            assert asked_of_sbatch(text).keys() >= {"--job-name", "--time", "--mem"}

    hostile(
        run / "slurm" / "04-local-stats.sh", "1", SLURM_ARRAY_TASK_ID="1", SLURM_ARRAY_JOB_ID="7"
    )
    parts = run / "slurm" / "parts" / "round-1" / "sums-of-2"
    assert hostile.told("afltool") == [[
        "local-stats", str(run / "01-features-train.h5"),
        "--partition", str(run / "02-clients.h5"), "--head", str(at / f"{NAME}.h5"),
        "--sum", "--cache", str(at / "c $(touch X5)"), "--only", "1/2", "-o", str(parts / "1.h5"),
    ]]  # fmt: skip
    assert (hostile.stub / "activated").exists()
    assert (hostile.stub / "setup").read_text() == "2\n", "setup lines are meant to be shell"


def test_options_that_are_text_arrive_as_they_are(hostile, road, cli, tmp_path):
    table = hostile.at / "-t.csv"
    clients = cli("partition", road.clients, "--export", table)
    assert clients.exit_code == 0
    table.write_text(table.read_text().replace("client", '"-x $(touch X6)"', 1))
    args = [
        "--train-features",
        road.train,
        "--test-features",
        road.test,
        "--scheme",
        "by-attribute",
    ]
    assert (
        cli("slurm", *args, "--table", "-t.csv", "--column", "-x $(touch X6)", "-o", "-r").exit_code
        == 0
    )
    script = hostile.at / "-r" / "slurm" / "02-partition.sh"
    hostile(script)
    (told,) = hostile.told("afltool")
    assert told[told.index("--table") + 1] == str(table)
    assert told[told.index("--column") + 1] == "-x $(touch X6)"


#: What no script may have in it, and places where a user could write it.
UNFIT = ["a\ntouch X\n#", "a\rb", "\x1b[31m", "\u202e", "\udcff"]
PLACES = {
    "the folder": ["-o", "{}"],
    "a folder for scratch": ["-o", "run", "--cache", "{}"],
    "the environment": ["-o", "run", "--venv", "{}"],
    "an account": ["-o", "run", "--account", "{}"],
    "the head": ["-o", "run", "--head", "{}/head.h5"],
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("unfit", UNFIT)
def test_what_cannot_be_printed_is_in_no_script(place, unfit, road, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set()
    if place == "the head":
        Path(unfit).mkdir()
        shutil.copy(road.head0, Path(unfit) / "head.h5")
        before = {Path(unfit)}
    given = ["--train-features", road.train, "--test-features", road.test]
    for how in ([], ["--print"]):
        done = cli("slurm", *given, *how, *(one.format(unfit) for one in PLACES[place]))
        assert done.exit_code == 2, done.stdout
        assert "Traceback" not in done.stderr
        assert set(Path().iterdir()) == before


@pytest.mark.parametrize("unfit", UNFIT)
def test_nor_is_the_working_directory(unfit, road, cli, tmp_path, monkeypatch):
    (tmp_path / unfit).mkdir()
    monkeypatch.chdir(tmp_path / unfit)
    given = ["--train-features", road.train, "--test-features", road.test]
    done = cli("slurm", *given, "-o", tmp_path / "run")
    assert done.exit_code == 2
    assert "a shell script cannot name" in done.stderr
    assert not (tmp_path / "run").exists()


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
def test_what_can_be_printed_arrives_in_a_script_and_at_sbatch(text):
    assert sbatch_words(f" --account={shell.for_sbatch(text)}") == [f"--account={text}"]
    assert shlex.split(shell.quoted(text)) == [text]


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

    def start(name, **more):
        script = tmp_path / "run" / "slurm" / f"{name}.sh"
        env = {**environment, **{k: str(v) for k, v in more.items()}}
        with (stub / "stderr").open("w") as file:
            return subprocess.Popen(["bash", str(script)], env=env, stderr=file)

    def said(name):
        path = stub / name
        return path.read_text().splitlines() if path.exists() else []

    start.said, start.folder = said, stub
    return start


def test_a_task_calls_its_stages_with_its_part(job, tmp_path):
    assert job("04-aggregate").wait() == 0
    parts = tmp_path / "run" / "slurm" / "parts" / "round-1"
    assert job.said("calls") == [
        f"aggregate {parts}/held-sums-of-3 -o {parts.parents[2]}/04-held-out.h5",
        f"aggregate {parts}/sums-of-3 -o {parts.parents[2]}/04-total.h5",
    ]


@pytest.mark.parametrize(
    ("code", "restarts", "again"),
    [(0, 0, False), (75, 0, True), (75, 99, True), (75, 100, False), (3, 2, True), (3, 3, False),
     (137, 4, True), (137, 5, False), (1, 0, False), (2, 0, False), (4, 0, False), (5, 0, False)],
)  # fmt: skip
def test_what_a_second_try_may_mend_goes_back_into_the_queue_alone(job, code, restarts, again):
    task = job("04-local-stats", CODE=code, SLURM_RESTART_COUNT=restarts)
    assert task.wait() == code
    assert job.said("requeued") == (["requeue 7_1"] if again else [])


@pytest.mark.parametrize(("number", "again"), [(signal.SIGUSR1, True), (signal.SIGTERM, False)])
def test_a_signal_to_the_script_stops_its_stage_and_only_a_warning_requeues(job, number, again):
    task = job("04-local-stats", WAIT=200)
    while not (job.folder / "started").exists():
        time.sleep(0.01)
    task.send_signal(number)
    assert task.wait() == 75
    assert job.said("signals") == ["told"]
    assert job.said("requeued") == (["requeue 7_1"] if again else [])


def test_a_job_that_is_no_array_is_requeued_by_its_own_number(job):
    task = job("02-partition", CODE=75, SLURM_ARRAY_TASK_ID="", SLURM_ARRAY_JOB_ID="")
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
        script, *arguments = [w for w in words if not w.startswith("--")]
        more = {"SLURM_JOB_ID": str(self.number)}
        if task is not None:
            more |= {"SLURM_ARRAY_JOB_ID": str(self.number), "SLURM_ARRAY_TASK_ID": str(task)}
        done = subprocess.run(
            ["bash", script, *arguments], cwd=folder, env={**self.env, **more},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        self.done.append((script, task))


def _numbers(array: str) -> list[int]:
    found: list[int] = []
    for part in array.split("%")[0].split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


@pytest.mark.slow
def test_jobs_make_the_files_of_a_run_and_only_what_is_missing_is_submitted(road, tmp_path):
    """Two rounds: equal digests; `run` finds everything done, and nothing is missing."""
    config = run_of(road, head="safle", experts=4, group_size=2, buckets=4)
    at, queue = tmp_path / "run", StandIn(tmp_path / "queue")
    script = slurm.prepare(config, Site(clients_per_task=3), at)
    queue.submit(script)
    queue.work()
    laptop = afltool.run(config, tmp_path / "laptop")
    for name in ("02-clients.h5", "04-total.h5", "04-total-2.h5", "05-head-2.h5", "head-final.h5"):
        assert afltool.info(at / name)["digest"] == afltool.info(laptop / name)["digest"], name
    rounds = [script for script, _ in queue.done]
    assert rounds.count("05-solve.sh") == 2
    assert rounds.count("04-local-stats.sh") == 4
    assert rounds[-1] == "06-evaluate.sh"

    times = {p: p.stat().st_mtime_ns for p in at.glob("0*.h5")}
    afltool.run(config, at)
    assert {p: p.stat().st_mtime_ns for p in at.glob("0*.h5")} == times
    assert {p.name for p in at.iterdir()} == {p.name for p in laptop.iterdir()} | {"slurm"}

    before = len(queue.jobs())
    queue.submit(script)
    assert len(queue.jobs()) == before
    (at / "04-total-2.h5").unlink()
    (at / "05-head-2.h5").unlink()
    (at / "slurm/parts/round-2/sums-of-2/1.h5").unlink()
    queue.submit(script)
    new = [re.sub(r"\s+", " ", job) for job in queue.jobs()[before:]]
    assert len(new) == 3, "a task of the clients, their sum, the solve"
    assert "--array=1 04-local-stats.sh 2" in new[0]
    assert f"--dependency=afterok:{before + 1} " in new[1]


@pytest.mark.parametrize(("theirs", "again"), [(False, 0), (True, 4)])
def test_a_job_in_the_queue_is_not_submitted_again_and_a_number_alone_is_no_job(
    theirs, again, road, tmp_path
):
    """A controller that lost its last minutes gives the numbers of lost jobs to others."""
    queue = StandIn(tmp_path / "queue")
    script = slurm.prepare(run_of(road), Site(clients_per_task=3), tmp_path / "run")
    queue.submit(script)
    of_others = '[[ " $* " == *" -n "* ]] || ' if theirs else ""
    (queue.at / "squeue").write_text(f"#!/bin/bash\n{of_others}echo 7\n")
    before = len(queue.jobs())
    queue.submit(script)
    assert (before, len(queue.jobs()) - before) == (4, again)


@pytest.mark.slow
def test_jobs_evaluate_every_round_as_run_does(road, tmp_path):
    """A softmax head's file holds its own round alone: the earlier ones are asked, too."""
    config = run_of(road, head="softmax", rounds=3, each_round=True, clients=4)
    queue, at = StandIn(tmp_path / "queue"), tmp_path / "run"
    queue.submit(slurm.prepare(config, Site(clients_per_task=4), at))
    queue.work()
    laptop = afltool.run(config, tmp_path / "laptop")
    ours, theirs = (json.loads((f / "06-metrics.json").read_text()) for f in (at, laptop))

    def figures(found):
        return [(one["phase"], one.get("top1")) for one in found["rounds"]]

    assert figures(ours) == figures(theirs)
    assert len([top1 for _, top1 in figures(ours) if top1 is not None]) >= 3
    assert (at / "06-rounds.csv").exists()
