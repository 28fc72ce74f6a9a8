"""Partition files, and the rows of the clients that they deal.

Clients are read in groups whose rows fit into a fixed buffer, one pass over the file for each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import progress
from ..errors import InvalidDataError, MismatchError, UsageError
from ..partitions import Assignment, Partition
from ..values.arrays import Digest
from ..values.names import check_name
from . import hdf5, schema
from .features import Features
from .schema import provenance

if TYPE_CHECKING:
    from ..heads.base import Block

BUFFER_BYTES = 256 << 20  # rows of one group of clients, as stored


def save_partition(path: Path, p: Partition, made_by: Mapping[str, Any]) -> Path:
    """Write a partition file."""
    header = {
        "digest": p.digest(),
        "recipe": dict(made_by),
        "provenance": provenance(),
        "names": list(p.names),
        "held_out": np.flatnonzero(p.held_out).tolist(),
        "classes": list(p.classes),
        "scheme": dict(p.scheme),
        "rows_digest": p.rows_digest(),
    }
    arrays = {schema.ROW_IDS: p.row_ids, schema.LABELS: p.labels, schema.CLIENT: p.client}
    if not np.array_equal(p.labels, p.effective_labels):
        arrays[schema.EFFECTIVE_LABELS] = p.effective_labels
    hdf5.write_file(path, "partition", header, arrays)
    return path


def load_partition(path: Path) -> Partition:
    """Read a partition file; its digest is checked."""
    header, arrays = hdf5.read_file(path, "partition")
    with hdf5.damage_as_error(path):
        held_out = np.zeros(len(header["names"]), dtype=bool)
        held_out[header["held_out"]] = True
        p = Partition(
            row_ids=arrays[schema.ROW_IDS],
            labels=arrays[schema.LABELS],
            effective_labels=arrays.get(schema.EFFECTIVE_LABELS, arrays[schema.LABELS]),
            client=arrays[schema.CLIENT],
            names=tuple(header["names"]),
            held_out=held_out,
            classes=tuple(header["classes"]),
            scheme=header["scheme"],
        )
    hdf5.check_digest(path, header, p.digest())
    rows, classes = len(p.row_ids), len(p.classes)
    limits = ((p.client, len(p.names)), (p.labels, classes), (p.effective_labels, classes))
    for numbers, end in limits:
        if len(numbers) != rows or (rows and not 0 <= numbers.min() <= numbers.max() < end):
            raise hdf5.damage_message(
                path, f"expected a number from 0 to {end - 1} for each of {rows} rows"
            )
    return p


def export_partition(path: Path, p: Partition, table: Path, overwrite: bool = False) -> Path:
    """Write the partition of a file as CSV: row, client, label, held_out."""
    from .tables import check_table, write_records

    check_table(table)
    try:
        ids = [i.decode() for i in p.row_ids.tolist()]
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{path}: the row id {error.object!r} is not UTF-8") from None
    columns = {
        "row": ids,
        "client": [p.names[k] for k in p.client.tolist()],
        "label": p.effective_labels,
        "held_out": p.held_out[p.client],
    }
    return write_records(columns, table, overwrite)


def load_matching_partition(rows: Features, path: str | Path) -> Partition:
    """Read a partition file; `MismatchError` if it is of other rows than the feature file."""
    p = load_partition(Path(path))
    if rows.rows_digest() == p.rows_digest() and rows.classes == p.classes:
        return p
    theirs, ours = (f"{len(one.labels)} rows of {len(one.classes)} classes" for one in (rows, p))
    raise MismatchError(
        f"the partition {path} ({ours}) is of other rows, labels or classes than {rows.path} "
        f"({theirs}): make a partition of this file"
    )


# ---------------------------------------------------------------- clients


@dataclass(frozen=True)
class ClientRows:
    """The rows of a feature file and whose they are, ``dealt`` in the order of the rows."""

    rows: Features
    dealt: Assignment
    partition: str = ""  # a digest, as the next one; empty for a silo
    rows_digest: str = ""
    groups: str = ""  # a digest of the groups that labels tell, too, as class + classes · group

    @classmethod
    def from_partition(cls, rows: Features, path: Path) -> ClientRows:
        """A partition file applied to the rows, whatever their order."""
        p = load_matching_partition(rows, path)
        return cls(rows, p.moved(rows.by_id), p.digest(), p.rows_digest())

    @property
    def nbytes(self) -> int:
        return self.dealt.client.nbytes + self.dealt.effective_labels.nbytes

    @classmethod
    def from_single_client(cls, rows: Features, client: str | None) -> ClientRows:
        """All rows are of one client."""
        if not client:
            raise UsageError("say whose rows these are: --partition FILE, or --client NAME")
        check_name(client)
        owner, held = np.zeros(len(rows), np.int32), np.zeros(1, bool)
        names, labels = (client,), rows.labels
        dealt = Assignment(client=owner, names=names, held_out=held, effective_labels=labels)
        return cls(rows, dealt)

    def grouped(self, names: Sequence[str], by: str) -> ClientRows:
        """The same rows with the group of each in its label, by a table: TABLE:COLUMN.

        Raises `InvalidDataError` for a group not among ``names``; else as `tables.column_by_row`.
        """
        from .tables import column_by_row

        values = column_by_row("--group-by", by, self.rows.row_ids)
        if unknown := sorted(set(values) - set(names)):
            text = f"{by} has the group {unknown[0]!r}, which is not one of {', '.join(names)}"
            raise InvalidDataError(f"{text}: every site counts the same groups")
        at = np.array([list(names).index(value) for value in values], dtype=np.int64)
        labels = self.dealt.effective_labels + at * len(self.rows.classes)
        digest = Digest().array("groups", at, "<i8").hex()
        return replace(self, dealt=replace(self.dealt, effective_labels=labels), groups=digest)

    def check_groups(self, names: Sequence[str], least: int, pooled: bool) -> None:
        """Refuse clients, or a ``iter_pooled`` sum, of few rows of a group: counts tell of them."""
        at = self.dealt.effective_labels // len(self.rows.classes)
        owner = np.zeros_like(self.dealt.client) if pooled else self.dealt.client
        pairs, sizes = np.unique(np.stack([owner, at]), axis=1, return_counts=True)
        for (client, group), n in zip(pairs.T[sizes < least], sizes[sizes < least], strict=True):
            who = "the sum" if pooled else f"client {self.dealt.names[client]!r}"
            found = f"{who} has {n} rows of the group {names[group]!r}"
            fix = "join groups, or agree on another --min-group"
            raise InvalidDataError(f"{found}; expected none or at least {least}: {fix}")

    @cached_property
    def sizes(self) -> list[int]:
        """Rows of each client."""
        return [int(n) for n in self.dealt.sizes()]

    def empty_block(self) -> Block:
        """A block without rows."""
        return self.rows.rows(0, 0), self.dealt.effective_labels[:0]

    def rows_of_clients(self, clients: Sequence[int]) -> NDArray[np.bool_]:
        """Which rows are of some clients, bool (n,)."""
        wanted = np.zeros(len(self.dealt.names), dtype=bool)
        wanted[list(clients)] = True
        return wanted[self.dealt.client]

    def iter_pooled(
        self, clients: Sequence[int], task: progress.Task | None = None
    ) -> Iterable[Block]:
        """The rows of clients in blocks, in the file's order; at least one, which may be empty."""
        mask = self.rows_of_clients(clients)
        yield self.empty_block()
        for start, block in self.rows.iter_stored():
            progress.stop_point()
            here = np.flatnonzero(mask[start : start + len(block)])
            if len(here):
                X = self.rows.wrap(block if len(here) == len(block) else block[here])
                yield X, self.dealt.effective_labels[start + here]
            if task is not None:
                task.advance(len(block))

    def iter_clients(self, clients: Sequence[int]) -> Iterator[tuple[int, Iterable[Block]]]:
        """The blocks of each client in turn, reading the file once for a group of them."""
        for group in self._groups(clients):
            if len(group) == 1:
                yield group[0], self.iter_pooled(group)
                continue
            values, rows = self._read(group)
            owner, labels = self.dealt.client[rows], self.dealt.effective_labels[rows]
            order, step = np.argsort(owner, kind="stable"), self.rows.block_rows()
            starts = np.searchsorted(owner[order], group)
            for k, start in zip(group, starts, strict=True):
                mine = order[start : start + self.sizes[k]]
                parts = [mine[at : at + step] for at in range(0, max(len(mine), 1), step)]
                yield k, [(self.rows.wrap(values[part]), labels[part]) for part in parts]

    def _groups(self, clients: Sequence[int]) -> Iterator[list[int]]:
        """Clients in order, as many together as their rows fit into the buffer."""
        budget = max(1, BUFFER_BYTES // (self.rows.dim * self.rows.data.dtype.itemsize))
        group, held = list[int](), 0
        for k in clients:
            if group and held + self.sizes[k] > budget:
                yield group
                group, held = [], 0
            group.append(k)
            held += self.sizes[k]
        if group:
            yield group

    def _read(self, group: Sequence[int]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The rows of a group of clients and their numbers, by one pass over the file."""
        rows = np.flatnonzero(self.rows_of_clients(group))
        values = np.empty((len(rows), self.rows.dim), dtype=self.rows.data.dtype)
        for start, block in self.rows.iter_stored():
            low, high = np.searchsorted(rows, (start, start + len(block)))
            values[low:high] = block[rows[low:high] - start]
        return values, rows
