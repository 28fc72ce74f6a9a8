"""A table of image paths and labels as a data set: CSV or parquet."""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from ..errors import CorruptFileError, InputError, InvalidDataError, UsageError
from .base import ImageDataset, shorten
from .folders import Listed, from_listings

Columns = Mapping[str, list[str | None]]


def open_table(
    name: str,
    table: Path,
    split: str,
    root: Path | None = None,
    wanted: Sequence[str] | None = None,
) -> ImageDataset:
    """The images that ``table`` names in its columns ``path`` and ``label``.

    Paths are relative to ``root``, by default the folder of the table, with slashes; they are the
    row ids, and rows are sorted by their bytes. A column ``split`` says which rows are ``train``
    and which ``test``; without it every row is a training row. The classes are all labels of the
    table, whatever the split: as numbers if all are whole numbers, else by their bytes. Other
    columns, such as one of clients (see `partition`), are not read.

    Raises:
        UsageError: neither CSV nor parquet.
        InputError: the table or an image is missing.
        InvalidDataError: a column is missing, a cell is empty, a path is absolute or named twice,
            or no row belongs to the split.
    """
    columns = read_columns(table, ("path", "label"), ("split",))
    paths, labels = (_filled(table, column, columns[column]) for column in ("path", "label"))
    chosen = _rows_of_split(table, columns, split)
    classes = _class_names(labels)
    _check_paths(table, paths)
    base = table.parent if root is None else root
    number = {label: i for i, label in enumerate(classes)}
    listings: list[list[Listed]] = [[] for _ in classes]
    for i in chosen:
        listings[number[labels[i]]].append(_stat(base, paths[i], table))
    return from_listings(name, split, classes, listings, base, wanted)


def read_columns(table: Path, needed: Sequence[str], maybe: Sequence[str]) -> Columns:
    """Columns of a CSV or parquet table as texts; None for an empty cell.

    Raises:
        UsageError, InputError, CorruptFileError, InvalidDataError: see `open_table`.
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if table.suffix.lower() not in readers:
        raise UsageError(f"table:{table}: a table of images is a .csv or .parquet file.")
    if not table.is_file():
        raise InputError(f"table:{table}: there is no such file.")
    columns = readers[table.suffix.lower()](table, (*needed, *maybe))
    missing = [column for column in needed if column not in columns]
    if missing:
        raise InvalidDataError(
            f"{table}: expected the columns {' and '.join(needed)}, found no "
            f"{' and no '.join(missing)}."
        )
    return columns


def _read_csv(table: Path, names: Sequence[str]) -> Columns:
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.reader(file, strict=True)
            header = next(rows, [])
            at = {name: header.index(name) for name in names if name in header}
            columns: dict[str, list[str | None]] = {name: [] for name in at}
            for row in rows:
                if row and len(row) != len(header):
                    raise CorruptFileError(
                        f"{table}, line {rows.line_num}: expected {len(header)} cells, found "
                        f"{len(row)}."
                    )
                for name, place in at.items() if row else ():
                    columns[name].append(row[place] or None)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorruptFileError(f"{table} cannot be read as CSV in UTF-8: {error}.") from error
    return columns


def _read_parquet(table: Path, names: Sequence[str]) -> Columns:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("reading parquet needs pyarrow: pip install 'afltool[import]'.") from error
    try:
        with parquet.ParquetFile(table) as file:
            there = [name for name in names if name in file.schema_arrow.names]
            content = file.read(columns=there)
        texts = content.cast(pyarrow.schema([(name, pyarrow.string()) for name in there]))
    except (pyarrow.ArrowException, OSError) as error:
        raise CorruptFileError(f"{table} cannot be read as parquet: {error}.") from error
    return {name: texts[name].to_pylist() for name in there}


def _filled(table: Path, name: str, column: list[str | None]) -> list[str]:
    empty = sum(1 for cell in column if not cell)
    if empty:
        first = next(i for i, cell in enumerate(column) if not cell)
        raise InvalidDataError(
            f"{table}: {empty} rows have no {name}, the first is row {first + 1} below the header."
        )
    return [cell for cell in column if cell]


def _rows_of_split(table: Path, columns: Columns, split: str) -> list[int]:
    if "split" not in columns:
        if split != "train":
            raise InvalidDataError(
                f"{table} has no column split, so all of its rows are training rows; add one "
                f"(train, test) to tell which are for {split}."
            )
        return list(range(len(columns["path"])))
    chosen = [i for i, cell in enumerate(columns["split"]) if cell == split]
    if not chosen:
        found = Counter("(empty)" if cell is None else cell for cell in columns["split"])
        counts = [f"{cell} ({n} rows)" for cell, n in sorted(found.items())]
        raise InvalidDataError(
            f"{table}: no row has {split!r} in its column split; found {shorten(counts)}."
        )
    return chosen


def _class_names(labels: Sequence[str]) -> list[str]:
    names = set(labels)
    if all(re.fullmatch(r"0|-?[1-9][0-9]*", label, re.ASCII) for label in names):
        return sorted(names, key=int)
    return sorted(names, key=lambda label: label.encode())


def _check_paths(table: Path, paths: Sequence[str]) -> None:
    """Row ids must be unique and the same on every machine."""
    twice = [path for path, times in Counter(paths).items() if times > 1]
    absolute = [path for path in paths if PurePosixPath(path).is_absolute()]
    broken = [path for path in paths if "\n" in path]
    for odd, what in (
        (twice, "named more than once"),
        (absolute, "absolute; expected paths relative to the table's folder, or to --data-root"),
        (broken, "of several lines"),
    ):
        if odd:
            raise InvalidDataError(f"{table}: {len(odd)} paths are {what}: {shorten(odd)}.")


def _stat(base: Path, path: str, table: Path) -> Listed:
    where = os.path.join(base, path)
    try:
        stat = os.stat(where)
    except OSError as error:
        raise InputError(
            f"{table} names {path}, and {where} cannot be read: {error.strerror or error}. Paths "
            "are relative to the table's folder, or to --data-root."
        ) from error
    return path.encode(), stat.st_size, stat.st_mtime_ns
