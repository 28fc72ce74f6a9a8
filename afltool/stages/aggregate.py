"""Stage `aggregate`: client files, parts and totals → their sum, one file in memory at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
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
    plus, minus = expand([*files, *add], sys.stdin), expand(subtract, sys.stdin)
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
            save_statistics(path, total, made_by, _head_file(ours[0]))
    return Path(out)


def _split_held_out(paths: Sequence[Path], wanted: bool) -> tuple[list[Path], list[Path]]:
    """Files of clients that train, and of clients held out for validation."""
    kept: list[Path] = []
    held: list[Path] = []
    for path in paths:
        marks = read_header(path, "statistics")["clients"]["held_out"]
        if any(marks) and not all(marks):
            raise UsageError(f"{path} sums held-out and other clients: they cannot be parted")
        (held if marks and all(marks) else kept).append(path)
    if not wanted and held and kept:
        raise UsageError(
            f"{len(held)} of these files are of clients held out for validation, such as {held[0]}:"
            " give --held-out FILE for their sum"
        )
    if not wanted:
        return [*kept, *held], []
    if not held or not kept:
        raise UsageError(
            f"--held-out needs clients of both kinds; found {len(kept)} files that train and "
            f"{len(held)} held out (see partition --held-out)"
        )
    return kept, held


def _total(plus: Sequence[Path], minus: Sequence[Path]) -> Statistics:
    total: Sum | None = None
    for number, part in enumerate(_parts([*plus, *minus])):
        with _named([*plus, *minus][number]):
            if total is None:
                total = Sum(part)
            else:
                total = total.add(part) if number < len(plus) else total.subtract(part)
    assert total is not None
    return total.result()


def _parts(paths: Sequence[Path]) -> Iterator[Statistics]:
    """The files one at a time."""
    with progress.task("aggregate", len(paths), "files") as task:
        for path in paths:
            yield load_statistics(path)
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


def _head_file(path: Path) -> str | None:
    found: str | None = read_header(path, "statistics")["provenance"].get("head_file")
    return found


def _recipe(plus: Sequence[Path], minus: Sequence[Path], law: str) -> dict[str, Any]:
    """Inputs by digest and clients, in any order."""

    def identity(path: Path) -> str:
        header = read_header(path, "statistics")
        return Digest().json("s", [header["digest"], header["clients"], header["context"]]).hex()

    inputs = {"add": sorted(map(identity, plus)), "subtract": sorted(map(identity, minus))}
    return recipe(
        "aggregate", {"law": law}, {k: Digest().json(k, v).hex() for k, v in inputs.items()}
    )
