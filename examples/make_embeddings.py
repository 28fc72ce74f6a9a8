"""Two files of embeddings to try things with: handwritten digits, or made up without scikit-learn.

    python examples/make_embeddings.py [FOLDER]

Writes train.npz (1,437 rows) and test.npz (360 rows): arrays x (rows, 64 features) and y (labels).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np


def rows() -> tuple[np.ndarray, np.ndarray]:
    """scikit-learn's 1,797 digits of 8 × 8 grey levels, or as many rows around ten centers."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        rng = np.random.default_rng(0)
        y = rng.integers(10, size=1797)
        return rng.normal(size=(1797, 64)) + rng.normal(size=(10, 64))[y], y
    x, y = load_digits(return_X_y=True)
    return x, y


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    x, y = rows()
    test = np.arange(len(y)) % 5 == 0
    for name, part in (("train", ~test), ("test", test)):
        np.savez(folder / f"{name}.npz", x=x[part], y=y[part])
        print(f"{folder / name}.npz: {part.sum()} rows of {x.shape[1]} features")
