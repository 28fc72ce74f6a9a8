"""What a plain command loads: nothing of privacy, and few modules."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

# Commands run one after the other in one process; after each, what is loaded.
LOADS = """
import json, sys
from afltool.cli import main

for words in json.loads(sys.argv[1]):
    sys.argv = ["afltool", *words]
    try:
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    print("loaded", json.dumps([words[0], sorted(sys.modules)]))
"""


def loaded(*commands):
    """The names of all modules that are loaded after each command, by its first word."""
    words = json.dumps([[str(word) for word in one] for one in commands])
    done = subprocess.run(
        [sys.executable, "-c", LOADS, words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = (x.removeprefix("loaded ") for x in done.stdout.splitlines() if x[:7] == "loaded ")
    return dict(map(json.loads, lines))


def of_privacy(modules):
    return [m for m in modules if m.startswith(("afltool.privacy", "cryptography"))]


def test_plain_commands_load_nothing_of_privacy(road, tmp_path):
    features = ["--train-features", road.train, "--test-features", road.test]
    stats = tmp_path / "stats"
    after = loaded(
        ["local-stats", road.train, "--head", road.head0, "--partition", road.clients, "-o", stats],
        ["aggregate", stats, "-o", tmp_path / "total.h5"],
        ["solve", tmp_path / "total.h5", "-o", tmp_path / "head.h5"],
        ["evaluate", tmp_path / "head.h5", road.test],
        ["predict", tmp_path / "head.h5", road.test, "-o", tmp_path / "rows.csv"],
        ["info", tmp_path / "total.h5"],
        ["verify", tmp_path / "total.h5"],
        ["run", *features, "--clients", 3, "-o", tmp_path / "run"],
    )
    assert [name for name, modules in after.items() if of_privacy(modules)] == []
    assert "mlflow" not in after["run"]  # which --track loads
    assert len(after) == 8


def test_the_check_of_what_is_loaded_would_notice(road, tmp_path):
    [modules] = loaded(["keys", "new", "a", "-o", tmp_path]).values()
    assert {"afltool.privacy.identity", "cryptography"} <= {*of_privacy(modules)}


# Modules of afltool that a plain command loads, its own options and those of every head among them.
MOST = {"local-stats": 110, "aggregate": 90, "solve": 114}


@pytest.mark.parametrize("name", MOST)
def test_a_plain_command_loads_few_modules(road, tmp_path, name):
    words = {
        "local-stats": [road.train, "--head", "linear", "--partition", road.clients],
        "aggregate": [road.stats],
        "solve": [road.total],
    }
    [modules] = loaded([name, *words[name], "-o", tmp_path / "out.h5"]).values()
    assert len([m for m in modules if m.split(".")[0] == "afltool"]) <= MOST[name]
    assert not SLOW & {*modules}


# What takes long to load: for converting words of a command line, finding packages, and by NumPy
# where all of it is imported; of SciPy and of tables.
SLOW = {"pydantic", "importlib.metadata", "numpy.f2py.f2py2e", "numpy.testing.overrides", "pandas"}


def test_what_solves_nothing_loads_no_linear_algebra(road):
    for words in (["info", road.total], ["info", road.head], ["evaluate", road.head, road.test]):
        [modules] = loaded(words).values()
        assert not {*SLOW, "scipy.linalg", "scipy.sparse", "scipy.special"} & {*modules}


def test_help_of_a_command_loads_no_options_of_other_stages():
    """Its own and those of heads are made when they are asked for."""
    [modules] = loaded(["solve", "-h"]).values()
    assert not {"afltool.plans.config", "afltool.plans.slurm.site", "afltool.stages.stage"} & {
        *modules
    }
