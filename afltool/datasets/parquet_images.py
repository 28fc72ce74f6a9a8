"""Parquet files with the bytes of images, in the layout of Hugging Face data sets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from .. import memory
from ..errors import CorruptFileError, InvalidDataError
from ..files.tables import open_parquet
from ..inputs import parse_json
from .base import DatasetRequest, ImageDataset, image_column, label_names
from .packed import Row, from_files, list_packed_files


def open_rows(request: DatasetRequest) -> ImageDataset:
    """The rows of .parquet files in their order; the labels alone are read.

    Images are the one column of bytes, or of records with ``bytes``.
    Labels are texts or numbers, or indices into the names that the schema has of them (Hugging
    Face's ``ClassLabel``). Row ids are FILE/ROW, from 0. A row group is read whole; two are kept.
    """
    files, lock = list_packed_files(request, ".parquet"), threading.Lock()
    alike = {_schema(path, request) for path in files}
    if len(alike) > 1:
        raise InvalidDataError(
            f"{request.spec}: the {len(files)} files differ in the column of their images, or in "
            "the names of their classes; name files that are alike with a pattern"
        )
    ((column, names),) = alike

    @lru_cache(maxsize=2)
    def group(path: Path, number: int) -> Any:
        with open_parquet(path) as file:
            return file.read_row_group(number, columns=[column]).column(0)

    def read(path: Path, number: int, row: int) -> bytes:
        with lock:  # else each thread would read the group
            cell = group(path, number)[row].as_py()
        data: bytes | None = cell["bytes"] if isinstance(cell, dict) else cell
        if data is None:
            raise CorruptFileError("it has no bytes; a path alone is not followed")
        return data

    return from_files(request, files, lambda path: _rows(path, request, names), read, names)


def _schema(path: Path, request: DatasetRequest) -> tuple[str, tuple[str, ...]]:
    """The column of the images' bytes; the names of all classes, in their order, or none."""
    with open_parquet(path) as file:
        schema = file.schema_arrow
    found = {}
    for one in schema:
        if str(one.type).startswith("struct<") and one.type.get_field_index("bytes") >= 0:
            found[one.name] = f"{one.name}.bytes"
        elif str(one.type) in ("binary", "large_binary"):
            found[one.name] = one.name
    column = image_column(request, str(path), schema.names, [*found])
    text = (schema.metadata or {}).get(b"huggingface", b"{}")
    names = parse_json(text, f"the schema of {path}", "JSON")
    for key in ("info", "features", request.y, "names"):
        names = names.get(key) if isinstance(names, dict) else None
    return found[column], tuple(map(str, names)) if isinstance(names, list) else ()


def _rows(path: Path, request: DatasetRequest, names: tuple[str, ...]) -> Iterator[Row]:
    with open_parquet(path) as file:
        groups = [file.metadata.row_group(i) for i in range(file.num_row_groups)]
        most = max((one.total_byte_size for one in groups), default=0)
        memory.require_memory(
            2 * most, f"two row groups of {path}", "write it with smaller row groups"
        )
        table = None if request.unlabeled else file.read([request.y])
    places = [(g, row) for g, group in enumerate(groups) for row in range(group.num_rows)]
    labels = [""] * len(places)
    if table is not None:
        labels = label_names(str(path), request.y, table, names)
    for i, (name, place) in enumerate(zip(labels, places, strict=True)):
        yield f"{i:0{len(str(len(places)))}d}", name, *place
