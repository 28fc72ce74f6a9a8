"""Labels in a file of their own: .npy, or a text with one a line."""

from __future__ import annotations

import io
import re
from array import array
from pathlib import Path

import numpy as np

from ... import inputs
from ...errors import InvalidDataError
from ...values.arrays import Array
from .base import check_label_bytes, readable
from .numpy_files import map_npy

LONGEST = 1000  # characters of a label
MOST_FILE_ROWS = 20_000_000  # of one file: their labels and ids are held in memory
MOST_NAMES = 1_000_000  # different labels in a text


def read_labels(path: Path) -> Array:
    """Labels from a .npy file, or a text file with one a line (numbers if all are).

    Raises `InputError`, `CorruptFileError`, `InvalidDataError`: missing, unreadable, or too large.
    """
    if path.suffix == ".npy":
        labels = map_npy(path)
        check_label_bytes(path, "labels", labels.nbytes)
        return labels
    number, rows = _numbered(path)
    whole = all(re.fullmatch("-?[0-9]{1,18}", label) for label in number)
    width = 8 if whole else 4 * max(map(len, number), default=0)
    check_label_bytes(path, "labels", len(rows) * width)
    values = np.array([int(label) for label in number] if whole else list(number))
    return values[np.frombuffer(rows, np.uint32)] if len(rows) else np.array([])


def _numbered(path: Path) -> tuple[dict[str, int], array[int]]:
    """Every label with a number, and the number of each row: four bytes a row."""
    number: dict[str, int] = {}
    rows = array("I")
    with readable(path), io.TextIOWrapper(inputs.open_regular(path), "utf-8-sig") as file:
        while line := file.readline(LONGEST + 2):
            label = line.strip()
            if len(label) > LONGEST or len(rows) >= MOST_FILE_ROWS or len(number) > MOST_NAMES:
                raise InvalidDataError(
                    f"{path}: expected one label per line, of at most {LONGEST} characters, at "
                    f"most {MOST_FILE_ROWS:,} in all and {MOST_NAMES:,} different ones; found more "
                    f"in line {len(rows) + 1}: {label[:40]!r}"
                )
            if label:
                rows.append(number.setdefault(label, len(number)))
    return number, rows
