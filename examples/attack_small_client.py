"""An attack on a small client: its images, pixel by pixel, from the statistics that it sends.

    python examples/attack_small_client.py OUT [ROWS]

A client of 12 handwritten digits (64 pixels) sends gram and cross of the linear head. The script
plays the server, and gets every image and label back, exactly: whoever must not have the rows must
not have the statistics of few of them (docs/privacy.md). Needs scikit-learn.

How it works. G = XᵀX has rank n, the number of rows, so G = SᵀS, S = QX for a rotation Q (n, n).
X holds integers: the columns of S generate a rotated grid of whole numbers, Q·Zⁿ, and its shortest
vectors are the columns of Q, up to sign. Reducing vectors by one another finds them; X = QᵀS. The
class sums H = XᵀY then give each row its sign and its label.
"""

from __future__ import annotations

import sys
from math import gcd
from pathlib import Path

import numpy as np

import afltool
from afltool.files.hdf5 import read_file
from afltool.math.blas import unpack


def rows_of(gram: np.ndarray, cross: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows (n, d) and labels (n,) behind a gram (d, d) and class sums (d, C) of integers.

    Raises `ValueError` where there is no such thing to be found.
    """
    scale = gcd(*map(abs, cross.ravel().tolist())) or 1  # pixels may be multiples of some number
    values, vectors = np.linalg.eigh(gram / scale**2)
    kept = values > 1e-9 * np.abs(values).max()
    if not kept.any() or values[0] < -1e-9 * np.abs(values).max():
        raise ValueError("this is no gram of any rows: it has negative eigenvalues")
    S = np.sqrt(values[kept])[:, None] * vectors[:, kept].T
    Q = axes(S)
    X = np.rint(Q.T @ S) * scale
    Y = np.rint(np.linalg.lstsq(X.T, cross, rcond=None)[0])
    if not np.array_equal(X.T @ Y, cross) or not (np.abs(Y).sum(axis=1) == 1).all():
        raise ValueError("no rows of integers have these sums")
    return X * Y.sum(axis=1)[:, None], np.abs(Y).argmax(axis=1)


def axes(S: np.ndarray, tries: int = 200) -> np.ndarray:
    """Q (n, n), orthogonal: the shortest vectors of the grid that the columns of S generate."""
    n, found, rng = len(S), S.T.copy(), np.random.default_rng(0)
    for _ in range(tries):
        found = reduced(found)
        short = found[np.abs((found**2).sum(axis=1) - 1) < 1e-3]
        short = different(short)
        if len(short) == n:
            return short.T
        mixed = rng.integers(-1, 2, (4 * n, len(found))) @ found
        found = np.vstack([found, mixed])
    raise ValueError("the vectors do not make a grid")


def reduced(vectors: np.ndarray) -> np.ndarray:
    """Each vector less whole multiples of shorter ones, until none gets shorter; zeros left out."""
    while True:
        lengths = (vectors**2).sum(axis=1)
        order = np.argsort(lengths)
        vectors, lengths = vectors[order], lengths[order]
        vectors, lengths = vectors[lengths > 1e-3], lengths[lengths > 1e-3]
        before = lengths.sum()
        for i in range(len(vectors) - 1):
            if lengths[i] > 1e-3:
                rest = vectors[i + 1 :]
                rest -= np.outer(np.rint(rest @ vectors[i] / lengths[i]), vectors[i])
        if (vectors**2).sum() > before * (1 - 1e-9):
            return vectors


def different(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1 without those that are another one, or its opposite."""
    kept: list[np.ndarray] = []
    for one in vectors:
        if all(abs(one @ other) < 0.5 for other in kept):
            kept.append(one)
    return np.array(kept).reshape(-1, vectors.shape[1])


def attack(path: Path, features: Path) -> int:
    """How many of the client's rows the numbers in a file give away, with their labels."""
    _, arrays = read_file(path, "statistics")
    gram, cross = (arrays[f"arrays/{k}"].astype(np.int64) for k in ("gram", "cross"))
    try:
        X, y = rows_of(unpack(gram), cross)
    except ValueError as error:
        print(f"{path.name}: {error}")
        return 0
    _, truth = read_file(features, "features")
    theirs, ours = labelled(truth["features"], truth["labels"]), labelled(X.astype(int), y)
    print(f"{path.name}: {len(ours & theirs)} of {len(theirs)} rows found; the first one:")
    show(X[0], y[0])
    return len(ours & theirs)


def labelled(X: np.ndarray, y: np.ndarray) -> set[tuple[int, ...]]:
    """Rows with their labels, to be compared."""
    return set(map(tuple, np.column_stack([X, y]).tolist()))


def show(row: np.ndarray, label: int) -> None:
    """A digit as text."""
    pixels = row.reshape(8, 8) / max(row.max(), 1)
    for line in pixels:
        print("    " + "".join(" .:*#"[min(4, int(5 * p))] * 2 for p in line))
    print(f"    label {label}")


def main(out: Path, rows: int = 12) -> int:
    from sklearn.datasets import load_digits

    out.mkdir(parents=True, exist_ok=True)
    x, y = load_digits(return_X_y=True)
    np.savez(out / "hospital.npz", x=x[:rows] / 16, y=y[:rows])
    victim = afltool.import_embeddings(
        out / "hospital.npz", out / "hospital.h5", classes=[str(c) for c in range(10)]
    )
    return attack(afltool.local_stats(victim, "linear", out / "plain", client="hospital"), victim)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python examples/attack_small_client.py OUT [ROWS]")
    main(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
