"""Stage `aggregate`: client files, parts and totals → their sum, one file in memory at a time."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import progress
from ..digest import Digest
from ..errors import AflError, InputError, UsageError
from ..files import clients_of, expand, load_statistics, recipe, save_statistics, up_to_date
from ..folding import pairwise_total
from ..statistics import Client, ClientId, Statistics, Sum
from ..store.arrays import damage_as_error
from ..store.hdf5 import read_header

log = logging.getLogger("afltool")
Paths = Sequence[str | Path]
LAWS = ("sum", "pairwise")


def aggregate(
    files: Paths,
    out: str | Path,
    *,
    add: Paths = (),
    subtract: Paths = (),
    held_out: str | Path | None = None,
    law: str = "sum",
    complete: bool = False,
    overwrite: bool = False,
) -> Path:
    """Add up statistics; late clients by ``add``, clients that leave by ``subtract``.

    Items are files, folders, globs or '-' (paths on stdin); totals may be added again, their
    clients are carried along. Clients that the partition holds out go into ``held_out`` instead.
    Clients of a partition that are missing are counted in a message, with ``complete`` refused.
    ``law`` 'pairwise' folds the files by AFL's Theorem 1, which costs O(K d³) and loses digits.
    """
    if law not in LAWS:
        raise UsageError(f"--law is {' or '.join(LAWS)}; found {law!r}")
    if law == "pairwise" and subtract:
        raise UsageError("--subtract needs --law sum: the pairwise law only adds")
    plus = [_Item.of(path) for path in expand([*files, *add], sys.stdin)]
    minus = [_Item.of(path) for path in expand(subtract, sys.stdin)]
    if not plus:
        raise UsageError("there are no statistics to add up")
    _count_clients(plus, complete)
    kept, held = _split_held_out(plus, held_out is not None)
    jobs = [(kept, minus, Path(out))]
    if held_out is not None:
        jobs.append((held, [], Path(held_out)))
    for ours, theirs, path in jobs:
        made_by = _recipe(ours, theirs, law)
        if not up_to_date(path, made_by, overwrite):
            total = _total(ours, theirs) if law == "sum" else pairwise_total(_parts(ours))
            save_statistics(path, total, made_by, ours[0].head_file)
    return Path(out)


@dataclass(frozen=True)
class _Item:
    """One file to add or subtract, as its header tells it."""

    path: Path
    identity: str  # digest of the meaning, the clients and the context
    held_out: frozenset[int]  # {1} held-out clients, {0} others, {0, 1} both, {} no clients
    head_file: str | None
    made_by: dict[str, Any]
    clients: Mapping[ClientId, Client]

    @classmethod
    def of(cls, path: Path) -> _Item:
        header = read_header(path, "statistics")
        with damage_as_error(path):
            clients = clients_of(header)
        meaning = [header["digest"], header["clients"], header["context"]]
        marks = frozenset(header["clients"]["held_out"])
        where = header["provenance"].get("head_file")
        identity = Digest().json("statistics", meaning).hex()
        return cls(path, identity, marks, where, header["recipe"], clients)


def _count_clients(items: Sequence[_Item], complete: bool) -> None:
    """Say how many clients of each partition are there; clients may drop out, files get lost."""
    given: Counter[tuple[str, bool, int]] = Counter()
    for item in items:
        for who, client in item.clients.items():
            if client.dealt_to:
                given[who.partition, client.held_out, client.dealt_to] += 1
    for (partition, held_out, wanted), found in sorted(given.items()):
        what = f"{found} of {wanted} {'held-out ' if held_out else ''}clients of the partition "
        what += f"{partition[:12]} are in the sum"
        if found >= wanted:
            log.info("aggregate: %s", what)
        elif complete:
            raise InputError(
                f"{what}, {wanted - found} are missing: make their statistics (local-stats again "
                "makes only what is not there), or leave --complete out"
            )
        else:
            log.info(
                "aggregate: %s, %d are missing (--complete refuses this)", what, wanted - found
            )


def _split_held_out(items: Sequence[_Item], wanted: bool) -> tuple[list[_Item], list[_Item]]:
    """Files of clients that train, and of clients held out for validation."""
    for item in items:
        if item.held_out == {0, 1}:
            raise UsageError(f"{item.path} sums held-out and other clients: they cannot be parted")
    kept = [item for item in items if item.held_out != {1}]
    held = [item for item in items if item.held_out == {1}]
    training = any(item.held_out for item in kept)
    if not wanted and held and training:
        raise UsageError(
            f"{len(held)} of these files are of clients held out for validation, such as "
            f"{held[0].path}: give --held-out FILE for their sum"
        )
    if not wanted:
        return [*kept, *held], []
    if not held or not training:
        raise UsageError(
            f"--held-out needs clients of both kinds; found {len(kept)} files that train and "
            f"{len(held)} held out (see partition --held-out)"
        )
    return kept, held


def _total(plus: Sequence[_Item], minus: Sequence[_Item]) -> Statistics:
    items = [*plus, *minus]
    total: Sum | None = None
    for number, part in enumerate(_parts(items)):
        with _named(items[number].path):
            if total is None:
                total = Sum(part)
            else:
                total = total.add(part) if number < len(plus) else total.subtract(part)
    assert total is not None
    return total.result()


def _parts(items: Sequence[_Item]) -> Iterator[Statistics]:
    """The files one at a time."""
    with progress.task("aggregate", len(items), "files") as task:
        for item in items:
            yield load_statistics(item.path)
            task.advance()
            progress.stop_point()


class _named:
    """Put the path of the file in front of what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, AflError) and error.args:
            error.args = (f"{self.path}: {error.args[0]}",)


def _recipe(plus: Sequence[_Item], minus: Sequence[_Item], law: str) -> dict[str, Any]:
    """Inputs by what they are, in any order."""
    if law == "sum" and not minus and (pooled := _pooled([i.made_by for i in plus])):
        return pooled
    inputs = {
        "add": sorted(i.identity for i in plus),
        "subtract": sorted(i.identity for i in minus),
    }
    digests = {key: Digest().json(key, found).hex() for key, found in inputs.items()}
    return recipe("aggregate", {"law": law}, digests)


def _pooled(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The recipe of `local-stats --sum` over the clients of all parts, if it made every part.

    Parts of the same rows, partition and head sum to what it would write (to the bit where arrays
    are integers), so every tree of them makes the same file and none is made a second time.
    """
    first = _but_clients(parts[0])
    if first["stage"] != "local-stats" or any(_but_clients(p) != first for p in parts):
        return None
    names = sorted(name for p in parts for name in p["options"]["clients"])
    return {**first, "options": {**first["options"], "clients": names}}


def _but_clients(made_by: Mapping[str, Any]) -> dict[str, Any]:
    return {**made_by, "options": {**made_by["options"], "clients": None}}
