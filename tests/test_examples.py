"""The examples run as their users would run them, on small data in the true formats."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers_images import write_imagefolder

from afltool import info, local_stats

EXAMPLES = Path(__file__).parents[1] / "examples"


def run(*command, **environment):
    first, *rest = command
    words = [sys.executable] * str(first).endswith(".py") + [EXAMPLES / first, *rest]
    env = {**os.environ, **environment}
    done = subprocess.run([str(one) for one in words], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def script(capsys, monkeypatch):
    """``script("x.py", …)`` runs an example in this process; what it prints."""

    def run(name, *words):
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def test_from_python(script, tmp_path):
    accuracy = float(script("from_python.py", tmp_path / "out").split()[1].rstrip("%"))
    assert accuracy > 90


@pytest.mark.slow
def test_cifar100_as_shell_commands(tmp_path):
    images = write_imagefolder(tmp_path / "images", tuple(f"c{n:02}" for n in range(20)))
    few = {"DATA": f"imagefolder:{images}", "CLIENTS": "20", "SOLVE": "--ridge 1"}
    run("cifar100.sh", tmp_path / "run", EXTRACT="--weights random --image-size 32", **few)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["n"] == 80
    assert len(metrics["per_class"]) == len(list((tmp_path / "run" / "stats").glob("*.h5"))) == 20
    assert metrics["top1"] > 0.15, "chance is 0.05, and the pictures differ by class"


@pytest.mark.slow
def test_a_pipeline_as_a_makefile(road, tmp_path):
    """Made in parallel, nothing is left to do afterwards, and a lost part alone is made again."""
    at = tmp_path / "made"
    make = ["/usr/bin/make", "-f", EXAMPLES / "pipeline.mk", "-j", "2", f"RUN={at}"]
    make += [f"TRAIN={road.train}", f"TEST={road.test}", "CLIENTS=6", "PARTS=2"]
    run(*make)
    assert json.loads((at / "metrics.json").read_text())["n"] == 200
    how = {"partition": at / "clients.h5", "sum": True}
    flat = local_stats(road.train, "linear", tmp_path / "flat.h5", **how)
    assert info(at / "total.h5")["digest"] == info(flat)["digest"]
    assert "Nothing to be done" in run(*make)
    (at / "parts" / "1.h5").unlink()
    assert "--only 1/2" in (plan := run(*make, "--dry-run"))
    assert "--only 0/2" not in plan


def test_the_dummy_experiment_shows_what_the_paper_shows(script, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    small = ["--runs", 1, "--rows", 1200, "--features", 64, "--clients", 2, 10, 40]
    lines = [line.split("│")[1:-1] for line in script("dummy_experiment.py", *small).splitlines()]
    rows = {line[0].strip(): line[1:] for line in lines if line}
    without, with_ri, _, summed = ([float(v) for v in row] for row in list(rows.values())[:4])
    assert list(rows)[:4:3] == ["printed law without RI", "sum and one solve"]
    assert max(summed) < 1e-11
    assert max(with_ri) < 1e-8
    assert without[0] < 1e-8 < 1e-3 < without[2]


def test_the_attack_on_a_small_client_finds_its_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    from attack_small_client import main, rows_of

    assert main(tmp_path, rows=12) == 12
    assert "12 of 12 rows found" in capsys.readouterr().out
    rng = np.random.default_rng(0)
    X, y = rng.integers(-500, 500, (8, 30)), rng.integers(0, 3, 8)
    found, labels = rows_of((X.T @ X).astype(float), X.T @ np.eye(3, dtype=int)[y])
    wanted = {(*row, label) for row, label in zip(X.tolist(), y.tolist(), strict=True)}
    assert {(*row, c) for row, c in zip(found.tolist(), labels.tolist(), strict=True)} == wanted


CELLS = """
import json, sys
inside = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), "cell", "exec"), inside)
"""


@pytest.mark.slow
def test_text_by_embeddings_made_elsewhere(tmp_path):
    said = run("text.py", tmp_path / "text").split("top-1")[1].split("always the largest:")
    top1, largest = (float(part.split("%")[0].split()[-1]) for part in said)
    assert top1 > 70 > 30 > largest


@pytest.mark.slow
@pytest.mark.parametrize("book", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda p: p.stem)
def test_a_notebook_prints_what_it_holds(book, tmp_path):
    """Its cells in order; accuracies within a point, since libraries differ in the last bits."""
    outputs = [
        one for cell in json.loads(book.read_text())["cells"] for one in cell.get("outputs", ())
    ]
    held = "".join("".join(one.get("text", ())) for one in outputs if one.get("name") == "stdout")
    done = subprocess.run(
        [sys.executable, "-c", CELLS, book], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "MPLBACKEND": "agg"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    share, (ours, theirs) = r"\d+\.\d%", (done.stdout, held)
    assert re.sub(share, "%", ours) == re.sub(share, "%", theirs)
    for one, other in zip(re.findall(share, ours), re.findall(share, theirs), strict=True):
        assert abs(float(one[:-1]) - float(other[:-1])) < 1
    assert outputs


#: Scripts of the results' pages, small, in two pieces where they go on with what is kept; their
#: table, and a column with the least that it may have.
OF_RESULTS = {
    "rivals.py OUT {train} {test} --rounds 3 --lr-rounds 1 --seeds 2 --clients 10 --only FedAvg": (
        "", "rivals.csv", "last", 0.4),
    "sweep.py OUT --seeds 2 --clients 20": ("--only AFL", "sweep.csv", "top1", 0.85),
    "frontier.py OUT --seeds 2 --budgets 0.06 0.2 --clients 20": (
        "--only linear", "frontier.csv", "top1", 0.7),
    "where_bytes_turn.py OUT --dimensions 64 --classes 4 40 --rows 800 --clients 4 --rounds 3": (
        "", "bytes.csv", "sent", 64 * 65 / 2),
    "training_mode.py {images} -o OUT --clients 2 --rounds 2 --image-size 64 --partitions iid": (
        "", "results.json", "AFL, training", 0),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("line", OF_RESULTS)
def test_the_scripts_of_the_results_make_their_tables(line, road, tmp_path):
    only, table, column, least = OF_RESULTS[line]
    out, images = tmp_path / "out", write_imagefolder(tmp_path / "images", per_class=6)
    words = [word.format(**vars(road), images=images) for word in line.split()]
    words = [out if word == "OUT" else word for word in words]
    first = (out / table).stat().st_size if only and run(*words, *only.split()) else 0
    run(*words)
    assert (out / table).stat().st_size > first
    if table.endswith(".json"):
        found = json.loads((out / table).read_text())
        assert sum(name.startswith(column) for name in found) == 3
        assert all(0 <= one["last"] <= one["best"] <= 100 for one in found.values())
    else:
        assert (pd.read_csv(out / table)[column] >= least).all()
