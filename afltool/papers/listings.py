"""Lists about studies: the command lines and states of a study's cells, the shipped studies."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..progress import quiet
from .cells import Cell, StudyFolder, line
from .description import SHIPPED, read, shipped_names
from .results import results_of


def script(cells: list[Cell], folder: StudyFolder, last: list[str] | None = None) -> str:
    """The cells as a shell script: first the shared work, then one line per cell, in any order.

    ``last``: the command that takes over their results.
    """
    from ..plans.slurm.site import quoted

    def typed(command: list[str]) -> str:
        return " ".join(map(quoted, ["afltool", *command]))

    every = [[typed(one) for one in cell.commands(folder)] for cell in cells]
    before = list(dict.fromkeys(one for lines in every for one in lines[:-1]))
    text = ["# these first, in this order", *before] if before else []
    text += [f"# {len(every)} cells, in any order", *(lines[-1] for lines in every)]
    if last is not None:
        text += ["# last: takes over what is done, for table, report and status", typed(last)]
    return "\n".join(text) + "\n"


@quiet()
def listed(
    given: Mapping[str, Any] | None = None, seeds: int | None = None
) -> list[dict[str, Any]]:
    """Every study of the package: its name, cells, what it shows and needs.

    ``given``: options that replace those of the studies.
    """
    rows = []
    for name in shipped_names():
        study = read(SHIPPED / f"{name}.toml").changed(given or {}, seeds)
        texts = {key: study.texts.get(key, "") for key in ("title", "shows", "needs")}
        rows.append({"name": name, "cells": study.count(), **texts})
    return rows


def status(root: Path) -> dict[str, Any]:
    """The state of every cell, and the command that continues the study."""
    results = results_of(root)
    folder, cells = results.folder, list[dict[str, Any]]()
    for one in results.each:
        place, state = folder.cell(one.cell.key), one.state
        if state == "missing" and place.exists():
            state = "unfinished"
        top1 = None if one.found is None else one.found["top1"]
        cell = {"name": one.name, "folder": str(place), "state": state}
        cells.append({**cell, "why": one.why if state == "failed" else None, "top1": top1})
    again = line(["study", str(folder.root.absolute())])
    if folder.jobs.is_dir():  # jobs have begun it
        again = shlex.join(["bash", str(folder.jobs.absolute() / "submit.sh")])
    todo = [Path(one["folder"]).name for one in cells if one["state"] != "done"]
    return {
        "folder": str(root),
        "study": results.study.name,
        "state": "unfinished" if todo else "done",
        "counts": dict(Counter(one["state"] for one in cells)),
        "cells": cells,
        "todo": todo,
        "continue": again if todo else None,
    }


def print_status(facts: dict[str, Any]) -> None:
    """The cells of a study by their state, and the command that continues it."""
    from ..show.tables import print_parts
    from ..show.terminal import cell

    rows = []
    for one in facts["cells"]:
        what = one["why"] or ("" if one["top1"] is None else f"top-1 {one['top1']:.2%}")
        rows.append((one["name"], one["state"], what))
    counts = ", ".join(f"{number} {state}" for state, number in facts["counts"].items())
    end = f"{cell(facts['study'])}: {counts}: {cell(facts['folder'])}"
    print_parts(rows, end, facts["continue"])
