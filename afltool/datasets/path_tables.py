"""A table of image paths and labels as a data set."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from posixpath import isabs, normpath

from ..errors import InputError, InvalidDataError
from ..files.tables import Columns, read_columns
from ..inputs import spell_as_on_disk
from ..progress import log
from ..values.names import compose
from .base import SPLITS, DatasetRequest, ImageDataset, class_names, shorten
from .folders import Listed, from_files


def open_rows(request: DatasetRequest) -> ImageDataset:
    """The images that ``table`` names in its column ``path``, and their labels.

    Paths are relative to the given data root, by default the folder of the table, with slashes.
    They are the row ids, as the disk spells them (a Mac decomposes accents), and rows are sorted by
    their bytes. A column ``split`` says which rows are ``train`` and which ``test``, in capitals or
    not; other rows are left out, counted and named. Without it every row is a training row. The
    classes are all labels of the table, whatever the split.
    """
    table = Path(request.path)
    needed = ("path",) if request.unlabeled else ("path", request.y)
    columns = read_columns(table, needed, ("split",))
    paths, *labels = (_is_filled(table, name, columns[name]) for name in needed)
    chosen = _select_split(table, columns, request.split, len(paths))
    files = Counter(normpath(compose(path)) for path in paths)
    for odd, what in (
        ([one for one, times in files.items() if times > 1], "named more than once"),
        ([one for one in paths if isabs(one)], "absolute; expected paths relative to the table"),
        ([one for one in paths if {*one} & {"\n", "\0"}], "longer than a line, or hold a NUL"),
    ):
        if odd:
            raise InvalidDataError(f"{table}: {len(odd)} paths are {what}: {shorten(odd)}.")
    base = request.data_root or table.parent
    listed = [_stat(base, paths[i], table) for i in chosen]
    if request.unlabeled:
        return from_files(request, listed, base)
    classes = class_names(request, labels[0])
    return from_files(request, listed, base, [labels[0][i] for i in chosen], classes)


def _is_filled(table: Path, name: str, column: list[str | None]) -> list[str]:
    if empty := [row for row, cell in enumerate(column, 1) if not cell]:
        raise InvalidDataError(
            f"{table}: row {empty[0]} below the header has no {name} ({len(empty)} of "
            f"{len(column)} rows)."
        )
    return [cell for cell in column if cell]


def _select_split(table: Path, columns: Columns, split: str, rows: int) -> Sequence[int]:
    """Without a column of splits every row is a training row."""
    given = columns.get("split", ["train"] * rows)
    cells = [(cell or "(empty)").strip() for cell in given]
    chosen = [i for i, cell in enumerate(cells) if cell.lower() == split]
    counts = {cell: f"{cell} ({n} rows)" for cell, n in sorted(Counter(cells).items())}
    if not chosen:
        raise InvalidDataError(
            f"{table}: no row has {split!r} in its column split (train, test; without it all are "
            f"training rows); found {shorten([*counts.values()])}."
        )
    if others := [text for cell, text in counts.items() if cell.lower() not in SPLITS]:
        log.warning(
            f"{table}: left out rows whose split is neither {' nor '.join(SPLITS)}: "
            f"{shorten(others)}"
        )
    return chosen


def _stat(base: Path, path: str, table: Path) -> Listed:
    path = spell_as_on_disk(base, path)
    try:
        stat = os.stat(os.path.join(base, path))
    except OSError as error:
        raise InputError(
            f"{table} names {path}, which cannot be read in {base}: {error.strerror or error}. "
            "Paths are relative to the table's folder, or to --data-root."
        ) from error
    return path.encode(), stat.st_size, stat.st_mtime_ns
