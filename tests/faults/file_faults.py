"""Damage to files at rest: each fault takes a `Bench`, the specimens, a number of tries and a
generator, and tries that often (or as often as there are places for it)."""

from __future__ import annotations

import os
import shutil
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import h5py
from bench import Bench, content, installed

from afltool.files.hdf5 import read_header

Files = dict[str, Path]
UNCHECKED = (".npy", ".txt", ".csv", ".json", ".toml")  # formats without checksums of their own


def truncation(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Cut at a boundary of the file's structure, or a byte beside it."""
    for name, path in files.items():
        data = path.read_bytes()
        for size in _sample(sorted(set(_boundaries(path)) - {len(data)}), tries, draw):
            _read(bench, files, name, _copy(work, path, data[:size]), f"cut to {size}", work)


def bit_flips(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """One bit of the whole file turned."""
    names = sorted(files)
    for number in range(tries):
        name = names[number % len(names)]
        data = bytearray(files[name].read_bytes())
        bit = draw.randrange(8 * len(data))
        data[bit // 8] ^= 1 << bit % 8
        _read(bench, files, name, _copy(work, files[name], data), f"bit {bit}", work)


def swapped(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Every file where every other one is expected: refused, but where both mean the same."""
    pairs = [(a, b) for a in files for b in files if a != b]
    for name, other in _sample(pairs, tries, draw):
        args, result = _use(files, name, files[other], work / "out.h5")
        code = bench.inside(f"{other} as {name}", args, result)
        kinds = {n.split("-")[0] for n in (name, other)}
        if code == 0 and len(kinds) > 1 and "input" not in kinds and "verify" not in args:
            bench.failures.append(f"{other} was read as {name}")


def swapped_rounds(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """A total solved with every other head than its own: refused, or the head of its own."""
    heads = [n for n in files if n.startswith("head")]
    totals = [n for n in files if n.startswith("statistics")]
    own = {t: f"head-{t.split('-', 1)[1].rsplit('-', 1)[0]}-{int(t[-1]) - 1}"
           for t in totals if t[-1].isdigit()}  # fmt: skip
    own["statistics-one-client"] = "head-linear-0"
    for total, head in _sample([(t, h) for t in totals for h in heads], tries, draw):
        out = work / "out.h5"
        out.unlink(missing_ok=True)
        args = ["solve", files[total], "--head", files[head], "-o", out]
        code = bench.inside(f"{total} with {head}", args)
        if code == 0 and own.get(total) != head:
            bench.failures.append(f"{total} was solved with {head}")


# ---------------------------------------------------------------- how a file is used


def _read(bench: Bench, files: Files, name: str, path: Path, how: str, work: Path) -> None:
    """Read a damaged file as the stages do: refused, or exactly what was written."""
    if not name.startswith("input"):
        bench.attempt(f"{name}, {how}", lambda: content(path), content(files[name]))
        return
    expected = ... if path.suffix in UNCHECKED else _expected(files, name)
    bench.inside(f"{name}, {how}", *_use(files, name, path, work / "out.h5"), expected)


_known: dict[str, Any] = {}


def _expected(files: Files, name: str) -> Any:
    """What a specimen leads to, undamaged."""
    if name not in _known:
        out = files["features-int16"].parent / f"expected-{name}.h5"
        args, result = _use(files, name, files[name], out)
        done = installed(args)
        assert done.returncode == 0, done.stderr
        _known[name] = result()
    return _known[name]


def _use(files: Files, name: str, path: Path, out: Path) -> tuple[list[Any], Any]:
    """A command that reads the file at ``path`` in the place of a specimen; what it led to."""
    train, npz, labels = (
        files[n] for n in ("features-int16", "input-train.npz", "input-labels.txt")
    )
    whole = {
        "input-train.npz": ["import", path],
        "input-x.npy": ["import", path, "--labels", labels],
        "input-labels.txt": ["import", files["input-x.npy"], "--labels", path],
        "input-classes.txt": ["import", npz, "--classes", path],
        "input-table.csv": ["partition", train, "--scheme", "file", "--table", path],
        "partition-noisy": ["verify"],
    }
    kinds = {
        "features": ["local-stats", path, "--client", "a", "--head", "linear", "--sum"],
        "partition": ["local-stats", train, "--partition", path, "--head", "linear", "--sum"],
        "statistics": ["aggregate", path],
    }
    folder = out.with_suffix("")
    out.unlink(missing_ok=True)
    if name == "input-run.toml":
        shutil.rmtree(folder, ignore_errors=True)
        args = ["run", path, "--clients", 2, "-o", folder]
        return args, lambda: read_header(folder / "05-head.h5")["digest"]
    args = whole.get(name) or kinds.get(name.split("-")[0], ["verify"])
    if args == ["verify"]:
        return ["verify", path], lambda: content(path)
    return [*args, "-o", out], lambda: read_header(out)["digest"]


def _copy(work: Path, like: Path, data: bytes | bytearray) -> Path:
    path = work / f"damaged{like.suffix}"
    path.write_bytes(data)
    return path


def _sample(items: list[Any], most: int, draw: Random) -> list[Any]:
    return items if len(items) <= most else draw.sample(items, most)


# ---------------------------------------------------------------- where a file's structure changes


def _boundaries(path: Path) -> Iterator[int]:
    size = path.stat().st_size
    if path.suffix == ".h5":
        places = _of_hdf5(path)
    elif path.suffix == ".npz":
        places = _of_zip(path)
    else:
        data = path.read_bytes()
        places = [0, 6, 8, 10, 128, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    for place in places:
        yield from (n for n in (place - 1, place, place + 1) if 0 <= n < size)


def _of_hdf5(path: Path) -> list[int]:
    """Superblock, object headers, index and every chunk of every dataset, from both sides."""
    places = [0, 8, 12, 48, 96, path.stat().st_size]
    with h5py.File(path, "r", locking=False) as file:

        def visit(name: str, item: Any) -> None:
            places.append(h5py.h5o.get_info(item.id).addr)
            if isinstance(item, h5py.Dataset) and item.chunks:
                for number in range(item.id.get_num_chunks()):
                    chunk = item.id.get_chunk_info(number)
                    places.extend([chunk.byte_offset, chunk.byte_offset + chunk.size])

        visit("/", file)
        file.visititems(visit)
    return places


def _of_zip(path: Path) -> list[int]:
    with zipfile.ZipFile(path) as archive:
        starts = [info.header_offset for info in archive.infolist()]
        directory = archive.start_dir
    names = [30 + struct.unpack("<H", path.read_bytes()[at + 26 : at + 28])[0] for at in starts]
    data = [at + name for at, name in zip(starts, names, strict=True)]
    return [*starts, *data, directory, path.stat().st_size - 22, os.path.getsize(path)]
