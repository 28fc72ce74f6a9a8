"""Stage `local-stats`: what rows of clients become in a head, one file a client or their sum.

Counts of the rows that a solved head predicts are such statistics, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .. import parallel, progress
from ..errors import InvalidDataError, UsageError
from ..files.hdf5 import recipe
from ..files.heads import check_fits, head_from, load_solved_head
from ..files.outputs import make_folder
from ..files.partitions import ClientRows
from ..files.recipes import Target
from ..files.statistics import write_statistics
from ..heads import HEADS
from ..heads.base import Block, Head, binding, statistics_of
from ..options.base import flag
from ..options.statistics import LocalStats, LocalStatsOptions
from ..partitions import chosen_clients, draw_clients
from ..progress import log
from ..system import FOLDS
from ..values import names as naming
from ..values.arrays import Digest
from ..values.statistics import Client, ClientId, Context, Statistics
from ._direct import as_features
from .runner import Files, Job, StageFunction

if TYPE_CHECKING:
    from ..options.evaluation import Counts


@StageFunction
def local_stats(o: LocalStats, files: Files) -> Job:
    """Compute statistics of simulated clients (``partition``) or of one real silo (``client``).

    Writes one file a client into the folder ``out``; with ``sum`` one file, their sum. Clients
    that the partition holds out are then summed into ``held_out`` instead. Gives ``out``; of a silo
    the file in that folder.
    """
    found = head_from(o.head, o.head_options, files.head)  # a wrong one is refused before rows
    head = Path(str(o.head))
    o = as_features(o, head if head.is_file() else None)
    return make_job(o, found, files)


@StageFunction
def counts(o: Counts, files: Files) -> Job:
    """Count the rows that a solved head predicts right and wrong: a file for each client.

    Without ``groups`` the groups are those of these rows, without ``client`` and ``partition`` the
    client has the name of the file. The counts are `files.counts.Counts` to those who read them.
    """
    from ..files.tables import column_by_row
    from ..heads.evaluation import Evaluation

    o = as_features(o, o.head)
    if o.partition is None and o.client is None:
        o = replace(o, client=naming.file_stem(o.features.stem))
    groups = o.groups
    if o.group_by and not groups:
        ids = files.features(o.features).row_ids
        groups = tuple(sorted(set(column_by_row("--group-by", o.group_by, ids))))
    solved = load_solved_head(o.head)
    bins = None if o.bins is None else str(o.bins)
    task = Evaluation.of([solved.head], bins, groups, o.min_group)
    return make_job(o, (cast(Head, task), solved.header), files, o.group_by)


def make_job(
    o: LocalStats | Counts,
    found: tuple[Head, Mapping[str, Any] | None],
    files: Files,
    by: str | None = None,
) -> Job:
    """The statistics of clients for a head; ``by``: the groups of rows, where it counts them."""
    head, header = found
    if head.phase() is None:
        raise UsageError(
            f"the head {o.head} is solved: there is nothing left to gather; what it predicts is "
            "counted by afltool evaluate --counts"
        )
    rows = files.features(o.features, again=not head.one_round)
    if header is not None:
        check_fits(o.head, header, rows)
    if o.partition is None:
        clients = ClientRows.from_single_client(rows, o.client)
    else:
        clients = files.clients(rows, o.partition)
    head = head.bind(rows.dim, len(rows.classes))
    if by is not None:
        clients = clients.grouped(head.groups, by)
        clients.check_groups(head.groups, head.options.as_dict()["min_group"], o.sum)
    check_participation(head, o)
    # A draw for each layer of the head; of its second sums it may be another one.
    layer, turn = head.options.get_layer(naming.Phase(head.phase() or ""))
    turn *= o.participation_kind == "inconsistent"
    held = clients.dealt.held_out
    drawn = draw_clients(held, o.participation, o.participation_seed or 0, layer, turn)
    chosen = chosen_clients(drawn, o.only, clients.dealt.names)
    _check_min_rows(clients, chosen, o.min_rows)
    gathering = _Gathering(clients, head, o, files, [clients.dealt.names[k] for k in chosen])
    return gathering.sums(chosen) if o.sum else gathering.write_clients(chosen)


def check_participation(head: Head, o: LocalStatsOptions) -> None:
    """Refuse a draw of clients for a head that needs the same ones in every round.

    So is a second draw in a layer, for a head whose layers have one sum.
    """
    needing, share = head.options.same_clients, o.participation
    two_sums = any(turn for _, turn in map(head.options.get_layer, head.schedule()))
    if share < 1 and o.participation_kind == "inconsistent" and not two_sums:
        raise UsageError(
            f"--participation-kind inconsistent is for heads with two sums per layer, such as "
            f"deepafl; this {head.name} head has one: leave it out"
        )
    if share < 1 and needing is not None:
        raise UsageError(
            f"this {head.name} head needs the same clients in every round; found --participation "
            f"{share:g}: leave it out, or begin a head without {flag(needing)}"
        )


def _check_min_rows(clients: ClientRows, chosen: Sequence[int], least: int) -> None:
    small = [k for k in chosen if clients.sizes[k] < least]
    if small:
        raise InvalidDataError(
            f"{len(small)} of {len(chosen)} clients have fewer than {least} rows, such as "
            f"{clients.dealt.names[small[0]]!r} with {clients.sizes[small[0]]}: the statistics of "
            "few rows reveal the rows; leave these clients out with --only, or lower --min-rows"
        )


@dataclass
class _Gathering:
    """Rows of clients, among them those with the ``names``, that become sums."""

    clients: ClientRows
    head: Head
    options: LocalStats | Counts
    files: Files
    names: list[str]

    def __post_init__(self) -> None:
        c, head = self.clients, self.head
        self.rows, self.dealt, header = c.rows, c.dealt, c.rows.header
        self.context = Context(header["space"], tuple(header["classes"]), binding(head))
        self.gamma = float(head.options.as_dict().get("gamma", 0.0))
        about = [self.rows.meaning, c.partition, self.names, head.name, head.options.as_dict()]
        self.task = Digest().json("task", about).hex()[:32]  # of what rounds leave for the next one
        self.inputs = {
            **self.rows.meaning,
            "partition": c.partition,
            "head": head.digest(),
            **HEADS.version(head.name),
            **({"groups": c.groups} if c.groups else {}),
        }

    def recipe(self, clients: Sequence[int]) -> dict[str, Any]:
        names = sorted(self.dealt.names[k] for k in clients)
        o = self.options
        chosen = (
            o.recipe_options()
            if isinstance(o, LocalStats)
            else o.to(LocalStatsOptions).recipe_options()
        )
        options = {**chosen, "clients": names, "gamma": self.gamma}
        return recipe("local-stats", options, self.inputs)

    def list_clients(self, clients: Sequence[int]) -> dict[ClientId, Client]:
        """The clients by name, with what is recorded of each."""
        c, source, found = self.clients, self.rows.header["digest"], {}
        apart = self.dealt.held_out
        # Of a partition, how many clients train, and how many are held out.
        of = (int((~apart).sum()), int(apart.sum())) if c.partition else (0, 0)
        for k in clients:
            held = bool(apart[k])
            record = c.sizes[k], self.gamma, source, c.rows_digest, held, of[held]
            found[ClientId(self.dealt.names[k], c.partition)] = Client(*record)
        return found

    def gather(self, blocks: Iterable[Block], clients: Sequence[int], part: str) -> Statistics:
        """The statistics of clients, with what they may be added to; ``part`` of the task."""
        carried = self.files.take_rows(self.task, part)
        who = self.list_clients(clients)
        statistics, left = statistics_of(self.head, blocks, who, self.context, carried)
        self.files.keep_rows(self.task, part, left)
        if isinstance(self.options, LocalStats) and self.options.law == "pairwise":
            from ..math.pairwise import compute_upload

            return compute_upload(statistics)
        return statistics

    def sums(self, chosen: Sequence[int]) -> Job:
        """The sum of the clients in one file; of the held-out ones in another."""
        apart = self.dealt.held_out
        held, held_out = [k for k in chosen if apart[k]], self.options.held_out
        if held and held_out is None:
            raise UsageError(
                f"{len(held)} of these clients are held out for validation: give --held-out FILE "
                "for their sum"
            )
        outputs = [(self.options.out, [k for k in chosen if not apart[k]], "kept")]
        if held_out is not None:  # what others wait for comes last
            outputs.insert(0, (held_out, held, "held out"))
        targets = [Target(path, self.recipe(of), (of, part)) for path, of, part in outputs]

        def compute(todo: Sequence[Target]) -> None:
            for one in todo:
                of, part = one.of
                begun = time.perf_counter()
                with progress.task("local-stats", len(self.rows), "rows") as task:
                    s = self.gather(self.clients.iter_pooled(of, task), of, part)
                took = round(time.perf_counter() - begun, 3) if self.clients.partition else None
                self.files.keep(one.path, write_statistics(one.path, one.recipe, s, took))

        return Job(targets, compute)

    def write_clients(self, chosen: Sequence[int]) -> Job:
        """One file for each client."""
        names, sizes, out = self.dealt.names, self.clients.sizes, self.options.out
        if FOLDS:
            naming.check_apart(self.names, str(out))
        by_number = bool(self.clients.partition) and naming.are_numbered(names)
        targets = []
        for k in chosen:
            name = naming.file_of_name(names[k])
            name = naming.file_of_number(k, len(names)) if by_number else name
            targets.append(Target(out / name, self.recipe([k]), k))
        specs = self.head.array_specs(self.rows.bits).values()
        square = sum(3 * 8 * spec.size for spec in specs)  # and two triangles

        def compute(todo: Sequence[Target]) -> None:
            make_folder(out)
            of = {one.of: one for one in todo}
            self.warn_of_few_rows(list(of))

            def work(one: tuple[int, Iterable[Block]]) -> None:
                k, blocks = one
                s = self.gather(blocks, [k], names[k])
                write_statistics(of[k].path, of[k].recipe, s)

            # All threads work on the blocks of one client; then each on a client of one block.
            block = self.rows.block_rows()
            large, small = ([k for k in of if (sizes[k] > block) == one] for one in (True, False))
            done, room = len(chosen) - len(todo), self.head.room
            together = map(work, self.clients.iter_clients(large))
            apart = self.clients.iter_clients(small), lambda one: square + room(sizes[one[0]])
            with progress.task("local-stats", len(chosen), "clients", done) as task:
                for _ in chain(together, parallel.map_threads(work, *apart)):
                    task.advance()
                    progress.stop_point()

        return Job(targets, compute, out if self.clients.partition else None)

    def warn_of_few_rows(self, clients: Sequence[int]) -> None:
        """Say whose statistics give rows away, and what would keep them."""
        few = [n for k in clients if 0 < (n := self.clients.sizes[k]) < self.rows.dim]
        if few and self.head.phase() != naming.COUNTS:
            log.warning(
                "%d of %d clients have fewer rows (as few as %d) than the %d features: their "
                "statistics show the space of their rows, often the rows themselves; a session "
                "hides them from the server (docs/privacy.md)",
                len(few), len(clients), min(few), self.rows.dim,
            )  # fmt: skip
