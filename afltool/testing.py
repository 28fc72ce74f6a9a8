"""Checks of plug-ins, for pytest: each raises `AssertionError` with the law that does not hold.

A package that adds a head tests it by::

    from afltool.testing import check_head

    def test_my_head():
        check_head("nearest-mean")

Each goes the way of users: through the entry point, functions of `afltool` and files. An error on
the way comes as it is.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import api
from .files.atomic import write_text
from .files.hdf5 import read_header
from .files.heads import load_head
from .files.statistics import load_statistics
from .heads import HEADS, head_class, options_class
from .heads.base import Head, number_kind
from .math.gram import FixedPoint
from .options.base import get_fields
from .options.datasets import DATASETS
from .options.partition import SCHEMES, PartitionOptions
from .partitions.assignment import assign
from .plugins import FAILS, Registry, entry_points
from .runs.config import FIELDS
from .values.statistics import Statistics

ROWS, DIM, CLASSES, BITS = 90, 6, 3, 10
TOLERANCE = 1e-9  # of sums of real numbers, relative to the largest entry


def check_head(
    name: str, head_options: Mapping[str, Any] | None = None, max_rounds: int = 200
) -> None:
    """A head from rows of three clients to predictions, through files, round by round.

    Laws: its options have names of their own; its name in files is ``name``; sums of clients, in
    any order, equal the sum over all rows (integers bit for bit, real ones to 1e-9), as do sums of
    rows in another order, and no rows add nothing; equal sums give equal digests; a solve changes
    the digest, and no head before it; a file gives the same head; it is solved after at most
    ``max_rounds`` rounds; scores are finite, (n, C); predictions are those of `evaluate`.
    """
    _load(HEADS, name)
    assert head_class(name).name == name, "its name in files is that of the plug-in"
    taken = sorted((get_fields(options_class(name)).keys() - {"seed"}) & FIELDS.keys())
    assert not taken, f"its options have names of their own, not those of a run: {taken}"
    with TemporaryDirectory() as folder:
        at = Path(folder)
        rows = _rows_file(at)
        clients = api.partition(rows, at / "p.h5", scheme="iid", clients=3)
        head = api.head(name, at / "head.h5", head_options=dict(head_options or {}))
        for number in range(max_rounds):
            if load_head(head)[0].phase() is None:
                break
            head = _check_round(at / str(number), rows, clients, head)
        solved = load_head(head)[0].phase() is None
        assert solved, f"it is solved after at most {max_rounds} rounds"
        _check_use(at, rows, head)


def _check_round(at: Path, rows: Path, clients: Path, head: Path) -> Path:
    """One round of a head; returns the head after it."""
    whole = api.local_stats(rows, str(head), at / "sum.h5", partition=clients, sum=True)
    api.local_stats(rows, str(head), at / "stats", partition=clients)
    files = sorted((at / "stats").glob("*.h5"))
    orders = enumerate((files, files[::-1]))
    totals = [api.aggregate(tuple(order), at / f"total-{k}.h5") for k, order in orders]
    summed = [load_statistics(path) for path in (whole, *totals)]
    before = load_head(head)[0].bind(DIM, CLASSES)
    x, y = _rows()
    order = np.random.default_rng(1).permutation(ROWS)
    some = np.arange(ROWS), order, order[:0]
    every, mixed, none = (before.gather([(FixedPoint(x[i], BITS), y[i])])[0] for i in some)
    assert _is_same(every, mixed), "the order of the rows does not matter"
    assert _is_same(every, every + none), "the sums of no rows add nothing"
    for total in summed:
        assert _is_same(every, total), "sums of clients add up to those of all rows"
    digest, after = before.digest(), before.absorb(summed[0])[0]
    assert before._digest() == digest, "what it learns changes no head before it"
    exact = all(number_kind(a) == "i" for a in summed[0].arrays.values())
    again = [before.absorb(total)[0].digest() for total in summed[: None if exact else 1]]
    assert {*again} == {after.digest()}, "the same sums give the same digest"
    assert after.digest() != digest, "the digest says that the head has learned"
    solved = api.solve(whole, at / "head.h5", head=head)
    read = load_head(solved)[0]
    same = read.digest() == after.digest() and _is_equal(_scores(after), _scores(read))
    assert same, "a file gives the same head and its scores"
    return solved


def _check_use(at: Path, rows: Path, path: Path) -> None:
    """What commands make of a solved head."""
    x, y = _rows()
    scores = load_head(path)[0].decision_function(FixedPoint(x, BITS))
    fit = scores.shape == (ROWS, CLASSES) and bool(np.isfinite(scores).all())
    assert fit, f"scores are finite numbers, rows × classes; found {scores.shape}"
    api.predict(path, (rows,), at / "p.csv")
    with (at / "p.csv").open(newline="", encoding="utf-8") as file:
        predicted = [int(row["predicted"]) for row in csv.DictReader(file)]
    right = round(api.evaluate(path, rows)["top1"] * ROWS)
    assert np.sum(predicted == y) == right, "predictions are those of evaluate"


def check_scheme(name: str, **options: Any) -> None:
    """A scheme of `partition`: each row has a client, whatever the order of the rows.

    ``options``: of `partition`, where the scheme needs others than clients, alpha and
    shards_per_client.
    """
    _load(SCHEMES, name)
    usual = {"clients": 4, "alpha": 1.0, "shards_per_client": 2}
    given = {one: usual[one] for one in SCHEMES[name][0] if one in usual} | options
    o, labels = PartitionOptions(scheme=name, **given), np.arange(60) % 3
    ids = np.array([b"%02d" % i for i in range(60)])
    mixed = np.random.default_rng(0).permutation(60)
    one, again, other = (assign(ids[r], labels[r], 3, o) for r in (slice(None), slice(None), mixed))
    assert np.array_equal(one.client, again.client), "the same rows are assigned alike"
    same = np.array_equal(one.client[mixed], other.client)
    assert same, "the order of the rows does not matter"


def check_dataset(spec: str, split: str = "train") -> None:
    """A data set, as ``--data`` names it: RGB images, ids of their own, a fixed fingerprint."""
    from .datasets import open_dataset

    _load(DATASETS, spec.partition(":")[0])
    rows, again = (open_dataset(spec, split) for _ in range(2))
    assert rows.load(len(rows) - 1).mode == "RGB", "its images are RGB"
    assert len({*rows.row_ids.tolist()}) == len(rows), "every row has an id of its own"
    assert rows.fingerprint == again.fingerprint, "the same rows have the same fingerprint"


def check_baseline(name: str, **settings: Any) -> None:
    """A method of `baseline`, in two rounds: its head does not depend on the number of threads."""
    from .lab.baselines import METHODS
    from .lab.baselines.api import baseline

    _load(METHODS, name)
    with TemporaryDirectory() as folder:
        at = Path(folder)
        rows = _rows_file(at)
        clients = api.partition(rows, at / "p.h5", scheme="iid", clients=4)
        given: Any = {"settings": {"rounds": 2, **settings}, "partition": clients, "test": rows}
        outs = [baseline(name, rows, at / f"{n}", threads=n, **given) for n in (1, 2)]
        digests = {read_header(out / "head.h5", "head")["digest"] for out in outs}
        assert len(digests) == 1, "the head does not depend on --threads"


# ---------------------------------------------------------------- details


def _load(registry: Registry[Any], name: str) -> None:
    """What makes a plug-in fail where others only hear that it is left out."""
    if (door := entry_points(registry.group).get(name)) is not None:
        assert name not in registry.data, f"it has a name of its own; afltool has a {name!r}"
        registry.made(door.value, door.load())
    assert name in registry, f"it is installed: {name!r} is not in {', '.join(registry)}"


def _rows() -> tuple[NDArray[np.int16], NDArray[np.int64]]:
    """Rows in fixed point and their labels."""
    y = np.arange(ROWS) % CLASSES
    x = np.random.default_rng(0).integers(-900, 900, (ROWS, DIM)) + 800 * np.eye(CLASSES, DIM)[y]
    return x.astype(np.int16), y


def _rows_file(at: Path) -> Path:
    x, y = _rows()
    np.save(at / "rows.npy", x * 2.0**-BITS)
    labels = write_text("".join(f"{label}\n" for label in y), at / "labels.txt")
    return api.import_embeddings(at / "rows.npy", at / "rows.h5", labels=labels, fraction_bits=BITS)


def _is_same(a: Statistics, b: Statistics) -> bool:
    equal = np.array_equal(a.class_counts, b.class_counts) and a.arrays.keys() == b.arrays.keys()
    return equal and all(_is_equal(array, b.arrays[key]) for key, array in a.arrays.items())


def _is_equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    if number_kind(a) == "i":
        return np.array_equal(a, b)
    error = TOLERANCE * np.abs(a).max(initial=0)
    return a.shape == b.shape and np.allclose(a, b, rtol=0, atol=error)


def _scores(head: Head) -> NDArray[np.float64]:
    """The scores of a head; none before it is solved, or where it has lost something."""
    with suppress(*FAILS):
        return head.decision_function(FixedPoint(_rows()[0], BITS))
    return np.zeros(0)
