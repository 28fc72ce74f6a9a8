"""Faults of the folder of `--cache`: what lies there is damaged, or the disk is full."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path
from random import Random
from typing import Any

from bench import Bench
from cache_damage import KINDS, damaged

from afltool.files.hdf5 import read_header

Files = dict[str, Path]


def local_stats(files: Files, head: str, out: Path, *more: Any) -> list[Any]:
    return ["local-stats", files["features-int16"], "--client", "a", "--sum", "--head",
            files[head], "-o", out, "--overwrite", *more]  # fmt: skip


def damage(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """A damaged cache is made again: the statistics are those without one."""
    out, kept, cache = work / "out.h5", work / "kept", work / "cache"
    first = local_stats(files, "head-deepafl-0", out, "--cache", kept)
    bench.inside("the first round", first)
    bench.inside("without", local_stats(files, "head-deepafl-1", out))
    wanted = read_header(out)["digest"]
    for number in range(tries):
        how = KINDS[number % len(KINDS)]
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(kept, cache)
        for path in cache.rglob("*.npz"):
            path.write_bytes(damaged(path.read_bytes(), how, draw))
        bench.inside(
            how, local_stats(files, "head-deepafl-1", out, "--cache", cache),
            lambda: read_header(out)["digest"], wanted,
        )  # fmt: skip


def full(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """No space left for the cache: an error, and nothing lies there."""
    cache, size = work / "cache", len(read_cache(bench, files, work))
    for number in range(tries):
        room = size * number // tries

        def limit(room: int = room) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

        args = local_stats(files, "head-deepafl-0", work / f"{number}.h5", "--cache", cache)
        code = bench.command(f"{room} of {size} bytes", args, preexec_fn=limit)
        if code == 0 or (left := list(cache.rglob("*.partial"))):
            bench.failures.append(f"{room} of {size} bytes: {code}, {left}")


def read_cache(bench: Bench, files: Files, work: Path) -> bytes:
    """The bytes of the undisturbed cache."""
    whole = work / "whole"
    bench.inside("whole", local_stats(files, "head-deepafl-0", work / "w.h5", "--cache", whole))
    return next(whole.rglob("*.npz")).read_bytes()
