"""What a plain command loads: nothing of sessions, and few modules."""

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


def test_plain_commands_load_nothing_of_sessions(road, tmp_path):
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
    private = ("afltool.federation", "cryptography", "nacl", "bcrypt", "fsspec")
    for name, modules in after.items():
        assert [m for m in modules if m.startswith(private)] == [], name
    assert "mlflow" not in after["run"]  # which --track loads
    assert len(after) == 8


# Modules of afltool that a plain command loads.
MOST = {"local-stats": 62, "aggregate": 49, "solve": 63, "study": 100}


@pytest.mark.parametrize("name", MOST)
def test_a_plain_command_loads_few_modules(road, tmp_path, name):
    words = {
        "local-stats": [road.train, "--head", "linear", "--partition", road.clients],
        "aggregate": [road.stats],
        "solve": [road.total],
        "study": [tmp_path / "s.toml"],
    }
    given = f'train-features = "{road.train}"\ntest-features = "{road.test}"\nclients = 3\n'
    (tmp_path / "s.toml").write_text(f'{given}[[method]]\nhead = "linear"\n')
    [modules] = loaded([name, *words[name], "-o", tmp_path / "out.h5"]).values()
    assert len([m for m in modules if m.split(".")[0] == "afltool"]) <= MOST[name]
    assert name == "study" or not SLOW & {*modules}


# A command whose modules are printed that are on the way when SciPy is asked for a factor.
WAY = """
import sys
from afltool.cli import main

def look(frame, event, what):
    if event == "call" and frame.f_code.co_name == "cho_factor":
        sys.setprofile(None)
        names = []
        while frame is not None:
            names.append(frame.f_globals.get("__name__", ""))
            frame = frame.f_back
        own = dict.fromkeys(name for name in reversed(names) if name.startswith("afltool"))
        print("way", *own)

sys.setprofile(look)
main()
"""


def test_a_ridge_passes_few_modules_from_the_command_line_to_the_factor(road, tmp_path):
    words = ["solve", str(road.total), "--ridge", "1", "-o", str(tmp_path / "head.h5")]
    done = subprocess.run(
        [sys.executable, "-c", WAY, *words], capture_output=True, text=True, check=True
    )
    [way] = [line.split()[1:] for line in done.stdout.splitlines() if line[:4] == "way "]
    assert (way[0], way[-1]) == ("afltool.cli", "afltool.math.ridge")
    assert len(way) <= 8, way  # one of them is the runner of all stages


# What takes long to load: by NumPy where all of it is imported; of SciPy and of tables.
SLOW = {"numpy.f2py.f2py2e", "numpy.testing.overrides", "pandas"}


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
