"""Stage `solve`: a total → the head one phase further."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError, MismatchError, UsageError, naming
from ..files.arrays import damage_as_error
from ..files.hdf5 import recipe
from ..files.heads import HeadFile, check_bound, tell_idle, write_head
from ..files.statistics import described
from ..heads import HEADS, make_head
from ..heads.base import Head, binding, marks, solved
from ..heads.checks import check_total, chosen_by, with_options
from ..options.statistics import Solve
from ..progress import log
from ..values.arrays import Digest
from ..values.statistics import Statistics, same_source, sources_of
from ..values.text import difference
from .runner import Files, Job, Recipe, Write, carry_out

FIXED = {"threads": 1}  # the recipes of all heads say so; nothing depends on it any more


def solve(o: Solve) -> Path:
    """Solve the head that the statistics in ``total`` were gathered for.

    ``head_options``: options of the head that may still change, such as a ridge. ``validate``: the
    sum over held-out clients. ``threads``: large factors are made by so many; the head has the same
    bits for any number, on one machine with one library. ``head``: the head file that the
    statistics were gathered for; needed after the first phase, when a head holds more than its
    options.
    """
    return carry_out(job, o)[-1].path


def job(o: Solve, files: Files) -> Job:
    """From the header of the total, which is read when the head is solved."""
    header = files.header(o.total, "statistics")
    total = described(o.total, header)
    if total.context.noise and "ridge" not in o.head_options:
        raise UsageError(f"{o.total} is a sum with noise: give the ridge of its head, --ridge λ")
    held = None if o.validate is None else files.statistics(o.validate)
    if o.validate is not None and held is not None:
        _check_held_out(o.validate, held.statistics, total)
    with damage_as_error(o.total):
        given, before = _head_of(total, header, o, files)
        start = with_options(given, **o.head_options)
        others = {k for k, v in o.head_options.items() if v != getattr(given.options, k)}
        tell_idle(start.options, dict.fromkeys(others))
        start = start.bind(total.context.space["dim"], len(total.context.classes))

    def compute() -> Write:
        sums = files.statistics(o.total, header).statistics
        _check_arrays(start, sums, o.total)
        if o.validate is not None and held is not None:
            _check_arrays(start, held.statistics, o.validate)
        _say_one_class(sums, o.total)
        begun = time.perf_counter()
        after, done = solved(start, sums, held.statistics if held else None)
        report = done.report(before, time.perf_counter() - begun)

        def write(path: Path, made_by: Recipe) -> HeadFile | None:
            clients = len(total.clients)
            found = write_head(path, made_by, after, total.context, report, clients=clients)
            _say(after, path)
            return found

        return write

    inputs = {
        "total": header["digest"],
        "context": total.context.as_dict(),
        "gammas": sorted(total.gammas.items()),
        "validate": held.header["digest"] if held else None,
        **HEADS.version(start.name),
    }
    if start.not_in_digest:  # it remembers who may take part in later rounds
        inputs["clients"] = Digest().array("marks", marks(total), "<i8").hex()
    rule = chosen_by(start.options, held is not None)
    options = {**start.options.as_dict(), **FIXED, **rule, **o.stored()}
    return Job.one(o.out, recipe("solve", options, inputs), compute)


def _head_of(
    statistics: Statistics, header: Mapping[str, Any], o: Solve, files: Files
) -> tuple[Head, dict[str, Any]]:
    """The head that the statistics were gathered for, one phase before this solve, and its report.

    Before its first phase a head is its options, which the statistics hold. Later it has learned
    something: it is read from the given file, or from where local-stats found it.
    """
    wanted, path, total = statistics.context.head, o.head, o.total
    if path is None:
        fresh = make_head(wanted["name"], wanted["options"])
        if fresh.digest() == wanted["digest"]:
            return fresh, {}
        path = _beside(total, header["provenance"].get("head_file"))
    if path is None:
        raise InputError(
            f"{total} was gathered for a {wanted['name']} head in phase {wanted['phase']!r}; the "
            "file of this head is needed and does not lie beside it: give it with --head FILE"
        )
    loaded = files.head(path)
    head = loaded.head
    if head.digest() != wanted["digest"]:
        where = difference(binding(head), dict(wanted), f"in {path}", f"in {total}")
        where = where or "its learned state differs"
        raise MismatchError(
            f"{total} was gathered for another head than {path}: {where}; give the right one with "
            "--head FILE"
        )
    rows = statistics.context
    found = {"space": rows.space, "classes": list(rows.classes)}
    check_bound(path, loaded.header, total, found)
    return head, loaded.report


def _beside(total: Path, name: Any) -> Path | None:
    """The head file that a total names: in its folder, in the one above or in the current one."""
    if not isinstance(name, str) or not Path(name).name:
        return None
    places = (folder / Path(name).name for folder in (total.parent, total.parent.parent, Path()))
    return next((place for place in places if place.is_file()), None)


def _check_arrays(head: Head, statistics: Statistics, path: Path) -> None:
    with damage_as_error(path), naming(path):
        check_total(head, statistics)


def _say_one_class(statistics: Statistics, path: Path) -> None:
    """Warn where all rows are of one class: allowed, since a site may be alone for now."""
    counts, classes = statistics.class_counts, statistics.context.classes
    present = counts.nonzero()[0]
    if len(present) == 1 < len(classes):
        log.warning(
            "%s: all %d rows are of the class %r, the other %d of %d classes have none; a head "
            "solved from them predicts this class for everything: add clients that have others",
            path, statistics.rows, classes[present[0]], len(classes) - 1, len(classes),
        )  # fmt: skip


def _check_held_out(path: Path, held: Statistics, total: Statistics) -> None:
    """Refuse sums for validation of another head, space or classes, or of rows of the total."""
    ours, theirs = total.context.as_dict(), held.context.as_dict()
    where = difference(ours, theirs, "in the total", f"in {path}")
    if where:
        raise MismatchError(f"{path} does not belong to the total: {where}")
    both = held.clients.keys() & total.clients.keys()
    if both:
        raise MismatchError(
            f"{path}: client {min(both)} is held out and also in the total ({len(both)} clients "
            "are): validation needs clients that the head has not seen"
        )
    pair = same_source(sources_of(total.clients), held.clients)
    if pair is not None:
        raise MismatchError(
            f"{path}: client {pair[1]} has the rows of client {pair[0]} of the total: they come "
            "from the same feature file; validation needs rows that the head has not seen"
        )


def _say(head: Head, out: Path) -> None:
    if head.phase() is None:
        log.info("solve: done; %s", head.serves.format(out))
    else:
        log.info("solve: next phase %r: afltool local-stats … --head %s", head.phase(), out)
