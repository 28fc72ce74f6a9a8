"""Files that a run or a baseline writes anew under fixed names: they replace their own alone.

A file says by what it holds who wrote it. Anything else under such a name is somebody's: it is
refused before any work, unless ``overwrite``, and then it is replaced by its own kind alone.

What `evaluate -o` and a run's summary hold is here as far as pictures and model cards need it.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sized
from math import ceil
from pathlib import Path
from typing import Any

from ..errors import AflError, CorruptFileError, OutputExistsError
from ..inputs import MOST_TEXT, distinct_files, parsed_json, read_bytes
from ..math.metrics.counting import CELLS
from .outputs import check_output, kind_of_file, writer_errors
from .schema import mismatch, size, whole


def shares(value: Any) -> bool:
    """a list of numbers from 0 on or null, one at least"""
    return bool(value) and not mismatch(value, [SHARE])


def round_figures(value: Any) -> bool:
    """a phase with figures by name"""
    if not isinstance(value, dict) or not isinstance(value.get("phase"), str):
        return False
    return all(one is None or isinstance(one, (str, int, float)) for one in value.values())


OF_ONE_CLASS = ("sensitivity", "specificity")
SHARE = (size, None)  # null: the rows do not determine it
CONFUSION = {"head": {"name": str}, "n": whole, "per_class": dict, "confusion": [[whole]]}
OF_MANY = {**CONFUSION, "confusion": {name: [whole] for name in CELLS}}
BINS = dict.fromkeys(("weight", "confidence", "accuracy"), shares)
CURVE = {name: [SHARE] for name in ("false_positive", "true_positive")}
ROUNDS = {"top1": size, "n": whole, "rounds": [round_figures]}
OF_HEAD: dict[str, Any] = {
    "head": {"digest": str},
    "features": {"digest": str},
    "top1": size,
    "n": whole,
}


def check_evaluation(path: str | Path, evaluation: Any, pattern: Any) -> None:
    """Refuse with `CorruptFileError` what does not fit a pattern of `files.schema`."""
    if wrong := mismatch(evaluation, pattern):
        raise CorruptFileError(f"{path} is not what afltool evaluate … -o writes: {wrong}")


def figure_label(name: str, one: Any) -> str:
    """A figure's name for people, with the class that it is of, or that it is a mean over classes.

    Files that were written before these were named have neither.

    >>> figure_label("sensitivity", {"value": 0.9, "positive": "malignant"})
    'sensitivity (positive class: malignant)'
    """
    known = one if isinstance(one, dict) else {}
    if isinstance(known.get("positive"), str):
        return f"{name} (positive class: {known['positive']})"
    if known.get("average") == "macro":
        return f"{name} (mean over classes)"
    return f"{name} (positive class not named)" if name in OF_ONE_CLASS else name


def figure_text(one: Any) -> str:
    """A figure of counts with its 95 % interval, or with the bound on its error.

    >>> figure_text({"value": 0.9, "low": 0.8, "high": 0.95, "is": "exact"})
    '0.9000 (0.8000 to 0.9500)'
    >>> figure_text({"value": 0.9, "error": 0.002, "is": "bound"})
    '0.9000 ± 0.0020 at most'
    >>> figure_text({"value": 0.99, "error": 0.00001, "is": "bound"})
    '0.9900 ± 0.0001 at most'
    """
    if not isinstance(one, dict) or one.get("value") is None:
        return "–"
    text = f"{one['value']:.4f}"
    if one["is"] == "bound":
        beyond = one["error"] + abs(one["value"] - float(text))  # `text` is rounded
        return f"{text} ± {ceil(beyond * 1e4 - 1e-6) / 1e4:.4f} at most"
    return f"{text} ({one['low']:.4f} to {one['high']:.4f})" if one.get("low") is not None else text


def check_lengths(path: str | Path, name: str, lists: Iterable[Sized]) -> None:
    """Refuse with `CorruptFileError` an entry whose lists have different lengths."""
    if len(set(map(len, lists))) > 1:
        raise CorruptFileError(
            f"{path} is not what afltool evaluate … -o writes: lists of different lengths in {name}"
        )


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
    """Whether a CSV is a confusion matrix: class names beside and above, and whole numbers; or the
    cells of one."""
    header, *rows = _lines(data) or [[]]
    names = [row[0] for row in rows if row]
    cells = [cell for row in rows for cell in row[1:]]
    if header == list(CELLS):
        cells = [cell for row in rows for cell in row[2:]]
    whole = all(cell.isdecimal() for cell in cells)
    return header in (["true", *names], list(CELLS)) and whole


def is_rounds(data: bytes) -> bool:
    """Whether a CSV is the table of a head's rounds, which may have none."""
    header = (_lines(data) or [[]])[0]
    return not data.strip() or {"phase", "upload_bytes"} <= set(header)


is_summary = of_json({"head_digest": str, "digests": dict, "versions": dict})
is_evaluation, is_plan = of_json(OF_HEAD), of_json({"steps": [dict]})
