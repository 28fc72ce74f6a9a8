"""The examples run as their users would run them, on small data in the true formats."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers_images import write_imagefolder
from PIL import Image

from afltool import head, info, local_stats, partition, solve

ROOT = Path(__file__).parents[1]


def run(*command, **environment):
    done = subprocess.run(
        [str(c) for c in command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_from_python(tmp_path):
    out = run(sys.executable, ROOT / "examples" / "from_python.py", tmp_path / "out")
    accuracy = float(out.split()[1].rstrip("%"))
    assert accuracy > 90


@pytest.mark.slow
def test_cifar100_as_shell_commands(tmp_path):
    images = write_imagefolder(tmp_path / "images", tuple(f"c{n:02}" for n in range(20)))
    run(
        ROOT / "examples" / "cifar100.sh",
        tmp_path / "run",
        DATA=f"imagefolder:{images}",
        CLIENTS="20",
        EXTRACT="--weights random --image-size 32",
        SOLVE="--ridge 1",
    )
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["n"] == 80
    assert len(metrics["per_class"]) == 20
    assert len(list((tmp_path / "run" / "stats").glob("*.h5"))) == 20
    assert metrics["top1"] > 0.15, "chance is 0.05, and the pictures differ by class"


@pytest.mark.slow
def test_a_pipeline_as_a_makefile(road, tmp_path):
    """Made in parallel, nothing is left to do afterwards, and a lost part alone is made again."""
    at = tmp_path / "made"
    make = ["make", "-f", ROOT / "examples" / "pipeline.mk", "-j", "2", f"RUN={at}"]
    make += [f"TRAIN={road.train}", f"TEST={road.test}", "CLIENTS=6", "PARTS=2"]
    run(*make)
    assert json.loads((at / "metrics.json").read_text())["n"] == 200
    flat = local_stats(
        road.train, "linear", tmp_path / "flat.h5", partition=at / "clients.h5", sum=True
    )
    assert info(at / "total.h5")["digest"] == info(flat)["digest"]
    assert "Nothing to be done" in run(*make)
    (at / "parts" / "1.h5").unlink()
    assert "--only 1/2" in (plan := run(*make, "--dry-run"))
    assert "--only 0/2" not in plan


def test_the_dummy_experiment_shows_what_the_paper_shows():
    out = run(
        sys.executable,
        ROOT / "examples" / "dummy_experiment.py",
        *["--runs", "1", "--rows", "1200", "--features", "64", "--clients", "2", "10", "40"],
        COLUMNS="200",
    )
    rows = {
        line.split("│")[1].strip(): line.split("│")[2:-1]
        for line in out.splitlines()
        if "│" in line
    }
    with_ri = [float(v) for v in rows["printed law with RI, γ = 1"]]
    without = [float(v) for v in rows["printed law without RI"]]
    summed = [float(v) for v in rows["sum and one solve"]]
    assert max(summed) < 1e-11
    assert max(with_ri) < 1e-8
    assert without[0] < 1e-8 < 1e-3 < without[2]


@pytest.mark.nightly
@pytest.mark.slow
def test_the_sweep_of_the_digits_and_its_table(tmp_path):
    command = (sys.executable, ROOT / "examples" / "sweep.py", tmp_path, "--seeds", "2")
    first = run(*command, "--clients", "20", "--only", "AFL")
    assert "choose ['first', 9, 'linear'" in first
    whole = run(*command, "--clients", "20")
    assert "choose ['first', 9, 'linear'" not in whole, "it is kept"
    rows = pd.read_csv(tmp_path / "sweep.csv")
    assert rows["top1"].min() > 0.85
    assert rows.groupby(["head", "bits"]).size().eq(2).all()
    nine, three = (rows[(rows["head"] == "AFL") & (rows.bits == b)] for b in (9, 3))
    assert three.megabytes.iloc[0] < nine.megabytes.iloc[0]
    # What held-out clients chose is what solve chooses from the same files.
    clients = partition(
        tmp_path / "train.h5", tmp_path / "clients.h5", scheme="dirichlet", alpha=0.1, clients=20,
        seed=1, held_out=0.1,
    )  # fmt: skip
    agreed = head("linear", tmp_path / "head0.h5", head_options={"intercept": True})
    held = tmp_path / "held.h5"
    total = local_stats(
        tmp_path / "train.h5", agreed, tmp_path / "kept.h5", partition=clients, sum=True,
        held_out=held,
    )  # fmt: skip
    done = solve(total, tmp_path / "head.h5", validate=held, head_options={"ridge": "auto"})
    chosen = json.loads(nine[nine.seed == 1].options.item())["ridge"]
    assert info(done)["report"]["ridge"] == chosen
    table = run(*command, "--clients", "20", "--table", "--only", "softmax")
    assert "| pixels | first | 64 | softmax | 9 | 4 |" in table


@pytest.mark.nightly
@pytest.mark.slow
def test_the_frontier_of_the_digits_and_that_it_goes_on(tmp_path):
    """Chosen by held-out clients, kept in a cache, drawn; softmax left to its own tests."""
    command = (sys.executable, ROOT / "examples" / "frontier.py", tmp_path, "--seeds", "2")
    small = ("--budgets", "0.06", "0.2", "--clients", "20")
    first = run(*command, *small, "--only", "linear")
    assert "choose ['linear'" in first
    whole = run(*command, *small)
    assert "choose ['linear'" not in whole
    table = pd.read_csv(tmp_path / "frontier.csv")
    families = {"AFL", "random features", "DeepAFL", "SAFLe", "SAFLe hybrid", "softmax"}
    assert set(table.family) == families
    assert table.top1.min() > 0.7
    assert (table.standard_error[table["head"] == "safle"] >= 0).all()
    deep = table[table.family == "DeepAFL"].sort_values("layers")
    assert deep.rounds.tolist() == [1, 3, 5, 7]
    assert deep.megabytes.is_monotonic_increasing
    best = pd.read_csv(tmp_path / "best.csv")
    assert (best.megabytes <= best.budget).all()
    for (family, budget), one in best.groupby(["family", "budget"]):
        fits = table[(table.family == family) & (table.megabytes <= budget)]
        assert one.held_out_error.item() == fits.held_out_error.min()
    assert (tmp_path / "frontier.png").stat().st_size > 10_000
    both = run(*command, *small, "--only", '"linear"', "--fraction-bits", "9", "3")
    assert both.count("choose [") == 1, "9 are the files' own and were done"
    nine, three = pd.read_csv(tmp_path / "frontier.csv").to_dict("records")
    assert (nine["fraction_bits"], three["fraction_bits"]) == (9, 3)
    assert three["megabytes"] < nine["megabytes"]
    next((tmp_path / "cache").glob("weigh-*.json")).unlink()
    left = run(*command, *small, "--cached")
    assert "weigh [" not in left
    assert len(pd.read_csv(tmp_path / "frontier.csv")) < len(table)


@pytest.mark.slow
def test_text_by_embeddings_made_elsewhere(tmp_path):
    pytest.importorskip("sklearn")
    out = run(sys.executable, ROOT / "examples" / "text.py", tmp_path / "text")
    top1, largest = (float(part.split("%")[0].split()[-1]) for part in out.split("top-1")[1].split(
        "always the largest:"))  # fmt: skip
    assert top1 > 70 > 30 > largest


def test_the_attack_on_a_small_client_finds_its_rows(tmp_path, capsys):
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        from attack_small_client import main, rows_of
    finally:
        sys.path.pop(0)
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
@pytest.mark.parametrize("book", sorted((ROOT / "examples").glob("*.ipynb")), ids=lambda p: p.stem)
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


@pytest.mark.nightly
@pytest.mark.slow
def test_features_of_training_mode_on_a_few_images(tmp_path):
    draw = np.random.default_rng(0)
    for split, many in {"train": 12, "test": 3}.items():
        for name in ("cat", "dog"):
            (tmp_path / split / name).mkdir(parents=True)
            for i in range(many):
                pixels = draw.integers(0, 256, (32, 32, 3), np.uint8)
                Image.fromarray(pixels).save(tmp_path / split / name / f"{i}.png")
    few = ["--clients", 2, "--rounds", 2, "--image-size", 64]
    script = ROOT / "examples" / "training_mode.py"
    command = [sys.executable, script, tmp_path, "-o", tmp_path / "out", *few, "--drop-last"]
    printed = run(*command, "--partitions", "iid", "dirichlet-pfl 0.01")
    assert "largest difference of features 0.0" in printed
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    kinds = {"pretrained", "even", "own"}
    assert {name.split("test ")[1] for name in found if name.startswith("AFL, training")} == kinds
    assert all(0 <= one["last"] <= one["best"] <= 100 for one in found.values())
    made = {name for name in found if name.startswith("FedAvg, ordinary")}
    ends = {name.removeprefix("FedAvg, ordinary features, ") for name in made}
    assert ends == {f"{p}, drop-last, 2 rounds" for p in ("iid", "dirichlet-pfl 0.01")}


@pytest.mark.nightly
@pytest.mark.slow
def test_the_order_of_bytes_on_few_rows(tmp_path):
    """Bytes of a rival are its float32 weights; AFL sends its triangle and class sums once."""
    few = ("--dimensions", "64", "--classes", "4", "40", "--rows", "800", "--clients", "4")
    script = ROOT / "examples" / "where_bytes_turn.py"
    run(sys.executable, script, tmp_path, *few, "--rounds", "3")
    table = pd.read_csv(tmp_path / "bytes.csv").set_index(["classes", "method"])
    assert len(table) == 2 * 7
    for classes in (4, 40):
        rival, head = table.loc[classes, "FedAvg"], table.loc[classes, "AFL"]
        rounds = int(rival["rounds"].split()[-1])
        assert rival.sent == rival.received == rounds * 65 * classes * 4
        assert rounds == 3 or rival.top1 >= head.top1
        assert (head["rounds"], head.received) == ("1", 64 * classes * 8)
        assert 64 * 65 / 2 + 64 * classes < head.sent < 8 * (64 * 65 / 2 + 64 * classes) + 20_000
    assert (tmp_path / "bytes.md").read_text().count("\n") == 2 + len(table)
    assert (tmp_path / "bytes.png").stat().st_size > 10_000
