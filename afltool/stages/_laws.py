"""What every head must hold, tried on made-up rows: `check-plugin` of a plug-in's head.

Sums of integers are compared bit for bit, real ones to rounding. The rows are fixed-point numbers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..doors import FAILS
from ..files.hdf5 import recipe
from ..files.heads import load_head, save_head
from ..heads import OPTIONS, make_head
from ..heads.base import Head, binding, number_kind
from ..math.gram import FixedPoint
from ..sources.embeddings import imported_space
from ..values.arrays import Array
from ..values.statistics import Context, Statistics

ROWS, DIM, CLASSES, BITS = 90, 6, 3, 10
MOST = 200  # rounds of a head with its defaults
CLOSE = 1e-9  # of real sums, relative to the largest entry


def laws(name: str, taken: set[str]) -> Iterator[tuple[str, bool]]:
    """Each law, and whether the head called ``name`` holds it, with its default options.

    ``taken``: names of options that other stages of a run have.
    """
    own = {f.name for f in fields(OPTIONS[name])} - {"seed"}
    yield "its options have names of their own", not own & taken
    rng = np.random.default_rng(1)
    head, X, y = _begun(name)
    start = head
    yield "its name in files is that of the plug-in", head.name == name
    order, owners = rng.permutation(ROWS), rng.integers(0, 3, ROWS)
    for number in range(1, MOST + 1):
        if head.phase() is None:
            break
        whole = _gathered(head, X, y)
        parts = [_gathered(head, X[owners == k], y[owners == k]) for k in range(4)]  # 3 has no rows
        summed = reduce(add, parts)
        yield f"round {number}: sums of clients add up to those of all rows", _same(whole, summed)
        mixed = _gathered(head, X[order], y[order])
        yield f"round {number}: the order of the rows does not matter", _same(whole, mixed)
        after, again = head.absorb(whole)[0], head.absorb(whole)[0]
        same = after.digest() == again.digest()
        yield f"round {number}: the same sums give the same digest", same
        changed = after.digest() != head.digest()
        yield f"round {number}: the digest says that the head has learned", changed
        with suppress(*FAILS):
            head = _through_a_file(after, whole.context)
        same = head.digest() == after.digest() and _scores(head, X) == _scores(after, X)
        yield f"round {number}: a file gives the same head", same
        head = after
    yield f"it is solved after at most {MOST} rounds", head.phase() is None
    scores = head.scores(FixedPoint(X, BITS))
    fit = scores.shape == (ROWS, CLASSES) and bool(np.isfinite(scores).all())
    yield "scores are finite numbers, rows × classes", fit
    fresh = make_head(name).bind(DIM, CLASSES)
    yield "what it learns changes no head before it", start.digest() == fresh.digest()


def solved(name: str) -> tuple[Head, dict[str, Any]]:
    """A head of one round, solved from made-up rows, and the header that its file would have."""
    head, X, y = _begun(name)
    total = _gathered(head, X, y)
    head = head.absorb(total)[0]
    more = {"digest": head.digest(), "options": {}, "classes": list(total.context.classes)}
    return head, {"space": total.context.space, **more}


def _begun(name: str) -> tuple[Head, NDArray[np.int16], NDArray[np.int64]]:
    """A new head, rows of fixed point and their labels."""
    y = np.arange(ROWS) % CLASSES
    X = np.random.default_rng(0).integers(-900, 900, (ROWS, DIM)) + 800 * np.eye(CLASSES, DIM)[y]
    return make_head(name).bind(DIM, CLASSES), X.astype(np.int16), y


def _gathered(head: Head, X: NDArray[np.int16], y: NDArray[np.int64]) -> Statistics:
    """The statistics of rows, in two blocks."""
    half = len(X) // 2
    blocks = [(FixedPoint(X[part], BITS), y[part]) for part in (slice(half), slice(half, None))]
    classes = tuple(map(str, range(CLASSES)))
    context = Context(imported_space("made-up", DIM, "int16", BITS), classes, binding(head))
    return replace(head.gather(blocks)[0], context=context)


def _same(a: Statistics, b: Statistics) -> bool:
    equal = np.array_equal(a.class_counts, b.class_counts) and a.arrays.keys() == b.arrays.keys()
    return equal and all(_close(one, b.arrays[name]) for name, one in a.arrays.items())


def _close(a: Array, b: Array) -> bool:
    if number_kind(a) == "i":
        return np.array_equal(a, b)
    return a.shape == b.shape and np.allclose(a, b, rtol=0, atol=CLOSE * np.abs(a).max(initial=0))


def _scores(head: Head, X: NDArray[np.int16]) -> bytes | None:
    """The bits of a head's scores; None before it is solved, or where it has lost something."""
    with suppress(*FAILS):
        return None if head.phase() is not None else head.scores(FixedPoint(X, BITS)).tobytes()
    return None


def _through_a_file(head: Head, context: Context) -> Head:
    with tempfile.TemporaryDirectory() as folder:
        path = save_head(Path(folder) / "head.h5", head, recipe("solve", {}, {}), context)
        return load_head(path)[0]
