"""The examples run as their users would run them, on small data in the true formats."""

from __future__ import annotations

import json
import os
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


def test_from_python(tmp_path):
    assert float(run("from_python.py", tmp_path / "out").split()[1].rstrip("%")) > 90


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


def test_the_dummy_experiment_shows_what_the_paper_shows():
    out = run(
        "dummy_experiment.py", "--runs", 1, "--rows", 1200, "--features", 64,
        "--clients", 2, 10, 40, COLUMNS="200",
    )  # fmt: skip
    cells = [line.split("│") for line in out.splitlines() if "│" in line]
    rows = {one[1].strip(): one[2:-1] for one in cells}
    with_ri = [float(v) for v in rows["printed law with RI, γ = 1"]]
    without = [float(v) for v in rows["printed law without RI"]]
    summed = [float(v) for v in rows["sum and one solve"]]
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


@pytest.mark.slow
def test_text_by_embeddings_made_elsewhere(tmp_path):
    said = run("text.py", tmp_path / "text").split("top-1")[1].split("always the largest:")
    top1, largest = (float(part.split("%")[0].split()[-1]) for part in said)
    assert top1 > 70 > 30 > largest


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom(tmp_path):
    cells = json.loads((EXAMPLES / "estimator.ipynb").read_text())["cells"]
    code = "\n".join("".join(one["source"]) for one in cells if one["cell_type"] == "code")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.endswith("%")]
    accuracy = {words[0]: float(words[-1].rstrip("%")) for words in lines}
    assert min(accuracy[head] for head in ("linear", "random-features", "discriminant")) > 90
    assert max(accuracy[site] for site in ("north", "south", "west")) < 50


# ------------------------------------------------------------ of the results' pages


@pytest.mark.nightly
@pytest.mark.slow
def test_the_table_of_rivals_is_made_in_pieces_and_gone_on_with(road, tmp_path):
    few = ["--rounds", 3, "--lr-rounds", 1, "--seeds", 2, "--clients", 10]
    files = (out := tmp_path / "out", road.train, road.test, *few)
    run("rivals.py", *files, "--only", "AFL")
    printed = run("rivals.py", *files, "--only", "FedAvg")
    cells = pd.read_csv(out / "rivals.csv")
    assert list(cells.method) == ["AFL"] * 2 + ["FedAvg"] * 4
    assert list(cells.rate[2:]) == ["papers'"] * 2 + ["chosen"] * 2
    assert cells.lr[2] == 0.05
    assert cells.lr[4] == cells.lr[5], "chosen once, with seed 0"
    assert (cells["last"] > 0.4).all()
    assert run("rivals.py", *files, "--table").splitlines()[-4:] == printed.splitlines()[-4:]


@pytest.mark.nightly
@pytest.mark.slow
def test_the_sweep_of_the_digits_and_its_table(tmp_path):
    few = (tmp_path, "--seeds", 2, "--clients", 20)
    run("sweep.py", *few, "--only", "AFL")
    assert "choose ['first', 9, 'linear'" not in run("sweep.py", *few), "it is kept"
    rows = pd.read_csv(tmp_path / "sweep.csv")
    assert rows["top1"].min() > 0.85
    assert rows.groupby(["head", "bits"]).size().eq(2).all()
    nine, three = (rows[(rows["head"] == "AFL") & (rows.bits == b)] for b in (9, 3))
    assert three.megabytes.iloc[0] < nine.megabytes.iloc[0]
    table = run("sweep.py", *few, "--table", "--only", "softmax")
    assert "| pixels | first | 64 | softmax | 9 | 4 |" in table


@pytest.mark.nightly
@pytest.mark.slow
def test_the_frontier_of_the_digits_and_that_it_goes_on(tmp_path):
    """Chosen by held-out clients, kept in a cache, drawn."""
    few = (tmp_path, "--seeds", 2, "--budgets", 0.06, 0.2, "--clients", 20)
    run("frontier.py", *few, "--only", "linear")
    assert "choose ['linear'" not in run("frontier.py", *few)
    table, best = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("frontier", "best"))
    assert {"AFL", "DeepAFL", "SAFLe", "softmax"} < set(table.family)
    assert table.top1.min() > 0.7
    deep = table[table.family == "DeepAFL"].sort_values("layers")
    assert deep.rounds.tolist() == [1, 3, 5, 7]
    assert deep.megabytes.is_monotonic_increasing
    assert (best.megabytes <= best.budget).all()
    for (family, budget), one in best.groupby(["family", "budget"]):
        fits = table[(table.family == family) & (table.megabytes <= budget)]
        assert one.held_out_error.item() == fits.held_out_error.min()
    assert (tmp_path / "frontier.png").stat().st_size > 10_000


@pytest.mark.nightly
@pytest.mark.slow
def test_features_of_training_mode_on_a_few_images(tmp_path):
    for split, many in {"train": 12, "test": 3}.items():
        write_imagefolder(tmp_path / split, ("cat", "dog"), per_class=many, splits=("",))
    few = ["--clients", 2, "--rounds", 2, "--image-size", 64, "--drop-last"]
    some = ["--partitions", "iid", "dirichlet-pfl 0.01"]
    printed = run("training_mode.py", tmp_path, "-o", tmp_path / "out", *few, *some)
    assert "largest difference of features 0.0" in printed
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    kinds = {"pretrained", "even", "own"}
    assert {name.split("test ")[1] for name in found if name.startswith("AFL, training")} == kinds
    assert all(0 <= one["last"] <= one["best"] <= 100 for one in found.values())


@pytest.mark.nightly
@pytest.mark.slow
def test_the_order_of_bytes_on_few_rows(tmp_path):
    """Bytes of a rival are its float32 weights; AFL sends its triangle and class sums once."""
    few = ("--dimensions", 64, "--classes", 4, 40, "--rows", 800, "--clients", 4)
    run("where_bytes_turn.py", tmp_path, *few, "--rounds", 3)
    table = pd.read_csv(tmp_path / "bytes.csv").set_index(["classes", "method"])
    assert len(table) == 2 * 7
    for classes in (4, 40):
        rival, head = table.loc[classes, "FedAvg"], table.loc[classes, "AFL"]
        rounds = int(rival["rounds"].split()[-1])
        assert rival.sent == rival.received == rounds * 65 * classes * 4
        assert rounds == 3 or rival.top1 >= head.top1
        assert (head["rounds"], head.received) == ("1", 64 * classes * 8)
        assert 64 * 65 / 2 + 64 * classes < head.sent < 8 * (64 * 65 / 2 + 64 * classes) + 20_000
