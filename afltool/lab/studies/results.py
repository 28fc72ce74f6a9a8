"""Which cells of a study have a result, what it is, and what cells are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct

from ...errors import AflError
from ...files.hdf5 import read_header
from ...files.headers import misfit
from ...files.schema import SUMMARY
from ...inputs import read_json
from ...options.base import flag, get_types
from ...runs.config import FIELDS
from ...runs.summary import plain
from .cells import BASELINE, LABEL, NO_AXES, Cell, StudyFolder
from .spec import Study, read_folder


@dataclass(frozen=True)
class Result:
    """A cell, its name for people, and its summary, or why it failed; neither: it is missing."""

    cell: Cell
    name: str
    found: dict[str, Any] | None
    why: str | None

    @property
    def state(self) -> str:
        return "done" if self.found is not None else "failed" if self.why else "missing"


@dataclass(frozen=True)
class Results:
    study: Study
    folder: StudyFolder
    each: list[Result]

    @property
    def done(self) -> list[tuple[Cell, dict[str, Any]]]:
        return [(one.cell, one.found) for one in self.each if one.found is not None]


def load_results(root: str | Path) -> Results:
    folder, study = StudyFolder(root), read_folder(Path(root))
    names = names_of_cells(study.cells)
    each = [
        Result(cell, names[cell.key], load_current(folder, cell), failure(folder, cell))
        for cell in study.cells
    ]
    return Results(study, folder, each)


def load_current(folder: StudyFolder, cell: Cell) -> dict[str, Any] | None:
    """The summary of a cell if its folder has the head of it, and no default has changed since."""
    summary = load_summary(folder, cell)
    return summary if summary is not None and find_changed_default(cell, summary) is None else None


def load_summary(folder: StudyFolder, cell: Cell) -> dict[str, Any] | None:
    """`load_current`, whatever the defaults were."""
    place = folder.cell(cell.key) / SUMMARY
    try:
        summary = read_json(place, "a summary") if place.is_file() else {}
        head = read_header(cell.get_head_path(folder, summary), "head") if is_whole(summary) else {}
    except (AflError, TypeError, KeyError):
        return None
    return dict(summary) if head and head["digest"] == summary.get("head_digest") else None


class _Summary(Struct):
    """What tables and pages take from the summary of a run or a baseline."""

    top1: float
    n: int
    seconds: float
    upload_bytes: float
    download_bytes: float
    digests: dict[str, str]
    versions: dict[str, Any]
    rounds: list[dict[str, Any]]


DIGESTS = {"train", "test", "partition", "head"}  # and of a run:
OF_A_RUN = {"total", "first_head"}


def is_whole(summary: Any) -> bool:
    """Whether a summary still has the figures, digests and versions with which it was written."""
    if misfit(summary, _Summary) or not all("phase" in one for one in summary["rounds"]):
        return False
    wanted = DIGESTS | OF_A_RUN if "stages" in summary else DIGESTS
    return wanted <= {*summary["digests"]}


def failure(folder: StudyFolder, cell: Cell) -> str | None:
    place = folder.cell(cell.key) / StudyFolder.FAILED
    return place.read_text("utf-8", "replace").strip() if place.is_file() else None


def group_failures(failures: Iterable[tuple[str, str]], most: int | None = None) -> str:
    """Names of cells, each with why it failed, a reason once: 'a, b (why); …'."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for one in failures:
        alike.setdefault(re.sub(r"[\d.]+", "", one[1]), []).append(one)
    lines = []
    for those in alike.values():
        left = f" and {len(those) - most} more" if most and len(those) > most else ""
        lines.append(f"{', '.join(name for name, _ in those[:most])}{left} ({those[0][1]})")
    return "; ".join(lines)


def names_of_cells(cells: list[Cell]) -> dict[str, str]:
    """Names for people, by key: the label and the options that differ among its cells."""
    names: dict[str, str] = {}
    for label in dict.fromkeys(cell.label for cell in cells):
        alike = [cell for cell in cells if cell.label == label]
        axes = varying(alike)
        for cell in alike:
            parts = [f"{n.replace('_', '-')} {cell.setting[n]}" for n in axes if n in cell.setting]
            names[cell.key] = ", ".join([label, *parts])
    return names


def varying(cells: list[Cell]) -> list[str]:
    names = dict.fromkeys(name for cell in cells for name in cell.setting)
    return [
        name
        for name in names
        if name not in (LABEL, "head", BASELINE)
        and len({str(cell.setting.get(name)) for cell in cells}) > 1
    ]


def get_axes(cell: Cell) -> dict[str, Any]:
    """Every option of a cell by its flat name, defaults too, and ``head``, its name in tables."""
    setting = cell.setting.items()
    given = {k: plain(v) for k, v in setting if k != LABEL and k not in NO_AXES}
    return {**cell.options(), **given, "head": cell.label}


def find_changed_default(cell: Cell, summary: Mapping[str, Any]) -> str | None:
    """An option that has another value now than when the ``summary`` was written, in words."""
    then: Any = summary.get(cell.KEPT) or {}
    for name, value in cell.kept_options().items():
        is_path = name in FIELDS and Path in get_types(FIELDS[name].info)
        if name in then and plain(then[name]) != plain(value) and not is_path:
            return f"{flag(name)} was {then[name]} and is {plain(value)} now"
    return None


OF_FEATURES = "extract", "features"  # stages of a run that make features, or take given ones


def compute_own_seconds(summary: Mapping[str, Any]) -> float:
    stages = summary.get("stages", [])
    images = sum(float(s["seconds"]) for s in stages if s["stage"].startswith(OF_FEATURES))
    return max(0.0, float(summary["seconds"]) - images)
