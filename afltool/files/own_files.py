"""Files that a run or a baseline writes anew under fixed names: they replace their own alone.

A file says by what it holds who wrote it. Anything else under such a name is somebody's: it is
refused before any work, unless ``overwrite``, and then it is replaced by its own kind alone.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import AflError, OutputExistsError
from ..inputs import MOST_TEXT, distinct_files, parsed_json, read_bytes
from .evaluations import OF_HEAD
from .headers import mismatch
from .outputs import check_output, kind_of_file, writer_errors

IsOwn = Callable[[bytes], bool]


def check_own(folder: Path, names: Mapping[str, IsOwn], overwrite: bool = False) -> None:
    """Refuse a file in ``folder`` under one of these names that its test does not know.

    Raises:
        OutputExistsError: with the path, and what to do.
    """
    for name, is_own in names.items():
        path = folder / name
        if not os.path.lexists(path):
            continue
        with distinct_files(), writer_errors(path):  # looking at an output is not reading it
            check_output(path, kind_of_file(path) if path.is_file() else None)
            if overwrite or is_own(read_bytes(path, MOST_TEXT)):
                continue
        raise OutputExistsError(
            f"{path} exists and is not what this command writes there, or was changed since: it "
            "would be lost; move it away, or choose another -o"
        )


def of_json(pattern: Any) -> IsOwn:
    """The test of a JSON file by the entries that it must have."""

    def is_own(data: bytes) -> bool:
        try:
            return not mismatch(parsed_json(data, ""), pattern)
        except (AflError, UnicodeDecodeError):
            return False

    return is_own


def _lines(data: bytes) -> list[list[str]]:
    try:
        return list(csv.reader(io.StringIO(data.decode(), newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError):
        return []


def is_confusion(data: bytes) -> bool:
    """Whether a CSV is a confusion matrix: class names beside and above, and whole numbers."""
    header, *rows = _lines(data) or [[]]
    names = [row[0] for row in rows if row]
    cells = [cell for row in rows for cell in row[1:]]
    return header == ["true", *names] and all(cell.isdecimal() for cell in cells)


def is_rounds(data: bytes) -> bool:
    """Whether a CSV is the table of a head's rounds, which may have none."""
    header = (_lines(data) or [[]])[0]
    return not data.strip() or {"phase", "upload_bytes"} <= set(header)


is_summary = of_json({"head_digest": str, "digests": dict, "versions": dict})
is_evaluation, is_plan = of_json(OF_HEAD), of_json({"steps": [dict]})
