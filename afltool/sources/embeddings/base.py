"""What every file of embeddings has: rows in blocks, perhaps labels and row ids, and limits."""

from __future__ import annotations

import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import inputs
from ...errors import AflError, CorruptFileError, InputError, InvalidDataError
from ...values.arrays import Array
from ...values.names import ROW_IDS

BLOCK_BYTES = 8 << 20  # of the file's own type
MOST_LABELS = 256 << 20  # bytes of all labels, or of all row ids
MOST_FEATURES = 1 << 20  # of a row
# What the readers raise when the bytes of a file are not what its name says. A RuntimeError is an
# encrypted member of a .npz, or brackets nested too deeply.
_UNREADABLE = (ValueError, OSError, EOFError, MemoryError, TypeError, KeyError, IndexError,
               RuntimeError, OverflowError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile,
               zlib.error, lzma.LZMAError, struct.error)  # fmt: skip


@dataclass(frozen=True)
class Keys:
    """What features, labels and row ids are called in a file; None stands for the usual names.

    Those are x, y (in .parquet also label), and `ROW_IDS`; labels and ids may then be absent.
    """

    x: str | None = None
    y: str | None = None
    row_ids: str | None = None

    def found(self, path: Path, names: Sequence[str]) -> tuple[str, str | None]:
        """The names of features and labels among the ``names`` in a file, the latter perhaps None.

        Raises `InvalidDataError` where a name that was given, or x, is not there.
        """
        x, y = self.x or "x", self.y or "y"
        if x not in names or (self.y is not None and y not in names):
            raise lacks(path, names, x, y)
        return x, y if y in names else None

    def ids(self, path: Path, names: Sequence[str]) -> str | None:
        """The name of the row ids among the ``names`` in a file, where they are there."""
        if self.row_ids is None:
            return next((o for o in ROW_IDS if o in names and o not in (self.x, self.y)), None)
        if self.row_ids not in names:
            raise InvalidDataError(
                f"{path} has no {self.row_ids} (--row-ids); it has {listed(names)}"
            )
        return self.row_ids


@dataclass(frozen=True)
class Embeddings:
    """What is in a file: ``blocks()`` gives ``x`` (n, d) in consecutive blocks of rows.

    ``made``: space and classes, which only a feature file has.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Array]]
    labels: Array | None = None
    row_ids: Array | None = None
    made: Mapping[str, Any] | None = None

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0


def guarded(path: Path, blocks: Callable[[], Iterator[Array]]) -> Callable[[], Iterator[Array]]:
    """The same blocks; an error between two of them names the file."""

    def run() -> Iterator[Array]:
        rows = blocks()
        while True:
            with readable(path):
                block = next(rows, None)
            if block is None:
                return
            yield block

    return run


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Inside, what a reader raises over a damaged file becomes a `CorruptFileError`.

    Raises `InputError`: no regular file is there.
    """
    inputs.given_path(path)
    if not path.exists():
        raise InputError(f"there is no file {path}: {inputs.meant(path)}")
    try:
        inputs.open_regular(path).close()
        yield
    except AflError:
        raise
    except _UNREADABLE as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise CorruptFileError(
            f"{path} cannot be read as {path.suffix}: {text}; make or fetch it again"
        ) from None


def slices(rows: int, row_bytes: int) -> Iterator[slice]:
    """Consecutive parts of ``rows`` rows, of about `BLOCK_BYTES` each."""
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def check_label_bytes(path: Path, what: str, size: int) -> None:
    """Refuse labels or row ids of too many bytes before they are read."""
    if size > MOST_LABELS:
        raise InvalidDataError(
            f"{path}: {what} take {size / 1e6:,.0f} MB; the most is {MOST_LABELS / 1e6:,.0f} MB"
        )


def lacks(path: Path, names: Sequence[str], x: str, y: str) -> InvalidDataError:
    """The error for a file without its features or labels, by their names."""
    return InvalidDataError(
        f"{path} has the arrays {listed(names)}; expected {x} (n, d) and {y} (n,), and "
        "optionally row_ids (n,); --x, --y and --row-ids name them"
    )


def listed(names: Sequence[str]) -> str:
    """The first names of a file's arrays or columns."""
    return ", ".join(names[:9]) + ", …" * (len(names) > 9) or "none"
