"""Stage `aggregate`: client files, parts and totals → their sum, one file in memory at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import progress
from ..digest import Digest
from ..errors import AflError, UsageError
from ..files import expand, load_statistics, recipe, save_statistics, up_to_date
from ..folding import pairwise_total
from ..statistics import Statistics, Sum
from ..store.hdf5 import read_header

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
    overwrite: bool = False,
) -> Path:
    """Add up statistics; late clients by ``add``, clients that leave by ``subtract``.

    Items are files, folders, globs or '-' (paths on stdin); totals may be added again, their
    clients are carried along. Clients that the partition holds out go into ``held_out`` instead.
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
    held_out: frozenset[int]  # {1} held-out clients, {0} others, {0, 1} both
    head_file: str | None

    @classmethod
    def of(cls, path: Path) -> _Item:
        header = read_header(path, "statistics")
        meaning = [header["digest"], header["clients"], header["context"]]
        marks = frozenset(header["clients"]["held_out"])
        where = header["provenance"].get("head_file")
        return cls(path, Digest().json("statistics", meaning).hex(), marks, where)


def _split_held_out(items: Sequence[_Item], wanted: bool) -> tuple[list[_Item], list[_Item]]:
    """Files of clients that train, and of clients held out for validation."""
    for item in items:
        if item.held_out == {0, 1}:
            raise UsageError(f"{item.path} sums held-out and other clients: they cannot be parted")
    kept = [item for item in items if item.held_out != {1}]
    held = [item for item in items if item.held_out == {1}]
    if not wanted and held and kept:
        raise UsageError(
            f"{len(held)} of these files are of clients held out for validation, such as "
            f"{held[0].path}: give --held-out FILE for their sum"
        )
    if not wanted:
        return [*kept, *held], []
    if not held or not kept:
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
    inputs = {
        "add": sorted(i.identity for i in plus),
        "subtract": sorted(i.identity for i in minus),
    }
    digests = {key: Digest().json(key, found).hex() for key, found in inputs.items()}
    return recipe("aggregate", {"law": law}, digests)
