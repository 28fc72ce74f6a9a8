"""Features that look like a backbone's: rows without end, made block by block.

    python benchmarks/synthetic.py FOLDER [ROWS [CLASSES [DIM]]]     x.npy float16, y.npy

Columns are non-negative and correlated, classes overlap: half of a row is its class's centre, half
is noise of low rank and of its own, as behind a ReLU.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

BLOCK, RANK = 8192, 64  # rows made at a time; directions that columns share


def embeddings(folder: Path, rows: int, classes: int, dim: int = 1280, seed: int = 0) -> Path:
    """``folder``/x.npy (rows, dim) float16 and y.npy int64; their memory is that of a block."""
    folder.mkdir(parents=True, exist_ok=True)
    common = np.random.default_rng(0)  # of all seeds: a test split has the classes of its training
    centres = common.normal(size=(classes, dim)).astype(np.float32)
    shared = (common.normal(size=(RANK, dim)) / np.sqrt(RANK)).astype(np.float32)
    y = np.random.default_rng(seed).integers(0, classes, rows)
    np.save(folder / "y.npy", y)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float16, (rows, dim))
    for start in range(0, rows, BLOCK):
        rng = np.random.default_rng([seed, start])
        labels = y[start : start + BLOCK]
        real = rng.standard_normal((len(labels), dim), np.float32)
        real += rng.standard_normal((len(labels), RANK), np.float32) @ shared
        real += 0.5 * centres[labels]
        x[start : start + BLOCK] = np.maximum(real, 0.0)
    x.flush()
    return folder / "x.npy"


def feature_file(folder: Path, rows: int, classes: int, dim: int = 1280, seed: int = 0) -> Path:
    """The same as a feature file, int16; kept for a second call of the same numbers."""
    import afltool

    place = folder / f"features-{rows}-{dim}-{classes}-{seed}.h5"
    if not place.exists():
        x = embeddings(folder / place.stem, rows, classes, dim, seed)
        afltool.import_embeddings(x, place, labels=x.with_name("y.npy"), backbone="synthetic")
        for part in (x, x.with_name("y.npy")):
            part.unlink()
    return place


if __name__ == "__main__":
    rows, classes, dim = (
        int(a) for a in [*sys.argv[2:], *("50000", "100", "1280")[len(sys.argv) - 2 :]]
    )
    print(embeddings(Path(sys.argv[1]), rows, classes, dim))
