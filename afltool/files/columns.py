"""Tables with named columns, read as texts: no cell is interpreted."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptFileError, InputError, InvalidDataError, MismatchError, UsageError
from ..inputs import keys_once, meant, open_regular, read_bytes
from ..progress import log
from ..values.names import ROW_IDS, composed

MOST_TABLE = 150_000_000  # bytes: 3 million rows; its texts take four times as much memory

SUFFIXES = (".csv", ".parquet", ".json")  # of what can be read

#: What Python, NumPy and pandas write for a label that is missing.
NO_LABELS = {"-1", "-1.0", "nan", "NaN", "None", "NaT", "<NA>"}

Column = list[str | None]  # None for an empty cell
Columns = dict[str, Column]


def read_columns(table: Path, needed: Sequence[str], maybe: Sequence[str] = ()) -> Columns:
    """Columns of a .csv, .parquet or .json table (a list of records), by name.

    Cells are texts, character by character: ``01`` and ``1`` differ and ``NA`` is a text. Only an
    empty cell (parquet and JSON: null, too) is missing. Numbers of JSON keep their digits; other
    values of parquet are written as Python writes them. Columns of ``maybe`` may be absent.

    Raises:
        UsageError: another kind of file.
        InputError: there is no such file, or it is larger than `MOST_TABLE`.
        CorruptFileError: the file cannot be read as what its suffix says.
        InvalidDataError: a column of ``needed`` is absent, or a name stands over two columns.
    """
    header, columns = _read(table, (*needed, *maybe))
    missing = [column for column in needed if column not in columns]
    if missing:
        raise InvalidDataError(
            f"{table}: expected the columns {' and '.join(needed)}, found no "
            f"{' and no '.join(missing)}; its columns are {', '.join(header[:20])}"
        )
    return columns


def _read(table: Path, names: Sequence[str]) -> tuple[list[str], Columns]:
    """The names of all columns, and those of ``names`` that are there."""
    suffix = table.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(f"{table}: a table is a .csv, .parquet or .json file")
    if not table.is_file():
        raise InputError(f"{table}: there is no such file, {meant(table)}")
    size = table.stat().st_size
    if size > MOST_TABLE:
        raise InputError(
            f"{table} has {size / 1e6:,.0f} MB; expected at most {MOST_TABLE / 1e6:,.0f} MB: leave "
            "out columns that are not needed, or write parquet"
        )
    readers = dict(zip(SUFFIXES, (_read_csv, _read_parquet, _read_json), strict=True))
    return readers[suffix](table, names)


def check_labels(where: str | Path, labels: Mapping[str, int]) -> None:
    """Refuse labels that mean that there is none, and name classes that look alike.

    ``labels``: how many rows have each label of a table or an archive without a class list. With
    one the labels are what it says.

    Raises `InvalidDataError`: a label is among `NO_LABELS`, or blank.
    """
    if none := sorted(label for label in labels if label in NO_LABELS or not label.strip()):
        raise InvalidDataError(
            f"{where}: {sum(labels[label] for label in none)} of {sum(labels.values())} rows have "
            f"the label {' or '.join(map(repr, none))}, which usually means that a row has none. "
            "Leave these rows out; if it is a class, name all classes with --classes FILE"
        )
    alike: dict[str, list[str]] = {}
    for label in sorted(labels):
        alike.setdefault(composed(label).strip().casefold(), []).append(label)
    for several in alike.values():
        if len(several) > 1:
            rows = " and ".join(f"{label!r} ({labels[label]} rows)" for label in several)
            log.warning("%s: classes look alike but are classes apart: %s", where, rows)


def column_by_row(option: str, text: str, ids: NDArray[np.bytes_]) -> list[str]:
    """The values of what an option gives as TABLE:COLUMN, one for each of the row ids (n,).

    Raises:
        UsageError: another form than TABLE:COLUMN.
        others as `values_by_row`.
    """
    table, colon, column = text.rpartition(":")
    if not colon or not table or not column:
        raise UsageError(f"{option} is TABLE:COLUMN, such as sites.csv:site; found {text!r}")
    return values_by_row(Path(table), column, ids)


def values_by_row(table: Path, name: str, ids: NDArray[np.bytes_]) -> list[str]:
    """The values of a table's column, one for each of the row ids (n,), in their order.

    The row ids are in the first of the columns `ROW_IDS` that is there. A table of images has them
    in ``path``, and may then have rows that are not among ``ids``. Without these, they are in the
    one other column that holds every row id, whatever its name, such as that of ``--path-column``.

    Raises:
        InvalidDataError: no such column, a row id that is absent or there twice, an empty value.
        MismatchError: a row id without a row in the table, or a row that nobody asked for.
    """
    columns = read_columns(table, (name,), ROW_IDS)
    called = next((one for one in ROW_IDS if one in columns and one != name), None)
    rows = _column_of_ids(table, name, ids) if called is None else columns[called]
    images = called in (None, "path")  # such a table may have other rows, too
    return _by_row(table, rows, columns[name], name, ids, others=images)


def _column_of_ids(table: Path, name: str, ids: NDArray[np.bytes_]) -> Column:
    """The one column of a table, other than ``name``, that holds every row id."""
    header, _ = _read(table, ())
    rows = {}
    for other in header:
        if other == name or header.count(other) > 1:
            continue
        with suppress(InvalidDataError):  # a column of lists holds no row ids
            column = read_columns(table, (other,))[other]
            if len(_places(column, ids)) == len(ids):
                rows[other] = column
    if len(rows) != 1:
        all_of_them = " and ".join(map(repr, rows)) or "no other column"
        example = ids[0].decode(errors="replace")
        raise InvalidDataError(
            f"{table}: expected the row ids of the features, such as {example!r}, in a column row "
            f"or path beside {name}; found neither, and {all_of_them} holds all of them; its "
            f"columns are {', '.join(header[:20])}: rename the one with the row ids to path"
        )
    log.info("%s: the row ids are in the column %r", table, *rows)
    return next(iter(rows.values()))


def _places(rows: Column, ids: NDArray[np.bytes_]) -> dict[bytes, int]:
    """The row of each of ``ids`` that is there, spelled alike or with accents in another form."""
    at = {row.encode("utf-8", "surrogatepass"): i for i, row in enumerate(rows) if row}
    wanted = dict.fromkeys(ids.tolist())
    forms: dict[str, int] = {}
    if not at.keys() >= wanted.keys():
        forms = {composed(rows[i] or ""): i for row, i in at.items() if row not in wanted}
    places = (at.get(one, forms.get(composed(one.decode(errors="replace")))) for one in wanted)
    return {one: i for one, i in zip(wanted, places, strict=True) if i is not None}


def _by_row(
    path: Path, rows: Column, values: Column, name: str, ids: NDArray[np.bytes_], others: bool
) -> list[str]:
    """The values of the rows ``ids``; ``others``: the table may have more rows than these."""
    if None in rows or len({*rows}) < len(rows):
        counts = Counter(rows)
        row, times = counts.most_common(1)[0] if None not in counts else (None, counts[None])
        raise InvalidDataError(
            f"{path}: row {rows.index(None) + 1} (from 1) has no row id ({times} of {len(rows)} "
            "rows)"
            if row is None
            else f"{path}: row {row!r} is given more than once ({times} times)"
        )
    wanted, at = ids.tolist(), _places(rows, ids)
    places = [at[one] for one in wanted if one in at]
    missing = next((one for one in wanted if one not in at), None)
    strangers = len(rows) - len(places)
    if missing is not None or (strangers and not others):
        example = "" if missing is None else f", such as {missing.decode(errors='replace')!r}"
        raise MismatchError(
            f"{path} must have each of the {len(wanted)} rows once; missing: "
            f"{len(wanted) - len(places)}{example}; not in the features: {strangers}"
        )
    if strangers:
        log.info("%s: %d rows are not among the %d asked for", path, strangers, len(wanted))
    picked = [values[i] for i in places]
    empty = [row for row, one in zip(wanted, picked, strict=False) if not one]
    if empty:
        first = empty[0].decode(errors="replace")
        raise InvalidDataError(
            f"{path}: row {first!r} has no {name!r} ({len(empty)} of {len(picked)} rows)"
        )
    return [one for one in picked if one]


def _known(table: Path, header: Sequence[str], names: Sequence[str]) -> dict[str, int]:
    twice = [name for name in names if header.count(name) > 1]
    if twice:
        raise InvalidDataError(f"{table} has {header.count(twice[0])} columns named {twice[0]!r}")
    return {name: header.index(name) for name in names if name in header}


def _read_csv(table: Path, names: Sequence[str]) -> tuple[list[str], Columns]:
    try:
        with io.TextIOWrapper(open_regular(table), "utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            at = _known(table, header, names)
            columns: Columns = {name: [] for name in at}
            for row in rows:
                if row and len(row) != len(header):
                    raise CorruptFileError(
                        f"{table}, line {rows.line_num}: expected {len(header)} cells, found "
                        f"{len(row)}"
                    )
                for name, place in at.items() if row else ():
                    columns[name].append(row[place] or None)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorruptFileError(f"{table} cannot be read as CSV in UTF-8: {error}") from error
    return header, columns


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """A pyarrow.parquet.ParquetFile; `CorruptFileError`: its bytes are damaged."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("reading parquet needs pyarrow: pip install 'afltool[import]'") from error
    try:
        with (
            open_regular(path) as source,
            parquet.ParquetFile(source, page_checksum_verification=True) as file,
        ):
            yield file
    except FileNotFoundError as error:
        raise InputError(f"{path}: there is no such file, {meant(path)}") from error
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} cannot be read as parquet: {error}") from error


def _read_parquet(table: Path, names: Sequence[str]) -> tuple[list[str], Columns]:
    with opened_parquet(table) as file:
        header = list(file.schema_arrow.names)
        at = _known(table, header, names)
        content = file.read(columns=list(at))
        return header, {name: arrow_texts(table, name, content[name]) for name in at}


def arrow_texts(table: Path, name: str, column: Any) -> Column:
    """The cells of a pyarrow column as texts, as `read_columns` has them."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_nested(kind):
        raise InvalidDataError(f"{table}: the column {name!r} holds {kind}, expected texts")
    if pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind):
        column = column.cast(pyarrow.string())
    texts = column.to_pylist()
    return [None if v is None or v == "" or v != v else str(v) for v in texts]  # v ≠ v: NaN


def _read_json(table: Path, names: Sequence[str]) -> tuple[list[str], Columns]:
    try:
        records = json.loads(
            read_bytes(table, MOST_TABLE),
            object_pairs_hook=keys_once,
            parse_int=str,
            parse_float=str,
            parse_constant=lambda _: None,
        )
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptFileError(f"{table} cannot be read as JSON: {error}") from error
    if not isinstance(records, list) or not all(isinstance(one, dict) for one in records):
        raise CorruptFileError(f"{table} cannot be read as JSON: expected a list of records")
    header = sorted({key for one in records for key in one})
    at = _known(table, header, names)
    return header, {name: [_json_text(table, one.get(name)) for one in records] for name in at}


def _json_text(table: Path, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise InvalidDataError(
        f"{table}: a cell is {json.dumps(value)[:40]}, expected a text or a number"
    )
