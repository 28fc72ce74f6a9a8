"""Other parts and plug-ins add commands through doors; the main part loads them when asked."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from conftest import COMMAND

import afltool
from afltool.doors import doors, left_out, opened

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"


def installed(tmp_path, section):
    """A toy of docs/extending.md, as pip installs a package; what it returns runs a command."""
    text = PAGE.read_text().split(f"\n## {section}\n")[1].split("\n## ")[0]
    codes = {kind: re.search(rf"```{kind}\n(.*?)```", text, re.S)[1] for kind in ("toml", "python")}
    ((group, names),) = tomllib.loads(codes["toml"])["project"]["entry-points"].items()
    (tmp_path / "toy.py").write_text(codes["python"])
    info = tmp_path / "toy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    lines = [f"[{group}]", *(f"{name} = {module}" for name, module in names.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))

    def run(*words):
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        return subprocess.run(
            [COMMAND, *map(str, words)],
            env={**os.environ, "PYTHONPATH": path.rstrip(os.pathsep)},
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def toy(tmp_path):
    return installed(tmp_path, "Commands of another package")


@pytest.fixture
def toy_stage(tmp_path):
    return installed(tmp_path, "A stage")


def test_a_package_adds_a_command(toy, tmp_path):
    assert "toy-bytes               Print how many bytes a file has." in toy("-h").stdout
    assert toy("toy-bytes", "-h").stdout.startswith("Usage: afltool toy-bytes")
    (tmp_path / "three").write_text("abc")
    assert toy("toy-bytes", tmp_path / "three").stdout == "3\n"


def test_it_answers_for_its_own_folders(toy, tmp_path):
    (tmp_path / "toy.txt").write_text("all is done")
    assert toy("status", tmp_path).stdout == "all is done\n"
    assert json.loads(toy("status", tmp_path, "--json").stdout) == {"toy": "all is done"}


@pytest.mark.slow
def test_it_joins_a_group_and_takes_no_name_of_another_part(toy, tmp_path):
    (tmp_path / "toy.py").write_text(
        "import typer\n"
        "def add_to(app):\n"
        "    for name in ('solve', 'study'):\n"
        "        app.command(name)(lambda: print('mine'))\n"
        "    plot = typer.Typer()\n"
        "    plot.command('dots')(lambda: print('dots'))\n"
        "    plot.command('rounds')(lambda: print('mine'))\n"
        "    app.add_typer(plot, name='plot')\n"
    )
    assert toy("plot", "dots").stdout == "dots\n"
    assert "carry" not in toy("plot", "-h").stdout
    for words in (["solve"], ["study"], ["plot", "rounds"], ["plot", "study"]):
        done = toy(*words)
        assert (done.returncode, done.stdout) == (2, ""), words
        assert re.search("Missing argument|name a study", done.stderr), words


@pytest.mark.parametrize(
    "code",
    [
        "import no_such_module",
        "def add_to(app: ",
        "add_to = 3",
        "raise Exception('x')",
        "def add_to(app): raise SystemExit(1)",
        None,
    ],
)
def test_a_part_that_cannot_be_loaded_is_named_and_breaks_nothing(toy, tmp_path, code):
    (tmp_path / "toy.py").unlink() if code is None else (tmp_path / "toy.py").write_text(code)
    helped, told = toy("-h"), "the part toy"
    assert helped.returncode == 0
    assert "baseline" in helped.stdout
    assert told in helped.stderr
    assert "left out" in helped.stderr
    assert "Traceback" not in helped.stderr
    unknown = toy("toy-bytes")
    assert unknown.returncode == 2
    assert told in unknown.stderr
    assert "No such command 'toy-bytes'" in unknown.stderr


@pytest.mark.slow
def test_beside_it_everything_works_and_what_needs_no_door_opens_none(toy, tmp_path):
    (tmp_path / "toy.py").unlink()
    assert toy("study", "--list").returncode == 0
    assert toy("--version").stderr == ""


def loaded(*words):
    """The modules of other parts that a command loads."""
    code = f"""
import json, sys
sys.argv = ["afltool", *{[str(word) for word in words]!r}]
from afltool.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
print(json.dumps([m for m in sys.modules if m.startswith(("afltool.papers", "afltool.rivals"))]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_command_of_the_main_part_opens_no_door(road, tmp_path):
    assert loaded("solve", road.total, "-o", tmp_path / "head.h5") == []
    assert loaded("solve", "-h") == []
    assert loaded("plot", "rounds", "-h") == []
    assert "afltool.papers.commands" in loaded("study", "-h")


def test_ctrl_c_while_a_part_is_loaded_ends_the_command():
    with pytest.raises(KeyboardInterrupt), left_out("toy"):
        raise KeyboardInterrupt


def test_the_doors_of_the_package_and_those_of_no_package():
    assert {"papers", "rivals"} <= doors("afltool.commands").keys()
    assert opened("afltool.nothing") == {}


@pytest.mark.slow
def test_a_stage_in_one_module_is_a_command(toy_stage, road, tmp_path):
    helped = toy_stage("count-rows", "-h").stdout
    assert "Count the rows of each class." in helped
    assert "--at-least" in helped
    alone = tmp_path / "rows.json"
    assert toy_stage("count-rows", road.train, "-o", alone).stdout == f"{alone}\n"
    counts = json.loads(alone.read_text())
    assert sum(counts.values()) == afltool.info(road.train)["rows"]
    few = min(counts.values()) + 1
    kept = tmp_path / "kept.json"
    assert toy_stage("count-rows", road.train, "--at-least", few, "-o", kept).returncode == 0
    assert json.loads(kept.read_text()) == {name: n for name, n in counts.items() if n >= few}
    given = ("--train-features", road.train, "--test-features", road.test, "-o", tmp_path / "run")
    assert toy_stage("run", *given, "--count-rows-at-least", few).returncode == 2
