"""Stage `local-stats`: the rows of each client → that client's statistics, one file a client.

The feature file is read in blocks. Clients are taken in groups whose rows fit into a fixed
buffer, one pass over the file for each group, so memory depends neither on the number of clients
nor on the number of rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import progress
from ..digest import Digest, canonical_json
from ..errors import InputError, InvalidDataError, MismatchError, UsageError
from ..heads.base import Block, Head, binding
from ..heads.carried import NOTHING
from ..names import check_name, file_of_name, file_of_number, numbered
from ..options import flag, made, takes
from ..options.shards import parse_shard
from ..options.statistics import LocalStatsOptions
from ..partitions.rows import Assignment
from ..privacy.protection import Protection
from ..statistics import Client, ClientId, Context, Statistics, difference
from ..store.atomic import free_space, need_space
from ..store.carried import CarriedFile
from ..store.features import Features, open_features
from ..store.hdf5 import LEAST_BYTES
from ..store.heads import head_from
from ..store.partitions import check_same_rows, load_partition
from ..store.recipes import recipe, up_to_date
from ..store.statistics import save_statistics

log = logging.getLogger("afltool")
FILE_BYTES = 16 << 10  # at most, of a client file beside arrays, classes and space
BUFFER_BYTES = 256 << 20  # rows of one group of clients, as stored


@takes(LocalStatsOptions)
def local_stats(
    features: str | Path,
    head: str | Path,
    out: str | Path,
    *,
    head_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Path:
    """Compute statistics of simulated clients (``partition``) or of one real silo (``client``).

    Writes one file a client into the folder ``out``; with ``sum`` one file, their sum. Clients
    that the partition holds out are then summed into ``held_out`` instead. ``only`` names clients
    ('0-9,12') or a part of them ('I/N'); ``participation`` is the share of them that takes part.
    ``head`` is a head file or a head's name with ``head_options``. Files that are there and were
    made of the same inputs are kept. ``cache``: a folder for what rows become in a head of many
    rounds, so that the next round starts there and not from the features. Returns ``out``; of a
    silo the file in that folder.
    """
    out, o = Path(out), made(LocalStatsOptions, options)
    with open_features(Path(features)) as rows:
        bound, header = head_from(head, head_options)
        if bound.phase() is None:
            raise UsageError(f"the head {head} is solved: there is nothing left to gather")
        if header is not None:
            _check_same_space(rows, header, head)
        bound = bound.bind(rows.dim, len(rows.classes))
        if o.partition is None:
            dealt, digests = _silo(rows, o.client), ("", "")
        else:
            dealt, digests = _dealt(rows, o.partition, o.client)
        check_participation(bound, o.participation)
        seed = o.participation_seed or 0
        draw = bound.options.draw_of(str(bound.phase()))
        drawn = draw_clients(dealt.held_out, o.participation, seed, draw)
        chosen = _chosen(drawn, o.only, len(dealt.names))
        _check_min_rows(dealt, chosen, o.min_rows)
        head_file = None if header is None else Path(head).name
        protection = Protection.of(o, binding(bound), rows.header["space"])
        job = _Job(rows, bound, dealt, *digests, head_file, overwrite, protection)
        with ExitStack() as files:
            if o.cache is not None:
                job.cache = files.enter_context(_cache(o.cache, job, chosen))
            if o.sum:
                job.write_sums(chosen, out, o.held_out)
            else:
                written = job.write_each(chosen, out)
                out = written[0] if o.partition is None else out
        return out


def check_participation(head: Head, share: float) -> None:
    """Refuse a draw of clients for a head that needs the same ones in every round."""
    needing = head.options.same_clients()
    if share < 1 and needing is not None:
        raise UsageError(
            f"this {head.name} head needs the same clients in every round; found --participation "
            f"{share:g}: leave it out, or begin a head without {flag(needing)}"
        )


def _cache(folder: Path, job: _Job, chosen: Sequence[int]) -> CarriedFile:
    """The file of what these rows become in a head of these options."""
    names = [job.dealt.names[k] for k in chosen]
    task = [job.rows.header["digest"], job.partition, names]
    task += [job.head.name, job.head.options.as_dict()]
    return CarriedFile(folder, Digest().json("task", task).hex()[:32])


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


def _silo(rows: Features, client: str | None) -> Assignment:
    """All rows are of one client."""
    if not client:
        raise UsageError(
            "say whose rows these are: --partition FILE for simulated clients, or --client NAME "
            "for a silo whose whole file is one client"
        )
    check_name(client)
    return Assignment(
        client=np.zeros(len(rows), np.int32),
        names=(client,),
        held_out=np.zeros(1, bool),
        effective_labels=rows.labels,
    )


def _dealt(
    rows: Features, path: str | Path, client: str | None
) -> tuple[Assignment, tuple[str, str]]:
    """The partition applied to the rows of this file, whatever their order, and its digests."""
    if client is not None:
        raise UsageError("--client NAME is for a file that is one client; it has no --partition")
    p = load_partition(Path(path))
    order = np.argsort(rows.row_ids, kind="stable")
    check_same_rows(rows, p, order, path)
    return p.moved(order), (p.digest(), p.rows_digest())


def draw_clients(held_out: NDArray[np.bool_], share: float, seed: int, draw: int) -> list[int]:
    """The clients of a round: draw number ``draw`` of a seed, see `Options.draw_of`.

    Every held-out client stays; with a share of 1 nothing is drawn.
    """
    if share == 1:
        return list(range(len(held_out)))
    rng = np.random.default_rng([seed, draw])
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


def _check_min_rows(dealt: Assignment, chosen: Sequence[int], min_rows: int) -> None:
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
    dealt: Assignment  # in the order of the rows
    partition: str  # its digest; "" for a silo
    rows_digest: str
    head_file: str | None  # its name: `solve` looks for it beside the total
    overwrite: bool
    protection: Protection
    cache: CarriedFile | None = None

    def write_each(self, chosen: Sequence[int], out: Path) -> list[Path]:
        """One file for each client; those that are there already are kept."""
        _make_folder(out)
        paths = {k: out / self.file_name(k) for k in chosen}
        recipes = {k: self.protection.recipe(self.recipe([k])) for k in chosen}
        todo = [k for k in chosen if not up_to_date(paths[k], recipes[k], self.overwrite)]
        self.warn_of_few_rows(todo)
        self.announce(len(todo), out)
        with progress.task("local-stats", len(chosen), "clients", len(chosen) - len(todo)) as task:
            for k, statistics in self.each(todo):
                self.protection.save(paths[k], statistics, self.recipe([k]), self.head_file)
                task.advance()
                progress.stop_point()
        return list(paths.values())

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
                took = round(time.perf_counter() - begun, 3) if self.partition else None
                save_statistics(path, found, made_by, self.head_file, took)
        return out

    def recipe(self, clients: Sequence[int]) -> dict[str, Any]:
        names = sorted(self.dealt.names[k] for k in clients)
        return recipe("local-stats", {"clients": names, "gamma": self.gamma}, self.inputs)

    # What all clients share is made once: a thousand of them have a file each.

    @cached_property
    def inputs(self) -> dict[str, Any]:
        return {
            "features": self.rows.header["digest"],
            "space": self.rows.header["space"],
            "partition": self.partition,
            "head": self.head.digest(),
        }

    @cached_property
    def context(self) -> Context:
        header = self.rows.header
        return Context(header["space"], tuple(header["classes"]), binding(self.head))

    @cached_property
    def gamma(self) -> float:
        return float(self.head.options.as_dict().get("gamma", 0.0))

    @cached_property
    def sizes(self) -> list[int]:
        """Rows of each client."""
        return [int(n) for n in self.dealt.sizes()]

    @cached_property
    def dealt_to(self) -> tuple[int, int]:
        """Clients of the partition that train, and those held out."""
        held = int(self.dealt.held_out.sum())
        return (len(self.dealt.names) - held, held) if self.partition else (0, 0)

    @cached_property
    def _numbered(self) -> bool:
        return bool(self.partition) and numbered(self.dealt.names)

    def file_name(self, k: int) -> str:
        """client-007.h5 where all clients are numbers; else from the client's name."""
        if self._numbered:
            return file_of_number(k, len(self.dealt.names))
        return file_of_name(self.dealt.names[k])

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

    def warn_of_few_rows(self, clients: Sequence[int]) -> None:
        """Say whose statistics give rows away, and what would keep them."""
        few = [n for k in clients if 0 < (n := self.sizes[k]) < self.rows.dim]
        if few and not self.protection.hides:
            log.warning(
                "%d of %d clients have fewer rows (%d at the least) than the %d features: their "
                "statistics show the space of their rows, often the rows themselves; --mask hides "
                "them from the server, --dp-epsilon adds noise (docs/privacy.md)",
                len(few), len(clients), min(few), self.rows.dim,
            )  # fmt: skip

    def no_rows(self) -> Block:
        return self.rows.rows(0, 0), self.dealt.effective_labels[:0]

    def gathered(self, blocks: Iterable[Block], clients: Sequence[int], part: str) -> Statistics:
        """The statistics of clients, with what they may be added to; ``part`` of the cache."""
        carried = NOTHING if self.cache is None else self.cache.of(part)
        rows = self.protection.blocks(blocks)
        found, _ = self.head.gather(rows, self.who(clients), carried)
        return replace(found, context=self.context)

    def sum_of(self, clients: Sequence[int]) -> Statistics:
        """Statistics of the pooled rows of some clients, streamed once."""
        wanted = np.zeros(len(self.dealt.names), dtype=bool)
        wanted[list(clients)] = True
        with progress.task("local-stats", len(self.rows), "rows") as task:
            held_out = bool(clients) and bool(self.dealt.held_out[clients[0]])
            part = "held out" if held_out else "kept"
            return self.gathered(self.selected(wanted[self.dealt.client], task), clients, part)

    def each(self, clients: Sequence[int]) -> Iterator[tuple[int, Statistics]]:
        """Statistics of each client in turn, reading the file once for a group of them."""
        for group in self.groups(clients):
            if len(group) == 1:
                blocks = self.selected(self.dealt.client == group[0], None)
                yield group[0], self.gathered(blocks, group, self.dealt.names[group[0]])
                continue
            values, rows = self.read(group)
            owner, labels = self.dealt.client[rows], self.dealt.effective_labels[rows]
            order = np.argsort(owner, kind="stable")
            starts = np.searchsorted(owner[order], group)
            for k, start in zip(group, starts, strict=True):
                mine = order[start : start + self.sizes[k]]
                block = self.rows.wrap(values[mine]), labels[mine]
                yield k, self.gathered([block], [k], self.dealt.names[k])

    def groups(self, clients: Sequence[int]) -> Iterator[list[int]]:
        """Clients in order, as many together as their rows fit into the buffer."""
        row_bytes = self.rows.dim * self.rows.data.dtype.itemsize
        budget = max(1, BUFFER_BYTES // row_bytes)
        group: list[int] = []
        held = 0
        for k in clients:
            if group and held + self.sizes[k] > budget:
                yield group
                group, held = [], 0
            group.append(k)
            held += self.sizes[k]
        if group:
            yield group

    def read(self, group: Sequence[int]) -> tuple[NDArray[Any], NDArray[np.intp]]:
        """The rows of a group of clients and their numbers, by one pass over the file."""
        wanted = np.zeros(len(self.dealt.names), dtype=bool)
        wanted[list(group)] = True
        rows = np.flatnonzero(wanted[self.dealt.client])
        values = np.empty((len(rows), self.rows.dim), dtype=self.rows.data.dtype)
        for start, block in self.rows.stored_blocks():
            low, high = np.searchsorted(rows, (start, start + len(block)))
            values[low:high] = block[rows[low:high] - start]
        return values, rows

    def selected(self, mask: NDArray[np.bool_], task: progress.Task | None) -> Iterable[Block]:
        """The marked rows in blocks; at least one block, which may be empty."""
        yield self.no_rows()
        for start, block in self.rows.stored_blocks():
            progress.stop_point()
            here = np.flatnonzero(mask[start : start + len(block)])
            if len(here):
                X = self.rows.wrap(block if len(here) == len(block) else block[here])
                yield X, self.dealt.effective_labels[start + here]
            if task is not None:
                task.advance(len(block))

    def who(self, clients: Sequence[int]) -> dict[ClientId, Client]:
        """The clients by name, with what is recorded of each."""
        return {
            ClientId(self.dealt.names[k], self.partition): Client(
                self.sizes[k],
                self.gamma,
                self.rows.header["digest"],
                self.rows_digest,
                bool(self.dealt.held_out[k]),
                self.dealt_to[int(self.dealt.held_out[k])],
            )
            for k in clients
        }


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {out}: {error.strerror}") from None
