"""Tables: read as texts, no cell interpreted; written as CSV, JSON, JSON Lines or parquet."""

from __future__ import annotations

import csv
import filecmp
import io
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptFileError, InputError, InvalidDataError, MismatchError, UsageError
from ..inputs import open_regular
from ..math.metrics.counting import CELLS
from ..plugins import install
from ..progress import log
from ..values.names import LIKE_IDS, ROW_IDS, compose
from ..values.text import escape_line, json_text
from .atomic import as_bytes, check_equal, replacing, write_text
from .outputs import STDOUT, check_output, partial_path

MOST_TABLE = 150_000_000  # bytes: 3 million rows; its texts take four times as much memory
SUFFIXES = (".csv", ".parquet")  # of what can be read
OF_ROWS = (".csv", ".jsonl", ".parquet")  # of what rows are written to as they come
#: What Python, NumPy and pandas write for a label that is missing.
NO_LABELS = {"-1", "-1.0", "nan", "NaN", "None", "NaT", "<NA>"}

Column = list[str | None]  # None for an empty cell
Columns = dict[str, Column]
Cell = str | float | None


# ---------------------------------------------------------------- reading


def read_columns(
    table: Path, needed: Sequence[str], maybe: Sequence[str] = (), like: str = "(?!)"
) -> Columns:
    """Columns of a .csv or .parquet table, by name; those of ``maybe`` may be absent.

    ``like``: a pattern of the names of others that are read, too.

    Cells are texts, character by character: ``01`` and ``1`` differ and ``NA`` is a text. Only an
    empty cell (parquet: null, too) is missing. Other values of parquet are written as Python writes
    them.

    Raises `UsageError`: another kind of file; `InputError`: no such file, or one that is too large;
    `CorruptFileError`: it is not what its suffix says; `InvalidDataError`: a column of ``needed``
    is absent, or a name stands over two columns.
    """
    suffix, names = table.suffix.lower(), [*dict.fromkeys((*needed, *maybe))]
    if suffix not in SUFFIXES:
        raise UsageError(f"{table}: a table is a .csv or .parquet file")
    if not table.is_file():
        raise InputError(f"{table}: there is no such file, check the path")
    if (size := table.stat().st_size) > MOST_TABLE:
        raise InputError(f"{table} has {size:,} bytes; expected at most {MOST_TABLE:,}")
    header, columns = (_read_csv if suffix == ".csv" else _read_parquet)(table, names, like)
    if missing := [column for column in needed if column not in columns]:
        raise InvalidDataError(
            f"{table}: expected the columns {' and '.join(needed)}, found no "
            f"{' and no '.join(missing)}; its columns are {', '.join(header[:20])}"
        )
    return columns


def _places(table: Path, header: list[str], names: list[str], like: str) -> dict[str, int]:
    """Where those of ``names`` are that are there, each over one column, and those ``like`` it."""
    for name in names:
        if header.count(name) > 1:
            raise InvalidDataError(f"{table} has {header.count(name)} columns named {name!r}")
    others = [one for one in header if re.fullmatch(like, one) and header.count(one) == 1]
    return {name: header.index(name) for name in (*names, *others) if name in header}


def _read_csv(table: Path, names: list[str], like: str) -> tuple[list[str], Columns]:
    """Not by pandas, which fills up rows that are too short."""
    try:
        with io.TextIOWrapper(open_regular(table), "utf-8-sig", newline="") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            places = _places(table, header, names, like)
            columns: Columns = {name: [] for name in places}
            for row in filter(None, lines):
                if len(row) != len(header):
                    found = f"expected {len(header)} cells, found {len(row)}"
                    raise ValueError(f"line {lines.line_num}: {found}")
                for name, place in places.items():
                    columns[name].append(row[place] or None)
    except (OSError, ValueError, csv.Error) as error:
        raise CorruptFileError(f"{table} cannot be read as CSV in UTF-8: {error}") from error
    return header, columns


def _read_parquet(table: Path, names: list[str], like: str) -> tuple[list[str], Columns]:
    with open_parquet(table) as file:
        header = list(file.schema_arrow.names)
        content = file.read(columns=[*_places(table, header, names, like)])
        return header, {n: arrow_texts(table, n, content[n]) for n in content.column_names}


@contextmanager
def open_parquet(path: Path) -> Iterator[Any]:
    """A pyarrow.parquet.ParquetFile; `CorruptFileError`: its bytes are damaged."""
    pa = _pyarrow("reading")
    try:
        source = open_regular(path)
        with source, pa.parquet.ParquetFile(source, page_checksum_verification=True) as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file, check the path") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} cannot be read as parquet: {error}") from error


def _pyarrow(doing: str) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(f"{doing} parquet needs pyarrow: {install('import')}") from error
    return pyarrow


def arrow_texts(table: str | Path, name: str, column: Any) -> Column:
    """The cells of a pyarrow column as texts, as `read_columns` has them."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_nested(kind):
        raise InvalidDataError(f"{table}: the column {name!r} holds {kind}, expected texts")
    if pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind):
        column = column.cast(pyarrow.string())
    texts = column.to_pylist()
    return [None if v is None or v == "" or v != v else str(v) for v in texts]  # v ≠ v: NaN


# ---------------------------------------------------------------- rows by id


def check_labels(where: str | Path, labels: Mapping[str, int]) -> None:
    """Refuse labels that mean that there is none (`InvalidDataError`), name those that look alike.

    ``labels``: how many rows have each label of a table or an archive without a class list.
    """
    if none := sorted(label for label in labels if label in NO_LABELS or not label.strip()):
        n, named = sum(labels[label] for label in none), " or ".join(map(repr, none))
        raise InvalidDataError(
            f"{where}: {n} of {sum(labels.values())} rows have the label {named}, which usually "
            "means none: leave them out, or name all classes with --classes FILE"
        )
    forms = sorted((compose(label).strip().casefold(), label) for label in labels)
    times = Counter(form for form, _ in forms)
    if alike := [f"{label!r} ({labels[label]} rows)" for form, label in forms if times[form] > 1]:
        text = " and ".join(alike)
        log.warning("%s: classes look alike but are classes apart: %s", where, text)


def column_by_row(option: str, text: str, ids: NDArray[np.bytes_]) -> list[str]:
    """`values_by_row` of what an option gives as TABLE:COLUMN; `UsageError` for another form."""
    table, _, column = text.rpartition(":")
    if not table or not column:
        raise UsageError(f"{option} is TABLE:COLUMN, such as sites.csv:site; found {text!r}")
    return values_by_row(Path(table), column, ids)


def values_by_row(table: Path, name: str, ids: NDArray[np.bytes_]) -> list[str]:
    """The values of a table's column, one for each of the row ids (n,), in their order.

    The row ids are in the first of the columns `ROW_IDS` that is there, or else in the only one
    that is named like an id and has a value for each row, as `import` finds them; spelled alike or
    with their accents in another Unicode form. A table of images has them in ``path``, and may then
    have rows that are not among ``ids``.

    Raises `InvalidDataError`: no such column, a row id that is absent or there twice, an empty
    value; `MismatchError`: a row id without a row in the table, or a row that nobody asked for.
    """
    columns = read_columns(table, (name,), ROW_IDS, LIKE_IDS)
    others = {one: cells for one, cells in columns.items() if one != name}
    like = [one for one, cells in others.items() if len({*cells} - {None}) == len(cells)]
    called = next((one for one in ROW_IDS if one in others), like[0] if len(like) == 1 else "")
    if not called:
        text = f"{table}: expected the row ids in a column row or path, or like id, beside {name}"
        raise InvalidDataError(f"{text}; rename the one that has them")
    rows = columns[called]
    for row, times in Counter(rows).items():
        if row is None or times > 1:
            at = rows.index(row) + 1
            what = f"row {row!r} is given more than once" if row else f"row {at} has no row id"
            raise InvalidDataError(f"{table}: {what} ({times} of {len(rows)} rows)")
    values = dict(zip(rows, columns[name], strict=True))
    wanted = [one.decode("utf-8", "surrogateescape") for one in ids.tolist()]
    exact = set(wanted)
    forms = {compose(str(row)): row for row in rows if row not in exact}
    wanted = [one if one in values else forms.get(compose(one), one) for one in wanted]
    missing = [escape_line(one) for one in wanted if one not in values]
    strangers = len(rows) - len(wanted) + len(missing)
    if missing or (strangers and called != "path"):
        lack = f"{len(missing)}{f', such as {missing[0]!r}' if missing else ''}"
        raise MismatchError(
            f"{table} must have each of the {len(wanted)} rows once; missing: {lack}; not in the "
            f"features: {strangers}"
        )
    if strangers:
        log.info("%s: %d rows are not among the %d asked for", table, strangers, len(wanted))
    if empty := [one for one in wanted if not values[one]]:
        share = f"{len(empty)} of {len(wanted)} rows"
        raise InvalidDataError(f"{table}: row {empty[0]!r} has no {name!r} ({share})")
    return [str(values[one]) for one in wanted]


# ---------------------------------------------------------------- writing


class _Lines(io.StringIO):
    """Where `csv.writer` puts its rows: it quotes a carriage return only if that ends a line."""

    def write(self, row: str) -> int:
        return super().write(row.removesuffix("\r\n") + "\n")


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as lines of CSV."""
    text = _Lines(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()


def csv_of_frame(frame: Any, **how: Any) -> str:
    """A table of pandas as CSV; ``how`` goes to its `to_csv`."""
    text = _Lines(newline="")
    frame.to_csv(text, lineterminator="\r\n", **how)
    return text.getvalue()


def write_json(value: Any, path: Path, overwrite: bool = False) -> Path:
    """Write JSON; `write_bytes` says what happens to an existing file."""
    return write_text(json_text(value, indent=2) + "\n", path, overwrite)


def check_table(path: Path, suffixes: Sequence[str] = (".csv",)) -> None:
    """Refuse a table of another format or without a place, before it is filled."""
    if path == STDOUT:
        return
    if path.suffix.lower() not in suffixes:
        raise UsageError(f"{path}: a table is a {' or '.join(suffixes)} file, or - for stdout")
    check_output(path)
    if path.suffix.lower() == ".parquet":
        _pyarrow("writing")


def write_records(
    records: Sequence[Mapping[str, Any]] | Mapping[str, Any],
    path: Path,
    overwrite: bool = False,
    columns: list[str] | None = None,
) -> Path:
    """Records, or columns by name, as .csv (also on stdout): all of them, or these."""
    import pandas as pd

    frame = pd.DataFrame(records, columns=columns)
    return write_text(csv_of_frame(frame, index=False), path, overwrite)


def write_confusion(metrics: dict[str, Any], path: Path, overwrite: bool = False) -> Path:
    """The confusion matrix as CSV with class names: rows true, columns predicted.

    Of 1,000 classes or more a line for each cell that is not 0: true, predicted, rows.
    """
    names, confusion = list(metrics["per_class"]), metrics["confusion"]
    if isinstance(confusion, dict):
        cells = zip(*(confusion[name] for name in CELLS), strict=True)
        lines = [CELLS, *((names[k], names[p], n) for k, p, n in cells)]
    else:
        rows = zip(names, confusion, strict=True)
        lines = [("true", *names), *((name, *row) for name, row in rows)]
    return write_text(csv_lines(lines), path, overwrite)


# ---------------------------------------------------------------- rows as they come


@contextmanager
def writing_rows(
    path: Path, columns: Mapping[str, type], overwrite: bool = False, as_json: bool = False
) -> Iterator[Callable[[Iterable[Sequence[Cell]]], object]]:
    """A function that appends rows, each with a cell (str or float, or None) for each column.

    The .csv, .jsonl or .parquet file takes its name when the block succeeds; '-' is stdout, with
    ``as_json`` JSON Lines. `write_bytes` says what happens to an existing file. Rows of parquet are
    in memory until the end.
    """
    suffix = path.suffix.lower()
    in_json = as_json if path == STDOUT else suffix == ".jsonl"
    text = partial(_json_lines, columns) if in_json else csv_lines
    header = "" if in_json else csv_lines([list(columns)])
    if path == STDOUT:
        _print(header)
        safe = escape_line if sys.stdout.isatty() else str  # no name makes a line or obeys
        cells = lambda row: [safe(c) if isinstance(c, str) else c for c in row]  # noqa: E731
        yield lambda rows: _print(text(map(cells, rows)))
        return
    with replacing(path, suffix[1:]) as place, os.fdopen(place, "wb", closefd=False) as file:
        if suffix == ".parquet":
            rows: list[Sequence[Cell]] = []
            yield rows.extend
            file.write(_parquet(rows, columns))
        else:
            file.write(as_bytes(header))
            yield lambda rows: file.write(as_bytes(text(rows)))
        file.flush()
        if not overwrite and path.exists():
            check_equal(path, filecmp.cmp(path, partial_path(path), shallow=False))


def _json_lines(columns: Iterable[str], rows: Iterable[Sequence[Cell]]) -> str:
    """JSON has no infinity, which the score of a class without training rows may be: null."""
    cells = ([None if isinstance(c, float) and not isfinite(c) else c for c in row] for row in rows)
    records = (dict(zip(columns, row, strict=True)) for row in cells)
    return "".join(json_text(one, ensure_ascii=False) + "\n" for one in records)


def _print(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
    if getattr(sys.stdout, "failed", None):
        raise BrokenPipeError("nobody reads stdout any more")


def _parquet(rows: Sequence[Sequence[Cell]], columns: Mapping[str, type]) -> bytes:
    import pandas as pd

    cells = [[as_bytes(c).decode() if isinstance(c, str) else c for c in row] for row in rows]
    kinds = {name: "string" if kind is str else float for name, kind in columns.items()}
    data: bytes = pd.DataFrame(cells, columns=list(columns)).astype(kinds).to_parquet(index=False)
    return data
