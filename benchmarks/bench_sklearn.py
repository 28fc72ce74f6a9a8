"""The heads beside what a user would take instead: scikit-learn and PyTorch on rows in memory.

    python benchmarks/bench_sklearn.py [--rows 50000] [--classes 100] [--threads 1,2] [--folder DIR]

Rows are those of `synthetic.py`, 1,280 features. Ours are whole commands, `local-stats --sum` and
`solve`, or a `run` that also evaluates 1,000 rows: they start Python, read the feature file, check
and digest it and write files. Theirs are the call of ``fit`` alone, on a float32 or float64 array
that is in memory. Each is run in a process of its own, with the same number of threads, in turn;
seconds are medians.

    least squares   the linear head; Ridge(solver="cholesky"), torch.linalg.solve of XᵀX + λI
    ridge by GCV    the linear head with --ridge auto; RidgeCV of 13 ridges
    logistic        the softmax head, and LogisticRegression(lbfgs) of the same penalty with more
                    iterations until its objective (mean loss with the penalty) is at most that of
                    the first line
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measure import machine
from synthetic import feature_file

COMMAND = Path(sys.executable).with_name("afltool")
RIDGE, PENALTY = 1.0, 1e-4
STEPS = (5, 10, 15, 20, 30, 45, 70, 100, 150)  # iterations of lbfgs that are tried


def main() -> None:
    known = argparse.ArgumentParser()
    known.add_argument("--rows", type=int, default=50_000)
    known.add_argument("--classes", type=int, default=100)
    known.add_argument("--threads", default="1,2")
    known.add_argument("--rounds", type=int, default=20)
    known.add_argument("--repeats", type=int, default=3)
    known.add_argument("--only", default="least,gcv,logistic")
    known.add_argument("--folder")
    known.add_argument("--child", nargs="+")
    o = known.parse_args()
    if o.child:
        print(json.dumps(CHILDREN[o.child[0]](*load(o.child[1], o.child[2]), *o.child[3:])))
        return
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        file = feature_file(Path(o.folder or temporary), o.rows, o.classes)
        for threads in map(int, o.threads.split(",")):
            print(f"\n{o.rows} × 1280, {o.classes} classes, {threads} threads: seconds")
            for name in o.only.split(","):
                GROUPS[name](file, threads, o)


# ---------------------------------------------------------------- what is compared


def least(file: Path, threads: int, o: argparse.Namespace) -> None:
    sides = {"afltool, from the file": lambda: linear(file, threads, "--ridge", RIDGE)}
    for kind in ("float32", "float64"):
        sides[f"Ridge cholesky, {kind}"] = child("ridge", file, kind, threads)
        sides[f"torch normal equations, {kind}"] = child("torch", file, kind, threads)
    table(sides, o.repeats)


def gcv(file: Path, threads: int, o: argparse.Namespace) -> None:
    sides = {"afltool --ridge auto": lambda: linear(file, threads, "--ridge", "auto")}
    sides["RidgeCV, 13 ridges, float32"] = child("ridgecv", file, "float32", threads)
    table(sides, 1)


def logistic(file: Path, threads: int, o: argparse.Namespace) -> None:
    seconds, objective = softmax(file, threads, o)
    said = f"softmax head, {o.rounds} rounds, a whole run"
    print(f"  {said:42}{seconds:8.2f}   objective {objective:.6f}", flush=True)
    sides = {
        "LogisticRegression, {:3} iterations": lambda n: child(
            "logistic", file, "float32", threads, n
        )(),
    }
    for name, side in sides.items():
        for steps in STEPS:
            taken, reached = side(steps)
            ratio = f"{taken / seconds:5.2f} ×"
            print(f"  {name.format(steps):42}{taken:8.2f}   objective {reached:.6f}   {ratio}")
            if reached <= objective:
                break


def table(sides: dict[str, Callable[[], Any]], repeats: int) -> None:
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, work in sides.items():
            found[name].append(work()[0])
    ours = statistics.median(next(iter(found.values())))
    for name, times in found.items():
        middle = statistics.median(times)
        print(f"  {name:42}{middle:8.2f}   {middle / ours:5.2f} × ours", flush=True)


def linear(file: Path, threads: int, *ridge: object) -> tuple[float]:
    with tempfile.TemporaryDirectory() as out:
        total, head = Path(out) / "total.h5", Path(out) / "head.h5"
        begun = time.perf_counter()
        call("local-stats", file, "--client", "all", "--head", "linear", *ridge, "--sum",
             "-o", total, "--threads", threads)  # fmt: skip
        call("solve", total, "-o", head, "--threads", threads)
        return (time.perf_counter() - begun,)


def softmax(
    file: Path, threads: int, o: argparse.Namespace, rounds: int | None = None, *more: str
) -> tuple[float, float]:
    test = feature_file(file.parent, 1000, o.classes, seed=1)
    with tempfile.TemporaryDirectory() as out:
        begun = time.perf_counter()
        call("run", "--train-features", file, "--test-features", test, "--clients", 1, "--head",
             "softmax", "--rounds", rounds or o.rounds, *more, "--penalty", PENALTY,
             "--threads", threads, "-o", Path(out) / "run")  # fmt: skip
        taken = time.perf_counter() - begun
        facts = json.loads(call("info", Path(out) / "run" / "head-final.h5", "--json"))
        return taken, facts["report"]["phases"][-1]["objective"]


def call(*words: object) -> str:
    done = subprocess.run(
        [str(COMMAND), "-q", *map(str, words)], check=True, capture_output=True, text=True
    )
    return done.stdout


def child(name: str, file: Path, kind: str, threads: int, *more: object) -> Callable[[], Any]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    env = {**os.environ, **dict.fromkeys(names, str(threads))}
    words = [sys.executable, __file__, "--child", name, str(file), kind, *map(str, more)]
    return lambda: json.loads(
        subprocess.run(words, check=True, stdout=subprocess.PIPE, env=env).stdout
    )


# ---------------------------------------------------------------- in a process of its own


def load(file: str, kind: str) -> tuple[Any, Any]:
    from afltool.files.features import open_features

    with open_features(Path(file)) as rows:
        scale = 2.0 ** -(rows.bits or 0)
        X = np.concatenate([v.astype(kind) * np.dtype(kind).type(scale)
                            for _, v in rows.iter_stored()])  # fmt: skip
        return X, rows.labels


def ridge(X: Any, y: Any) -> list[float]:
    from sklearn.linear_model import Ridge

    Y = np.eye(y.max() + 1, dtype=X.dtype)[y]
    begun = time.perf_counter()
    Ridge(RIDGE, solver="cholesky", fit_intercept=False).fit(X, Y)
    return [time.perf_counter() - begun]


def ridgecv(X: Any, y: Any) -> list[float]:
    from sklearn.linear_model import RidgeCV

    Y = np.eye(y.max() + 1, dtype=X.dtype)[y]
    begun = time.perf_counter()
    RidgeCV(np.logspace(-3, 3, 13), fit_intercept=False).fit(X, Y)
    return [time.perf_counter() - begun]


def torch_(X: Any, y: Any) -> list[float]:
    import torch

    A, Y = torch.from_numpy(X), torch.eye(int(y.max()) + 1, dtype=torch.from_numpy(X).dtype)[y]
    begun = time.perf_counter()
    G = A.T @ A
    G.diagonal().add_(RIDGE)
    torch.linalg.solve(G, A.T @ Y)
    return [time.perf_counter() - begun]


def logistic_(X: Any, y: Any, steps: str) -> list[float]:
    import warnings

    from scipy.special import logsumexp
    from sklearn.linear_model import LogisticRegression

    warnings.simplefilter("ignore")
    model = LogisticRegression(C=1 / (PENALTY * len(y)), max_iter=int(steps), tol=0)
    begun = time.perf_counter()
    model.fit(X, y)
    taken = time.perf_counter() - begun
    S = X.astype(np.float64) @ model.coef_.T + model.intercept_
    loss = (logsumexp(S, axis=1) - S[np.arange(len(y)), y]).mean()
    return [taken, float(loss + 0.5 * PENALTY * (model.coef_**2).sum())]


CHILDREN = {"ridge": ridge, "ridgecv": ridgecv, "torch": torch_, "logistic": logistic_}
GROUPS = {"least": least, "gcv": gcv, "logistic": logistic}

if __name__ == "__main__":
    main()
