"""Faults of heads whose checksums and digest are right: numbers that are none, classes twice."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from bench import Bench
from damage import forge

from afltool.errors import AflError
from afltool.files.hdf5 import read_header
from afltool.files.heads import load_head

Files = dict[str, Path]


def numbers(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """NaN, ±∞ and other types in a learned array: no command takes the head for a good one."""
    cases = [
        (path, name, bad)
        for key, path in sorted(files.items())
        if key.startswith("head-")
        for name in load_head(path)[0].state_dict()
        for bad in (np.nan, np.inf, -np.inf, None)
    ]
    for path, name, bad in cases[:tries]:
        forged = with_number(path, name, bad, draw, work / "forged.h5")
        if forged is None:
            continue
        what = f"{path.name}, {name}: {bad}"
        bench.inside(what, ["verify", forged], expected="refused")
        command = ["evaluate", forged, files["features-int16"]]
        if load_head(path)[0].phase() is not None:
            command = ["local-stats", files["features-int16"], "--client", "a", "--head", forged,
                       "-o", work / "stats"]  # fmt: skip
        bench.inside(what, command, expected="refused")


def with_number(path: Path, name: str, bad: float | None, draw: Random, out: Path) -> Path | None:
    """A copy of a head with ``bad`` somewhere in an array, or of texts; its digest is right."""
    head, header = load_head(path)
    array = head.state_dict()[name].copy()
    if bad is None:
        array = array.astype("S8")
    elif array.dtype.kind != "f" or not array.size:
        return None
    else:
        array.reshape(-1)[draw.randrange(array.size)] = bad
    try:
        digest = head.restore(head.phase(), {**head.state_dict(), name: array}).digest()
    except (AflError, ValueError, TypeError):
        digest = header["digest"]
    arrays: dict[str, Any] = {f"arrays__{name}": array}
    return forge(path, out, {"digest": digest}, **arrays)


def classes(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """A class, or a client of a partition, that is named twice: refused by whoever reads it."""
    keys = ("features-int16", "partition", "statistics-linear-1", "head-linear-1")
    for key in keys[:tries]:
        header = {k: v for k, v in read_header(files[key]).items() if k != "kind"}
        for where, field in ((header, "classes"), (header, "names"), (header.get("context"),
                                                                      "classes")):  # fmt: skip
            if isinstance(where, dict) and len(where.get(field) or []) > 1:
                kept = list(where[field])
                where[field] = [kept[1], *kept[1:]]
                forged = forge(files[key], work / f"{key}.h5", header)
                bench.inside(f"{key}, {field}", ["verify", forged], expected="refused")
                head = forged if key.startswith("head") else files["head-linear-1"]
                rows = forged if key.startswith("features") else files["features-int16"]
                if key.startswith(("head", "features")):
                    bench.inside(f"{key}, {field}", ["evaluate", head, rows], expected="refused")
                where[field] = kept
