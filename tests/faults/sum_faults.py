"""What clients may send: sums that no rows have, the same rows again, and names that look alike."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
from bench import Bench, content

import afltool
from afltool.files.hdf5 import read_header
from afltool.files.statistics import load_statistics, save_statistics
from afltool.files.tables import read_columns

Files = dict[str, Path]
MADE_BY = {"stage": "forged", "options": {}, "inputs": {}}
NAMES = [
    "0", "00", "1", "01", "1.0", "1e0", "NA", "nan", "None", "null", "True", "a", "A", "ä", "a ",
    " a", "a\0", "a,b", 'a"b', "a\nb", "\x1b[2J", "../a", "a/b", "%61", "9" * 400, "a" * 400,
]  # fmt: skip


def impossible_sums(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Statistics that no rows have, digest and checksums right, in every phase of every head."""
    from impossible import impossible

    generator = np.random.default_rng(draw.randrange(2**32))
    specimens = [name for name in files if name.startswith("statistics")]
    for name in specimens:
        whole = load_statistics(files[name])
        for number in range(tries):
            for what, forged in impossible(whole, generator):
                path = save_statistics(work / "forged.h5", forged, MADE_BY)
                told = f"{name}, {what}"
                bench.attempt(told, lambda path=path: content(path), says="rows")
                if (
                    number == 0
                    and bench.inside(told, ["aggregate", path, "-o", work / "o.h5"]) == 0
                ):
                    bench.failures.append(f"{told}: was added up")


def odd_names(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Client names that look alike, through a table, a partition and files to their sum."""
    train = files["features-int16"]
    rows = read_columns(files["input-table.csv"], ("row",))["row"]
    whole = afltool.local_stats(train, "linear", work / "whole.h5", client="all", sum=True)
    for number in range(tries):
        names = draw.sample(NAMES, draw.randrange(2, 14))
        table = [{"row": row, "client": names[i % len(names)]} for i, row in enumerate(rows)]
        (work / "t.json").write_text(json.dumps(table))
        bench.attempt(
            f"clients named {names!r}",
            lambda at=work / str(number): _summed(train, work / "t.json", at),
            [read_header(whole)["digest"], sorted(names)],
        )


def _summed(train: Path, table: Path, at: Path) -> list[object]:
    dealt = afltool.partition(train, at.with_suffix(".c.h5"), scheme="file", table=table)
    stats = afltool.local_stats(train, "linear", at, partition=dealt)
    header = read_header(afltool.aggregate([stats], at.with_suffix(".t.h5")))
    return [header["digest"], sorted(header["clients"]["names"])]


def same_rows(bench: Bench, files: Files, tries: int, draw: Random, work: Path) -> None:
    """Two files of sums over the same rows, by other names, in another order, of a partition."""
    train, head = files["features-int16"], files["head-linear-0"]
    with np.load(files["input-train.npz"]) as arrays:
        np.savez(work / "turned.npz", x=arrays["x"][::-1], y=arrays["y"][::-1])
    turned = afltool.import_embeddings(work / "turned.npz", work / "turned.h5")
    found = {
        name: afltool.local_stats(path, head, work / "silos", client=name)
        for name, path in {"a": train, "b": train, "c": train, "turned": turned}.items()
    }
    found["total"] = afltool.aggregate([files["statistics-one-client"].parent], work / "total.h5")
    found["client"] = files["statistics-one-client"]
    found["with another"] = afltool.aggregate(
        [found["a"], afltool.local_stats(files["features-test"], head, work / "o", client="o")],
        work / "with.h5",
    )
    pairs = [
        (one, other) for one in found for other in found
        if one != other and {one, other} not in UNSEEN
    ]  # fmt: skip
    for one, other in draw.sample(pairs, min(tries, len(pairs))):
        args = ["aggregate", found[one], found[other], "-o", work / "sum.h5"]
        if bench.inside(f"{one} and {other}", args) == 0:
            bench.failures.append(f"{one} and {other}: were added up")


# Rows in another order are known by equal sums alone: not part of them, not beside others.
UNSEEN = [{"turned", "client"}, {"turned", "with another"}]
