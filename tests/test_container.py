"""Jobs whose command is in an image, by an apptainer that notes its words and obeys."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

from afltool.errors import UsageError
from afltool.plans.slurm.jobs import scripts
from afltool.plans.slurm.site import Site

APPTAINER = """#!/bin/bash
printf '%s\\n' "$@" >>"$LOG"
[ "$1" = exec ] && shift
while [ "$1" != /images/afltool.sif ]; do shift; done
shift
exec "$@"
"""
AFLTOOL = """#!/bin/bash
trap 'echo stopped >>"$LOG"; exit 75' USR1
echo "afltool $*"
case "$*" in
    *wait) touch "$LOG.ready"; for i in $(seq 200); do sleep 0.05; done ;;
    *fail) exit 4 ;;
esac
"""


@pytest.fixture
def job(tmp_path):
    """Run job.sh of a folder, with an afltool that only the image has."""
    image, run = tmp_path / "image", tmp_path / "a run"
    for folder in (image, tmp_path / "bin", run):
        folder.mkdir()
    (image / "afltool").write_text(AFLTOOL)
    (tmp_path / "bin" / "apptainer").write_text(
        APPTAINER.replace('exec "$@"', f'PATH={image}:$PATH exec "$@"')
    )
    (tmp_path / "bin" / "scontrol").write_text("#!/bin/bash\n")
    for path in (*image.iterdir(), *(tmp_path / "bin").iterdir()):
        path.chmod(0o755)
    script = tmp_path / "job.sh"
    texts = scripts(run, Site(container="/images/afltool.sif"), "run run.toml -o .", "")
    script.write_text(texts["job.sh"])
    env = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "LOG": str(tmp_path / "log"),
        "SLURM_JOB_ID": "7",
    }

    def start(*words, **more):
        return subprocess.Popen(
            ["bash", script, *words], env={**env, **more}, stdout=subprocess.PIPE, text=True
        )

    def said(*words, **more):
        process = start(*words, **more)
        out, _ = process.communicate()
        return process.returncode, out, (tmp_path / "log").read_text().splitlines()

    said.start = start
    return said


def test_a_step_runs_in_the_image_with_the_run_in_sight(job, tmp_path):
    code, out, words = job("--step", "04-total")
    assert (code, out) == (0, "afltool run run.toml -o . --step 04-total\n")
    binds = ["--bind", str(tmp_path / "a run"), "--bind", os.environ["AFLTOOL_STORE"]]
    start = ["exec", *binds, "/images/afltool.sif", "afltool"]
    assert words[:8] == [*start, "run"]


def test_jobs_with_a_gpu_say_so(job):
    assert job(SLURM_JOB_GPUS="0")[2][:3] == ["exec", "--nv", "--bind"]


def test_its_exit_code_is_the_jobs(job):
    assert job("fail")[0] == 4


def test_a_signal_reaches_the_command_in_the_image(job, tmp_path):
    process = job.start("wait")
    while not (tmp_path / "log.ready").exists():
        time.sleep(0.02)
    process.send_signal(signal.SIGUSR1)
    process.communicate()
    assert process.returncode == 75
    assert (tmp_path / "log").read_text().splitlines()[-1] == "stopped"


def test_the_scripts_of_a_run_have_it_and_an_environment_beside_it_is_refused(road, cli):
    given = ["--train-features", road.train, "--test-features", road.test, "-o", road.folder / "c"]
    printed = cli("slurm", *given, "--container", "docker://some/image:1", "--dry-run", "--json")
    line = (
        'run=(apptainer exec ${SLURM_JOB_GPUS:+--nv} --bind "$PWD" --bind "$AFLTOOL_STORE" '
        "docker://some/image:1 afltool)"
    )
    texts = json.loads(printed.stdout)
    assert line in texts["job.sh"]
    assert line in texts["submit.sh"]
    with pytest.raises(UsageError, match="--container has its own afltool"):
        Site(container="x.sif", venv=road.folder)
