"""Stage `local-stats`: the rows of each client → that client's statistics, one file a client.

The feature file is read in blocks. Clients are taken in groups whose rows fit into a fixed
buffer, one pass over the file for each group, so memory depends neither on the number of clients
nor on the number of rows.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from .. import progress
from ..digest import canonical_json
from ..errors import InputError, InvalidDataError, MismatchError, UsageError
from ..files import (
    Partition,
    head_from,
    load_partition,
    recipe,
    rows_digest,
    save_statistics,
    up_to_date,
)
from ..heads.base import Block, Head
from ..statistics import Client, ClientId, Context, Statistics, difference
from ..store.atomic import free_space, need_space
from ..store.features import Features, open_features
from ..store.hdf5 import LEAST_BYTES
from ._carrying import Carrying, Numbered
from ._options import parse_shard

log = logging.getLogger("afltool")
FILE_BYTES = 16 << 10  # at most, of a client file beside arrays, classes and space
BUFFER_BYTES = 256 << 20  # rows of one group of clients, as stored


def local_stats(
    features: str | Path,
    head: str | Path,
    out: str | Path,
    *,
    partition: str | Path | None = None,
    client: str | None = None,
    only: str | None = None,
    participation: float = 1.0,
    participation_seed: int = 0,
    sum: bool = False,
    held_out: str | Path | None = None,
    min_rows: int = 0,
    head_options: Mapping[str, Any] | None = None,
    cache: str | Path | None = None,
    overwrite: bool = False,
) -> Path:
    """Compute statistics of simulated clients (``partition``) or of one real silo (``client``).

    Writes one file a client into the folder ``out``; with ``sum`` one file, their sum. Clients
    that the partition holds out are then summed into ``held_out`` instead. ``only`` names clients
    ('0-9,12') or a part of them ('I/N'); ``participation`` is the share of them that takes part.
    ``head`` is a head file or a head's name with ``head_options``. Files that are there and were
    made of the same inputs are kept. ``cache``: a folder for what rows become in a head of many
    rounds, so that the next round starts there and not from the features. Returns ``out``.
    """
    out = Path(out)
    with open_features(Path(features)) as rows:
        bound, header = head_from(head, head_options)
        if bound.phase() is None:
            raise UsageError(f"the head {head} is solved: there is nothing left to gather")
        if header is not None:
            _check_same_space(rows, header, head)
        bound = bound.bind(rows.dim, len(rows.classes))
        dealt = _whole_file(rows, client) if partition is None else _dealt(rows, partition, client)
        if not 0 < participation <= 1:
            raise UsageError(f"--participation is above 0, at most 1; found {participation}")
        if participation < 1 and bound.same_clients:
            raise UsageError(
                f"this {bound.name} head needs the same clients in every round; found "
                f"--participation {participation:g}: leave it out, or begin a head without "
                "--incremental"
            )
        drawn = draw_clients(dealt.held_out, participation, participation_seed, bound.phase())
        chosen = _chosen(drawn, only, len(dealt.names))
        _check_min_rows(dealt, chosen, min_rows)
        head_file = None if header is None else str(Path(head).resolve())
        carrying = None if cache is None else _carrying(Path(cache), rows, dealt, chosen, bound)
        job = _Job(rows, bound, dealt, head_file, carrying, overwrite)
        if sum:
            job.write_sums(chosen, out, None if held_out is None else Path(held_out))
        elif held_out is not None:
            raise UsageError("--held-out belongs to --sum (or to aggregate)")
        else:
            job.write_each(chosen, out)
        if carrying is not None:
            carrying.finish()
        return out


def _carrying(
    cache: Path, rows: Features, dealt: _Dealt, chosen: Sequence[int], head: Head
) -> Carrying:
    names = [dealt.names[k] for k in chosen]
    return Carrying(cache, [rows.header["digest"], dealt.partition, names], head, len(rows))


def _check_same_space(rows: Features, header: Mapping[str, Any], head: str | Path) -> None:
    """A head that was made of other features must be of their space; of a total, of its classes."""
    if header["space"] is None:
        return
    known = [key for key in ("space", "classes") if header[key]]
    ours = {key: header[key] for key in known}
    theirs = {key: rows.header[key] for key in known}
    where = difference(ours, theirs)
    if where:
        raise MismatchError(
            f"{rows.path} does not fit the head {head}: {where}; extract it with the backbone, "
            "options and classes of the head"
        )


@dataclass(frozen=True)
class _Dealt:
    """Rows of one feature file with their owners: ``owner`` (n,) indexes ``names``."""

    owner: NDArray[np.int32]
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    held_out: NDArray[np.bool_]
    partition: str = ""
    rows_digest: str = ""

    def sizes(self) -> NDArray[np.int64]:
        return np.bincount(self.owner, minlength=len(self.names))


def _whole_file(rows: Features, client: str | None) -> _Dealt:
    if not client:
        raise UsageError(
            "say whose rows these are: --partition FILE for simulated clients, or --client NAME "
            "for a silo whose whole file is one client"
        )
    owner = np.zeros(len(rows), dtype=np.int32)
    return _Dealt(owner, rows.labels, (client,), np.zeros(1, dtype=bool))


def _dealt(rows: Features, path: str | Path, client: str | None) -> _Dealt:
    """The partition applied to the rows of this file, whatever their order."""
    if client is not None:
        raise UsageError("--client NAME is for a file that is one client; it has no --partition")
    p = load_partition(Path(path))
    order = np.argsort(rows.row_ids, kind="stable")
    _check_same_rows(rows, p, order, path)
    owner, labels = np.empty(len(rows), np.int32), np.empty(len(rows), np.int64)
    owner[order], labels[order] = p.client, p.effective_labels
    return _Dealt(owner, labels, p.names, p.held_out, p.digest(), p.rows_digest())


def _check_same_rows(
    rows: Features, p: Partition, order: NDArray[np.int64], path: str | Path
) -> None:
    ids, labels = rows.row_ids[order], rows.labels[order]
    if rows_digest(ids, labels) == p.rows_digest() and rows.classes == p.classes:
        return
    if rows.classes != p.classes:
        what = f"the classes differ ({len(rows.classes)} here, {len(p.classes)} there)"
    elif len(ids) != len(p.row_ids):
        what = f"{len(ids)} rows here, {len(p.row_ids)} there"
    elif not np.array_equal(ids, p.row_ids):
        at = int(np.flatnonzero(ids != p.row_ids)[0])
        what = f"row {ids[at].decode()!r} here is {p.row_ids[at].decode()!r} there"
    else:
        what = f"{int((labels != p.labels).sum())} rows have another label"
    raise MismatchError(
        f"the partition {path} is of other rows than {rows.path}: {what}; make a partition of "
        "this file, or give the file that it was made of"
    )


def draw_clients(
    held_out: NDArray[np.bool_], share: float, seed: int, phase: str | None
) -> list[int]:
    """The clients of a round: one draw for each layer of a head, by the number of its phase.

    Every held-out client stays; with a share of 1 nothing is drawn.
    """
    if share == 1:
        return list(range(len(held_out)))
    layer = re.search(r"\d+$", phase or "")
    rng = np.random.default_rng([seed, int(layer[0]) if layer else 0])
    training = np.flatnonzero(~held_out)
    drawn = rng.permutation(training)[: max(1, round(share * len(training)))]
    return sorted([*drawn.tolist(), *np.flatnonzero(held_out).tolist()])


def _chosen(drawn: Sequence[int], only: str | None, clients: int) -> list[int]:
    """Those of the drawn clients that ``only`` names by number, or part I of N of them."""
    if only is None:
        return list(drawn)
    if "/" in only:
        part, parts = parse_shard(only, "--only")
        n = len(drawn)
        return list(drawn[n * part // parts : n * (part + 1) // parts])
    named = set(parse_ranges(only, clients))
    return [k for k in drawn if k in named]


def parse_ranges(text: str, clients: int) -> list[int]:
    """Indices named by '0-9,12': ascending, each once.

    >>> parse_ranges("0-2,5", 10)
    [0, 1, 2, 5]
    """
    found: set[int] = set()
    for part in text.split(","):
        low, dash, high = part.strip().partition("-")
        try:
            first, last = int(low), int(high if dash else low)
        except ValueError:
            raise UsageError(
                f"--only takes clients such as 0-9 or 3,7-8, or a part I/N; found {text!r}"
            ) from None
        if not 0 <= first <= last < clients:
            raise UsageError(
                f"--only {text}: the {clients} clients are numbered 0 to {clients - 1}"
            )
        found.update(range(first, last + 1))
    return sorted(found)


def _check_min_rows(dealt: _Dealt, chosen: Sequence[int], min_rows: int) -> None:
    sizes = dealt.sizes()[chosen]
    small = [dealt.names[k] for k, n in zip(chosen, sizes, strict=True) if n < min_rows]
    if small:
        raise InvalidDataError(
            f"{len(small)} of {len(chosen)} clients have fewer than {min_rows} rows, such as "
            f"{small[0]!r} with {int(sizes.min())}: the statistics of few rows give the rows away; "
            "leave these clients out with --only, or lower --min-rows"
        )


@dataclass
class _Job:
    rows: Features
    head: Head
    dealt: _Dealt
    head_file: str | None  # where `solve` finds what the head has learned so far
    carrying: Carrying | None
    overwrite: bool

    def write_each(self, chosen: Sequence[int], out: Path) -> Path:
        """One file for each client; those that are there already are kept."""
        _make_folder(out)
        paths = {k: out / self.file_name(k) for k in chosen}
        todo = [k for k in chosen if not up_to_date(paths[k], self.recipe([k]), self.overwrite)]
        self.announce(len(todo), out)
        with progress.task("local-stats", len(chosen), "clients", len(chosen) - len(todo)) as task:
            for k, statistics in self.each(todo):
                save_statistics(paths[k], statistics, self.recipe([k]), self.head_file)
                task.advance()
                progress.stop_point()
        return out

    def write_sums(self, chosen: Sequence[int], out: Path, held_out: Path | None) -> Path:
        """The sum of the clients in one file; of the held-out ones in another."""
        held = [k for k in chosen if self.dealt.held_out[k]]
        if held and held_out is None:
            raise UsageError(
                f"{len(held)} of these clients are held out for validation: give --held-out FILE "
                "for their sum"
            )
        kept = [k for k in chosen if not self.dealt.held_out[k]]
        for clients, path in ((held, held_out), (kept, out)):  # what others wait for comes last
            made_by = self.recipe(clients)
            if path is not None and not up_to_date(path, made_by, self.overwrite):
                begun = time.perf_counter()
                found = self.sum_of(clients)
                took = round(time.perf_counter() - begun, 3)
                save_statistics(path, found, made_by, self.head_file, took)
        return out

    def recipe(self, clients: Sequence[int]) -> dict[str, Any]:
        names = sorted(self.dealt.names[k] for k in clients)
        options = {"clients": names, "gamma": self.gamma}
        inputs = {
            "features": self.rows.header["digest"],
            "space": self.rows.header["space"],
            "partition": self.dealt.partition,
            "head": self.head.digest(),
        }
        return recipe("local-stats", options, inputs)

    @property
    def gamma(self) -> float:
        return float(self.head.options.as_dict().get("gamma", 0.0))

    def file_name(self, k: int) -> str:
        """client-007.h5, or a safe form of the name of a silo."""
        name = self.dealt.names[k]
        if name == str(k) and self.dealt.partition:
            return f"client-{k:0{len(str(len(self.dealt.names) - 1))}d}.h5"
        return f"client-{quote(name, safe=' ')}.h5"

    def announce(self, files: int, out: Path) -> None:
        """Say how much disk will be taken before it is, and refuse when there is less."""
        if files < 2:
            return
        shapes = self.head.shapes(self.rows.bits).values()
        beside = FILE_BYTES + len(canonical_json(self.rows.header))
        size = files * (beside + sum(8 * prod(shape) for shape, _ in shapes))
        # Integers are stored as narrow as their values allow, perhaps compressed; reals are not.
        least = files * (LEAST_BYTES + sum(8 * prod(s) for s, kind in shapes if kind == "f"))
        log.info(
            "local-stats: %d files of at most %.1f MB, %.1f MB in all, into %s",
            files, size / files / 1e6, size / 1e6, out,
        )  # fmt: skip
        try:
            need_space(out, least, f"{files} client files, at the least")
        except InputError as error:
            raise InputError(f"{error}; or add the clients up at once with --sum") from None
        free = free_space(out)
        if size > free:
            log.warning(
                "the disk of %s has %.1f MB free, which may not suffice: files that are finished "
                "are kept, the same command goes on; --sum adds the clients up at once",
                out, free / 1e6,
            )  # fmt: skip

    def no_rows(self) -> Block:
        return self.rows.rows(0, 0), self.dealt.labels[:0]

    def collect(self, blocks: Iterable[Numbered]) -> Statistics:
        if self.carrying is not None:
            return self.carrying.collect(blocks)
        return self.head.collect(block for _, block in blocks)

    def sum_of(self, clients: Sequence[int]) -> Statistics:
        """Statistics of the pooled rows of some clients, streamed once."""
        wanted = np.zeros(len(self.dealt.names), dtype=bool)
        wanted[list(clients)] = True
        with progress.task("local-stats", len(self.rows), "rows") as task:
            total = self.collect(self.selected(wanted[self.dealt.owner], task))
        return self.labelled(total, clients)

    def each(self, clients: Sequence[int]) -> Iterator[tuple[int, Statistics]]:
        """Statistics of each client in turn, reading the file once for a group of them."""
        for group in self.groups(clients):
            if len(group) == 1:
                blocks = self.selected(self.dealt.owner == group[0], None)
                yield group[0], self.labelled(self.collect(blocks), group)
                continue
            values, rows = self.gather(group)
            owner, labels = self.dealt.owner[rows], self.dealt.labels[rows]
            for k in group:
                mine = np.flatnonzero(owner == k)
                block = self.rows.wrap(values[mine]), labels[mine]
                yield k, self.labelled(self.collect([(rows[mine], block)]), [k])

    def groups(self, clients: Sequence[int]) -> Iterator[list[int]]:
        """Clients in order, as many together as their rows fit into the buffer."""
        row_bytes = self.rows.dim * self.rows.data.dtype.itemsize
        budget = max(1, BUFFER_BYTES // row_bytes)
        sizes = self.dealt.sizes()
        group: list[int] = []
        held = 0
        for k in clients:
            if group and held + sizes[k] > budget:
                yield group
                group, held = [], 0
            group.append(k)
            held += int(sizes[k])
        if group:
            yield group

    def gather(self, group: Sequence[int]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The rows of a group of clients and their numbers, by one pass over the file."""
        wanted = np.zeros(len(self.dealt.names), dtype=bool)
        wanted[list(group)] = True
        rows = np.flatnonzero(wanted[self.dealt.owner])
        values = np.empty((len(rows), self.rows.dim), dtype=self.rows.data.dtype)
        for start, block in self.rows.stored_blocks():
            low, high = np.searchsorted(rows, (start, start + len(block)))
            values[low:high] = block[rows[low:high] - start]
        return values, rows

    def selected(self, mask: NDArray[np.bool_], task: progress.Task | None) -> Iterable[Numbered]:
        """The marked rows in blocks; at least one block, be it empty."""
        yield np.arange(0), self.no_rows()
        for start, block in self.rows.stored_blocks():
            progress.stop_point()
            here = np.flatnonzero(mask[start : start + len(block)])
            if len(here):
                X = self.rows.wrap(block if len(here) == len(block) else block[here])
                yield start + here, (X, self.dealt.labels[start + here])
            if task is not None:
                task.advance(len(block))

    def labelled(self, statistics: Statistics, clients: Sequence[int]) -> Statistics:
        """The same statistics, with whose they are and what they may be added to."""
        header, sizes = self.rows.header, self.dealt.sizes()
        held = int(self.dealt.held_out.sum())
        dealt_to = (len(self.dealt.names) - held, held) if self.dealt.partition else (0, 0)
        context = Context(header["space"], tuple(header["classes"]), self.head.binding())
        who = {
            ClientId(self.dealt.names[k], self.dealt.partition): Client(
                int(sizes[k]),
                self.gamma,
                header["digest"],
                self.dealt.rows_digest,
                bool(self.dealt.held_out[k]),
                dealt_to[int(self.dealt.held_out[k])],
            )
            for k in clients
        }
        return replace(statistics, context=context, clients=who)


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {out}: {error.strerror}") from None
