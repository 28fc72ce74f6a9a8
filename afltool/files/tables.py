"""JSON, CSV and small tables as files; pandas writes those of columns, and parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from math import isnan
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..math.metrics.counting import CELLS
from ..values.text import json_text
from .atomic import write_bytes, write_text
from .outputs import STDOUT, check_output


class _Lines(io.StringIO):
    """Where `csv.writer` puts its rows: it quotes a carriage return only if that ends a line."""

    ENDS = "\r\n"

    def write(self, row: str) -> int:
        return super().write(row.removesuffix(self.ENDS) + "\n")


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as lines of CSV."""
    text = _Lines(newline="")
    csv.writer(text, lineterminator=text.ENDS).writerows(rows)
    return text.getvalue()


def csv_of_frame(frame: Any, **how: Any) -> str:
    """A table of pandas as CSV; ``how`` goes to its `to_csv`."""
    text = _Lines(newline="")
    frame.to_csv(text, lineterminator=text.ENDS, **how)
    return text.getvalue()


def write_json(value: Any, path: Path, overwrite: bool = False) -> Path:
    """Write JSON; `write_bytes` says what happens to an existing file."""
    return write_text(json_text(value, indent=2) + "\n", path, overwrite)


def check_table(path: Path) -> None:
    """Refuse a table that is neither CSV nor parquet, or has no place, before it is filled."""
    if path == STDOUT:
        return
    if path.suffix not in (".csv", ".parquet"):
        raise UsageError(f"{path}: a table is a .csv or .parquet file")
    check_output(path)


def write_records(
    records: Sequence[dict[str, Any]],
    path: Path,
    overwrite: bool = False,
    columns: list[str] | None = None,
) -> Path:
    """Records as the rows of a CSV (also on stdout, '-') or parquet file; all columns, or these."""
    check_table(path)
    if path.suffix == ".parquet":
        import pandas as pd

        return _write_frame(pd.DataFrame(list(records), columns=columns), path, overwrite)
    names = columns or list(dict.fromkeys(name for one in records for name in one))
    cells = zip(*(_column([one.get(name) for one in records]) for name in names), strict=True)
    return write_text(csv_lines([names, *cells]), path, overwrite)


def _column(values: Sequence[Any]) -> list[Any]:
    """Cells of CSV as pandas writes them, which takes a third of a second to load.

    What is absent, or no number, is empty; integers beside it, or beside reals, are reals.
    """
    given = [None if isinstance(one, float) and isnan(one) else one for one in values]
    kinds = {type(one) for one in given}
    real = kinds != {int} and kinds <= {int, float, type(None)}
    return [float(one) if real and one is not None else one for one in given]


def write_columns(columns: Mapping[str, Any], path: Path, overwrite: bool) -> Path:
    """Columns of equal lengths as CSV, parquet or JSON."""
    import pandas as pd

    frame = pd.DataFrame(columns)
    if path.suffix == ".json":
        return write_text(frame.to_json(orient="records"), path, overwrite)
    return _write_frame(frame, path, overwrite)


def _write_frame(frame: Any, path: Path, overwrite: bool) -> Path:
    if path.suffix != ".parquet":
        return write_text(csv_of_frame(frame, index=False), path, overwrite)
    try:
        return write_bytes(frame.to_parquet(index=False), path, overwrite)
    except ImportError:
        raise UsageError("writing parquet needs pyarrow: pip install 'afltool[import]'") from None


def write_confusion(metrics: dict[str, Any], path: Path, overwrite: bool = False) -> Path:
    """The confusion matrix as CSV with class names: rows true, columns predicted.

    Of 1,000 classes or more a line for each cell that is not 0: true, predicted, rows.
    """
    names, confusion = list(metrics["per_class"]), metrics["confusion"]
    if isinstance(confusion, dict):
        cells = zip(*(confusion[name] for name in CELLS), strict=True)
        lines = [list(CELLS), *([names[k], names[p], n] for k, p, n in cells)]
    else:
        rows = ([name, *row] for name, row in zip(names, confusion, strict=True))
        lines = [["true", *names], *rows]
    return write_text(csv_lines(lines), path, overwrite)
