"""Stages `head`, what a federation agrees on, and `solve`: a total → the head one phase further."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InputError, MismatchError, UsageError, naming
from ..files import heads
from ..files.hdf5 import damage_as_error, read_header, recipe
from ..files.statistics import describe_statistics
from ..heads import HEADS, read_head
from ..heads.base import Head, binding, marks
from ..heads.checks import check_total, get_ridge_rule, with_options
from ..options.statistics import NewHead, Solve
from ..progress import log
from ..values.arrays import Digest
from ..values.statistics import Statistics, get_sources, same_source
from ..values.text import difference
from .runner import Files, Job, StageFunction

FIXED = {"threads": 1}  # the recipes of all heads say so; nothing depends on it any more


@StageFunction
def head(o: NewHead, files: Files) -> Job:
    """Write a head before its first phase: its name and options."""
    new = heads.new_head(o.name, o.head_options)
    options = {"name": o.name, **new.options.as_dict()}
    made_by = recipe("head", options, HEADS.version(o.name))
    return Job.for_file(o.out, made_by, lambda: heads.save_head(o.out, new, made_by))


@StageFunction
def solve(o: Solve, files: Files) -> Job:
    """Solve the head that the statistics in ``total`` were gathered for.

    ``head_options``: options of the head that may still change, such as a ridge. The head has the
    same bits for any number of ``threads``, on one machine with one library.
    """
    header = read_header(o.total, "statistics")  # its arrays are read when the head is solved
    total = describe_statistics(o.total, header)
    if total.context.noise and "ridge" not in o.head_options:
        raise UsageError(f"{o.total} is a sum with noise: give the ridge of its head, --ridge λ")
    held = None if o.validate is None else files.statistics(o.validate)
    validation = None if held is None else held.statistics
    if validation is not None:
        _check_held_out(o.validate, validation, total)
    with damage_as_error(o.total):
        given, before = _find_head(total, o, files)
        start = with_options(given, **o.head_options)
        others = {k for k, v in o.head_options.items() if v != getattr(given.options, k)}
        heads.log_idle_options(start, dict.fromkeys(others))
        start = start.bind(total.context.space["dim"], len(total.context.classes))

    def compute() -> None:
        sums = files.statistics(o.total, header).statistics
        for path, one in ((o.total, sums), (o.validate, validation)):
            if one is not None and path is not None:
                with damage_as_error(path), naming(path):
                    check_total(start, one)
        begun = time.perf_counter()
        after, done = start.absorb(sums, validation)
        report = done.report(before, time.perf_counter() - begun)
        how = {"context": total.context, "report": report, "clients": len(total.clients)}
        files.keep(o.out, heads.write_head(o.out, made_by, after, **how))
        said = f"next phase {after.phase()!r}: afltool local-stats … --head {o.out}"
        log.info("solve: %s", said if after.phase() else "done")

    inputs = {
        "total": header["digest"],
        "context": total.context.as_dict(),
        "gammas": sorted(total.gammas.items()),
        "validate": held.header["digest"] if held else None,
        **HEADS.version(start.name),
    }
    if start.not_in_digest:  # it remembers who may take part in later rounds
        inputs["clients"] = Digest().array("marks", marks(total), "<i8").hex()
    rule = get_ridge_rule(start.options, held is not None)
    options = {**start.options.as_dict(), **FIXED, **rule, **o.recipe_options()}
    made_by = recipe("solve", options, inputs)
    return Job.for_file(o.out, made_by, compute)


def _find_head(statistics: Statistics, o: Solve, files: Files) -> tuple[Head, Mapping[str, Any]]:
    """The head that the statistics were gathered for, one phase before this solve, and its report.

    Before its first phase a head is its options, which the statistics hold; then it is in a file.
    """
    rows, wanted = statistics.context, statistics.context.head
    if o.head is None:
        fresh = read_head(wanted["name"], wanted["options"])
        if fresh.digest() == wanted["digest"]:
            return fresh, {}
        raise InputError(
            f"{o.total} was gathered for a {wanted['name']} head in phase {wanted['phase']!r}; the "
            "file of this head is needed: give it with --head FILE"
        )
    loaded = files.head(o.head)
    if loaded.head.digest() != wanted["digest"]:
        where = difference(binding(loaded.head), wanted, f"in {o.head}", f"in {o.total}")
        raise MismatchError(
            f"{o.total} was gathered for another head than {o.head}: "
            f"{where or 'its learned state differs'}; give the right one with --head FILE"
        )
    bound = {"space": rows.space, "classes": list(rows.classes)}
    heads.check_bound(o.head, loaded.header, o.total, bound)
    return loaded.head, loaded.report


def _check_held_out(path: Path | None, held: Statistics, total: Statistics) -> None:
    """Refuse sums for validation of another head, space or classes, or of rows of the total."""
    ours, theirs = total.context.as_dict(), held.context.as_dict()
    if where := difference(ours, theirs, "in the total", f"in {path}"):
        raise MismatchError(f"{path} does not belong to the total: {where}")
    if both := held.clients.keys() & total.clients.keys():
        raise MismatchError(
            f"{path}: client {min(both)} is held out and also in the total ({len(both)} clients "
            "are): validation needs clients that the head has not seen"
        )
    if pair := same_source(get_sources(total.clients), held.clients):
        raise MismatchError(
            f"{path}: client {pair[1]} has the rows of client {pair[0]} of the total: they come "
            "from the same feature file; validation needs rows that the head has not seen"
        )
