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
    has both shapes, or ``entries``, how many ``differ``, and the ``largest`` difference of numbers
    as they are stored (None: of texts, or one is not finite).

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
    step, differ, largest = max(1, BLOCK_BYTES // 8 // max(1, a[:1].size)), 0, 0.0
    for start in range(0, len(a), step):
        one, other = a[start : start + step], b[start : start + step]
        apart = np.asarray(one != other)
        if one.dtype.kind == other.dtype.kind == "f":
            apart &= ~(np.isnan(one) & np.isnan(other))
        differ += int(np.count_nonzero(apart))
        if apart.any():
            largest = max(largest, _largest(one[apart], other[apart]))
    if differ:
        known = largest if np.isfinite(largest) else None
        yield {"what": name, "entries": a.size, "differ": differ, "largest": known}


def _largest(a: Array, b: Array) -> float:
    """max |a − b|: of integers exactly, ∞ where one is no number."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        low, high = (f(a, b).astype(np.int64).view(np.uint64) for f in (np.minimum, np.maximum))
        return int((high - low).max())
    if a.dtype.kind not in "iuf":
        return np.inf
    with np.errstate(invalid="ignore"):
        away = np.abs(a.astype(np.float64) - b.astype(np.float64))
    return float(np.nan_to_num(away, nan=np.inf, posinf=np.inf).max())
