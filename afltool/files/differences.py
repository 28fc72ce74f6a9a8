"""In what two files of one kind differ: the fields of their headers, and their arrays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MismatchError
from ..values.arrays import Array
from ..values.text import differing
from . import hdf5
from .statistics import get_clients

#: Fields that say how and when a file was made, or that follow from what is compared.
NOT_COMPARED = {"digest", "provenance", "report", "rounds", "kind", "clients"}
Difference = dict[str, Any]


def differences(first: Path, second: Path) -> list[Difference]:
    """What differs in two files, each of which is read whole and compared with its digest.

    A field is ``{"what", "first", "second"}``; of names, such as ``clients``, what one of the files
    has alone. An array has both shapes, or ``entries``, how many ``differ``, and the ``largest``
    difference of numbers as they are stored (None: of texts, or one is not finite).

    Raises `MismatchError`: the files are of two kinds; `CorruptFileError`: one is damaged.
    """
    a, b = hdf5.verify(first), hdf5.verify(second)
    if a["kind"] != b["kind"]:
        kinds = f"{first} is a {a['kind']} file and {second} a {b['kind']} file"
        raise MismatchError(f"{kinds}; give two files of one kind")
    fields, clients = differing(_fields(a), _fields(b)), _clients(a, b)
    found = [_of_field(*one) for one in (*fields, *clients)]
    ours, theirs = (hdf5.read_file(path, a["kind"])[1] for path in (first, second))
    for name in sorted(ours.keys() | theirs.keys()):
        found += _compare_arrays(name, ours.get(name), theirs.get(name))
    return found


def _fields(header: hdf5.Header) -> hdf5.Header:
    return {k: v for k, v in header.items() if k not in NOT_COMPARED}


def _clients(a: hdf5.Header, b: hdf5.Header) -> Iterator[tuple[str, Any, Any]]:
    """The names that one of two sums has alone, and what differs of a client of both."""
    if a["kind"] != "statistics":
        return
    ours, theirs = ({str(k): vars(v) for k, v in get_clients(one).items()} for one in (a, b))
    if ours.keys() != theirs.keys():
        yield "clients", sorted(ours), sorted(theirs)
    for name in sorted(ours.keys() & theirs.keys()):
        yield from differing(ours[name], theirs[name], f"clients.{name}")


def _of_field(name: str, a: Any, b: Any) -> Difference:
    names = all(isinstance(one, list) and set(map(type, one)) <= {str} for one in (a, b))
    only = [sorted({*a} - {*b}), sorted({*b} - {*a})] if names else []
    ours, theirs = only if any(only) else (a, b)
    return {"what": name, "first": ours, "second": theirs}


def _compare_arrays(name: str, a: Array | None, b: Array | None) -> Iterator[Difference]:
    if a is None or b is None or a.shape != b.shape:
        shapes = ("absent" if one is None else f"{list(one.shape)} {one.dtype}" for one in (a, b))
        yield dict(zip(("what", "first", "second"), (name, *shapes), strict=True))
        return
    apart = np.asarray(a != b)
    if a.dtype.kind == b.dtype.kind == "f":
        apart &= ~(np.isnan(a) & np.isnan(b))
    if apart.any():
        differ, largest = int(np.count_nonzero(apart)), _largest(a[apart], b[apart])
        yield {"what": name, "entries": a.size, "differ": differ, "largest": largest}


def _largest(a: Array, b: Array) -> float | None:
    """max |a − b|: of integers exactly, None of texts or where one is not finite."""
    if a.dtype.kind in "iu" and b.dtype.kind in "iu":
        low, high = (f(a, b).astype(np.int64).view(np.uint64) for f in (np.minimum, np.maximum))
        return int((high - low).max())
    if a.dtype.kind not in "iuf":
        return None
    with np.errstate(invalid="ignore"):
        most = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max())
    return most if np.isfinite(most) else None
