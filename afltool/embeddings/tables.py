"""Embeddings as tables: a column x of lists, or a column for each feature, and labels."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from .. import memory
from ..errors import InvalidDataError, UsageError, naming
from ..options.features import NamedRows
from ..plugins import install
from ..progress import log
from ..values.arrays import Array
from ..values.names import LIKE_IDS, ROW_IDS, order_columns
from ..values.text import IS, comma_list
from . import Embeddings, lacking, name_fields, names_apart, slices

#: Columns of labels, which are not features; `ROW_IDS` are none either.
_LABELS = ("y", "label")
_LISTS = ("x", "embedding", "emb", "features", "vector")  # a column of lists
ID = "named like an id"
#: How columns of numbers are called that pandas has written.
_NUMBERS = r"(?i:index|(__index_)?level_\d+(__)?|unnamed: ?\d+)"
_NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"  # a cell
LONGEST = 60  # characters of a cell that a message has


def open_table(path: Path, o: NamedRows) -> Embeddings:
    """Features are a column of lists, or else every column of numbers, which then have names.

    The index that pandas wrote and columns that are named like ids are none; the one of these whose
    values all differ has the row ids.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{path} needs pyarrow: {install('import')}") from error
    schema = _schema(path)
    with naming(path):
        order_columns(schema.names)  # no two are alike
    why = _no_features(schema)
    coded = dict(
        _encode_one_hot(path, schema, one) for one in names_apart(o.categories, schema.names)
    )
    columns = _feature_columns(path, schema, o, why, coded)
    has_lists = bool(columns and schema.field(columns[0]).type.num_fields)
    if has_lists and coded:
        raise UsageError(
            f"{path}: --categories goes with a column for each feature, and {columns[0]} has lists "
            "of them: leave it out, or name columns of numbers by --feature-columns"
        )
    table = _numbers(path, schema, columns)
    ids = [name for name, text in why.items() if text == ID and name not in (o.x, o.y)]
    if len(ids) == 1 and not o.row_ids and not {*ROW_IDS} & {*schema.names}:
        values = _read_columns(path, schema, ids)[ids[0]]
        if values.null_count == 0 and len(values.unique()) == len(values):
            o = replace(o, row_ids=ids[0])
    read = partial(_column, path, schema)
    found = name_fields(path, schema.names, o, read, _LABELS, columns, why)
    found["left"] = {name: text for name, text in found["left"].items() if name not in coded}
    if not (has_lists or o.feature_columns):
        texts = (name for name, text in found["left"].items() if text == "text")
        for name, odd in _odd_cells(path, schema, texts):
            log.warning("%s: the column %r is left out: %s", path, name, odd)
    of_values = {name: one for each in coded.values() for name, one in each.items()}
    ones = np.column_stack([*of_values.values(), np.empty((len(table), 0))]).astype(np.float64)
    numbers = _matrix(path, table.slice(0, 1)).shape[1] if len(table) and columns else 0
    width = numbers + ones.shape[1]

    def blocks() -> Iterator[Array]:
        for part in slices(len(table), 8 * width):
            rows = table.slice(part.start, part.stop - part.start)
            parts = [_matrix(path, rows, numbers)] if columns else []
            yield np.column_stack([*parts, ones[part]])

    named = None if has_lists else [*columns, *of_values]
    return Embeddings((len(table), width), np.dtype("f8"), blocks, **found, columns=named)


def _delimiter(path: Path) -> Any:
    from pyarrow import csv

    return csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",")


def _schema(path: Path) -> Any:
    """The columns and their types: of CSV those of its first megabyte."""
    from pyarrow import csv, ipc, memory_map, parquet

    if path.suffix == ".parquet":
        return parquet.read_schema(path)
    if path.suffix == ".feather":
        with memory_map(str(path)) as file:
            return ipc.open_file(file).schema
    with csv.open_csv(path, parse_options=_delimiter(path)) as file:
        return file.schema


def _read_columns(path: Path, schema: Any, columns: Sequence[str], kind: str | None = None) -> Any:
    """Some columns as a table; ``kind``: what all cells of CSV are, whatever they begin with."""
    from pyarrow import csv, feather, parquet

    size = path.stat().st_size
    if path.suffix == ".parquet":
        about = parquet.read_metadata(path)
        size = sum(about.row_group(i).total_byte_size for i in range(about.num_row_groups))
    memory.require_memory(size, f"the table {path}", "save the features as .npy, with --labels")
    if path.suffix == ".parquet":
        texts = [one for one in columns if str(schema.field(one).type).endswith("string")]
        with open(path, "rb") as file:
            return parquet.read_table(
                file, columns=list(columns), read_dictionary=texts, pre_buffer=False
            )
    if path.suffix == ".feather":
        return feather.read_table(path, columns=list(columns))
    how = csv.ConvertOptions(
        include_columns=list(columns),
        column_types=dict.fromkeys(columns, kind) if kind else {},
        strings_can_be_null=kind == "string",
    )
    return csv.read_csv(path, parse_options=_delimiter(path), convert_options=how)


def _numbers(path: Path, schema: Any, columns: Sequence[str]) -> Any:
    """Columns of numbers as a table; of CSV as reals, one of which may be a text further down."""
    from pyarrow import ArrowInvalid

    try:
        return _read_columns(path, schema, columns, "float64")
    except ArrowInvalid:
        _refuse_odd_cells(path, schema, columns)
        raise


def _refuse_odd_cells(path: Path, schema: Any, columns: Iterable[str]) -> None:
    for name, odd in _odd_cells(path, schema, columns):
        raise InvalidDataError(f"{path}: column {name!r}, {odd}") from None


def _odd_cells(path: Path, schema: Any, columns: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Columns most of whose cells are numbers, but not all; and which is the first of these."""
    from pyarrow import compute

    table = _read_columns(path, schema, names, "string") if (names := [*columns]) else {}
    for name in names:
        cells = table[name].cast("string")
        numbers = compute.match_substring_regex(cells, _NUMBER)
        right = compute.sum(numbers).as_py() or 0
        if right > (odd := len(cells) - cells.null_count - right) > 0:
            first = compute.index(numbers, False).as_py()
            cell = repr(cells[first].as_py()[:LONGEST])
            more = f" ({odd} rows have texts)" * (odd > 1)
            yield name, f"row {first} has {cell} among numbers{more}; correct it, or leave it empty"


def _column(path: Path, schema: Any, name: str) -> Array:
    """A column of labels or row ids; texts are a dictionary until their size is known."""
    from pyarrow.types import is_dictionary

    column = _read_columns(path, schema, [name])[name]
    if column.null_count:
        first = column.is_null().index(True).as_py()
        raise InvalidDataError(
            f"{path}: row {first} has no {name} ({column.null_count} of {len(column)} rows)"
        )
    if str(column.type).endswith("string"):
        column = column.dictionary_encode()
    if is_dictionary(column.type):
        longest = max((len(str(v)) for c in column.chunks for v in c.dictionary), default=0)
        memory.require_memory(
            4 * longest * len(column), f"the column {name} of {path}", "shorten its texts"
        )
        column = column.cast(column.type.value_type)
    values: Array = column.to_numpy()
    return values if values.dtype.kind in "iuf" else values.astype(str)


def _no_features(schema: Any) -> dict[str, str]:
    """The columns that are never a feature of their own, and why."""
    from pyarrow.types import is_floating, is_integer

    index = (schema.pandas_metadata or {}).get("index_columns", ())
    why = {}
    for field in schema:
        if field.name in index:
            why[field.name] = "index of pandas"
        elif re.fullmatch(_NUMBERS, field.name):
            why[field.name] = "numbers of rows"
        elif re.fullmatch(LIKE_IDS, field.name):
            why[field.name] = ID
        elif not (is_floating(field.type) or is_integer(field.type)):
            kind = re.split(r"[<\[(]", str(field.type))[0]
            why[field.name] = "text" if kind.endswith("string") else kind
    return why


def _encode_one_hot(path: Path, schema: Any, category: str) -> tuple[str, dict[str, Array]]:
    """A column, and whether rows (n,) have each of its values, by name.

    Without a list they are those of this file, which it says, since sites must agree on them.
    """
    name, _, listed = category.partition("=")
    if name not in schema.names:
        raise InvalidDataError(f"{path}: --categories {name} is not a column")
    texts = _column(path, schema, name).astype(str)
    values = next(csv.reader([listed])) if listed else sorted({*texts.tolist()})
    if not listed:
        log.info(f"{path}: --categories {quote(f'{name}={comma_list(values)}')}, for every site")
    strange = np.flatnonzero(~np.isin(texts, values))
    if len(strange):
        raise InvalidDataError(
            f"{path}: row {strange[0]} has {str(texts[strange[0]])!r} in {name}; the values are "
            f"{', '.join(values)} ({len(strange)} rows have others): list them in --categories"
        )
    return name, {f"{name}{IS}{value}": texts == value for value in values}


def _feature_columns(
    path: Path, schema: Any, o: NamedRows, why: Mapping[str, str], coded: Mapping[str, Any]
) -> list[str]:
    if {o.x, o.y} - {None, *schema.names}:
        raise lacking(path, schema.names, o)
    if o.feature_columns:
        taken = [name for name in names_apart(o.feature_columns, schema.names) if name not in coded]
        for name in taken:
            kind = why.get(name, "") if name in schema.names else "not a column"
            if kind == "text":
                _refuse_odd_cells(path, schema, [name])
            if kind not in ("", ID, "numbers of rows"):
                raise InvalidDataError(
                    f"{path}: --feature-columns {name} is {kind}; expected columns of numbers; "
                    "texts and yes or no go by --categories"
                )
        return taken
    lists = [n for n in _LISTS if n in schema.names and schema.field(n).type.num_fields]
    x = o.x or next(iter(lists), "x")
    if x in schema.names and schema.field(x).type.num_fields:
        return [x]
    if o.x is not None:
        raise InvalidDataError(
            f"{path}: --x names a column of lists of numbers; {x} holds {schema.field(x).type}"
        )
    others = {*why, *_LABELS, *ROW_IDS, *coded, o.y, o.row_ids}
    numbers = [name for name in schema.names if name not in others]
    if not numbers and not coded:
        raise InvalidDataError(
            f"{path} has the columns {', '.join(schema.names)}; expected a column x of lists, or "
            f"columns of numbers, and {' or '.join(_LABELS)}, and optionally {' or '.join(ROW_IDS)}"
        )
    return numbers


def _matrix(path: Path, table: Any, width: int | None = None) -> Array:
    """Rows of a table as (n, d) float64; empty cells become NaN, which is refused later."""
    if not table.schema.field(0).type.num_fields:
        return np.column_stack([column.to_numpy().astype(np.float64) for column in table.columns])
    lists = table.column(0).combine_chunks()
    lengths = {*lists.value_lengths().to_pylist()}
    if len(lengths) != 1 or None in lengths or (width is not None and lengths != {width}):
        raise InvalidDataError(
            f"{path}: expected lists of {width or 'equal'} numbers in {table.schema.names[0]}, "
            f"found lengths {', '.join(map(str, sorted(lengths, key=str)[:5]))}"
        )
    values: Array = lists.flatten().to_numpy(zero_copy_only=False)
    return values.astype(np.float64).reshape(len(table), -1)
