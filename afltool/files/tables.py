"""JSON and small tables as files; pandas writes the tables."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..options.csv_files import KEEP
from ..values.json_text import json_text
from .atomic import write_bytes, write_text
from .csv_text import csv_of_frame
from .outputs import STDOUT, check_output


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
    formulas: str = KEEP,
    columns: list[str] | None = None,
) -> Path:
    """Records as the rows of a CSV (also on stdout, '-') or parquet file; all columns, or these.

    ``formulas``: of CSV, see `CsvOptions`.
    """
    import pandas as pd

    check_table(path)
    frame = pd.DataFrame(list(records), columns=columns)
    return _write_frame(frame, path, overwrite, formulas)


def write_columns(
    columns: Mapping[str, Any], path: Path, overwrite: bool, formulas: str, quote_all: bool
) -> Path:
    """Columns of equal lengths as CSV, parquet or JSON; ``quote_all``: every cell of CSV."""
    import pandas as pd

    frame = pd.DataFrame(columns)
    if path.suffix == ".json":
        return write_text(frame.to_json(orient="records"), path, overwrite)
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    return _write_frame(frame, path, overwrite, formulas, quoting)


def _write_frame(
    frame: Any, path: Path, overwrite: bool, formulas: str, quoting: int = csv.QUOTE_MINIMAL
) -> Path:
    if path.suffix != ".parquet":
        text = csv_of_frame(frame, formulas, index=False, quoting=quoting)
        return write_text(text, path, overwrite)
    try:
        return write_bytes(frame.to_parquet(index=False), path, overwrite)
    except ImportError:
        raise UsageError("writing parquet needs pyarrow: pip install 'afltool[import]'") from None


def write_confusion(
    found: dict[str, Any], path: Path, overwrite: bool = False, formulas: str = KEEP
) -> Path:
    """The confusion matrix as CSV with class names: rows true, columns predicted."""
    import pandas as pd

    names = list(found["per_class"])
    frame = pd.DataFrame(found["confusion"], index=names, columns=names)
    return write_text(csv_of_frame(frame, formulas, index_label="true"), path, overwrite)
