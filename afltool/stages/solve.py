"""Stage `solve`: a total → the head one phase further."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from ..errors import InputError, InvalidDataError, MismatchError, UsageError
from ..files import load_head, load_statistics, recipe, save_head, up_to_date
from ..heads import make_head
from ..heads.base import Head, note_round
from ..statistics import Statistics, difference
from ..store.arrays import damage_as_error
from ..store.hdf5 import read_header

log = logging.getLogger("afltool")


def solve(
    total: str | Path,
    out: str | Path,
    *,
    head: str | Path | None = None,
    validate: str | Path | None = None,
    options: Mapping[str, Any] | None = None,
    threads: int = 1,
    overwrite: bool = False,
) -> Path:
    """Solve the head that the statistics in ``total`` were gathered for.

    ``options`` are those that the head still lets change (a ridge); ``validate`` is the sum over
    held-out clients. ``threads``: BLAS threads; a Cholesky solve differs in its last bits between
    thread counts, so heads are promised equal for one count (recorded in the file), one machine
    and one library. ``head``: the head file that the statistics were gathered for, needed when it
    holds more than options.
    """
    out = Path(out)
    if threads < 1:
        raise UsageError(f"--threads is at least 1; found {threads}")
    statistics = load_statistics(Path(total))
    held = None if validate is None else _held_out(Path(validate), statistics)
    with damage_as_error(Path(total)):
        start = _head_of(statistics, total, head).with_options(**(options or {}))
        start = start.bind(statistics.context.space["dim"], len(statistics.context.classes))
    _check_arrays(start, statistics, Path(total))
    if held is not None and validate is not None:
        _check_arrays(start, held, Path(validate))
    made_by = recipe(
        "solve",
        {**start.options.as_dict(), "threads": threads},
        {
            "total": statistics.digest(),
            "context": statistics.context.as_dict(),
            "gammas": sorted(statistics.gammas.items()),
            "validate": held.digest() if held else None,
        },
    )
    _say_one_class(statistics, Path(total))
    if not up_to_date(out, made_by, overwrite):
        begun = time.perf_counter()
        with threadpool_limits(threads):
            solved = start.absorb(statistics, held)
        _note(start, solved, statistics, time.perf_counter() - begun)
        clients = len(statistics.clients)
        save_head(out, solved, made_by, statistics.context, threads=threads, clients=clients)
        _say(solved, out)
    return out


def _head_of(statistics: Statistics, total: str | Path, given: str | Path | None) -> Head:
    """The head that the statistics were gathered for, one phase before this solve.

    Before its first phase a head is its options, which the statistics hold. Later it has learned
    something: it is read from ``given``, or from where local-stats found it.
    """
    binding = statistics.context.head
    fresh = make_head(binding["name"], binding["options"])
    if given is None and fresh.digest() == binding["digest"]:
        return fresh
    path = given or read_header(Path(total), "statistics")["provenance"].get("head_file")
    if path is None or not Path(path).exists():
        raise InputError(
            f"{total} was gathered for a {binding['name']} head in phase {binding['phase']!r}, "
            f"which has learned something already, and its file is not at {path}: give it with "
            "--head FILE"
        )
    head = load_head(Path(path))[0]
    if head.digest() != binding["digest"]:
        where = difference(head.binding(), dict(binding)) or "its learned state differs"
        raise MismatchError(
            f"{total} was gathered for another head than {path}: {where}; give the right one with "
            "--head FILE"
        )
    return head


def _check_arrays(head: Head, statistics: Statistics, path: Path) -> None:
    with damage_as_error(path):
        try:
            head.check_total(statistics)
        except InvalidDataError as error:
            raise InvalidDataError(f"{path}: {error}") from None


def _say_one_class(statistics: Statistics, path: Path) -> None:
    """All rows of one class: legal (a site may be alone for now), and no classifier."""
    counts, classes = statistics.class_counts, statistics.context.classes
    present = counts.nonzero()[0]
    if len(present) == 1 < len(classes):
        log.warning(
            "%s: all %d rows are of the class %r, the other %d of %d classes have none; a head "
            "solved from them predicts this class for everything: add clients that have others",
            path, statistics.rows, classes[present[0]], len(classes) - 1, len(classes),
        )  # fmt: skip


def _held_out(path: Path, total: Statistics) -> Statistics:
    held = load_statistics(path)
    where = difference(total.context.as_dict(), held.context.as_dict())
    if where:
        raise MismatchError(f"{path} does not belong to the total: {where}")
    both = held.clients.keys() & total.clients.keys()
    if both:
        raise MismatchError(
            f"{path}: client {min(both)} is both held out and in the total ({len(both)} are): "
            "validation needs clients that the head has not seen"
        )
    return held


def _note(start: Head, solved: Head, total: Statistics, seconds: float) -> None:
    """The round in the head's report, where the head has not written it itself."""
    if len(solved.report.get("phases", [])) <= len(start.report.get("phases", [])):
        found = {k: solved.report[k] for k in ("ridge", "training_mse") if k in solved.report}
        note_round(start, solved, total, seconds, **found)


def _say(head: Head, out: Path) -> None:
    if head.phase() is None:
        log.info("solve: done; afltool evaluate %s TEST.h5 tells how good it is", out)
    else:
        log.info("solve: next phase %r: afltool local-stats … --head %s", head.phase(), out)
