"""Jobs whose command is in an image, by an apptainer that notes its words and obeys."""

from __future__ import annotations

import json
import subprocess

import pytest

from afltool.errors import UsageError
from afltool.plans.slurm.scripts import shared
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
if [ "$1" = wait ]; then touch "$LOG.ready"; for i in $(seq 200); do sleep 0.05; done; fi
[ "$1" != fail ] || exit 4
"""


@pytest.fixture
def job(tmp_path):
    """Run lines of bash after common.sh, with an afltool that only the image has."""
    image = tmp_path / "image"
    image.mkdir()
    (tmp_path / "bin").mkdir()
    for path, text in ((tmp_path / "bin" / "apptainer", APPTAINER), (image / "afltool", AFLTOOL)):
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / "bin" / "apptainer").write_text(
        APPTAINER.replace('exec "$@"', f'PATH={image}:$PATH exec "$@"')
    )
    common = tmp_path / "common.sh"
    common.write_text(shared(tmp_path / "a run", Site(container="/images/afltool.sif")))
    env = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "LOG": str(tmp_path / "log"),
        "SLURM_JOB_ID": "7",
    }

    def run(lines, **more):
        done = subprocess.run(
            ["bash", "-c", f"source {common}\nscontrol() {{ :; }}\n{lines}"],
            env={**env, **more}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done, (tmp_path / "log").read_text().splitlines()

    return run


def test_a_stage_runs_in_the_image_with_the_run_in_sight(job, tmp_path):
    done, words = job('stage solve total.h5; echo "then $(afltool info x)"; afltool last')
    assert done.returncode == 0, done.stderr
    assert done.stdout == "afltool solve total.h5\nthen afltool info x\nafltool last\n"
    start = ["exec", "--bind", str(tmp_path / "a run"), "/images/afltool.sif", "afltool"]
    assert words[:6] == [*start, "solve"]


def test_jobs_with_a_gpu_say_so(job):
    assert job("stage extract", SLURM_JOB_GPUS="0")[1][:3] == ["exec", "--nv", "--bind"]


def test_its_exit_code_is_the_jobs(job):
    assert job("stage fail; echo never")[0].returncode == 4


def test_a_signal_reaches_the_command_in_the_image(job, tmp_path):
    wait = 'while [ ! -e "$LOG.ready" ]; do sleep 0.02; done'
    done, words = job(f"({wait}; kill -USR1 $$) & stage wait")
    assert words[-1] == "stopped"
    assert done.returncode == 75


def test_the_scripts_of_a_run_have_it_and_an_environment_beside_it_is_refused(road, cli):
    given = ["--train-features", road.train, "--test-features", road.test, "-o", road.folder / "c"]
    printed = cli("slurm", *given, "--container", "docker://some/image:1", "--print", "--json")
    texts = json.loads(printed.stdout)
    assert (
        'apptainer exec ${SLURM_JOB_GPUS:+--nv} --bind "$RUN" docker://some/image:1 afltool'
        in (texts["common.sh"])
    )
    with pytest.raises(UsageError, match="--container has its own afltool"):
        Site(container="x.sif", venv=road.folder)
