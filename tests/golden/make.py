"""Make a golden archive: files of every kind and what the version that wrote them says of them.

    PYTHONPATH=CHECKOUT python tests/golden/make.py VERSION.tar.gz

CHECKOUT is the version's own tree. Each command runs in an empty folder on relative paths; the
archive keeps the commands (`commands.json`), what `info` says of each file (`info.json`) and what
`evaluate` says of each solved head (`evaluated.json`); tests/test_old_files.py reads it.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

HEADS = {
    "linear": "linear --ridge 1",
    "linear-auto": "linear --ridge auto --intercept",
    "lda": "discriminant --rule lda",
    "nearest-mean": "discriminant --rule nearest-mean",
    "qda": "discriminant --rule qda --shrinkage 0.5",
    "naive-bayes": "discriminant --rule naive-bayes",
    "fedcgs": "discriminant --rule fedcgs --shrinkage 0.1",
    "fed3r": "discriminant --rule fed3r",
    "random-features": "random-features --width 12 --ridge 1",
    "random-features-fixed": "random-features --width 12 --ridge 1 --compute fixed",
    "safle": "safle --experts 6 --ridge 1",
    "softmax": "softmax --rounds 2",
    "deepafl": "deepafl --layers 1 --width 6",
    "deepafl-fixed": "deepafl --layers 1 --width 6 --compute fixed",
}
APART = ("linear", "lda", "deepafl-fixed")  # of these the files of each client are kept
COUNTS = "counts/client-held.h5"
STUDY = """clients = 3
train-features = "train.h5"
test-features = "test.h5"
seed = [0, 1]

[study]
title = "Golden"
rows = "head"
columns = "alpha"

[[split]]
alpha = [0.5]

[[method]]
label = "AFL"
head = "linear"
ridge = 1

[[method]]
label = "FedAvg"
baseline = "fedavg"
rounds = 2
"""


class Road:
    """Runs commands in the archive's folder and remembers those whose output is a file."""

    def __init__(self) -> None:
        from afltool.cli.app import app

        self.app, self.runner = app, CliRunner()
        self.commands: list[list[str]] = []

    def run(self, line: str, keep: bool = True) -> str:
        words = line.split()
        if keep:
            self.commands.append(words)
        done = self.runner.invoke(self.app, words)
        if done.exit_code:
            sys.exit(f"{line} ended with {done.exit_code}: {done.stderr}")
        return done.stdout


def sources() -> None:
    """Rows of digits with three classes (8 of 64 pixels), and eight small pictures."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits(n_class=3)
    x = digits.data[:, [2, 10, 20, 21, 28, 34, 36, 42]].astype("f4") / 16
    for name, rows in (("train", slice(0, 48)), ("test", slice(48, 72)), ("held", slice(72, 96))):
        np.savez_compressed(f"{name}.npz", x=x[rows], y=digits.target[rows])
    for i in range(8):
        folder = Path("images", "train", str(digits.target[i] % 2))
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((digits.images[i] * 15).astype("u1")).save(folder / f"{i}.png")
        os.utime(folder / f"{i}.png", (1e9, 1e9))  # whole seconds, which an archive keeps


def features(road: Road) -> None:
    for name in ("train", "test", "held"):
        road.run(f"import {name}.npz -o {name}.h5")
    road.run("import train.npz --dtype float32 -o train-float32.h5")
    road.run("convert train-float32.h5 --dtype int16 --fraction-bits 6 -o train-6.h5")
    road.run(
        "extract --backbone resnet18 --weights random --image-size 16 --engine torch "
        "--data imagefolder:images --device cpu -o extracted.h5"
    )
    road.run("partition train.h5 --scheme dirichlet --alpha 0.5 --clients 3 -o clients.h5")
    road.run(
        "partition train.h5 --scheme shards --clients 4 --shards-per-client 2 --held-out 0.25 "
        "-o clients-held-out.h5"
    )


def head(road: Road, name: str, options: str) -> None:
    """All rounds of one head, from its unsolved file to the solved one."""
    now = f"heads/{name}-0.h5"
    road.run(f"head {options} -o {now}")
    for number in range(1, 20):
        parts, total = f"stats/{name}-{number}", f"totals/{name}-{number}.h5"
        words = f"local-stats train.h5 --partition clients.h5 --head {now}"
        if name in APART:
            road.run(f"{words} -o {parts}")
            road.run(f"aggregate {parts} -o {total}")
        else:
            road.run(f"{words} --sum -o {total}")
        done = f"heads/{name}-{number}.h5"
        road.run(f"solve {total} --head {now} -o {done}")
        now = done
        if json.loads(road.run(f"info {done} --json", keep=False))["phase"] is None:
            return
    sys.exit(f"{name} is not solved after 20 rounds")


def finished(road: Road) -> None:
    """Counts, a calibrated head, runs and a study."""
    road.run("evaluate heads/linear-1.h5 held.h5 --counts -o counts")
    road.run(f"calibrate heads/linear-1.h5 {COUNTS} -o heads/calibrated.h5")
    Path("run.toml").write_text(
        'alpha = 0.5\nclients = 3\ntrain-features = "train.h5"\ntest-features = "test.h5"\n'
        'head = "deepafl"\nlayers = 1\nwidth = 4\n'
    )
    road.run("run run.toml -o run")
    road.run(
        "run --train-features train.h5 --test-features test.h5 --head linear --ridge 0.5 "
        "--scheme iid --clients 4 --keep-clients -o run-kept"
    )
    Path("study.toml").write_text(STUDY)
    road.run("study study.toml -o study")


def facts(road: Road) -> None:
    def told(line: str) -> Any:
        return json.loads(road.run(f"{line} --json", keep=False))

    paths = sorted(str(path) for path in Path().rglob("*.h5") if path.is_file())
    said = {path: told(f"info {path}") for path in paths}
    Path("info.json").write_text(json.dumps(said, sort_keys=True))
    solved = [path for path, one in said.items() if one["kind"] == "head" and one["phase"] is None]
    found = {path: told(f"evaluate {path} test.h5") for path in solved}
    Path("evaluated.json").write_text(json.dumps(found))
    for path in solved:
        out = f"predicted/{path.removesuffix('.h5').replace('/', '-')}.csv"
        road.run(f"predict {path} test.h5 --scores -o {out}", keep=False)
    Path("commands.json").write_text(json.dumps(road.commands))


def main(archive: Path) -> None:
    archive = archive.resolve()
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "200", "AFLTOOL_STORE": "store"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in ("heads", "stats", "totals", "predicted"):
            Path(name).mkdir()
        road = Road()
        sources()
        features(road)
        for name, options in HEADS.items():
            head(road, name, options)
        finished(road)
        facts(road)
        with tarfile.open(archive, "w:xz") as tar:
            tar.add(".")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
