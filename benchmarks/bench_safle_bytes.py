"""Bytes that SAFLe clients send, and what other ways to store the same counts would take.

    python benchmarks/bench_safle_bytes.py TRAIN.h5 [E,G …]        default: 512,5 1600,3 512,3

Some of 100 Dirichlet(0.1) clients, from the smallest to the largest; overlap, B = 8, thresholds of
the file's rows; MB = 10^6 bytes.

    dense     the paper's D × D matrix as float32, and its triangle
    file      what `local-stats` writes, all of it
    strings   the counts of pairs dense, deflated as HDF5 would, by repeated strings (zlib's default
              strategy, level 1), with the codes 0 that follow from the labels
    runs      the same by run lengths, or symbol by symbol (zlib's Z_RLE, Z_HUFFMAN_ONLY)
    codes 0   and without the codes 0, as they stand in the file
    hybrid    the file of the head with raw features (--with-linear)
"""

from __future__ import annotations

import sys
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
from measure import digits, machine

from afltool.files.features import Features, open_features
from afltool.files.hdf5 import deflate_chunk
from afltool.files.statistics import save_statistics
from afltool.heads import make_head
from afltool.heads.base import Head, binding
from afltool.math.codes import grid, histogram, levels, quantiles
from afltool.math.counts import with_margins
from afltool.options.partition import PartitionOptions
from afltool.partitions.assignment import assign
from afltool.values.arrays import narrowest
from afltool.values.statistics import Context, Statistics

BLOCK = 1 << 20
RANKS = (0, 19, 50, 67, 99)  # of the clients in the order of their sizes


def file_bytes(found: Statistics) -> int:
    with tempfile.TemporaryDirectory() as folder:
        return save_statistics(Path(folder) / "a.h5", found, {}).stat().st_size


def blocks(counts: np.ndarray) -> list[np.ndarray]:
    flat = counts.reshape(-1)
    step = BLOCK // flat.itemsize
    return [flat[start : start + step] for start in range(0, len(flat), step)]


def by_strings(block: np.ndarray) -> int:
    planes = np.ascontiguousarray(block.view(np.uint8).reshape(-1, block.itemsize).T)
    return len(zlib.compress(planes.tobytes(), 1))


def by_runs(block: np.ndarray) -> int:
    return len(deflate_chunk(block))


def whole(labels: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    every = np.concatenate([with_margins(labels, pairs, j) for j in range(1, len(labels))])
    return every.astype(narrowest(every))


def one(head: Head, hybrid: Head, train: Features, rows: np.ndarray) -> list[float]:
    """Megabytes: the file, the pairs in three forms, the file of the hybrid."""
    values = np.concatenate([train.read_stored(int(r), int(r) + 1) for r in rows])
    X, y, space = train.wrap(values), train.labels[rows], train.header["space"]
    found = [
        replace(h.gather([(X, y)])[0], context=Context(space, train.classes, binding(h)))
        for h in (head, hybrid)
    ]
    labels, pairs = (found[0].arrays[name] for name in ("labels", "pairs"))
    every, cut = blocks(whole(labels, pairs)), pairs.astype(narrowest(pairs))
    sizes = [
        file_bytes(found[0]),
        sum(map(by_strings, every)),
        sum(map(by_runs, every)),
        sum(map(by_runs, blocks(cut))),
        file_bytes(found[1]),
    ]
    return [size / 1e6 for size in sizes]


def main(train_file: str, *shapes: str) -> None:
    print(machine())
    names = ("file", "strings", "runs", "codes 0", "hybrid")
    with open_features(Path(train_file)) as train:
        dealt = assign(
            train.row_ids, train.labels, len(train.classes),
            PartitionOptions(clients=100, alpha=0.1),
        ).client  # fmt: skip
        order = np.argsort(np.bincount(dealt, minlength=100), kind="stable")
        counts = sum(histogram(X) for _, X in train.blocks())
        cuts = quantiles(counts, levels("overlap", 8), grid(train.header["space"]["fraction_bits"]))
        for shape in shapes or ("512,5", "1600,3", "512,3"):
            experts, size = map(int, shape.split(","))
            options = {"experts": experts, "group_size": size}
            begun = (make_head("safle", {**options, "with_linear": x}) for x in (False, True))
            heads = [
                replace(head, thresholds=cuts).bind(train.dim, len(train.classes)) for head in begun
            ]
            side = experts * 2**size
            dense = 4 * side**2 / 1e6, 2 * side * (side + 1) / 1e6
            print(f"E = {experts}, V = {2**size}: dense {dense[0]:.0f} MB, triangle {dense[1]:.0f}")
            print("    rows " + "".join(f"{name:>9}" for name in names))
            for rank in RANKS:
                rows = np.flatnonzero(dealt == order[rank])
                if not len(rows):
                    continue
                found = one(*heads, train, rows)
                print(f"  {len(rows):6} " + "".join(f"{mb:9.2f}" for mb in found), flush=True)


if __name__ == "__main__":
    main(*(sys.argv[1:] or [digits()[0], "64,3"]))
