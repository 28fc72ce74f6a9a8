"""Embeddings as tables: a column x of lists, or a column for each feature, and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InvalidDataError, UsageError, naming
from ...progress import log
from ...values.arrays import Array
from ...values.names import ROW_IDS, ordered_columns
from . import MOST_FEATURES, SHOWN, Embeddings, Keys, check_label_bytes, rows_of_block

#: Columns of labels, which are not features; `ROW_IDS` are none either.
_LABELS = ("y", "label")
FIRST = 1000  # rows in which each value of an id is another one
#: How columns of ids are called, or of row numbers that pandas has written.
_IDS = r"(?i:(.*[\W_])?ids?|index|level_\d+|unnamed: ?\d+|__index_level_\d+__)|.*[a-z]I[dD]s?"


def open_table(path: Path, keys: Keys) -> Embeddings:
    """Features are a column of lists, or else every column of numbers, which then have names.

    The index that pandas wrote and columns that are named like ids are none.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise UsageError(f"{path} needs pyarrow: pip install 'afltool[import]'") from error
    schema, rows = _shape(path)
    with naming(path):
        ordered_columns(schema.names)  # no two are alike
    why = _no_features(schema)
    columns = _feature_columns(path, schema, keys, why)
    has_lists = bool(schema.field(columns[0]).type.num_fields)
    found = keys.columns(path, schema.names, partial(_column, path, schema), _LABELS, columns, why)
    first = next(_batches(path, columns, 1 if has_lists else FIRST, reals=True), None)
    width = 0 if first is None else _matrix(path, first.slice(0, 1), None).shape[1]
    parts = () if first is None else zip(columns, first.columns, strict=True)
    whole = {field.name for field in schema if pyarrow.types.is_integer(field.type)}
    if alike := [c for c, v in parts if c in whole and len(v.unique()) == len(v) > 1]:
        log.warning(
            f"{path}: each row has another whole number, as ids do, in the features "
            f"{', '.join(alike[:SHOWN])}; name ids by --row-ids, or leave them out of the table"
        )

    def blocks() -> Iterator[Array]:
        for batch in _batches(path, columns, rows_of_block(8 * width), reals=True):
            yield _matrix(path, batch, width)

    named = None if has_lists else columns
    return Embeddings((rows, width), np.dtype("f8"), blocks, **found, columns=named)


# ---------------------------------------------------------------- the formats


def _opened(
    path: Path, columns: Sequence[str] = (), reals: bool = False, texts: bool = False
) -> Any:
    """What reads a table: pyarrow's class for its format, to be closed.

    Of CSV, types are those of the first megabyte; ``reals``: its numbers are reals throughout.
    ``texts``: texts of parquet are numbers and a dictionary, as they are stored.
    """
    if path.suffix == ".parquet":
        from pyarrow import parquet

        as_numbers = list(columns) if texts else []
        return parquet.ParquetFile(
            path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=as_numbers
        )
    if path.suffix == ".feather":
        import pyarrow

        return pyarrow.ipc.open_file(pyarrow.memory_map(str(path)))
    from pyarrow import csv

    delimiter = "\t" if path.suffix == ".tsv" else ","
    kinds = dict.fromkeys(columns, "float64") if reals else {}
    how = csv.ConvertOptions(include_columns=list(columns), column_types=kinds)
    return csv.open_csv(path, None, csv.ParseOptions(delimiter=delimiter), how)


def _batches(
    path: Path, columns: Sequence[str], rows: int, *, reals: bool = False, texts: bool = False
) -> Iterator[Any]:
    """Record batches of some columns, of at most so many rows."""
    with _opened(path, columns, reals, texts) as file:
        parts = file
        if path.suffix == ".parquet":
            parts = file.iter_batches(rows, columns=list(columns))
        elif path.suffix == ".feather":
            numbers = range(file.num_record_batches)
            parts = (file.get_batch(k).select(list(columns)) for k in numbers)
        for batch in parts:
            yield from (batch.slice(at, rows) for at in range(0, batch.num_rows, rows))


def _shape(path: Path) -> tuple[Any, int]:
    """The columns and their types, and the number of rows."""
    with _opened(path) as file:
        if path.suffix == ".parquet":
            return file.schema_arrow, file.metadata.num_rows
        schema = file.schema
    return schema, sum(batch.num_rows for batch in _batches(path, schema.names[:1], 1 << 20))


def _column(path: Path, schema: Any, name: str) -> Array:
    """A column of labels or row ids; texts stay a dictionary until their size is known."""
    import pyarrow
    from pyarrow.types import is_dictionary, is_large_string, is_string

    kind = schema.field(name).type
    texts = is_string(kind) or is_large_string(kind)
    parts = [batch.column(0) for batch in _batches(path, [name], 1 << 16, texts=texts)]
    column = pyarrow.chunked_array(parts, None if parts else kind)
    if column.null_count:
        first = column.is_null().index(True).as_py()
        raise InvalidDataError(
            f"{path}: row {first} has no {name} ({column.null_count} of {len(column)} rows)"
        )
    if texts and not is_dictionary(column.type):
        column = column.dictionary_encode()
    if is_dictionary(column.type):
        longest = max((len(str(v)) for c in column.chunks for v in c.dictionary), default=0)
        check_label_bytes(path, name, 4 * longest * len(column))
        column = column.cast(column.type.value_type)
    values: Array = column.to_numpy()
    return values if values.dtype.kind in "iuf" else values.astype(str)


# ---------------------------------------------------------------- what is in them


def _no_features(schema: Any) -> dict[str, str]:
    """The columns that are never a feature of their own, and why."""
    from pyarrow.types import is_floating, is_integer

    index = (schema.pandas_metadata or {}).get("index_columns", ())
    why = {}
    for field in schema:
        if field.name in index:
            why[field.name] = "index of pandas"
        elif re.fullmatch(_IDS, field.name):
            why[field.name] = "named like an id"
        elif not (is_floating(field.type) or is_integer(field.type)):
            kind = re.split(r"[<\[(]", str(field.type))[0]
            why[field.name] = "text" if kind.endswith("string") else kind
    return why


def _feature_columns(path: Path, schema: Any, keys: Keys, why: Mapping[str, str]) -> list[str]:
    x = keys.x or "x"
    if not {keys.x, keys.y} - {None} <= {*schema.names}:
        raise keys.lacking(path, schema.names)
    if x in schema.names and schema.field(x).type.num_fields:
        return [x]
    if keys.x is not None:
        raise InvalidDataError(
            f"{path}: --x names a column of lists of numbers; {x} holds {schema.field(x).type}"
        )
    others = {*why, *_LABELS, *ROW_IDS, keys.y, keys.row_ids}
    numbers = [name for name in schema.names if name not in others]
    if not numbers:
        raise InvalidDataError(
            f"{path} has the columns {', '.join(schema.names)}; expected a column x of lists, or "
            f"columns of numbers, and {' or '.join(_LABELS)}, and optionally {' or '.join(ROW_IDS)}"
        )
    return numbers


def _matrix(path: Path, batch: Any, width: int | None) -> Array:
    """Rows of a record batch as (n, d) float64; empty cells become NaN, which is refused later."""
    if not batch.schema.field(0).type.num_fields:
        return np.column_stack([_numbers(column) for column in batch.columns])
    lists = batch.column(0)
    lengths = {*lists.value_lengths().to_pylist()}
    if len(lengths) != 1 or None in lengths or (width is not None and lengths != {width}):
        raise InvalidDataError(
            f"{path}: expected lists of {width or 'equal'} numbers in {batch.schema.names[0]}, "
            f"found lengths {', '.join(map(str, sorted(lengths, key=str)[:5]))}"
        )
    if max(lengths) > MOST_FEATURES:
        raise InvalidDataError(f"{path}: lists of {max(lengths):,} numbers are too long")
    return _numbers(lists.flatten()).reshape(len(lists), -1)


def _numbers(column: Any) -> Array:
    values: Array = column.to_numpy(zero_copy_only=False)
    return values.astype(np.float64)
