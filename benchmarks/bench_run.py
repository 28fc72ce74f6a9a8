"""What `afltool run` takes beside the products that its rounds are made of.

    python benchmarks/bench_run.py [--rows 50000] [--only softmax-100,deepafl-5] [--folder DIR]
                                   [--beside OTHER/.venv/bin/afltool]

Rows are those of `synthetic.py`, 1,280 int16 features. A run and its products are both made in one
thread, in processes of their own, and processor seconds are counted: other work on the machine
hardly changes them. They are those that the run itself counts for each stage (`stages` of its
summary): *clients* is local-stats, *server* is solve, which is everything else of a round, and both
with reading, checking, digesting and writing their files. Of a run of R rounds and one of fewer the
difference is taken, so that starting Python, importing SciPy and PyTorch are not in it. A head of
one round is run with half of the rows instead, and the difference, of the products too, is doubled;
its solve does not depend on the rows: *server* is the whole of it, and is not in *times*.
*difference* is that of the whole runs, which also has what evaluating takes longer for more layers.
--beside runs the command of another tree in turn, with --cache for DeepAFL where --beside-cache
says so (trees that keep no rows compute all earlier layers again without it). The products of a
round are float64 for the linear and the softmax head, float32 for DeepAFL and random features,
counts for SAFLe:

    linear     XᵀX                                        softmax    ΦV and Φᵀ(P − Y), Φ = X
    deepafl    ΦB, FᵀF, ΦW, FᵀR, FZ, PUᵀ and ΦᵀP         safle      the counts of pairs of codes
    random-features    XA, FᵀF and FᵀY

σ, solving and evaluating are in no product. Blocks have 4,096 rows, as BLAS likes them for large
products; the two of the softmax head are also measured in blocks of 64 rows, for which OpenBLAS has
kernels of its own (bench_softmax.py), in a second line.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from measure import fresh, machine
from synthetic import feature_file

COMMAND = Path(sys.executable).with_name("afltool")
DIM, WIDTH, BLOCK = 1280, 1024, 4096


@dataclass(frozen=True)
class Case:
    """Two runs of one head, and how many rounds (or layers) one has more than the other.

    No ``few``: a head of one round, which is run with half of the rows.
    """

    classes: int
    words: str
    few: str
    many: str
    rounds: int
    products: str


CASES = {
    "linear-100": Case(100, "--head linear --ridge 1", "", "", 1, "gram"),
    "softmax-10": Case(10, "--head softmax", "--rounds 1", "--rounds 21", 20, "softmax"),
    "softmax-100": Case(100, "--head softmax", "--rounds 1", "--rounds 21", 20, "softmax"),
    "deepafl-5": Case(100, "--head deepafl", "--layers 1", "--layers 6", 5, "deepafl"),
    "deepafl-20": Case(100, "--head deepafl", "--layers 1", "--layers 21", 20, "deepafl"),
    "deepafl-50": Case(100, "--head deepafl", "--layers 1", "--layers 51", 50, "deepafl"),
    "safle-512": Case(100, "--head safle --experts 512 --ridge 100", "", "", 1, "safle"),
    "random-features-4096": Case(
        100, "--head random-features --width 4096 --ridge 1", "", "", 1, "random"
    ),
}


SMALL = ", in blocks of 64 rows"


def products(kind: str, rows: int, classes: int) -> float:
    """Least processor seconds of three, of the products of one round."""
    rng = np.random.default_rng(0)
    work = {
        "gram": gram,
        "softmax": partial(softmax, BLOCK),
        f"softmax{SMALL}": partial(softmax, 64),
        "deepafl": deepafl,
        "safle": safle,
        "random": random_features,
    }[kind]
    return min(work(rows, classes, rng) for _ in range(3))


def gram(rows: int, classes: int, rng: np.random.Generator) -> float:
    from scipy.linalg.blas import dsyrk

    X, C = rng.normal(size=(BLOCK, DIM)), np.zeros((DIM, DIM), order="F")
    begun = time.process_time()
    for at in range(0, rows, BLOCK):
        dsyrk(1.0, X[: min(BLOCK, rows - at)].T, beta=1.0, c=C, overwrite_c=1)
    return time.process_time() - begun


def softmax(step: int, rows: int, classes: int, rng: np.random.Generator) -> float:
    """Of float64 rows in memory, ``step`` rows at a time."""
    X, V = rng.random((rows, DIM)), rng.normal(size=(DIM, classes))
    R, total = rng.normal(size=(rows, classes)), np.zeros((DIM, classes))
    begun = time.process_time()
    for at in range(0, rows, step):
        part = slice(at, at + step)
        X[part] @ V
        total += X[part].T @ R[part]
    return time.process_time() - begun


def deepafl(rows: int, classes: int, rng: np.random.Generator) -> float:
    """Of a layer: one n × d × d, one symmetric n × d × d, and five thin ones n × d × C."""
    from scipy.linalg.blas import sgemm, ssyrk

    phi = rng.random((rows, WIDTH), np.float32)
    B = rng.normal(size=(WIDTH, WIDTH)).astype(np.float32)
    W, P = B[:, :classes].copy(), phi[:BLOCK, :classes].copy()
    begun = time.process_time()
    for at in range(0, rows, BLOCK):
        n = min(BLOCK, rows - at)
        X, thin = phi[at : at + n], P[:n]
        sgemm(1.0, B.T, X.T)  # ΦB
        ssyrk(1.0, X.T)  # FᵀF
        for _ in range(2):
            sgemm(1.0, W.T, X.T)  # ΦW, FZ
            sgemm(1.0, thin.T, X.T, trans_b=1)  # FᵀR, ΦᵀP
        sgemm(1.0, W, thin.T)  # PUᵀ
    return time.process_time() - begun


def random_features(rows: int, classes: int, rng: np.random.Generator) -> float:
    """XA, and the symmetric and the thin product of 4,096 features."""
    from scipy.linalg.blas import sgemm, ssyrk

    X, A = rng.random((BLOCK, DIM), np.float32), rng.random((DIM, 4096), np.float32)
    F, Y = rng.random((BLOCK, 4096), np.float32), rng.random((BLOCK, classes), np.float32)
    begun = time.process_time()
    for at in range(0, rows, BLOCK):
        n = min(BLOCK, rows - at)
        sgemm(1.0, A.T, X[:n].T)
        ssyrk(1.0, F[:n].T)
        sgemm(1.0, Y[:n].T, F[:n].T, trans_b=1)
    return time.process_time() - begun


def safle(rows: int, classes: int, rng: np.random.Generator) -> float:
    """The counts of all pairs of 512 codes below 8, of codes in memory."""
    from afltool.math.counts import add_pairs, pair_count

    codes = rng.integers(0, 8, (512, rows)).astype(np.uint8)
    pairs = np.zeros((pair_count(512), 7, 7), np.int64)
    begun = time.process_time()
    add_pairs(codes, 8, pairs)
    return time.process_time() - begun


ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


ROUND, CACHE = ("local-stats", "solve"), "--cache"


@dataclass(frozen=True)
class Took:
    """Processor seconds of a run and of its stages (none in older trees), and its peak in MB."""

    whole: float
    stages: dict[str, float]
    peak: float


def run(command: Path, train: Path, test: Path, words: str) -> Took:
    with tempfile.TemporaryDirectory(dir=train.parent) as folder:
        words = words.replace(CACHE, f"{CACHE} {folder}/cache")
        files = f"--train-features {train} --test-features {test} --clients 100 -o {folder}/run"
        called = [str(command), "-q", "run", *words.split(), *files.split()]
        child = subprocess.Popen(called, env={**os.environ, **ALONE}, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, called
        stages: dict[str, float] = {}
        for one in json.loads((Path(folder) / "run" / "summary.json").read_text())["stages"]:
            if "processor_seconds" in one:
                stages[one["stage"]] = stages.get(one["stage"], 0.0) + one["processor_seconds"]
    return Took(used.ru_utime + used.ru_stime, stages, used.ru_maxrss / 1024)


def lines(
    name: str, case: Case, command: Path, files: list[tuple[Path, Path]],
    alone: dict[str, list[float]],
) -> Iterator[str]:  # fmt: skip
    """Lines of the table, one for each kind of products: a case by one command.

    ``files``, ``alone``: all rows, and half.
    """
    many = run(command, *files[0], f"{case.words} {case.many}")
    few = run(command, *files[0 if case.few else 1], f"{case.words} {case.few}")
    share = case.rounds if case.few else 0.5
    whole = (many.whole - few.whole) / share
    each = {n: (many.stages[n] - few.stages[n]) / share for n in ROUND if n in many.stages}
    of_round = sum(each.values())
    if not case.few:
        of_round = each.get("local-stats", 0.0)
        each |= {n: many.stages[n] for n in ("solve",) if n in each}
    parts = [f"{seconds:.3f} s" for seconds in each.values()] or ["", ""]
    for kind, took in alone.items():
        seconds = took[0] if case.few else (took[0] - took[1]) / share
        yield (
            f"| {name}{kind.removeprefix(case.products)} | {many.whole:.1f} s | {whole:.3f} s "
            f"| {' | '.join(parts)} | {seconds:.3f} s "
            f"| {(of_round or whole) / seconds:.2f} | {many.peak:.0f} MB |"
        )


def features(folder: Path, rows: int, classes: int, seed: int) -> Path:
    """A file of features, made in a process of its own: a child begins with its parent's peak."""
    numbers = map(str, (folder, rows, classes, DIM, seed))
    return Path(fresh(__file__, "features", *numbers)[0])


def main() -> None:
    if "--child" in sys.argv:
        if sys.argv[2] == "features":
            folder, *numbers = sys.argv[3:]
            print(feature_file(Path(folder), *map(int, numbers)))
            return
        kind, rows, classes = sys.argv[2:]
        print(products(kind, int(rows), int(classes)))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--beside", type=Path, default=None)
    parser.add_argument("--beside-cache", action="store_true")
    given = parser.parse_args()
    os.environ.update(ALONE)
    print(machine())
    print(f"{given.rows} × {DIM} int16 rows; processor seconds, one thread")
    print("| run | whole | difference | a round: clients | server | products | times | peak |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    folder = given.folder or Path(tempfile.mkdtemp(prefix="bench-run-"))
    for name in given.only.split(","):
        case = CASES[name]
        sizes = [given.rows] if case.few else [given.rows, given.rows // 2]
        test = features(folder, given.rows // 5, case.classes, 1)
        files = [(features(folder, rows, case.classes, 0), test) for rows in sizes]
        kinds = [case.products, *([f"softmax{SMALL}"] if case.products == "softmax" else [])]
        alone = {
            kind: [float(fresh(__file__, kind, str(n), str(case.classes))[0]) for n in sizes]
            for kind in kinds
        }
        for command in filter(None, (given.beside, COMMAND)):
            side, asked = name, case
            if command == given.beside:
                side = f"{name}, before"
                if given.beside_cache and case.products == "deepafl":
                    side, asked = f"{side} {CACHE}", replace(case, words=f"{case.words} {CACHE}")
            for line in lines(side, asked, command, files, alone):
                print(line, flush=True)


if __name__ == "__main__":
    main()
