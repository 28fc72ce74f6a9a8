"""Stage `aggregate`: client files, parts and totals → their sum; a file a thread in memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from .. import parallel, progress
from ..errors import InputError, MismatchError, UsageError
from ..files.hdf5 import Header, damage_as_error, expand, read_header, recipe, room
from ..files.recipes import Recipe, Target
from ..files.statistics import clients_of, load_statistics, write_statistics
from ..options.statistics import Aggregate
from ..progress import log
from ..values.arrays import Digest
from ..values.statistics import Client, ClientId, Statistics, total_of
from .runner import Files, Job, Put, StageFunction

PLAIN = {"law": "sum"}  # the options of a sum, which a client file may be just as well


@StageFunction
def aggregate(o: Aggregate, files: Files) -> Job:
    """Add up statistics, and subtract those of clients that leave, ``subtract``.

    Totals may be added, too; a sum lists the clients of all its parts. The same feature file or the
    same sums under two names are refused unless ``allow_repeats``. ``law`` 'pairwise' folds the
    files by AFL's Theorem 1, which costs O(K d³) and loses digits.
    """
    plus, minus = ([_Item.of(path) for path in expand(one)] for one in (o.files, o.subtract))
    files.opened += [item.path for item in (*plus, *minus)]
    if not plus:
        raise UsageError("there are no statistics to add up")
    _count_clients(plus, minus, o.complete)
    if not o.allow_repeats:
        _check_equal(plus)
    kept, held = _split_held_out(plus, o.held_out is not None)
    targets = [Target(o.out, _recipe(kept, minus, o.stored()), (kept, minus))]
    if o.held_out is not None:
        targets.insert(0, Target(o.held_out, _recipe(held, [], o.stored()), (held, [])))

    def compute(todo: Sequence[Target], put: Put) -> None:
        for target in todo:
            ours, theirs = target.of
            put(target, partial(write_statistics, s=_sum(ours, theirs, o)))

    return Job(targets, compute)


@dataclass(frozen=True)
class _Item:
    """One file to add or subtract, and what its header says."""

    path: Path
    identity: str  # digest of the meaning, the clients and the context
    made_by: Recipe
    clients: Mapping[ClientId, Client]
    digest: str  # of the sums alone
    header: Header  # with which the arrays are read later

    @classmethod
    def of(cls, path: Path) -> _Item:
        header = read_header(path, "statistics")
        with damage_as_error(path):
            clients = clients_of(header)
        meaning = [header["digest"], header["clients"], header["context"]]
        identity = Digest().json("statistics", meaning).hex()
        return cls(path, identity, header["recipe"], clients, header["digest"], header)

    @property
    def held_out(self) -> set[bool]:
        """Whether its clients are held out: both of a mixed sum, neither of one without clients."""
        return {client.held_out for client in self.clients.values()}


def _sum(plus: Sequence[_Item], minus: Sequence[_Item], o: Aggregate) -> Statistics:
    """The sum by the law; one part a thread is in memory."""
    if o.law == "sum":
        parts = _parts([*plus, *minus])
        return total_of(islice(parts, len(plus)), parts, o.allow_repeats)
    from ..math.pairwise import pairwise_total  # and SciPy, which takes a while to load

    return pairwise_total((part for _, part in _parts(plus)), o.allow_repeats)


def _parts(items: Sequence[_Item]) -> Iterator[tuple[Path, Statistics]]:
    loaded = parallel.each(
        lambda item: load_statistics(item.path, item.header), items, lambda item: room(item.path)
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
    for (partition, held_out, wanted), rows in sorted(given.items(), key=lambda one: one[0]):
        lack, taken = wanted - len(rows - leave), len(rows & leave)
        said = f"{wanted - lack} of {wanted} {'held-out ' * held_out}clients of the partition "
        said += f"{partition[:12]} are in the sum"
        if lack > 0:
            said += f", missing: {lack}" + (f", {taken} by --subtract" if taken else "")
        if lack > 0 and complete:
            raise InputError(
                f"{said}: make their statistics (local-stats again makes only what is not there), "
                "or leave --complete out"
            )
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
                f"{min(other.clients)}) hold the same sums, number by number: the same rows under "
                "two names, which would be counted twice; give one of them, or --allow-repeats if "
                "you mean it"
            )


def _split_held_out(items: Sequence[_Item], wanted: bool) -> tuple[list[_Item], list[_Item]]:
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
            "validation: give --held-out FILE for a sum of these where there are both, and only "
            "there"
        )
    return (kept, held) if wanted else ([*kept, *held], [])


def _recipe(plus: Sequence[_Item], minus: Sequence[_Item], options: dict[str, Any]) -> Recipe:
    """The recipe of a sum; its inputs are digests, so their order does not matter."""
    if options == PLAIN and not minus and (pooled := _pooled([i.made_by for i in plus])):
        return pooled
    inputs = {"add": plus, "subtract": minus}
    every = {key: sorted(item.identity for item in of) for key, of in inputs.items()}
    return recipe("aggregate", options, {k: Digest().json(k, v).hex() for k, v in every.items()})


def _pooled(parts: Sequence[Recipe]) -> Recipe | None:
    """The recipe of `local-stats --sum` over the clients of all parts, if it made every part.

    The sum of parts of the same rows, partition and head equals the file that `local-stats --sum`
    writes (bit for bit where arrays are integers). So every tree of parts has this recipe, and no
    sum is made a second time.
    """

    def but_clients(made_by: Recipe) -> dict[str, Any]:
        return {**made_by, "options": {**made_by["options"], "clients": None}}

    first = but_clients(parts[0])
    if first["stage"] != "local-stats" or any(but_clients(p) != first for p in parts):
        return None
    names = sorted(name for p in parts for name in p["options"]["clients"])
    return {**first, "options": {**first["options"], "clients": names}}
