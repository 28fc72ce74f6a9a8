"""The whole road from Python, in seven calls: 10 clients, one sum, one solve.

python examples/from_python.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import afltool


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "from-python")
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 32))  # features made elsewhere: any encoder's would do
    for name, rows in (("train", 2000), ("test", 500)):
        y = rng.integers(0, 5, rows)
        x = centres[y] + 1.5 * rng.normal(size=(rows, 32))
        np.savez(folder / f"{name}.npz", x=x.astype(np.float32), y=y)

    train = afltool.import_embeddings(folder / "train.npz", folder / "train.h5")
    test = afltool.import_embeddings(folder / "test.npz", folder / "test.h5")
    clients = afltool.partition(train, folder / "clients.h5", alpha=0.1, clients=10)
    stats = afltool.local_stats(train, "linear", folder / "stats", partition=clients)
    total = afltool.aggregate([stats], folder / "total.h5")
    head = afltool.solve(total, folder / "head.h5")
    print(f"top-1 {afltool.evaluate(head, test)['top1']:.2%}")
    print(f"total {afltool.info(total)['digest']}")


if __name__ == "__main__":
    main()
