"""Stage `local-stats`: what rows of clients become in a head, one file a client or their sum.

Counts of the rows that a solved head predicts are such statistics, too. `files.partitions` reads
rows in blocks; what is done with them is here, and what is written.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import cores, progress
from ..errors import InvalidDataError, UsageError
from ..files.features import Features
from ..files.hdf5 import recipe
from ..files.heads import HeadFile, check_fits, head_from, load_solved_head
from ..files.outputs import make_folder
from ..files.partitions import ClientRows, tell_disk
from ..files.statistics import read_statistics, weigh_statistics, write_statistics
from ..heads import HEADS
from ..heads.base import Block, Head, binding, statistics_of, sums_of
from ..machine import FOLDS
from ..options.base import flag
from ..options.statistics import LocalStats, LocalStatsOptions
from ..partitions import Assignment, chosen_clients, draw_clients
from ..progress import log
from ..values.arrays import Digest
from ..values.names import (
    Phase,
    check_apart,
    file_of_name,
    file_of_number,
    file_stem,
    numbered,
)
from ..values.statistics import ArraySpec, Client, ClientId, Context, Statistics
from .runner import Files, Job, Put, Target, carry_out

if TYPE_CHECKING:
    from ..options.evaluation import Counts


def local_stats(o: LocalStats) -> Path:
    """Compute statistics of simulated clients (``partition``) or of one real silo (``client``).

    Writes one file a client into the folder ``out``; with ``sum`` one file, their sum. Clients
    that the partition holds out are then summed into ``held_out`` instead. ``only`` names clients
    ('0-9,12') or a part of them ('I/N'); ``participation`` is the share of them that takes part.
    ``head`` is a head file, or a head's name with ``head_options``. Files that
    are there and were made of the same inputs are kept. ``cache`` among the options: a folder for
    what rows become in a head of many rounds, so that the next round starts there and not from the
    features; a run keeps that in memory. Returns ``out``; of a silo the file in that folder.
    """
    made = carry_out(job, o)
    return o.out if o.partition is not None else made[-1].path


def job(o: LocalStats, files: Files) -> Job:
    """The ``sums`` of files, with ``sum``: where a file is of the same rows, whoever owns them, for
    a head that differs only in γ or in what `solve` may change, its arrays are taken over; new
    files are added.
    """
    found = head_from(o.head, o.head_options, files.head)
    return job_of(o, o.features, found, o.out, files, o.head)


def counts(o: Counts) -> Path:
    """Count the rows that a solved head predicts right and wrong: a file for each client.

    ``by`` says the group of each row; without ``groups`` the groups are those of these rows.
    Everything else is as in `local_stats`; without ``client`` and ``partition`` the client has the
    name of the file. The counts are `files.counts.Counts` to those who read them.
    """
    made = carry_out(job_of_counts, o)
    return o.out if o.partition is not None else made[-1].path


def job_of_counts(o: Counts, files: Files) -> Job:
    from ..files.tables import column_by_row
    from ..heads.evaluation import Evaluation

    if o.partition is None and o.client is None:
        o = replace(o, client=file_stem(o.features.stem))
    groups = o.groups
    if o.by and not groups:
        ids = files.features(o.features).row_ids
        groups = tuple(sorted(set(column_by_row("--by", o.by, ids))))
    solved = load_solved_head(o.head)
    bins = None if o.bins is None else str(o.bins)
    task = Evaluation.of([solved.head], bins, groups, o.min_group)
    found = HeadFile(task, solved.header)
    return job_of(o.to(LocalStatsOptions), o.features, found, o.out, files)


def check_participation(head: Head, o: LocalStatsOptions) -> None:
    """Refuse a draw of clients for a head that needs the same ones in every round.

    So is a second draw in a layer, for a head whose layers have one sum.
    """
    needing, share = head.options.same_clients(), o.participation
    if share < 1 and o.participation_kind == "inconsistent" and not _has_two_sums(head):
        raise UsageError(
            f"--participation-kind {o.participation_kind} is for heads with two sums per layer, "
            f"such as deepafl; this {head.name} head has one: leave it out"
        )
    if share < 1 and needing is not None:
        raise UsageError(
            f"this {head.name} head needs the same clients in every round; found --participation "
            f"{share:g}: leave it out, or begin a head without {flag(needing)}"
        )


def drawn_clients(head: Head, dealt: Assignment, o: LocalStatsOptions) -> list[int]:
    """The clients that take part in the head's next phase."""
    layer, turn = head.options.place_of(Phase(head.phase() or ""))
    turn *= o.participation_kind == "inconsistent"
    return draw_clients(dealt.held_out, o.participation, o.participation_seed or 0, layer, turn)


def _has_two_sums(head: Head) -> bool:
    """Whether a layer of the head takes two sums."""
    return any(turn for _, turn in map(head.options.place_of, head.every_phase()))


WEIGHED_BYTES = 512 << 20  # of arrays; larger ones are not weighed: it takes their size in memory
OF_CLIENTS = 20  # of so many one is weighed, so that it costs a twentieth of the work


def job_of(
    o: LocalStatsOptions,
    features: Path,
    found: HeadFile | tuple[Head, Mapping[str, Any] | None],
    out: Path,
    files: Files,
    head: str = "",
) -> Job:
    """The statistics of clients for a head that is read; ``head``: its file, or its name."""
    bound, header = found
    if bound.phase() is None:
        raise UsageError(
            f"the head {head} is solved: there is nothing left to gather; what it predicts is "
            "counted by afltool evaluate --counts"
        )
    rows = files.features(features, again=not bound.options.one_round())
    if header is not None:
        check_fits(head, header, rows)
    bound = bound.bind(rows.dim, len(rows.classes))
    clients = _grouped(_dealt(rows, o, files), o, bound)
    dealt = clients.dealt
    check_participation(bound, o)
    drawn = drawn_clients(bound, dealt, o)
    chosen = chosen_clients(drawn, o.only, dealt.names)
    head_file = Path(head).name if head and header else None
    _check_min_rows(dealt, chosen, o.min_rows)
    gathering = _Gathering(clients, bound, head_file, o, files, _task(clients, bound, chosen))
    return gathering.sums(chosen, out) if o.sum else gathering.each(chosen, out)


def _task(clients: ClientRows, head: Head, chosen: Sequence[int]) -> str:
    """A name for what these rows become in a head of these options."""
    names = [clients.dealt.names[k] for k in chosen]
    task = [clients.rows.meaning, clients.partition, names]
    task += [head.name, head.options.as_dict()]
    return Digest().json("task", task).hex()[:32]


def _dealt(rows: Features, o: LocalStatsOptions, files: Files) -> ClientRows:
    if o.partition is None:
        return ClientRows.of_silo(rows, o.client)
    if o.client is not None:
        raise UsageError("--client NAME is for a file that is one client; it has no --partition")
    return files.clients(rows, o.partition)


def _grouped(clients: ClientRows, o: LocalStatsOptions, head: Head) -> ClientRows:
    """The rows with their groups, for a head that counts them by group."""
    groups = head.options.row_groups()
    if o.by is None and groups:
        raise UsageError(
            f"the group of each row is needed ({', '.join(groups[:20])}): --by TABLE:COLUMN"
        )
    if o.by is not None and not groups:
        raise UsageError("--by is for a round of evaluation with groups: leave it out")
    if o.by is None:
        return clients
    found = clients.grouped(groups, o.by)
    found.check_groups(groups, head.options.least_of_group(), o.sum)
    return found


def _check_min_rows(dealt: Assignment, chosen: Sequence[int], min_rows: int) -> None:
    sizes = dealt.sizes()[chosen]
    small = [dealt.names[k] for k, n in zip(chosen, sizes, strict=True) if n < min_rows]
    if small:
        raise InvalidDataError(
            f"{len(small)} of {len(chosen)} clients have fewer than {min_rows} rows, such as "
            f"{small[0]!r} with {int(sizes.min())}: the statistics of few rows reveal the rows; "
            "leave these clients out with --only, or lower --min-rows"
        )


@dataclass
class _Gathering:
    clients: ClientRows
    head: Head
    head_file: str | None  # its name: `solve` looks for it beside the total
    options: LocalStatsOptions
    files: Files
    task: str  # names what rounds leave for the next one

    def __post_init__(self) -> None:
        c = self.clients
        self.rows, self.dealt, self.partition = c.rows, c.dealt, c.partition

    def each(self, chosen: Sequence[int], out: Path) -> Job:
        """One file for each client."""
        if FOLDS:
            check_apart((self.dealt.names[k] for k in chosen), str(out))
        targets = [Target(out / self.file_name(k), self.recipe([k]), k) for k in chosen]

        def compute(todo: Sequence[Target], put: Put) -> None:
            make_folder(out)
            self.warn_of_few_rows([one.of for one in todo])
            if len(todo) > 1:
                tell_disk(out, len(todo), self.specs, self.rows.header)
            done = len(chosen) - len(todo)
            with progress.task("local-stats", len(chosen), "clients", done) as task:
                for _ in self._written({one.of: one for one in todo}, put):
                    task.advance()
                    progress.stop_point()

        return Job(targets, compute, keeps=False)

    def _written(self, todo: Mapping[int, Target], put: Put) -> Iterator[None]:
        """After each client whose file is written.

        All threads work on the blocks of one client; then each thread on a client of one block.
        """

        def work(one: tuple[int, Iterable[Block]]) -> None:
            k, statistics = one[0], self.gathered(one[1], [one[0]], self.dealt.names[one[0]])
            put(todo[k], partial(write_statistics, s=statistics, head_file=self.head_file))

        block = self.rows.block_rows()
        large = [k for k in todo if self.clients.sizes[k] > block]
        small = [k for k in todo if self.clients.sizes[k] <= block]
        size = sum(3 * 8 * spec.size for spec in self.specs)  # a square, and two triangles
        written = map(work, self.clients.each(large))
        sizes, room = self.clients.sizes, self.head.room
        at_once = cores.each(
            work,
            self.clients.each(small),
            lambda one: size + room(sizes[one[0]]),
            "statistics of a client",
        )
        yield from chain(written, at_once)

    def sums(self, chosen: Sequence[int], out: Path) -> Job:
        """The sum of the clients in one file; of the held-out ones in another."""
        held, held_out = [k for k in chosen if self.dealt.held_out[k]], self.options.held_out
        if held and held_out is None:
            raise UsageError(
                f"{len(held)} of these clients are held out for validation: give --held-out FILE "
                "for their sum"
            )
        kept = [k for k in chosen if not self.dealt.held_out[k]]
        outputs = [(held, held_out)] if held_out is not None else []
        targets = [Target(path, self.recipe(of), of) for of, path in (*outputs, (kept, out))]

        def compute(todo: Sequence[Target], put: Put) -> None:
            for target in todo:  # what others wait for comes last
                self._summed(target, put)

        return Job(targets, compute)

    def _summed(self, target: Target, put: Put) -> None:
        """Make one sum; with sums that runs share it is theirs, or becomes it."""
        clients, content = target.of, self.content(target.of)
        is_held = bool(clients) and bool(self.dealt.held_out[clients[0]])
        weighed = [] if is_held else list(self.weighed(clients))
        begun = time.perf_counter()
        known = self.taken(content, clients)
        statistics = self.sum_of(clients) if known is None else known
        took = round(time.perf_counter() - begun, 3) if self.partition else None
        how: dict[str, Any] = {"s": statistics, "seconds": took, "weighed": weighed}
        put(target, partial(write_statistics, head_file=self.head_file, **how))
        if self.files.sums is not None and known is None:
            digest = self.files.header(target.path, "statistics")["digest"]
            self.files.sums[content] = target.path, digest

    def weighed(self, clients: Sequence[int]) -> Iterator[int]:
        """Bytes of the files that one client in `OF_CLIENTS`, at most three, would have, evenly
        spaced by their rows: so their rows are gathered twice."""
        n = min(3, len(clients) // OF_CLIENTS)
        if not (n and self.partition):
            return
        if sum(8 * spec.size for spec in self.specs) > WEIGHED_BYTES:
            return
        by_rows = sorted(clients, key=self.clients.sizes.__getitem__)
        middles = [(2 * i + 1) * len(by_rows) // (2 * n) for i in range(n)]
        for k, blocks in self.clients.each(sorted(by_rows[i] for i in middles)):
            statistics = self.gathered(blocks, [k], self.dealt.names[k])
            yield weigh_statistics(statistics, self.recipe([k]), self.head_file)

    def recipe(self, clients: Sequence[int]) -> dict[str, Any]:
        names = sorted(self.dealt.names[k] for k in clients)
        options = {**self.options.stored("by"), "clients": names, "gamma": self.gamma}
        return recipe("local-stats", options, self.inputs)

    # What all clients share is made once: a thousand of them have a file each.

    @cached_property
    def inputs(self) -> dict[str, Any]:
        return {
            **self.rows.meaning,
            "partition": self.partition,
            "head": self.head.digest(),
            **HEADS.version(self.head.name),
            **({"groups": self.clients.groups} if self.clients.groups else {}),
        }

    @cached_property
    def context(self) -> Context:
        header = self.rows.header
        return Context(header["space"], tuple(header["classes"]), binding(self.head))

    @cached_property
    def specs(self) -> list[ArraySpec]:
        return list(self.head.array_specs(self.rows.bits).values())

    @cached_property
    def gamma(self) -> float:
        return float(self.head.options.as_dict().get("gamma", 0.0))

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

    def warn_of_few_rows(self, clients: Sequence[int]) -> None:
        """Say whose statistics give rows away, and what would keep them."""
        few = [n for k in clients if 0 < (n := self.clients.sizes[k]) < self.rows.dim]
        if few and self.head.of_sums:
            log.warning(
                "%d of %d clients have fewer rows (as few as %d) than the %d features: their "
                "statistics show the space of their rows, often the rows themselves; a session "
                "hides them from the server (docs/privacy.md)",
                len(few), len(clients), min(few), self.rows.dim,
            )  # fmt: skip

    def gathered(self, blocks: Iterable[Block], clients: Sequence[int], part: str) -> Statistics:
        """The statistics of clients, with what they may be added to; ``part`` of the task."""
        carried, folder = self.files.carried(self.task, part), self.options.cache
        if folder is not None:
            from ..files.row_cache import CarriedFolder

            carried = CarriedFolder(folder / self.task / Digest().text("part", part).hex()[:32])
        statistics, left = statistics_of(
            self.head, blocks, self.who(clients), self.context, carried
        )
        self.files.left(self.task, part, left)
        return statistics

    def sum_of(self, clients: Sequence[int]) -> Statistics:
        """Statistics of the pooled rows of some clients, streamed once."""
        held_out = bool(clients) and bool(self.dealt.held_out[clients[0]])
        with progress.task("local-stats", len(self.rows), "rows") as task:
            blocks = self.clients.pooled(clients, task)
            return self.gathered(blocks, clients, "held out" if held_out else "kept")

    def content(self, clients: Sequence[int]) -> str:
        """Everything that the pooled sums depend on, as a digest; '' where none is known.

        Which rows are summed, not whose they are: a row counts once for any client.
        """
        if self.files.sums is None:
            return ""
        digest = Digest().json("of", [self.rows.meaning, sums_of(self.head)])
        rows = self.clients.marked(clients)
        digest.array("rows", rows.astype("u1"), "|u1")
        labels = self.dealt.effective_labels[rows] % len(self.rows.classes)  # without groups
        return digest.array("labels", labels, "<i8").hex()

    def taken(self, content: str, clients: Sequence[int]) -> Statistics | None:
        """The known sums of this content, for this head, its γ and these clients.

        None where they are unknown, or their file is gone or another one now.
        """
        known = None if self.files.sums is None else self.files.sums.get(content)
        if known is None or not known[0].exists():
            return None
        statistics, header = read_statistics(known[0])
        if header["digest"] != known[1]:
            return None
        return replace(statistics, context=self.context, clients=self.who(clients))

    def who(self, clients: Sequence[int]) -> dict[ClientId, Client]:
        """The clients by name, with what is recorded of each."""
        return {
            ClientId(self.dealt.names[k], self.partition): Client(
                self.clients.sizes[k],
                self.gamma,
                self.rows.header["digest"],
                self.clients.rows_digest,
                bool(self.dealt.held_out[k]),
                self.dealt_to[int(self.dealt.held_out[k])],
            )
            for k in clients
        }
