"""The feature store against a raw memory map: write and read throughput, checksums on and off.

python benchmarks/bench_store.py [ROWS] [DIM] [FOLDER]      40000 1280 (100 MB of int16), /tmp

Written is what extract and import write (values already rounded; chunks, fletcher32, then the
digest of the whole) up to and with fsync; read is a pass over all rows. Files are in the page
cache when they are read: what is measured is the work per byte, not the disk's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

import h5py
import numpy as np
from measure import alternately, machine

from afltool.files import schema
from afltool.files.features import open_features, writing_features

BLOCK = 4096
HEADER = {
    "recipe": {"stage": "import", "options": {}, "inputs": {}},
    "provenance": {}, "classes": ["a", "b"], "source": {},
    "space": {"dtype": "int16", "fraction_bits": 9},
}  # fmt: skip


def write_store(path: Path, values: np.ndarray, ids: np.ndarray) -> None:
    n, dim = values.shape
    space = {**HEADER["space"], "dim": dim}
    with writing_features(path, space) as writer:
        for start in range(0, n, BLOCK):
            writer.append_values(values[start : start + BLOCK])
        writer.finish(np.arange(n) % 2, ids, {**HEADER, "space": space})


def write_plain_hdf5(path: Path, values: np.ndarray) -> None:
    """The same chunks without fletcher32, digest and fsync of the folder."""
    with h5py.File(path, "w", libver=schema.LIBVER) as file:
        data = file.create_dataset("features", values.shape, "<i2",
                                   chunks=(schema.CHUNK_ROWS, values.shape[1]))  # fmt: skip
        for start in range(0, len(values), BLOCK):
            data[start : start + BLOCK] = values[start : start + BLOCK]
        file.flush()
    sync(path)


def write_map(path: Path, values: np.ndarray) -> None:
    mapped = np.memmap(path, values.dtype, "w+", shape=values.shape)
    for start in range(0, len(values), BLOCK):
        mapped[start : start + BLOCK] = values[start : start + BLOCK]
    mapped.flush()
    sync(path)


def sync(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def read_store(path: Path) -> int:
    """A whole pass: every chunk and, at the end, the digest."""
    with open_features(path) as features:
        return sum(int(values[0, 0]) for _, values in features.iter_stored())


def read_without_digest(path: Path) -> int:
    """fletcher32 of each chunk, as a part of the rows is read."""
    with open_features(path) as features:
        starts = range(0, len(features), BLOCK)
        return sum(int(features.read_stored(s, s + BLOCK)[0, 0]) for s in starts)


def read_plain_hdf5(path: Path) -> int:
    with h5py.File(path, "r") as file:
        data = file["features"]
        return sum(int(data[s : s + BLOCK][0, 0]) for s in range(0, len(data), BLOCK))


def read_map(path: Path, shape: tuple[int, int]) -> int:
    mapped = np.memmap(path, "<i2", "r", shape=shape)
    return sum(int(np.array(mapped[s : s + BLOCK])[0, 0]) for s in range(0, len(mapped), BLOCK))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="?", type=int, default=40_000)
    parser.add_argument("dim", nargs="?", type=int, default=1280)
    parser.add_argument("folder", nargs="?", type=Path)
    a = parser.parse_args()
    values = np.random.default_rng(0).integers(-999, 999, (a.rows, a.dim)).astype("<i2")
    ids = np.array([f"row/{i:07d}".encode() for i in range(a.rows)])
    mb = values.nbytes / 1e6
    print(machine(), f"h5py {h5py.__version__}; {mb:.0f} MB")
    with tempfile.TemporaryDirectory(dir=a.folder) as name:
        store, plain, raw = (Path(name) / f for f in ("store.h5", "plain.h5", "raw.bin"))
        wrote = alternately(
            lambda: write_store(store, values, ids),
            lambda: write_plain_hdf5(plain, values),
            lambda: write_map(raw, values),
            repeats=5,
        )
        read = alternately(
            lambda: read_store(store),
            lambda: read_without_digest(store),
            lambda: read_plain_hdf5(plain),
            lambda: read_map(raw, values.shape),
            repeats=5,
        )
    for label, seconds in zip(
        ("write, checksums and digest", "write, HDF5 without checksums", "write, memory map",
         "read, digest of the pass", "read, checksum of each chunk", "read, HDF5 without checksums",
         "read, memory map"), [*wrote, *read], strict=True,
    ):  # fmt: skip
        base = wrote[-1] if label.startswith("write") else read[-1]
        print(f"{label:30} {mb / seconds:7.0f} MB/s   {seconds / base:5.1f} × the map's time")


if __name__ == "__main__":
    main()
