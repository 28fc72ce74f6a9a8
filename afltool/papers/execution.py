"""A study carried out on this machine, in one process or in several."""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterator
from pathlib import Path

from ..errors import AflError, IncompleteError, UsageError, naming
from ..files.outputs import make_folder
from ..options.base import flag
from ..options.grammars import parse_part
from ..plans.summary import tell_done
from ..progress import event
from .cells import Cell, StudyFolder
from .description import MOST_CELLS, Study, asked_for
from .options import RunStudy, StudyOptions, words_of
from .results import by_reason, failure, finished, names_of_cells
from .worker import Worker, Workers, clear, forget_steps, log

MOST_NAMED = 5  # cells of one reason in the last message; each has its own line before it


def study(o: RunStudy) -> Path:
    """Carry out every cell of a study in the folder ``out``; returns it.

    ``study``: a TOML file, the name of a study of the package, or the folder of a study, which is
    then ``out``, too. ``axes``: options that replace those of the study, by their names in its
    file; a list is an axis. ``seeds``: 0 … seeds − 1 instead of the study's. ``only``: these cells
    alone, by the names of their folders, or part 'I/N' of the cells. ``prepare``: only what these
    cells share. ``jobs``: processes at the same time, of one thread each.

    Raises:
        UsageError: more cells than ``most``; nothing was begun.
        IncompleteError: some cells failed, the others are done.
    """
    return carry_out(*asked_for(o.study, o.out, o.axes, o.seeds), o)


def carry_out(wanted: Study, folder: StudyFolder, options: StudyOptions) -> Path:
    """`study` of one that is read."""
    check_size(wanted, options.most)
    cells = part_of(wanted.cells, options.only)
    todo = [cell for cell in cells if finished(folder, cell) is None]
    check_cells(wanted, folder, todo)
    make_folder(folder.root)
    wanted.keep(folder)
    worker = Worker(wanted, folder, cells)
    if options.prepare:
        if failures := [(worker.names[cell.key], why) for cell, why in worker.prepare(cells)]:
            reasons = by_reason(failures, MOST_NAMED)
            raise IncompleteError(f"what cells share could not be made: {reasons}")
        return folder.root
    facts = {"study": wanted.name, "cells": len(cells)}
    event("run_begun", folder=folder.root, what="study", options=facts)
    done = len(cells) - len(todo)
    log.info("study %s: %d cells, %d done, %d to do", wanted.name, len(cells), done, len(todo))
    for text in planned(todo):
        log.info("%s", text)
    for cell in cells:
        clear(folder, cell)
        if cell not in todo:
            tell_done(folder.cell(cell.key), cell.head)
    Workers(worker, todo, options.jobs).all() if options.jobs > 1 and todo[1:] else worker.all()
    again = "another call of the study tries it again"
    failures = [
        (worker.names[cell.key], failure(folder, cell) or again)
        for cell in cells
        if finished(folder, cell) is None
    ]
    event("run_done", folder=folder.root, summary={**facts, "failed": len(failures)})
    if failures:
        words = shlex.join(["afltool", "study", str(folder.root), "--ridge", "auto"])
        hint = f", and this gives them a ridge: {words}"
        lack_ridge = any("--ridge auto" in why for _, why in failures)
        raise IncompleteError(
            f"{len(failures)} of {len(cells)} cells failed: {by_reason(failures, MOST_NAMED)}. The "
            f"others are done; the same command tries these again{hint * lack_ridge}"
        )
    forget_steps(folder, wanted.cells)
    return folder.root


def planned(cells: list[Cell]) -> Iterator[str]:
    """What is to be done: cells of each method, their rounds, and where the time will go."""
    images = {str(cell.config.extract.changed()) for cell in cells if cell.config.extract}
    if images:
        yield f"images: features of {len(images)} settings are extracted, unless the store has them"
    by_label: dict[str, list[int]] = {}
    known: dict[str, int] = {}  # a head file is read once
    for cell in cells:
        of = str([cell.method, cell.settings, cell.config.own.head, cell.config.all_head_options()])
        if of not in known:
            known[of] = cell.rounds()
        by_label.setdefault(cell.label, []).append(known[of])
    every = sum(map(sum, by_label.values()))
    for label, rounds in by_label.items():
        low, high = min(rounds), max(rounds)
        each = f"{low} to {high} rounds" if low < high else f"{low} round{'s' * (low > 1)}"
        share = f", {sum(rounds) / max(every, 1):.0%} of all rounds" if len(by_label) > 1 else ""
        yield f"{label}: {len(rounds)} cell{'s' * (len(rounds) > 1)} of {each}{share}"


def check_size(wanted: Study, most: int) -> None:
    """Refuse a study of more cells than ``most``, before anything is begun."""
    count = wanted.count()
    if count > most:
        starts = f"--most {count} starts it" if count <= MOST_CELLS else f"{MOST_CELLS:,} may start"
        raise UsageError(
            f"the study {wanted.name} has {count:,} cells; {starts}, more options make it smaller"
        )


def check_cells(
    wanted: Study, folder: StudyFolder, cells: list[Cell], *, here: bool = True
) -> None:
    """Refuse a study with a cell that would fail, as the cell's own command does; names the cell.

    What cells have in common is checked once, and cells that are done are not. Options that only
    some methods have are said. ``here``: see `plans.checks.check_before`.
    """
    for name, methods, taken in wanted.left_out:
        if not taken:
            raise UsageError(f"{flag(name)} is no option of {', '.join(methods)}: leave it out")
        log.info("study %s: %s without %s", wanted.name, ", ".join(methods), flag(name))
    names, known = names_of_cells(wanted.cells), set[str]()
    for cell in cells:
        if finished(folder, cell) is None:
            with naming(names[cell.key], AflError):
                cell.check(folder, here, known)


def part_of(cells: list[Cell], only: str | None) -> list[Cell]:
    """The cells that ``only`` names, in their order; all of them for None."""
    if only is None:
        return cells
    if "/" in only:
        return cells[parse_part(only, "--only").of(len(cells))]
    keys, named = [cell.key for cell in cells], words_of(only)
    if lacking := [one for one in named if not fnmatch.filter(keys, one)]:
        raise UsageError(
            f"--only {lacking[0]}: no cell of the study has this name; cells are named as their "
            "folders (afltool status), or give part I/N"
        )
    return [cell for cell in cells if any(fnmatch.fnmatchcase(cell.key, one) for one in named)]
