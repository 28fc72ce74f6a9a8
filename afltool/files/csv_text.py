"""CSV as text: the one place where it is made."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ..options.csv_files import KEEP

STARTS = tuple("=+-@\t\r\n＝＋－＠")  # of what spreadsheets take for formulas


def quoted(cell: Any) -> Any:
    """A text that a spreadsheet would run, with ' before it; anything else as it is.

    >>> quoted("=1+1"), quoted("-0.5"), quoted("a=b"), quoted(-2)
    ("'=1+1", '-0.5', 'a=b', -2)
    """
    if not isinstance(cell, str) or not cell.startswith(STARTS):
        return cell
    with suppress(ValueError):
        float(cell)
        return cell
    return f"'{cell}"


def csv_lines(rows: Iterable[Sequence[Any]], formulas: str = KEEP) -> str:
    """Rows as lines of CSV; ``formulas`` as `CsvOptions` has it."""
    if formulas != KEEP:
        rows = ([quoted(cell) for cell in row] for row in rows)
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def csv_of_frame(frame: Any, formulas: str = KEEP, **how: Any) -> str:
    """A table of pandas as CSV; ``how`` goes to its `to_csv`."""
    if formulas != KEEP:
        frame = frame.rename(index=quoted, columns=quoted).map(quoted)
    text: str = frame.to_csv(**how)
    return text
