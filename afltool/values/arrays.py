"""Arrays: names of their types, and digests of them.

Digests are SHA-256 over a meaning: named arrays and texts in canonical types (docs/format.md).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError
from .text import json_text

Array = NDArray[Any]
F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U8 = NDArray[np.uint8]


def freeze(arrays: Iterable[Array]) -> None:
    """Let nobody write into these arrays any more."""
    for array in arrays:
        array.setflags(write=False)


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal texts.

    Raises `InvalidDataError`: a text is not Unicode; `NumericalError`: a number is not finite.
    """
    text = json_text(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        around = text[max(0, error.start - 40) : error.start + 20]
        raise InvalidDataError(f"a name is not Unicode text: {around!r}; rename it") from None
    return text


class Digest:
    """A SHA-256 fed with named items; the order of the calls is part of the meaning.

    >>> Digest().text("a", "x").hex() == Digest().text("a", "x").hex()
    True
    """

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def text(self, name: str, value: str | bytes) -> Digest:
        data = value.encode() if isinstance(value, str) else value
        self._begin(name, "utf8", str(len(data)))
        self._sha.update(data)
        return self

    def lines(self, name: str, values: NDArray[np.bytes_]) -> Digest:
        """Texts (n,), one a line; `InvalidDataError` for one of several lines."""
        data = b"\n".join(values.tolist())
        if data.count(b"\n") >= max(len(values), 1):
            raise InvalidDataError(f"one of the {name} has several lines: rename it")
        return self.text(name, data)

    def _begin(self, name: str, kind: str, size: str) -> None:
        """What precedes an item's bytes. A name with spaces could say what a kind and a size do."""
        if name.split() != [name]:
            raise InvalidDataError(f"the name {name!r} is empty or has spaces: rename it")
        self._sha.update(f"{name} {kind} {size}\n".encode())

    def json(self, name: str, value: Any) -> Digest:
        return self.text(name, canonical_json(value))

    def array(self, name: str, value: Array, dtype: str) -> Digest:
        """An array as little-endian ``dtype`` ('<i8', '<f8' …), C order."""
        for _ in self.passing(name, value.shape, dtype, [value]):
            pass
        return self

    def passing(
        self, name: str, shape: tuple[int, ...], dtype: str, parts: Iterable[Array]
    ) -> Iterator[Array]:
        """The consecutive blocks of an array one by one, each fed to the digest on its way.

        Raises `InvalidDataError` for numbers of which ``dtype`` does not hold each.
        """
        kind = np.dtype(dtype).newbyteorder("<")
        self._begin(name, kind.str, ",".join(map(str, shape)))
        for part in parts:
            _check_representable(part.dtype, kind)
            rows = np.atleast_1d(part)
            step = max(1, (1 << 20) // max(1, rows[:1].size))  # so that a conversion stays small
            for start in range(0, len(rows), step):
                piece = rows[start : start + step]
                self._sha.update(np.ascontiguousarray(piece, dtype=kind).data)
            yield part

    def hex(self) -> str:
        return self._sha.hexdigest()


def array_kind(value: Array) -> str:
    """'<i8' for integers, '<f8' for reals; `InvalidDataError` for neither, such as uint64."""
    kind = "<i8" if value.dtype.kind in "iu" else "<f8"
    _check_representable(value.dtype, np.dtype(kind))
    return kind


def _check_representable(given: np.dtype[Any], kind: np.dtype[Any]) -> None:
    """Refuse a type that is none of numbers, or some of whose numbers ``kind`` cannot hold."""
    if given.kind not in "iuf" or not np.can_cast(given, kind):
        text = f"an array of type {given} is not of numbers that {kind.name} holds"
        raise InvalidDataError(f"{text}: make it one of int64 or float64")


def narrowest(value: Array) -> str:
    """The type of an additive array in files: the narrowest integers, unsigned first; or float64.

    >>> narrowest(np.array([0, 300])), narrowest(np.array([-1, 5])), narrowest(np.array([0.5]))
    ('<u2', '<i1', '<f8')
    """
    if array_kind(value) == "<f8":
        return "<f8"
    low, high = (int(value.min()), int(value.max())) if value.size else (0, 0)
    kinds = ("<u1", "<i1", "<u2", "<i2", "<u4", "<i4", "<i8")
    return next(k for k in kinds if np.iinfo(k).min <= low and high <= np.iinfo(k).max)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_state(path: Path) -> list[int] | None:
    """What changes when a file is touched: device, inode, size, times of change; None: no file."""
    try:
        s = path.stat()
    except OSError:
        return None
    return [s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns]
