"""Tables of rows written as they come, as CSV, JSON Lines or parquet, and resumed after a kill.

The text grows in NAME.partial (of parquet in NAME.rows.partial, as CSV, which becomes parquet at
the end). Beside it NAME.progress says what of it counts, by length and SHA-256, and for which work:
only that is continued.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice, zip_longest
from math import isfinite
from pathlib import Path
from typing import IO, Any

from ..errors import OutputExistsError, UsageError
from ..values.arrays import canonical_json
from ..values.text import json_text, shown
from .atomic import replacing
from .outputs import STDOUT, check_output, partial_path
from .tables import csv_lines

Value = str | float | None
Columns = Mapping[str, type]  # str or float, by name
FORMATS = {".csv": "text", ".jsonl": "JSON", ".parquet": "parquet"}  # as `kind_of_bytes` calls them
BATCH = 8192  # rows of parquet that are in memory


def check_rows(path: Path) -> None:
    """Refuse a place where `writing_rows` would not write, before the work."""
    if path == STDOUT:
        return
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: rows go to a .csv, .jsonl or .parquet file, or - for stdout")
    check_output(path, FORMATS[path.suffix.lower()])
    if path.suffix.lower() == ".parquet":
        _pyarrow()


def _in_json(cell: Value) -> Value:
    """JSON has no infinity, which the score of a class without training rows may be."""
    return None if isinstance(cell, float) and not isfinite(cell) else cell


def _json_lines(columns: Columns) -> Callable[[Iterable[Sequence[Value]]], str]:
    def lines(rows: Iterable[Sequence[Value]]) -> str:
        records = (dict(zip(columns, map(_in_json, row), strict=True)) for row in rows)
        return "".join(json_text(one, ensure_ascii=False) + "\n" for one in records)

    return lines


class RowWriter:
    """Appends rows to an open text.

    ``done`` items of the work are in it from an earlier run, which left ``state``.
    """

    def __init__(self, lines: Callable[[Iterable[Sequence[Value]]], str], file: IO[bytes]) -> None:
        self.lines, self.file, self.done = lines, file, 0
        self.state: dict[str, Any] = {}
        self.size, self.sha = 0, hashlib.sha256()

    def text(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        self.file.write(data)
        self.sha.update(data)
        self.size += len(data)

    def append(self, rows: Iterable[Sequence[Value]]) -> None:
        """Add rows, a cell for each column."""
        self.text(self.lines(rows))

    def commit(self, done: int, state: Mapping[str, Any]) -> None:
        """Make the rows so far, which are those of ``done`` items, survive a kill."""


class _Resumable(RowWriter):
    def __init__(
        self, lines: Callable[[Iterable[Sequence[Value]]], str], file: IO[bytes], note: Path,
        key: str, same_as: IO[bytes] | None,
    ) -> None:  # fmt: skip
        super().__init__(lines, file)
        self.note, self.key, self.same_as = note, key, same_as

    def text(self, text: str) -> None:
        if self.same_as:
            data = text.encode("utf-8", "backslashreplace")
            _same(self.same_as, self.same_as.read(len(data)) == data)
        super().text(text)

    def end(self) -> None:
        """Everything is written: what was there before may have no more either."""
        self.file.flush()
        if self.same_as:
            _same(self.same_as, not self.same_as.read(1))

    def go_on(self, kept: Mapping[str, Any]) -> None:
        """Continue behind what an earlier run has committed."""
        self.done, self.size, self.state = kept["done"], kept["size"], kept["state"]
        for piece in _pieces(self.file, self.size):
            self.sha.update(piece)
            if self.same_as:
                _same(self.same_as, self.same_as.read(len(piece)) == piece)
        self.file.truncate(self.size)

    def commit(self, done: int, state: Mapping[str, Any]) -> None:
        if not done:
            return
        self.file.flush()
        self.done = done
        note = {
            "key": self.key,
            "done": done,
            "size": self.size,
            "sha256": self.sha.hexdigest(),
            "state": dict(state),
        }
        data = canonical_json(note).encode()
        with (
            replacing(self.note, "JSON", durable=False) as place,
            os.fdopen(place, "wb", closefd=False) as file,
        ):
            file.write(data)


class _Stdout(RowWriter):
    """Rows on stdout, where nothing can be taken up again; on a terminal they are escaped."""

    def __init__(self, lines: Callable[[Iterable[Sequence[Value]]], str]) -> None:
        super().__init__(lines, io.BytesIO())

    def append(self, rows: Iterable[Sequence[Value]]) -> None:
        if sys.stdout.isatty():
            rows = [[shown(c) if isinstance(c, str) else c for c in row] for row in rows]
        super().append(rows)

    def text(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        if getattr(sys.stdout, "failed", None):
            raise BrokenPipeError("nobody reads stdout any more")


def _same(before: IO[bytes], equal: bool) -> None:
    if not equal:
        raise OutputExistsError(
            f"{before.name} exists and holds something else; choose another -o, or use --overwrite"
        )


@contextmanager
def writing_rows(
    path: Path,
    columns: Columns,
    key: str,
    overwrite: bool = False,
    as_json: bool = False,
) -> Iterator[RowWriter]:
    """A `RowWriter` for a file that takes its name when the block succeeds; '-' is stdout.

    ``key`` says which work it is: what an earlier run with the same key committed is continued.
    When the block fails, what was committed stays for the next run. ``as_json``: of stdout.
    A file that is there must hold the same rows: else
    `OutputExistsError` at the first that differs (of parquet at the end), unless ``overwrite``.
    """
    suffix = path.suffix.lower()
    in_json = as_json if path == STDOUT else suffix == ".jsonl"
    lines = _json_lines(columns) if in_json else csv_lines
    header = "" if in_json else csv_lines([list(columns)])
    if path == STDOUT:
        out = _Stdout(lines)
        if not in_json:
            out.append([list(columns)])
        yield out
        return
    spool = path.with_name(path.name + ".rows") if suffix == ".parquet" else path
    note = path.with_name(path.name + ".progress")
    kind = "text" if spool != path else FORMATS[suffix]
    there = path.exists() and not overwrite
    if not partial_path(spool).exists():  # else what lies beside it is of an earlier run
        _check_beside(note, spool if spool != path else None, header.encode())
    with (
        replacing(spool, kind, go_on=lambda at: _committed(at, note, key) is not None) as place,
        os.fdopen(place, "r+b", closefd=False) as file,
        path.open("rb") if there and spool == path else nullcontext() as before,
    ):
        writer = _Resumable(lines, file, note, key, before)
        try:
            if committed := _committed(partial_path(spool), note, key):
                writer.go_on(committed)
            else:
                writer.text(header)
            yield writer
            writer.end()
            if spool != path:
                _to_parquet(file, columns, path, there)
        except BaseException:
            if not writer.done:
                file.flush()
                file.truncate(0)  # nothing to go on from: no trace is left
            raise
    note.unlink(missing_ok=True)
    if spool != path:
        spool.unlink(missing_ok=True)


def _check_beside(note: Path, spool: Path | None, header: bytes) -> None:
    """Refuse files of somebody else under the names that the work needs beside its output."""
    own = {note: _noted(note) is not None}
    if spool is not None and spool.exists():
        with spool.open("rb") as file:
            own[spool] = file.read(len(header)) == header
    for path, is_own in own.items():
        if path.exists() and not is_own:
            raise OutputExistsError(
                f"{path} exists, and this command needs the name for rows that are under way: move "
                "it away, or choose another -o"
            )


def _noted(note: Path) -> dict[str, Any] | None:
    """What a note says; None where there is none, or it is somebody else's."""
    with suppress(OSError, ValueError):
        record = json.loads(note.read_text("utf-8"))
        if isinstance(record, dict) and {"key", "done", "size", "sha256"} <= record.keys():
            return record
    return None


def _committed(partial: Path, note: Path, key: str) -> dict[str, Any] | None:
    """What a note says of a partial file, if it is about this work and the bytes are there."""
    record = _noted(note) or {}
    with suppress(OSError, ValueError, KeyError, TypeError):
        done, size = int(record["done"]), int(record["size"])
        with partial.open("rb") as file:
            sha = hashlib.sha256()
            for piece in _pieces(file, size):
                sha.update(piece)
        if record["key"] == key and done > 0 and sha.hexdigest() == record["sha256"]:
            return {"done": done, "size": size, "state": dict(record["state"])}
    return None


def _pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    """The next ``size`` bytes of a file, or all that it has."""
    while size > 0 and (piece := file.read(min(size, 1 << 20))):
        size -= len(piece)
        yield piece


def _pyarrow() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError("writing parquet needs pyarrow: pip install 'afltool[import]'") from error
    return pyarrow


def _to_parquet(file: IO[bytes], columns: Columns, path: Path, there: bool) -> None:
    """The CSV in ``file`` as parquet; empty cells are null. ``there``: it must be so already."""
    pa = _pyarrow()
    kinds = {str: pa.string(), float: pa.float64()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
    if there:
        with path.open("rb") as before:
            _same(before, _equal(pa, before, _tables(pa, file, columns, schema), schema))
        return
    with (
        replacing(path, "parquet") as place,
        os.fdopen(place, "wb", closefd=False) as out,
        pa.parquet.ParquetWriter(out, schema) as writer,
    ):
        for table in _tables(pa, file, columns, schema):
            writer.write_table(table)


def _tables(pa: Any, file: IO[bytes], columns: Columns, schema: Any) -> Iterator[Any]:
    """The rows of a CSV as tables of `BATCH` rows."""
    file.seek(0)
    text = io.TextIOWrapper(file, "utf-8", newline="")
    try:
        rows = csv.reader(text)
        next(rows)
        while batch := list(islice(rows, BATCH)):
            cells = zip(*batch, strict=True)
            made = [
                [None if cell == "" else kind(cell) for cell in column]
                for column, kind in zip(cells, columns.values(), strict=True)
            ]
            yield pa.table(made, schema=schema)
    finally:
        text.detach()  # else the file would be closed with it


def _equal(pa: Any, before: IO[bytes], tables: Iterator[Any], schema: Any) -> bool:
    """Whether a parquet file holds the rows of ``tables``."""
    try:
        with pa.parquet.ParquetFile(before) as table:
            if not table.schema_arrow.equals(schema):
                return False
            batches = (pa.Table.from_batches([b]) for b in table.iter_batches(BATCH))
            return all(
                one is not None and one.equals(other) for other, one in zip_longest(tables, batches)
            )
    except (pa.ArrowException, OSError):
        return False
