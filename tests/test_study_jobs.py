"""`study --slurm`: an array over cells, with a stand-in; test_slurm_real.py has a real Slurm."""

from __future__ import annotations

import subprocess

import pytest
from test_slurm import StandIn
from test_studies import GRID

from afltool.errors import UsageError
from afltool.lab.studies import execution as jobs
from afltool.lab.studies.cells import StudyFolder
from afltool.lab.studies.execution import carry_out, status
from afltool.lab.studies.options import StudyOptions
from afltool.lab.studies.spec import read_study
from afltool.lab.studies.worker import select_part
from afltool.runs.slurm import jobs as slurm
from afltool.runs.slurm.site import Site


@pytest.fixture
def wanted(described):
    return read_study(described(GRID))


def test_a_task_is_a_cell(wanted, tmp_path):
    texts = jobs.script_texts(wanted, Site(account="physics", at_once=2), tmp_path / "S")
    assert list(texts) == ["job.sh", "submit.sh", "jobs"]
    for name, text in texts.items():
        assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0, name
    count = len(wanted.cells)
    assert f"--array=0-{count - 1}%2 " in texts["jobs"]
    assert texts["jobs"].endswith(f"slurm/job.sh --only %I/{count}\n")
    assert "--account=physics" in texts["jobs"]
    assert "study . " in texts["job.sh"]
    fewer = jobs.script_texts(wanted, Site(max_array=3), tmp_path / "S")["jobs"]
    assert "--array=0-2 " in fewer, "no array is longer than Slurm takes"
    assert fewer.endswith("--only %I/3\n")


def test_some_cells_are_named_or_a_part(wanted):
    cells = wanted.cells
    assert select_part(cells, f"{cells[3].key}, {cells[1].key}") == [cells[1], cells[3]]
    assert [c for i in range(3) for c in select_part(cells, f"{i}/3")] == cells
    with pytest.raises(UsageError, match=r"--only linear-0: no cell"):
        select_part(cells, "linear-0")


def test_scripts_are_written_printed_and_refused(described, tmp_path, cli):
    at = tmp_path / "S"
    few = ["study", described(GRID), "-o", at]
    shown = cli(*few, "--slurm", "--dry-run", "--job-memory", "2G")
    assert "--mem=2G" in shown.stdout
    assert not at.exists()
    for wrong in (["--submit"], ["--account", "a"], ["--slurm", "--dry-run", "--submit"],
                  ["--dry-run"], ["--slurm", "--only", "0/2"], ["--print"]):  # fmt: skip
        refused = cli(*few, *wrong)
        assert refused.exit_code == 2, wrong
        assert not at.exists()
    made = cli(*few, "--slurm")
    assert made.stdout == f"{at / 'slurm' / 'submit.sh'}\n"
    found = status(at)
    assert found["counts"] == {"missing": 4}
    assert found["continue"] == f"bash {at / 'slurm' / 'submit.sh'}"


def test_cells_without_result_are_submitted_once(wanted, tmp_path):
    at, stand_in = tmp_path / "S", StandIn(tmp_path / "queue")
    script = jobs.prepare(wanted, Site(), at)

    def submit():
        stand_in.submit(script, jobs.next_lines)
        return stand_in.jobs()

    (job,) = submit()
    assert f"--array=0-{len(wanted.cells) - 1}\t" in job
    stand_in.answers(f"echo '1|PENDING|cells{slurm.tag(at)}'")
    assert len(submit()) == 1, "it is in the queue"
    stand_in.answers("")
    folder = StudyFolder(at)
    carry_out(wanted, folder, StudyOptions(only=f"{wanted.cells[0].key},{wanted.cells[2].key}"))
    todo = [i for i in range(len(wanted.cells)) if i not in (0, 2)]
    assert f"--array={','.join(map(str, todo))}\t" in submit()[1]
    carry_out(wanted, folder, StudyOptions())
    assert len(submit()) == 2, "nothing is missing"
