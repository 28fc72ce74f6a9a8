"""Calibration error before and after each map, for each head: a table.

    python examples/calibration.py                             # scikit-learn's digits, its pixels
    python examples/calibration.py train.h5 test.h5            # two feature files

Heads are solved from the training rows, maps are fitted to every second row of test, and the errors
are those of the other half: the expected calibration error in 15 bins, as `evaluate --metrics ece`
has it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from afltool import AnalyticClassifier
from afltool.files.features import open_features

HEADS = {
    "linear": {},
    "random-features": {"width": 1024},
    "safle": {"experts": 128, "thresholds": "range:0:1"},
    "deepafl": {"layers": 3, "width": 256},
    "softmax": {},
    "discriminant": {"rule": "lda", "shrinkage": 0.05},
}
METHODS = ("temperature", "platt", "isotonic")


def main() -> None:
    known = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    known.add_argument("features", nargs="*", type=Path)
    (x, y), (tx, ty) = rows(known.parse_args().features)
    print("| head | top-1 | before |", " | ".join(METHODS), "|")
    print("| --- | --- | --- |", "--- | " * len(METHODS))
    for name, options in HEADS.items():
        ridge = {"ridge": 1.0} if name == "linear" else {}
        found = AnalyticClassifier(name, options=options, **ridge).fit(x, y)
        S, half = found.head_.decision_function(tx[1::2]), ty[1::2]
        P = softmax(S) if found.head_.log_probabilities else np.clip(S, 0, 1)
        after = []
        for method in METHODS:
            found.calibrate(tx[::2], ty[::2], method=method)
            after.append(f"{error(found.predict_proba(tx[1::2]), half):.3f}")
        top1 = np.mean(S.argmax(axis=1) == half)
        print(f"| {name} | {100 * top1:.1f} | {error(P, half):.3f} |", " | ".join(after), "|")


def rows(files: list[Path]) -> list[tuple[np.ndarray, np.ndarray]]:
    if not files:
        x, y = load_digits(return_X_y=True)
        return [(x[:600] / 16, y[:600]), (x[600:] / 16, y[600:])]
    found = []
    for path in files:
        with open_features(path) as one:
            X = one.read_stored(0, len(one)).astype(np.float32) / 512
            found.append((X, np.asarray(one.labels)))
    return found


def softmax(S: np.ndarray) -> np.ndarray:
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return E / E.sum(axis=1, keepdims=True)


def error(P: np.ndarray, y: np.ndarray) -> float:
    """Σ over 15 bins of |confidence − share of right rows|, weighted by rows."""
    confidence, right = P.max(axis=1), P.argmax(axis=1) == y
    bins = np.minimum((confidence * 15).astype(int), 14)
    return float(np.abs(np.bincount(bins, confidence - right)).sum() / len(y))


if __name__ == "__main__":
    main()
