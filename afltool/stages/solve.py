"""Stage `solve`: a total → the head one phase further."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import cores
from ..errors import InputError, MismatchError, UsageError, naming
from ..files.arrays import damage_as_error
from ..files.hdf5 import read_header, recipe, up_to_date
from ..files.heads import check_bound, load_head, save_head, tell_idle
from ..files.statistics import load_statistics
from ..heads import HEADS, make_head
from ..heads.base import Head, binding, marks, solved
from ..heads.checks import check_total, chosen_by, with_options
from ..memory import NO_CACHE, Cache
from ..options.statistics import Solve, SolveOptions
from ..progress import log
from ..values.arrays import Digest
from ..values.statistics import Statistics, same_source, sources_of
from ..values.text import difference

FIXED = {"threads": 1}  # the recipes of all heads say so; nothing depends on it any more


def solve(o: Solve, *, cache: Cache = NO_CACHE, task: Task | None = None) -> Path:
    """Solve the head that the statistics in ``total`` were gathered for.

    ``head_options``: options of the head that may still change, such as a ridge. ``validate``: the
    sum over held-out clients. ``threads``: large factors are made by so many; the head has the same
    bits for any number, on one machine with one library. ``head``: the head file that the
    statistics were gathered for; needed after the first phase, when a head holds more than its
    options. ``task``: what `task_of` found of all this just now.
    """
    total, out, head_options, overwrite = o.total, o.out, o.head_options, o.overwrite
    with cores.using(o.threads):
        task = task or Task.of(total, o, head_options or {}, cache)
        _say_one_class(task.total, total)
        if up_to_date(out, task.made_by, overwrite):
            return out
        begun = time.perf_counter()
        after, done = solved(task.start, task.total, task.held_out)
        rounds = done.taking(time.perf_counter() - begun)
    report, clients = rounds.report(task.before), len(task.total.clients)
    save_head(out, after, task.made_by, task.total.context, cache, report, clients=clients)
    _say(after, out)
    return out


def task_of(
    inputs: Mapping[str, Any], options: SolveOptions, head_options: Mapping[str, Any], cache: Cache
) -> Task:
    """What `solve` does with these files and options; ``made_by`` is the recipe of its head."""
    return Task.of(inputs["total"], options, head_options, cache)


@dataclass(frozen=True)
class Task:
    """What is solved: the sums, the head one phase before, and what makes the head after it."""

    total: Statistics
    held_out: Statistics | None
    start: Head
    before: dict[str, Any]  # the report of its file
    made_by: dict[str, Any]

    @classmethod
    def of(cls, path: Path, o: SolveOptions, changed: Mapping[str, Any], cache: Cache) -> Task:
        total = load_statistics(path, cache=cache)
        if total.context.noise and "ridge" not in changed:
            raise UsageError(f"{path} is a sum with noise: give the ridge of its head, --ridge λ")
        held = None if o.validate is None else _held_out(o.validate, total, cache)
        with damage_as_error(path):
            given, before = _head_of(total, path, o.head, cache)
            start = with_options(given, **changed)
            tell_idle(start.options, changed)
            start = start.bind(total.context.space["dim"], len(total.context.classes))
        _check_arrays(start, total, path)
        if held is not None and o.validate is not None:
            _check_arrays(start, held, o.validate)
        inputs = {
            "total": total.digest(),
            "context": total.context.as_dict(),
            "gammas": sorted(total.gammas.items()),
            "validate": held.digest() if held else None,
            **HEADS.version(start.name),
        }
        if start.not_in_digest:  # it remembers who may take part in later rounds
            inputs["clients"] = Digest().array("marks", marks(total), "<i8").hex()
        rule = chosen_by(start.options, held is not None)
        made_by = recipe(
            "solve", {**start.options.as_dict(), **FIXED, **rule, **o.stored()}, inputs
        )
        return cls(total, held, start, before, made_by)


def _head_of(
    statistics: Statistics, total: Path, given: Path | None, cache: Cache
) -> tuple[Head, dict[str, Any]]:
    """The head that the statistics were gathered for, one phase before this solve, and its report.

    Before its first phase a head is its options, which the statistics hold. Later it has learned
    something: it is read from ``given``, or from where local-stats found it.
    """
    wanted = statistics.context.head
    if given is None:
        fresh = make_head(wanted["name"], wanted["options"])
        if fresh.digest() == wanted["digest"]:
            return fresh, {}
    path = _beside(total) if given is None else given
    if path is None:
        raise InputError(
            f"{total} was gathered for a {wanted['name']} head in phase {wanted['phase']!r}; the "
            "file of this head is needed and does not lie beside it: give it with --head FILE"
        )
    loaded = load_head(path, cache)
    head, header = loaded
    if head.digest() != wanted["digest"]:
        where = difference(binding(head), dict(wanted), f"in {path}", f"in {total}")
        where = where or "its learned state differs"
        raise MismatchError(
            f"{total} was gathered for another head than {path}: {where}; give the right one with "
            "--head FILE"
        )
    rows = statistics.context
    check_bound(path, header, total, {"space": rows.space, "classes": list(rows.classes)})
    return head, loaded.report


def _beside(total: Path) -> Path | None:
    """The head file that a total names: in its folder, in the one above or in the current one."""
    name = read_header(total, "statistics")["provenance"].get("head_file")
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


def _held_out(path: Path, total: Statistics, cache: Cache) -> Statistics:
    held = load_statistics(path, cache=cache)
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
    return held


def _say(head: Head, out: Path) -> None:
    if head.phase() is None:
        log.info("solve: done; %s", head.serves.format(out))
    else:
        log.info("solve: next phase %r: afltool local-stats … --head %s", head.phase(), out)
