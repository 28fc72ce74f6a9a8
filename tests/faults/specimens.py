"""One file of every format, kind and phase, made from the same few rows; the campaign damages them.

make(folder) -> {name: path}      written once; `load(folder)` finds them again
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from conftest import embeddings

import afltool
from afltool.files.heads import load_head

OPTIONS = {
    "linear": {"intercept": True},
    "random-features": {"width": 6, "with_linear": True},
    "deepafl": {"layers": 1, "feature_width": 5, "hidden_width": 7},
    "safle": {"buckets": 3, "with_linear": True, "experts": 4},
    "softmax": {"rounds": 2},
}
ROWS, CLASSES, CLIENTS = 600, 4, 6


def make(folder: Path) -> dict[str, Path]:
    """Write the specimens and a list of them."""
    found = _inputs(folder)
    found["partition"] = clients = afltool.partition(
        found["features-int16"], folder / "clients.h5", alpha=0.5, clients=CLIENTS
    )
    found["partition-noisy"] = afltool.partition(
        found["features-int16"], folder / "noisy.h5", scheme="iid", clients=5, held_out=0.4,
        label_noise=0.1, seed=3,
    )  # fmt: skip
    for name, options in OPTIONS.items():
        found |= _rounds(name, options, found["features-int16"], clients, folder)
    stats = afltool.local_stats(
        found["features-int16"], found["head-linear-0"], folder / "stats", partition=clients
    )
    found["statistics-one-client"] = sorted(stats.iterdir())[2]
    found["statistics-float32"] = afltool.local_stats(
        found["features-float32"], "linear", folder / "silo.h5", client="silo", sum=True
    )
    names = {name: str(path.relative_to(folder)) for name, path in found.items()}
    (folder / "specimens.json").write_text(json.dumps(names))
    return found


def load(folder: Path) -> dict[str, Path]:
    """The specimens that `make` has written."""
    names = json.loads((folder / "specimens.json").read_text())
    return {name: folder / path for name, path in names.items()}


def _inputs(folder: Path) -> dict[str, Path]:
    """Embeddings, feature files, and the texts and tables that people write."""
    train = embeddings(folder / "train.npz", ROWS)
    with np.load(train) as arrays:
        x, y = arrays["x"], arrays["y"]
    np.save(folder / "x.npy", x)
    (folder / "labels.txt").write_text("\n".join(map(str, y)) + "\n")
    (folder / "classes.txt").write_text("".join(f"{c}\n" for c in range(CLASSES)))
    rows = [f"row/{i:03d}" for i in range(ROWS)]
    table = "row,client\n" + "".join(f"{row},site-{i % 7}\n" for i, row in enumerate(rows))
    (folder / "table.csv").write_text(table)
    features = afltool.import_embeddings(train, folder / "train.h5")
    test = afltool.import_embeddings(
        embeddings(folder / "test.npz", 200, seed=1), folder / "test.h5"
    )
    real = afltool.import_embeddings(train, folder / "real.h5", dtype="float32")
    (folder / "run.toml").write_text(
        f'train-features = "{features}"\ntest-features = "{test}"\n[partition]\nclients = 3\n'
        'scheme = "iid"\npartition-seed = 5\n[head]\nhead = "linear"\nridge = "auto"\n'
    )
    found = {"features-int16": features, "features-test": test, "features-float32": real}
    for name in ("train.npz", "x.npy", "labels.txt", "classes.txt", "table.csv"):
        found[f"input-{name}"] = folder / name
    found["input-run.toml"] = folder / "run.toml"
    return found


def _rounds(
    name: str, options: dict[str, object], train: Path, clients: Path, folder: Path
) -> dict[str, Path]:
    """The head files and totals of every phase of a head."""
    head = afltool.head(name, folder / f"{name}-0.h5", head_options=options)
    found, number = {f"head-{name}-0": head}, 0
    while load_head(head)[0].phase() is not None:
        number += 1
        total = folder / f"{name}-total-{number}.h5"
        afltool.local_stats(train, head, total, partition=clients, sum=True)
        head = afltool.solve(total, folder / f"{name}-{number}.h5", head=head)
        found[f"statistics-{name}-{number}"] = total
        found[f"head-{name}-{number}"] = head
    return found
