"""The bits of sums and solved heads, beside those of another version of afltool.

    PYTHONPATH=OLD python benchmarks/bench_solved_bits.py --out old.npz
    python benchmarks/bench_solved_bits.py --beside old.npz

Rows are scikit-learn's digits (1,300 for training, 497 for scores), and drawn ones that are wider
than a tile of a triangle (2,000 × 1,500 and 600). One line a head and number format: digests of
totals that are equal, whether the head's is, the largest difference of a sum relative to the
largest number of its array, that of a score relative to the largest of its row, predictions that
differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from afltool.embeddings import make_imported_space
from afltool.errors import NumericalError
from afltool.heads import make_head
from afltool.heads.base import binding, statistics_of
from afltool.math.gram import FixedPoint, Rows, encode
from afltool.values.statistics import Context

BITS, BLOCK = 9, 700
RANDOM = {"width": 1100, "ridge": 1e5}
DEEP = {"layers": 2, "width": 1100, "ridge": 1e5, "block_ridge": 1e4}
CODES = {"experts": 40, "thresholds": "range:0:1", "ridge": 1.0}
HEADS: list[tuple[str, dict[str, Any]]] = [
    ("linear", {}),
    ("linear", {"intercept": True, "ridge": 1.0}),
    ("discriminant", {"shrinkage": 0.1}),
    *[("random-features", RANDOM | {"compute": c}) for c in ("float32", "float64", "fixed")],
    *[("deepafl", DEEP | {"compute": c}) for c in ("float32", "float64", "fixed")],
    ("softmax", {"rounds": 5}),
    ("softmax", {"rounds": 5, "features": "random", "width": 256}),
    ("safle", CODES),
    ("safle", CODES | {"with_linear": True}),
]
Found = dict[str, NDArray[Any]]


def sets() -> Iterator[tuple[str, NDArray[Any], NDArray[Any], int, int]]:
    """Name, rows, labels, classes, and how many rows are trained on."""
    X, y = load_digits(return_X_y=True)
    yield "digits", X / 16, y, 10, 1300
    rng = np.random.default_rng(0)
    hidden = rng.normal(size=(2600, 30))
    X = np.abs(hidden @ rng.normal(size=(30, 1500)) + rng.normal(size=(2600, 1500))) / 4
    yield "drawn", X, (X[:, :30] @ rng.normal(size=(30, 7))).argmax(axis=1), 7, 2000


def rows_of(X: NDArray[Any], kind: str) -> Rows:
    return FixedPoint(encode(X, BITS), BITS) if kind == "int16" else X.astype(kind)


def measure(name: str, options: dict[str, Any], data: Any, kind: str) -> Found:
    """Sums and digests of each phase, the digest of the head, its scores."""
    _, X, y, classes, n = data
    head, found, bits = make_head(name, options).bind(X.shape[1], classes), {}, None
    if kind == "int16":
        bits = BITS
    space = make_imported_space("import", X.shape[1], kind, bits, None)
    while head.phase() is not None:
        starts = range(0, n, BLOCK)
        ends = [min(at + BLOCK, n) for at in starts]
        blocks = [
            (rows_of(X[a:b], kind), y[a:b].astype(np.int64))
            for a, b in zip(starts, ends, strict=True)
        ]
        context = Context(space, tuple(map(str, range(classes))), binding(head))
        total, _ = statistics_of(head, blocks, {}, context)
        found |= {f"{head.phase()}/{key}": array for key, array in total.arrays.items()}
        found[f"{head.phase()}/digest"] = np.array(total.digest())
        head, _ = head.absorb(total)
    return found | {
        "head": np.array(head.digest()),
        "scores": head.decision_function(rows_of(X[n:], kind)),
    }


def compare(mine: Found, theirs: Found) -> str:
    digests = [key for key in mine if key.endswith("/digest")]
    equal = sum(bool(mine[key] == theirs[key]) for key in digests)
    away = 0.0
    for key in mine.keys() - {*digests, "head", "scores"}:
        largest = float(np.abs(theirs[key]).max(initial=0.0)) or 1.0
        away = max(away, float(np.abs(mine[key] - theirs[key]).max(initial=0.0)) / largest)
    S, T = mine["scores"], theirs["scores"]
    other = int((S.argmax(axis=1) != T.argmax(axis=1)).sum())
    known = np.isfinite(T).all(axis=0)
    S, T = S[:, known], T[:, known]
    far = np.abs(S - T).max(axis=1) / np.abs(T).max(axis=1)
    head = "equal" if mine["head"] == theirs["head"] else "other"
    return (
        f"{equal} of {len(digests)} totals equal, head {head}; sums {away:.1e}, "
        f"scores {far.max():.1e}; {other} of {len(S)} predictions"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", help="where to keep sums, digests and scores")
    parser.add_argument("--beside", help="what another version has written")
    given = parser.parse_args()
    theirs = np.load(given.beside) if given.beside else {}
    every: Found = {}
    for data in sets():
        for name, options in HEADS:
            for kind in ("int16", "float32"):
                if (options.get("compute") == "fixed" and kind != "int16") or (
                    name == "safle" and data[0] == "drawn"
                ):
                    continue
                label = f"{data[0]} {name} {options} {kind}"
                try:
                    found = measure(name, options, data, kind)
                except NumericalError as error:
                    print(f"{label}: {error}", flush=True)
                    continue
                every |= {f"{label}: {key}": array for key, array in found.items()}
                same = {key: theirs[f"{label}: {key}"] for key in found if theirs}
                print(f"{label}: {compare(found, same) if same else found['head']}", flush=True)
    if given.out:
        np.savez(given.out, **every)


if __name__ == "__main__":
    main()
