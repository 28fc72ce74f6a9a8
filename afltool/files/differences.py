"""In what two files of one kind differ: the fields of their headers, and their arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MismatchError
from ..values.arrays import Array
from . import hdf5
from .features import BLOCK_BYTES, open_features
from .statistics import clients_of

#: Fields that say how and when a file was made, or that follow from what is compared.
NOT_COMPARED = {"digest", "provenance", "report", "rounds", "kind"}
Difference = dict[str, Any]


def differences(first: Path, second: Path) -> list[Difference]:
    """What differs in two files, each of which is read whole and compared with its digest.

    A field is ``{"what", "first", "second"}``; of names, what one of the files has alone. An array
    has both shapes, or ``entries``, how many ``differ``, the ``largest`` difference of numbers as
    they are stored (None: one is not finite), and ``at`` which place it is.

    Raises:
        MismatchError: the files are of two kinds.
        CorruptFileError: one is damaged.
    """
    a, b = hdf5.verify(first), hdf5.verify(second)
    if a["kind"] != b["kind"]:
        kinds = f"{first} is a {a['kind']} file and {second} a {b['kind']} file"
        raise MismatchError(f"{kinds}; give two files of one kind")
    found = list(_of_fields(_fields(a), _fields(b), ""))
    with ExitStack() as files:
        ours, theirs = (_arrays(path, a["kind"], files) for path in (first, second))
        for name in sorted(ours.keys() | theirs.keys()):
            found += _of_arrays(name, ours.get(name), theirs.get(name))
    return found


def _fields(header: hdf5.Header) -> hdf5.Header:
    """The fields that are compared; clients as a table by name."""
    known = {k: v for k, v in header.items() if k not in NOT_COMPARED}
    if header["kind"] == "statistics":
        known["clients"] = {str(who): vars(one) for who, one in clients_of(header).items()}
    return known


def _of_fields(a: Any, b: Any, name: str) -> Iterator[Difference]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys()):
            yield from _of_fields(a.get(key), b.get(key), f"{name}.{key}".lstrip("."))
    elif a != b:
        names = all(isinstance(one, list) and set(map(type, one)) <= {str} for one in (a, b))
        only = [sorted({*a} - {*b}), sorted({*b} - {*a})] if names else []
        ours, theirs = only if any(only) else (a, b)
        yield {"what": name, "first": ours, "second": theirs}


def _arrays(path: Path, kind: str, files: ExitStack) -> dict[str, Array]:
    """The arrays of a file by name; features stay in it."""
    if kind != "features":
        return hdf5.read_file(path, kind)[1]
    rows = files.enter_context(open_features(path, labelled=False))
    found = {"features": rows.data, "row_ids": rows.row_ids, "labels": rows.given_labels}
    return {name: a for name, a in found.items() if a is not None}


def _of_arrays(name: str, a: Array | None, b: Array | None) -> Iterator[Difference]:
    """The difference of two arrays, block by block of their first axis."""
    if a is None or b is None or a.shape != b.shape:
        shapes = ("absent" if one is None else f"{list(one.shape)} {one.dtype}" for one in (a, b))
        yield dict(zip(("what", "first", "second"), (name, *shapes), strict=True))
        return
    differ, largest, at = 0, 0, list[int]()
    step = max(1, BLOCK_BYTES // 8 // max(1, int(np.prod(a.shape[1:]))))
    for start in range(0, len(a), step):
        apart = _distance(a[start : start + step], b[start : start + step])
        differ += int(np.count_nonzero(apart))
        if apart.dtype != bool and (most := apart.max(initial=0).item()) > largest:
            place = np.unravel_index(int(apart.argmax()), apart.shape)
            largest, at = most, [start + int(place[0]), *map(int, place[1:])]
    if differ:
        facts = {"what": name, "entries": int(np.prod(a.shape)), "differ": differ, "at": at}
        yield {**facts, "largest": largest if np.isfinite(largest) else None}


def _distance(a: Array, b: Array) -> Array:
    """|a − b|, of integers exactly, ∞ where it is no number; of texts whether they differ."""
    if "f" in (a.dtype.kind, b.dtype.kind):
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        with np.errstate(invalid="ignore"):
            away = np.nan_to_num(np.abs(a.astype(np.float64) - b), nan=np.inf, posinf=np.inf)
        return np.where(same, 0.0, away)
    if a.dtype.kind not in "iu":
        return np.asarray(a != b)
    low, high = (f(a, b).astype(np.int64).view(np.uint64) for f in (np.minimum, np.maximum))
    return np.asarray(high - low)
