"""`study --slurm`: an array over cells, with a stand-in; test_slurm_real.py has a real Slurm."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hostile_names import NAME, Programs
from test_slurm import StandIn
from test_studies import GRID

from afltool.errors import UsageError
from afltool.papers import jobs
from afltool.papers.cells import StudyFolder
from afltool.papers.description import find, read
from afltool.papers.execution import part_of
from afltool.papers.listings import status
from afltool.plans.layout import RunFolder
from afltool.plans.slurm.site import Site


@pytest.fixture
def wanted(road, tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(GRID.format(train=road.train, test=road.test))
    return read(path)


def array(text, name):
    """The lines of a bash array in a script, as bash reads them."""
    asked = f"{text}\nprintf '%s\\n' \"${{{name}[@]}}\""
    return subprocess.check_output(["bash", "-c", asked], text=True).split()


def lists_of(script):
    return re.search(r"cells=\(.*?\n\)\nshared=\(.*?\n\)\n", script, re.S)[0]


def test_a_task_is_a_cell_and_the_partitions_of_baselines_come_first(wanted, tmp_path):
    texts = jobs.script_texts(wanted, Site(account="physics", at_once=2), tmp_path / "S")
    assert list(texts) == ["common.sh", "01-prepare.sh", "02-cells.sh", "submit.sh"]
    for name, text in texts.items():
        assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0, name
    lists = lists_of(texts["submit.sh"])
    assert array(lists, "cells") == [cell.key for cell in wanted.cells]
    first = re.search(r"cells=\(\n(.*?)\n\)", texts["01-prepare.sh"], re.S)[1].split(",")
    dealt = [(c.config.partition, c.method) for c in wanted.cells if c.key in map(str.strip, first)]
    assert {one for one, method in dealt if method} == {
        cell.config.partition for cell in wanted.cells
    }
    assert "#SBATCH --account=physics" in texts["02-cells.sh"]
    assert '%2"' in texts["submit.sh"]


def test_cells_of_runs_on_given_features_share_nothing(wanted, tmp_path):
    alone = wanted.changed({"head": "linear"})
    heads = [one for one in alone.tree["method"] if "baseline" not in one]
    only = type(wanted)(alone.name, {}, {}, {**alone.tree, "method": heads})
    assert "01-prepare.sh" not in jobs.script_texts(only, Site(), tmp_path)


def test_images_of_several_data_sets_are_extracted_by_a_task_each(wanted, tmp_path):
    images = wanted.changed({"data": ["digits", "cifar10"], "backbone": ["resnet18", "resnet34"]})
    text = jobs.script_texts(images, Site(gpus=1), tmp_path)["01-prepare.sh"]
    assert "#SBATCH --gres=gpu:1" in text
    lines = re.search(r"cells=\(\n(.*?)\n\)", text, re.S)[1].splitlines()
    by = {cell.key: cell.config.extract for cell in images.cells}
    groups = [{(by[k].data, by[k].backbone) for k in line.strip().split(",")} for line in lines]
    assert len(groups) == 4
    assert all(len(group) == 1 for group in groups)


def test_an_array_is_no_longer_than_slurm_takes(wanted, tmp_path):
    lists = lists_of(jobs.script_texts(wanted, Site(max_array=3), tmp_path)["submit.sh"])
    tasks = array(lists, "cells")
    assert [len(one.split(",")) for one in tasks] == [2, 3, 3]
    assert ",".join(tasks).split(",") == [cell.key for cell in wanted.cells]


def test_some_cells_are_named_or_a_part(wanted):
    cells = wanted.cells
    assert part_of(cells, f"{cells[5].key}, {cells[1].key}") == [cells[1], cells[5]]
    assert [c for i in range(3) for c in part_of(cells, f"{i}/3")] == cells
    with pytest.raises(UsageError, match=r"--only linear-0: no cell"):
        part_of(cells, "linear-0")


def test_scripts_are_written_printed_and_refused(road, tmp_path, cli):
    path, at = tmp_path / "small.toml", tmp_path / "S"
    path.write_text(GRID.format(train=road.train, test=road.test))
    few = ["study", path, "-o", at, "--seeds", 1]
    shown = cli(*few, "--slurm", "--print", "--job-memory", "2G")
    assert "#SBATCH --mem=2G" in shown.stdout
    assert not at.exists()
    for wrong in (["--submit"], ["--account", "a"], ["--slurm", "--print", "--submit"],
                  ["--slurm", "--only", "0/2"], ["--slurm", "--most", 3]):  # fmt: skip
        refused = cli(*few, *wrong)
        assert refused.exit_code == 2, wrong
        assert not at.exists()
    made = cli(*few, "--slurm")
    assert made.stdout == f"{at / 'slurm' / 'submit.sh'}\n"
    found = status(at)
    assert found["counts"] == {"missing": 4}
    assert found["continue"] == f"bash {at / 'slurm' / 'submit.sh'}"
    assert found["todo"] == [cell.key for cell in find(str(at)).cells]


def test_what_is_missing_is_submitted_and_status_asks_the_queue(wanted, tmp_path, monkeypatch):
    at, stand_in = tmp_path / "S", StandIn(tmp_path / "queue")
    script, cells = jobs.prepare(wanted, Site(), at), wanted.cells
    todo = [cells[2].key, cells[5].key]
    (stand_in.at / "afltool").write_text(f"#!/bin/bash\necho '{json.dumps(todo)}'\n")
    (stand_in.at / "afltool").chmod(0o755)
    stand_in.submit(script)
    first, second = (job.split("\t") for job in stand_in.jobs())
    assert {"--array=0", "01-prepare.sh"} <= set(first)
    assert {"--array=2,5", "--dependency=afterany:1", "02-cells.sh"} <= set(second)
    folder = StudyFolder(at)
    monkeypatch.setenv("PATH", stand_in.env["PATH"])
    (stand_in.at / "squeue").write_text("#!/bin/bash\necho '2|2|RUNNING|None|02-cells-1'\n")
    logs = at / RunFolder.LOGS
    logs.mkdir(exist_ok=True)
    (logs / f"{jobs.CELLS}-1-2_5.log").write_text("slurmstepd: error: exceeded memory limit\n")
    states = jobs.states(folder, todo)
    assert states[todo[0]] == ("running", None)
    assert states[todo[1]] == ("failed", "slurmstepd: error: exceeded memory limit")
    (stand_in.at / "squeue").write_text("#!/bin/bash\nexit 1\n")
    assert {state for state, _ in jobs.states(folder, todo).values()} == {"unknown"}
    (stand_in.at / "afltool").write_text("#!/bin/bash\necho '[]'\n")
    stand_in.submit(script)
    assert len(stand_in.jobs()) == 2, "nothing is missing"


@pytest.mark.parametrize(
    ("squeue", "shown"),
    [("echo '2|3|RUNNING|None|02-cells-1'", "running"), ("exit 1", "failed"), ("true", "failed")],
)
def test_a_cell_that_failed_is_so_unless_it_is_in_the_queue_again(
    wanted, tmp_path, monkeypatch, squeue, shown
):
    folder, cell = StudyFolder(tmp_path / "S"), wanted.cells[3]
    stand_in = StandIn(tmp_path / "queue")
    (stand_in.at / "afltool").write_text(f"#!/bin/bash\necho '{json.dumps([cell.key])}'\n")
    (stand_in.at / "afltool").chmod(0o755)
    stand_in.submit(jobs.prepare(wanted, Site(), folder.root))
    (stand_in.at / "squeue").write_text(f"#!/bin/bash\n{squeue}\n")
    monkeypatch.setenv("PATH", stand_in.env["PATH"])
    folder.cell(cell.key).mkdir(parents=True)
    wanted.keep(folder)
    (folder.cell(cell.key) / StudyFolder.FAILED).write_text("out of memory\n")
    (found,) = (
        c for c in status(folder.root)["cells"] if c["folder"] == str(folder.cell(cell.key))
    )
    assert found["state"] == shown
    assert found["why"] == ("out of memory" if shown == "failed" else None)


# ------------------------------------------------------------ text of the user in scripts


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    bash = Programs(tmp_path, monkeypatch)
    yield bash
    bash.check()


def hostile_study(road):
    """A study of a head file and a baseline, each with names that a shell could carry out."""
    shutil.copy(road.head0, f"{NAME}.h5")
    Path("-s.toml").write_text(
        f"train-features = {json.dumps(str(road.train))}\n"
        f"test-features = {json.dumps(str(road.test))}\nclients = 3\n[[method]]\n"
        f"head = {json.dumps(f'{NAME}.h5')}\ncache = 'c $(touch X5)'\n"
        "[[method]]\nbaseline = 'fedavg'\nrounds = 1\nlabel = '$(touch X6)'\n"
    )
    return read(Path("-s.toml"))


def test_names_of_the_user_arrive_in_the_jobs_of_a_study(hostile, road, cli):
    cells, folder = hostile_study(road).cells, hostile.at / "S"
    keys = [cell.key for cell in cells]
    assert all(re.fullmatch(r"[A-Za-z0-9.+-]+", key) for key in keys), keys
    asked = ["study", "./-s.toml", "-o", "S", "--slurm"]
    printed = json.loads(cli(*asked, "--print", "--json").stdout)
    assert cli(*asked).exit_code == 0
    assert {p.name: p.read_text() for p in (folder / "slurm").glob("*.sh")} == printed
    (hostile.stub / "todo").write_text(json.dumps(keys))
    hostile(folder / "slurm" / "submit.sh")
    assert [call[-2] for call in hostile.told("sbatch")] == ["01-prepare.sh", "02-cells.sh"]
    assert hostile.told("afltool") == [["status", str(folder), "--field", "todo"]]
    for task, key in enumerate(keys):
        hostile(folder / "slurm" / "02-cells.sh", SLURM_ARRAY_TASK_ID=str(task))
        (told,) = hostile.told("afltool")
        assert told == ["study", str(folder), "--most", "2", "--only", key]


def test_printed_lines_of_a_study_mean_its_cells(hostile, road, cli):
    cells = hostile_study(road).cells
    script = cli("study", "-o", "-S $(touch X7)", "--print", "--", "-s.toml").stdout
    Path("cells.sh").write_text(script)
    hostile("cells.sh")
    folder = StudyFolder("-S $(touch X7)")
    own = [words for cell in cells for words in cell.commands(folder)[0]]
    own += [cell.commands(folder)[1] for cell in cells]
    last = ["study", "./-s.toml", "--out", "-S $(touch X7)"]
    assert hostile.told("afltool") == [*own, last]
    assert len(script.splitlines()) == len(own) + 4, "one line a command, for parallel"


@pytest.mark.parametrize("unfit", ["a\ntouch X1\n#", "a\x1b[31m", "\udcff"])
@pytest.mark.parametrize("how", [["--slurm"], ["--slurm", "--print"], ["--print"]])
def test_what_cannot_be_printed_is_in_no_script_of_a_study(unfit, how, hostile, road, cli):
    hostile_study(road)
    before = set(Path().iterdir())
    places = [["-o", unfit]] + [["-o", "S", "--cache", unfit]] * (how == ["--print"])
    for given in places:
        done = cli("study", "./-s.toml", *given, *how)
        assert done.exit_code == 2
        assert "cannot name" in done.stderr
        assert set(Path().iterdir()) == before
