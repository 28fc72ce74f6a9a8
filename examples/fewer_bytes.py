"""Fewer bytes for wide features: three ways, and what each loses.

    python examples/fewer_bytes.py TRAIN.h5 TEST.h5 [--ways bits projections low-rank]

TRAIN.h5 and TEST.h5 are features of several nodes (`extract --node stages`); AFL's head with an
intercept, one round. The ways:

- bits: features with fewer fraction bits (`afltool convert`);
- projections: every slice is multiplied with a matrix of orthonormal columns that is agreed
  beforehand, random or the leading directions of a public sample (here 1,000 training rows);
- low-rank: the gram inside slices is exact; of the block between the first slice and the others
  every client sends its best approximation of a rank, in float32.

The ridge is chosen by held-out clients (ten of 100 Dirichlet(0.1) clients), and so is, for whoever
reads the table, the way; then all clients are solved and the test rows scored. MB: the files of
five clients, as in frontier.py; to the exact part of low-rank, 4 bytes a number are added.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from one_head import Data, Road, started, weigh
from sweep import Sums, measured

from afltool.files.features import open_features
from afltool.heads.checks import with_options
from afltool.heads.least_squares import chosen_ridge
from afltool.heads.problem import Problem
from afltool.math.blas import pack
from afltool.math.gram import LARGEST, FixedPoint, encode, real
from afltool.math.ridge import gram_matrix
from afltool.values.names import CROSS, GRAM
from afltool.values.ridge_spec import AUTO
from afltool.values.statistics import Statistics

F64 = NDArray[np.float64]
OPTIONS = {"intercept": True, "ridge": "auto"}
PUBLIC = 1000  # rows of the public sample
BLOCK = 4096


# ---------------------------------------------------------------- bits and projections


def fitted(data: Data) -> tuple[float, float, float]:
    """Held-out top-1, test top-1 and megabytes a client of AFL's head on these features."""
    head = started(data, "linear", OPTIONS)
    kept, held, whole = Sums().of(data, [], head, 0)
    best, chosen = head.absorb(kept, held)
    apart = np.flatnonzero(data.held_out[data.client])
    _, held_top1 = measured(best, data.X, data.y, apart)
    last, _ = with_options(head, ridge=chosen.round["ridge"]).absorb(whole)
    _, top1 = measured(last, data.test, data.truth, np.arange(len(data.truth)))
    return held_top1, top1, sum(weigh(data, "linear", OPTIONS, 1)["bytes_by_round"]) / 1e6


def directions(kind: str, rows: F64, part: float, seed: int = 0) -> F64:
    """Orthonormal columns (d, m) for a slice of d columns, m = d · ``part``."""
    dim = rows.shape[1]
    keep = round(part * dim)
    if kind == "random":
        drawn = np.random.RandomState(seed).standard_normal((dim, keep))
        return np.linalg.qr(drawn)[0]
    centred = rows - rows.mean(axis=0)
    return np.linalg.eigh(centred.T @ centred)[1][:, -keep:]


def projected(data: Data, kind: str, part: float, bits: int) -> Data:
    """Every slice of every row times its directions; as many of ``bits`` as the range allows."""
    public = np.random.RandomState(0).permutation(len(data.y))[:PUBLIC]
    ends = np.cumsum([0, *(one["dim"] for one in data.space["slices"])])
    sample = real(data.X[public])
    maps = [
        directions(kind, sample[:, a:b], part, seed)
        for seed, (a, b) in enumerate(itertools.pairwise(ends))
    ]

    def rows(X: FixedPoint) -> NDArray[np.float32]:
        parts = []
        for at in range(0, len(X), BLOCK):
            R = real(X[at : at + BLOCK])
            pieces = [R[:, a:b] @ M for a, b, M in zip(ends[:-1], ends[1:], maps, strict=True)]
            parts.append(np.hstack(pieces).astype(np.float32))
        return np.concatenate(parts)

    train, test = rows(data.X), rows(data.test)
    largest = max(float(np.abs(train).max()), float(np.abs(test).max()))
    bits = min(bits, int(np.floor(np.log2(LARGEST / largest))))
    X, held = (FixedPoint(encode(one, bits), bits) for one in (train, test))
    space = {k: v for k, v in data.space.items() if k != "slices"}
    space |= {"dim": X.dim, "fraction_bits": bits}
    return replace(data, X=X, test=held, space=space)


# ---------------------------------------------------------------- low rank between slices


def cut(found: Statistics, first: int, columns: int, rank: int) -> tuple[F64, F64, int]:
    """A client's gram with that rank between the first slice and the others, what stands inside
    them alone, and how many numbers the block between them takes."""
    G = gram_matrix(found.arrays[GRAM], None)
    inside = G.copy()
    inside[:first, first:columns] = inside[first:columns, :first] = 0
    U, s, V = np.linalg.svd(G[:first, first:columns], full_matrices=False)
    near = (U[:, :rank] * s[:rank]) @ V[:rank]
    G[:first, first:columns], G[first:columns, :first] = near, near.T
    return G, inside, min(rank, found.rows) * columns


def low_rank(data: Data, rank: int) -> tuple[float, float, float]:
    """As `fitted`, with every client's own approximation between the slices."""
    head = started(data, "linear", OPTIONS)
    first, columns = int(data.space["slices"][0]["dim"]), int(data.space["dim"])
    sizes = np.bincount(data.client, minlength=len(data.held_out))
    weighed = np.argsort(sizes, kind="stable")[
        np.linspace(0, len(sizes) - 1, 7)[1:-1].round().astype(int)
    ]
    sums, kept, held, sent = np.zeros((2, columns + 1, columns + 1)), [], [], []
    for k, apart in enumerate(data.held_out):
        if not sizes[k]:
            continue
        found = Road(data, np.flatnonzero(data.client == k)).statistics(head)
        G, inside, numbers = cut(found, first, columns, rank)
        sums[int(apart)] += G
        (held if apart else kept).append(found)
        if k in weighed:
            small = {**found.arrays, GRAM: pack(np.rint(inside).astype(np.int64))}
            sent.append(bytes_of(replace(found, arrays=small)) + 4 * numbers)
    scale = 4.0 ** -int(data.space["fraction_bits"])
    validation, theirs = reduce(add, held), reduce(add, kept)
    choice = chosen_ridge(AUTO, problem := of(sums[0] * scale, theirs, data), validation)
    held_top1 = right(problem.with_intercept(choice.weights()), data.X, data.y,
                      np.flatnonzero(data.held_out[data.client]))  # fmt: skip
    everybody = of(sums.sum(axis=0) * scale, theirs + validation, data)
    # Not by `choose`: a gram of low rank may have negative eigenvalues, which no solve takes.
    W = everybody.with_intercept(everybody.system.spectral.weights(choice.ridge))
    top1 = right(W, data.test, data.truth, np.arange(len(data.truth)))
    return held_top1, top1, float(np.mean(sent)) / 1e6


def of(G: F64, sums: Statistics, data: Data) -> Problem:
    H = sums.arrays[CROSS] * 2.0 ** -int(data.space["fraction_bits"])
    problem = Problem(G, H, sums.rows, sums.class_counts, intercept=True)
    s, Q = np.linalg.eigh(problem.G)  # of sums that were cut some are below 0: no gram has such
    problem.G = (Q * np.maximum(s, 0.0)) @ Q.T
    return problem


def right(W: F64, X: FixedPoint, y: NDArray[np.int64], rows: NDArray[np.intp]) -> float:
    hits = 0
    for at in range(0, len(rows), BLOCK):
        part = rows[at : at + BLOCK]
        hits += int(((real(X[part]) @ W[:-1] + W[-1]).argmax(1) == y[part]).sum())
    return hits / len(rows)


def bytes_of(found: Statistics) -> int:
    import tempfile

    from afltool.files.statistics import save_statistics

    with tempfile.TemporaryDirectory() as folder:
        return save_statistics(Path(folder) / "client.h5", found, {}).stat().st_size


# ---------------------------------------------------------------- the table


def lines(data: Data, ways: list[str]) -> Iterator[tuple[str, Data | None, tuple[float, ...]]]:
    for bits in (9, 5, 4, 3, 2) if "bits" in ways else ():
        yield f"{bits} fraction bits", None, fitted(data.converted(bits))
    if "projections" in ways:
        for kind in ("leading", "random"):
            for part in (0.75, 0.5, 0.25):
                for bits in (9, 3):
                    other = projected(data, kind, part, bits)
                    told = f"{kind} directions, {part:.0%} of every slice"
                    yield f"{told}, {other.bits} bits", other, fitted(other)
    for rank in (0, 16, 64) if "low-rank" in ways else ():
        yield f"rank {rank} between slices", None, low_rank(data, rank)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--ways", nargs="+", default=["bits", "projections", "low-rank"])
    a = parser.parse_args()
    with open_features(a.train) as train, open_features(a.test) as test:
        data = Data.of(train, test, a.clients, 0.1)
    if not data.space.get("slices"):
        raise SystemExit(f"{a.train} has features of one node: use extract --node stages")
    print("| way | d | MB a client | held-out top-1, % | test top-1, % |")
    print("| --- | --- | --- | --- | --- |")
    for told, other, (held_top1, top1, megabytes) in lines(data, a.ways):
        dim = (other or data).space["dim"]
        print(f"| {told} | {dim:,} | {megabytes:.2f} | {100 * held_top1:.2f} | {100 * top1:.2f} |",
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
