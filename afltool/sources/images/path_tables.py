"""A table of image paths and labels as a data set."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from posixpath import normpath

from ...errors import InputError, InvalidDataError
from ...files.tables import Columns, read_columns
from ...inputs import spelled
from ...progress import log
from ...values.names import composed
from .base import SPLITS, DatasetRequest, ImageDataset, class_names, shorten
from .folders import Listed, from_files


def open_rows(request: DatasetRequest) -> ImageDataset:
    """The images that ``table`` names in its columns ``path`` and ``label``, or in those asked for.

    Paths are relative to the given data root, by default the folder of the table, with slashes.
    They are the row ids, as the disk spells them (a Mac decomposes accents), and rows are sorted by
    their bytes. A column ``split`` says which rows are ``train`` and which ``test``, in capitals or
    not; other rows are left out, counted and named. Without it every row is a training row. The
    classes are all labels of the table, whatever the split: as numbers if all are whole numbers,
    else by their bytes.
    Other columns, such as one of clients (see `partition`), are not read, and without labels not
    ``label`` either.

    Raises `UsageError`: neither CSV nor parquet; `InputError`: the table or an image is missing;
    `InvalidDataError`: a column is missing, a cell is empty, a path is absolute or named twice, or
    no row belongs to the split.
    """
    table, split = Path(request.path), request.split
    path, label = request.path_column, request.label_column
    needed = (path,) if request.unlabelled else (path, label)
    columns = read_columns(table, needed, ("split",))
    paths = _filled(table, path, columns[path])
    chosen = _rows_of_split(table, columns, split)
    _check_paths(table, paths)
    base = request.data_root or table.parent
    files = [_stat(base, paths[i], table) for i in chosen]
    if request.unlabelled:
        return from_files(request, files, base)
    labels = _filled(table, label, columns[label])
    classes = class_names(request, labels)
    return from_files(request, files, base, [labels[i] for i in chosen], classes)


def _filled(table: Path, name: str, column: list[str | None]) -> list[str]:
    if empty := [row for row, cell in enumerate(column, 1) if not cell]:
        raise InvalidDataError(
            f"{table}: row {empty[0]} below the header has no {name} ({len(empty)} of "
            f"{len(column)} rows)."
        )
    return [cell for cell in column if cell]


def _rows_of_split(table: Path, columns: Columns, split: str) -> list[int]:
    if "split" not in columns:
        if split != "train":
            raise InvalidDataError(
                f"{table} has no column split, so all of its rows are training rows; add one "
                f"(train, test) to tell which are for {split}."
            )
        return list(range(len(next(iter(columns.values())))))
    cells = [(cell or "(empty)").strip() for cell in columns["split"]]
    chosen = [i for i, cell in enumerate(cells) if cell.lower() == split]
    counts = {cell: f"{cell} ({n} rows)" for cell, n in sorted(Counter(cells).items())}
    if not chosen:
        found = shorten([*counts.values()])
        raise InvalidDataError(f"{table}: no row has {split!r} in its column split; found {found}.")
    if others := [text for cell, text in counts.items() if cell.lower() not in SPLITS]:
        log.warning(
            f"{table}: left out rows whose split is neither {' nor '.join(SPLITS)}: "
            f"{shorten(others)}"
        )
    return chosen


def _check_paths(table: Path, paths: Sequence[str]) -> None:
    """Row ids must be unique and the same on every machine."""
    files = Counter(normpath(composed(path)) for path in paths)
    twice = [path for path, times in files.items() if times > 1]
    absolute = [path for path in paths if PurePosixPath(path).is_absolute()]
    broken = [path for path in paths if "\n" in path or "\0" in path]
    for odd, what in (
        (twice, "named more than once"),
        (absolute, "absolute; expected paths relative to the table's folder, or to --data-root"),
        (broken, "longer than one line, or hold a NUL byte"),
    ):
        if odd:
            raise InvalidDataError(f"{table}: {len(odd)} paths are {what}: {shorten(odd)}.")


def _stat(base: Path, path: str, table: Path) -> Listed:
    where = os.path.join(base, path := spelled(base, path))
    try:
        stat = os.stat(where)
    except OSError as error:
        raise InputError(
            f"{table} names {path}, and {where} cannot be read: {error.strerror or error}. Paths "
            "are relative to the table's folder, or to --data-root."
        ) from error
    return path.encode(), stat.st_size, stat.st_mtime_ns
