"""Embeddings as .parquet: a column x of lists, or a column for each feature, and labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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


def open_parquet(path: Path, keys: Keys) -> Embeddings:
    """Features are a column of lists, or else every column of numbers, which then have names.

    The index that pandas wrote and columns that are named like ids are none.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise UsageError(f"{path} needs pyarrow: pip install 'afltool[import]'") from error
    try:
        with _parquet_file(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
            with naming(path):
                ordered_columns(schema.names)  # no two are alike
            why = _no_features(schema, pyarrow)
            columns = _feature_columns(path, schema, pyarrow, keys, why)
        read = partial(_column, path, schema)
        found = keys.columns(path, schema.names, read, _LABELS, columns, why)
        with _parquet_file(path) as file:
            some = 1 if pyarrow.types.is_nested(schema.field(columns[0]).type) else FIRST
            first = next(file.iter_batches(some, columns=columns), None)
    except pyarrow.ArrowException as error:
        raise ValueError(str(error)) from error
    width = 0 if first is None else _matrix(path, first.slice(0, 1), None).shape[1]
    parts = () if first is None else zip(columns, first.columns, strict=True)
    if alike := [c for c, v in parts if "int" in str(v.type) and len(v.unique()) == len(v) > 1]:
        log.warning(
            f"{path}: each row has another whole number, as ids do, in the features "
            f"{', '.join(alike[:SHOWN])}; name ids by --row-ids, or leave them out of the table"
        )

    def blocks() -> Iterator[Array]:
        with _parquet_file(path) as file:
            for batch in file.iter_batches(rows_of_block(8 * width), columns=columns):
                yield _matrix(path, batch, width)

    named = None if pyarrow.types.is_nested(schema.field(columns[0]).type) else columns
    return Embeddings((rows, width), np.dtype("f8"), blocks, **found, columns=named)


def _parquet_file(path: Path, texts: list[str] | None = None) -> Any:
    from pyarrow import parquet

    return parquet.ParquetFile(
        path, buffer_size=1 << 20, pre_buffer=False, read_dictionary=texts or []
    )


def _no_features(schema: Any, pyarrow: Any) -> dict[str, str]:
    """The columns that are never a feature of their own, and why."""
    index = (schema.pandas_metadata or {}).get("index_columns", ())
    why = {}
    for field in schema:
        if field.name in index:
            why[field.name] = "index of pandas"
        elif re.fullmatch(_IDS, field.name):
            why[field.name] = "named like an id"
        elif not (pyarrow.types.is_floating(field.type) or pyarrow.types.is_integer(field.type)):
            kind = re.split(r"[<\[(]", str(field.type))[0]
            why[field.name] = "text" if kind.endswith("string") else kind
    return why


def _feature_columns(
    path: Path, schema: Any, pyarrow: Any, keys: Keys, why: Mapping[str, str]
) -> list[str]:
    x = keys.x or "x"
    if not {keys.x, keys.y} - {None} <= set(schema.names):
        raise keys.lacking(path, schema.names)
    if x in schema.names and pyarrow.types.is_nested(schema.field(x).type):
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


def _column(path: Path, schema: Any, name: str) -> Array:
    """A column of labels or row ids; texts stay a dictionary until their size is known."""
    import pyarrow

    kind = schema.field(name).type
    texts = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)
    with _parquet_file(path, [name] if texts else None) as file:
        column = file.read(columns=[name])[name]
    if column.null_count:
        first = column.is_null().index(True).as_py()
        raise InvalidDataError(
            f"{path}: row {first} has no {name} ({column.null_count} of {len(column)} rows)"
        )
    if pyarrow.types.is_dictionary(column.type):
        longest = max((len(str(v)) for c in column.chunks for v in c.dictionary), default=0)
        check_label_bytes(path, name, 4 * longest * len(column))
        column = column.cast(column.type.value_type)
    values: Array = column.to_numpy()
    return values if values.dtype.kind in "iuf" else values.astype(str)


def _matrix(path: Path, batch: Any, width: int | None) -> Array:
    """Rows of a record batch as (n, d) float64; empty cells become NaN, which is refused later."""
    (name, *more) = batch.schema.names
    if more or batch.schema.field(0).type.num_fields == 0:
        return np.column_stack([_numbers(column) for column in batch.columns])
    lists = batch.column(0)
    lengths = set(lists.value_lengths().to_pylist())
    if len(lengths) != 1 or None in lengths or (width is not None and lengths != {width}):
        raise InvalidDataError(
            f"{path}: expected lists of {width or 'equal'} numbers in {name}, found lengths "
            f"{', '.join(map(str, sorted(lengths, key=str)[:5]))}"
        )
    if max(lengths) > MOST_FEATURES:
        raise InvalidDataError(f"{path}: lists of {max(lengths):,} numbers in {name} are too long")
    flat = _numbers(lists.flatten())
    return flat.reshape(len(lists), -1)


def _numbers(column: Any) -> Array:
    values: Array = column.to_numpy(zero_copy_only=False)
    return values.astype(np.float64)
