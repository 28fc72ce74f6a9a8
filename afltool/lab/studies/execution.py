"""A study carried out: here by one process or several, or on Slurm; and its state.

On Slurm it is an array whose task I is `afltool study . --only I/N`, by the scripts of a run, see
`runs.slurm.jobs`. What cells share is made by the one that comes first.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...errors import AflError, IncompleteError, UsageError, naming
from ...files.outputs import make_folder
from ...options.base import flag
from ...options.grammars import Part
from ...progress import event, quiet
from ...runs.folder import RunFolder
from ...runs.slurm import jobs
from ...runs.slurm.site import Site, load_site
from ...runs.summary import log_done
from .cells import Cell, StudyFolder, line
from .options import RunStudy, StudyOptions
from .results import failure, group_failures, load_current, load_results, names_of_cells
from .spec import SHIPPED, Study, find, list_shipped, open_study, read_study
from .worker import Worker, Workers, log, select_part

MOST_NAMED = 5  # cells of one reason in the last message; each has its own line before it


def study(o: RunStudy) -> Path:
    """Carry out every cell of a study in the folder ``out``; returns it.

    ``study``: a TOML file, the name of a study of the package, or the folder of a study, which is
    then ``out``, too. ``axes``: options that replace those of the study, by their names in its
    file; a list is an axis. ``seeds``: 0 … seeds − 1 instead of the study's. ``only``: these cells
    alone, by the names of their folders, or part 'I/N' of the cells. ``jobs``: processes at the
    same time, of one thread each. Raises `IncompleteError` where some cells failed.
    """
    return carry_out(*open_study(o.study, o.out, o.axes, o.seeds), o)


def carry_out(wanted: Study, folder: StudyFolder, options: StudyOptions) -> Path:
    cells = select_part(wanted.cells, options.only)
    todo = [cell for cell in cells if load_current(folder, cell) is None]
    check_cells(wanted, folder, todo)
    make_folder(folder.root)
    wanted.keep(folder)
    worker = Worker(wanted, folder, cells)
    facts = {"study": wanted.name, "cells": len(cells)}
    event("run_begun", folder=folder.root, what="study", options=facts)
    done = len(cells) - len(todo)
    log.info("study %s: %d cells, %d done, %d to do", wanted.name, len(cells), done, len(todo))
    for text in describe_plan(todo):
        log.info("%s", text)
    for cell in cells:
        (folder.cell(cell.key) / StudyFolder.FAILED).unlink(missing_ok=True)
        if cell not in todo:
            log_done(folder.cell(cell.key), cell.HEAD)
    several = options.jobs > 1 and todo[1:]
    (Workers(worker, todo, options.jobs, options.only) if several else worker).run_all()
    lacking = [cell for cell in cells if load_current(folder, cell) is None]
    event("run_done", folder=folder.root, summary={**facts, "failed": len(lacking)})
    if lacking:
        why = [(worker.names[cell.key], failure(folder, cell) or "unknown") for cell in lacking]
        raise IncompleteError(
            f"{len(lacking)} of {len(cells)} cells failed: {group_failures(why, MOST_NAMED)}. The "
            "others are done; the same command tries these again"
        )
    return folder.root


def describe_plan(cells: list[Cell]) -> Iterator[str]:
    """What is to be done: cells of each method, their rounds, and where the time will go."""
    images = {str(cell.config.extract.changed_options()) for cell in cells if cell.config.extract}
    if images:
        yield f"images: features of {len(images)} settings are extracted, unless the store has them"
    by_label: dict[str, list[int]] = {}
    for cell in cells:
        by_label.setdefault(cell.label, []).append(cell.rounds())
    every = sum(map(sum, by_label.values()))
    for label, rounds in by_label.items():
        low, high = min(rounds), max(rounds)
        each = f"{low} to {high} rounds" if low < high else f"{low} round{'s' * (low > 1)}"
        share = f", {sum(rounds) / max(every, 1):.0%} of all rounds" if len(by_label) > 1 else ""
        yield f"{label}: {len(rounds)} cell{'s' * (len(rounds) > 1)} of {each}{share}"


def check_cells(
    wanted: Study, folder: StudyFolder, cells: list[Cell], *, here: bool = True
) -> None:
    """Refuse a cell that would fail, as its own command does; say options of some methods alone."""
    for name, methods, taken in wanted.left_out:
        if not taken:
            raise UsageError(f"{flag(name)} is no option of {', '.join(methods)}: leave it out")
        log.info("study %s: %s without %s", wanted.name, ", ".join(methods), flag(name))
    names, known = names_of_cells(wanted.cells), set[str]()
    for cell in cells:
        with naming(names[cell.key], AflError):
            cell.check(folder, here, known)


def script_texts(study: Study, site: Site, out: Path) -> dict[str, str]:
    """Every script of a study by its name, and what submit.sh submits; nothing is written."""
    folder = StudyFolder(out)
    todo = [cell for cell in study.cells if load_current(folder, cell) is None]
    check_cells(study, folder, todo, here=False)
    asking = 'lines=$("${run[@]}" study . --slurm --next) || exit\neval "$lines"'
    texts = jobs.scripts(out.absolute(), site, "study .", asking, "afterany")
    return {**texts, "jobs": _lines(study, site, folder)}


def next_lines(out: str | Path) -> str:
    folder = StudyFolder(out)
    return _lines(find(str(out)), load_site(folder.root / RunFolder.SITE), folder)


def _lines(study: Study, site: Site, folder: StudyFolder) -> str:
    """A task is a cell, or several where Slurm takes no more tasks."""
    cells, count = study.cells, min(len(study.cells), site.max_array)
    lacking = {cell.key for cell in cells if load_current(folder, cell) is None}
    parts = (Part(i, count).of(len(cells)) for i in range(count))
    todo = [i for i, part in enumerate(parts) if lacking & {c.key for c in cells[part]}]
    if not todo:
        return "echo every cell has its result\n"
    array = jobs.Job("cells", "study", ("--only", f"%I/{count}"), (), tuple(todo))
    return jobs.submit_lines([array], site, folder.root.absolute())


def prepare(study: Study, site: Site, out: str | Path) -> Path:
    folder = StudyFolder(out)
    texts = script_texts(study, site, folder.root)
    make_folder(folder.root)
    study.keep(folder)
    return jobs.keep_scripts(texts, site, folder.root)


@quiet()
def list_studies(
    given: Mapping[str, Any] | None = None, seeds: int | None = None
) -> list[dict[str, Any]]:
    """Every study of the package, with options ``given``: its name, cells, texts."""
    rows = []
    for name in list_shipped():
        study = read_study(SHIPPED / f"{name}.toml").with_options(given or {}, seeds)
        texts = {key: study.texts.get(key, "") for key in ("title", "shows", "needs")}
        rows.append({"name": name, "cells": len(study.cells), **texts})
    return rows


def status(root: Path) -> dict[str, Any]:
    results = load_results(root)
    folder, cells = results.folder, list[dict[str, Any]]()
    for one in results.each:
        place = folder.cell(one.cell.key)
        state = "unfinished" if one.state == "missing" and place.exists() else one.state
        top1 = None if one.found is None else one.found["top1"]
        cell = {"name": one.name, "folder": str(place), "state": state}
        cells.append({**cell, "why": one.why if state == "failed" else None, "top1": top1})
    again = line(["study", str(folder.root.absolute())])
    if folder.jobs.is_dir():  # jobs have begun it
        again = shlex.join(["bash", str(folder.jobs.absolute() / "submit.sh")])
    counts = dict(Counter(one["state"] for one in cells))
    done = counts.keys() == {"done"}
    return {
        "folder": str(root),
        "study": results.study.name,
        "state": "done" if done else "unfinished",
        "counts": counts,
        "cells": cells,
        "continue": None if done else again,
    }


def print_status(facts: dict[str, Any]) -> None:
    from ...rendering.tables import print_parts
    from ...rendering.terminal import cell

    rows = []
    for one in facts["cells"]:
        what = one["why"] or ("" if one["top1"] is None else f"top-1 {one['top1']:.2%}")
        rows.append((one["name"], one["state"], what))
    counts = ", ".join(f"{number} {state}" for state, number in facts["counts"].items())
    end = f"{cell(facts['study'])}: {counts}: {cell(facts['folder'])}"
    print_parts(rows, end, facts["continue"])
