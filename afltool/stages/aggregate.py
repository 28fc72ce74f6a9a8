"""Stage `aggregate`: client files, parts and totals → their sum; a file a thread in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from .. import parallel, progress
from ..errors import InputError, MismatchError, UsageError
from ..files import hdf5
from ..files.recipes import Recipe, Target
from ..files.statistics import get_clients, load_statistics, write_statistics
from ..options.common import refuse_files
from ..options.statistics import Aggregate
from ..progress import log
from ..values.arrays import Digest
from ..values.statistics import Client, ClientId, Statistics, total_of
from .runner import Files, Job, StageFunction

PLAIN = {"law": "sum"}  # the options of a sum, which a client file may be just as well


@StageFunction
def aggregate(o: Aggregate, files: Files) -> Job:
    """Add up statistics, and subtract those of clients that leave, ``subtract``.

    Totals may be added, too; a sum lists the clients of all its parts. The same feature file or the
    same sums under two names are refused unless ``allow_repeats``. ``law`` 'pairwise' folds the
    files by AFL's Theorem 1, which costs O(K d³) and loses digits.
    """
    plus, minus = ([_Item.of(path) for path in hdf5.expand(one)] for one in (o.files, o.subtract))
    refuse_files([*(("FILES", one.path, False) for one in (*plus, *minus)), ("-o", o.out, True)])
    if not plus:
        raise UsageError("there are no statistics to add up")
    _count_clients(plus, minus, o.complete)
    if not o.allow_repeats:
        _check_equal(plus)
    kept, held = _split_validation(plus, o.held_out is not None)
    targets = [Target(o.out, _recipe(kept, minus, o.recipe_options()), (kept, minus))]
    if o.held_out is not None:
        targets.insert(0, Target(o.held_out, _recipe(held, [], o.recipe_options()), (held, [])))

    def compute(todo: Sequence[Target]) -> None:
        for one in todo:
            added, subtracted = one.of
            s = _sum(added, subtracted, o)
            files.keep(one.path, write_statistics(one.path, one.recipe, s))

    return Job(targets, compute)


@dataclass(frozen=True)
class _Item:
    """One file to add or subtract, and what its header says."""

    path: Path
    identity: str  # digest of the meaning, the clients and the context
    made_by: Recipe
    clients: Mapping[ClientId, Client]
    digest: str  # of the sums alone
    header: hdf5.Header  # with which the arrays are read later

    @classmethod
    def of(cls, path: Path) -> _Item:
        header = hdf5.read_header(path, "statistics")
        with hdf5.damage_as_error(path):
            clients = get_clients(header)
        digest = header["digest"]
        meaning = [digest, header["clients"], header["context"]]
        identity = Digest().json("statistics", meaning).hex()
        return cls(path, identity, header["recipe"], clients, digest, header)

    @property
    def held_out(self) -> set[bool]:
        """Whether its clients are held out: both of a mixed sum, neither of one without clients."""
        return {client.held_out for client in self.clients.values()}


def _sum(plus: Sequence[_Item], minus: Sequence[_Item], o: Aggregate) -> Statistics:
    """The sum by the law; one part a thread is in memory."""
    parts = _parts([*plus, *minus])
    if o.law == "sum":
        return total_of(islice(parts, len(plus)), parts, o.allow_repeats)
    from ..math.pairwise import pairwise_total  # and SciPy, which takes a while to load

    return pairwise_total((part for _, part in parts), o.allow_repeats)


def _parts(items: Sequence[_Item]) -> Iterator[tuple[Path, Statistics]]:
    loaded = parallel.map_threads(
        lambda item: load_statistics(item.path, item.header),
        items,
        lambda item: hdf5.room(item.path),
    )
    with progress.task("aggregate", len(items), "files") as task:
        for item, part in zip(items, loaded, strict=True):
            yield item.path, part
            task.advance()
            progress.stop_point()


def _count_clients(plus: Sequence[_Item], minus: Sequence[_Item], complete: bool) -> None:
    """Say how many clients of each partition are in the sum: clients and files can be missing."""
    leave = {who for item in minus for who in item.clients}
    given: dict[tuple[str, bool, int], set[ClientId]] = defaultdict(set)
    for item in plus:
        for who, client in item.clients.items():
            if client.dealt_to:
                given[who.partition, client.held_out, client.dealt_to].add(who)
    for (partition, held_out, wanted), clients in sorted(given.items(), key=lambda one: one[0]):
        there, taken = len(clients - leave), len(clients & leave)
        said = f"{there} of {wanted} {'held-out ' * held_out}clients of the partition "
        said += f"{partition[:12]} are in the sum"
        if lack := max(wanted - there, 0):
            said += f", missing: {lack}" + (f", {taken} by --subtract" if taken else "")
        if lack and complete:
            raise InputError(f"{said}: make their statistics, or leave --complete out")
        log.info("aggregate: %s%s", said, " (--complete refuses this)" * (lack > 0))


def _check_equal(items: Sequence[_Item]) -> None:
    """Refuse equal sums under two names: they are of the same rows.

    Two clients of one partition may have equal sums, because a partition deals each row once.
    """
    seen: dict[str, _Item] = {}
    for item in items:
        other = seen.setdefault(item.digest, item)
        if other is item or other.clients.keys() & item.clients.keys():
            continue  # a client that is given twice is refused with its name when it is added
        partitions = {who.partition for one in (item, other) for who in one.clients}
        dealt = len(partitions) == 1 and "" not in partitions
        if not dealt and any(client.rows != 0 for client in item.clients.values()):
            raise MismatchError(
                f"{item.path} (client {min(item.clients)}) and {other.path} (client "
                f"{min(other.clients)}) hold the same sums, number by number, of the same rows: "
                "give one of them, or --allow-repeats if you mean it"
            )


def _split_validation(items: Sequence[_Item], wanted: bool) -> tuple[list[_Item], list[_Item]]:
    """Files of clients that train, and of clients held out for validation."""
    for item in items:
        if len(item.held_out) > 1:
            raise UsageError(
                f"{item.path} is one sum of held-out and other clients: it cannot be divided"
            )
    kept = [item for item in items if item.held_out != {True}]
    held = [item for item in items if item.held_out == {True}]
    if wanted != bool(held and any(item.held_out for item in kept)):
        raise UsageError(
            f"{len(kept)} files are of clients that train, {len(held)} of clients held out for "
            "validation: give --held-out FILE where there are both, and only there"
        )
    return (kept, held) if wanted else ([*kept, *held], [])


def _recipe(plus: Sequence[_Item], minus: Sequence[_Item], options: dict[str, Any]) -> Recipe:
    """The recipe of a sum; its inputs are digests, so their order does not matter.

    The sum of parts of the same rows, partition and head equals the file that `local-stats --sum`
    writes (bit for bit where arrays are integers), and has its recipe: no sum is made twice.
    """
    alone = [
        {**one.made_by, "options": {**one.made_by["options"], "clients": None}} for one in plus
    ]
    first, same = alone[0], all(one == alone[0] for one in alone)
    if options == PLAIN and not minus and same and first["stage"] == "local-stats":
        names = sorted(name for one in plus for name in one.made_by["options"]["clients"])
        return {**first, "options": {**first["options"], "clients": names}}
    inputs = {"add": plus, "subtract": minus}
    every = {key: sorted(item.identity for item in of) for key, of in inputs.items()}
    digests = {key: Digest().json(key, of).hex() for key, of in every.items()}
    return hdf5.recipe("aggregate", options, digests)
