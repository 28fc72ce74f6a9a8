"""Which cells of a study have a result, what it is, what cells are called, and how long they take.

How long is known by those of the study, or by such cells on this machine before. These are kept in
the store beside the features. The file is a convenience: if it is lost or damaged, estimates are,
and nothing else.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import AflError, UsageError
from ..files.atomic import write_text
from ..files.hdf5 import read_header
from ..files.schema import SUMMARY
from ..heads import OPTIONS, make_options
from ..inputs import distinct_files, read_json
from ..options import flag
from ..options.features import ExtractOptions, store_folder
from ..options.partition import PartitionOptions
from ..plans.config import FIELDS, PARTS
from ..plans.layout import RunFolder
from ..plans.summary import PRESET, plain
from ..values.arrays import Digest
from ..values.text import json_text
from .cells import (
    BASELINE,
    LABEL,
    NO_AXES,
    SEEDS,
    Cell,
    StudyFolder,
    features_of,
    made_settings,
    own_names,
)
from .description import Study, of_folder


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
    """What the cells of a study have brought, in its order."""

    study: Study
    folder: StudyFolder
    each: list[Result]

    @property
    def done(self) -> list[tuple[Cell, dict[str, Any]]]:
        return [(one.cell, one.found) for one in self.each if one.found is not None]


def results_of(root: str | Path) -> Results:
    """The results in the folder of a study."""
    folder, study = StudyFolder(root), of_folder(Path(root))
    names = names_of_cells(study.cells)
    each = [
        Result(cell, names[cell.key], finished(folder, cell), failure(folder, cell))
        for cell in study.cells
    ]
    return Results(study, folder, each)


def finished(folder: StudyFolder, cell: Cell) -> dict[str, Any] | None:
    """The summary of a cell if its folder has the head of the summary; otherwise None.

    It is None, too, where a default has changed since the cell was made; see `changed_default`.
    """
    summary = _kept(folder, cell)
    return summary if summary is not None and changed_default(cell, summary) is None else None


def outdated(folder: StudyFolder, cell: Cell) -> str | None:
    """Which default has changed since the cell was made, if one has."""
    with distinct_files():  # looking at an output is not reading it
        summary = _kept(folder, cell)
    return None if summary is None else changed_default(cell, summary)


def _kept(folder: StudyFolder, cell: Cell) -> dict[str, Any] | None:
    place = folder.cell(cell.key)
    if not (place / SUMMARY).is_file():
        return None
    try:
        summary = read_json(place / SUMMARY, "a summary")
        head = place / cell.head
        if cell.method is None:
            head = RunFolder(place).head(len(summary["bytes_per_client"]))
        intact = read_header(head, "head")["digest"] == summary["head_digest"]
    except (AflError, KeyError, TypeError):
        return None
    return summary if intact and is_whole(summary) else None


#: The entries that tables and pages take from the summary of a run or a baseline.
NUMBERS = ("top1", "n", "seconds", "upload_bytes", "download_bytes")


def is_whole(summary: Mapping[str, Any]) -> bool:
    """Whether a summary still has the figures, digests and versions with which it was written."""
    digests, needed = summary.get("digests"), {"train", "test", "partition", "head"}
    rounds = summary.get("rounds")
    return (
        all(type(summary.get(name)) in (int, float) for name in NUMBERS)
        and isinstance(digests, dict)
        and digests.keys() >= needed | ({"total", "first_head"} if "stages" in summary else set())
        and all(isinstance(one, str) for one in digests.values())
        and isinstance(summary.get("versions"), dict)
        and isinstance(rounds, list)
        and all(isinstance(one, dict) and isinstance(one.get("phase"), str) for one in rounds)
    )


def failure(folder: StudyFolder, cell: Cell) -> str | None:
    """Why a cell has no result, if it was tried."""
    place = folder.cell(cell.key) / StudyFolder.FAILED
    return place.read_text("utf-8", "replace").strip() if place.is_file() else None


def by_reason(failures: Iterable[tuple[str, str]], most: int | None = None) -> str:
    """Names of cells, each with why it failed, as text that says a reason once: 'a, b (why); …'.

    Reasons that differ in numbers alone, such as free memory, are one. ``most``: names of a reason,
    the rest is counted.
    """
    alike: dict[str, tuple[str, list[str]]] = {}
    for name, why in failures:
        alike.setdefault(re.sub(r"[\d.]+", "", why), (why, []))[1].append(name)
    lines = []
    for why, names in alike.values():
        left = len(names) - len(names[:most])
        lines.append(f"{', '.join(names[:most])}{f' and {left} more' if left else ''} ({why})")
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
    """Names of the options that are not equal in all cells."""
    names = dict.fromkeys(name for cell in cells for name in cell.setting)
    return [
        name
        for name in names
        if name not in (LABEL, "head", BASELINE)
        and len({str(cell.setting.get(name)) for cell in cells}) > 1
    ]


def axes_of(cell: Cell) -> dict[str, Any]:
    """Every option of a cell by its flat name, defaults too, and ``head``, its name in tables."""
    axes = resolved(cell)
    axes |= {k: plain(v) for k, v in cell.setting.items() if k != LABEL and k not in NO_AXES}
    return {**axes, "head": cell.label}


def resolved(cell: Cell) -> dict[str, Any]:
    """The options of a cell as the program resolves them; of a baseline those that are given."""
    axes: dict[str, Any] = {}
    for part in ("extract", "partition", "local_stats", "aggregate"):
        options, names = getattr(cell.config, part), PARTS[part][1]
        for f in () if options is None else fields(options):
            if f.metadata["in_run"] and f.metadata["in_result"]:
                axes[names.get(f.name, f.name)] = plain(getattr(options, f.name))
    return axes | _of_head(cell)


def _of_head(cell: Cell) -> dict[str, Any]:
    name = cell.config.own.head
    if cell.method is not None:
        called = {own: name for name, own in own_names(cell.method).items()}
        return {called[k]: plain(v) for k, v in cell.settings.items()}
    if name not in OPTIONS:
        return {}
    try:
        options = make_options(name, cell.config.all_head_options()).as_dict()
    except UsageError:  # a cell that cannot run has no result, only the options that it was given
        options = cell.config.all_head_options()
    return {"head_seed" if k == "seed" else k: plain(v) for k, v in options.items()}


def changed_default(cell: Cell, summary: Mapping[str, Any]) -> str | None:
    """An option that has another value now than when the summary ``found`` was written, in words.

    The key of a cell holds the options that were given. If a default or a preset has changed since
    then, the result is that of another setting.
    """
    then = summary.get("options" if cell.method is None else "settings")
    if not isinstance(then, Mapping):
        return None
    for name, value in _now(cell).items():
        if name in then and plain(then[name]) != value:
            return f"{flag(name)} was {then[name]} and is {value} now"
    return None


def _now(cell: Cell) -> dict[str, Any]:
    """The options that decide the result, as the program resolves them now; no paths."""
    if cell.method is not None:
        settings = made_settings(cell.method, cell.settings).as_dict()
        return {k: plain(v) for k, v in settings.items()}
    return {
        name: value
        for name, value in resolved(cell).items()
        if name not in ("head", PRESET) and "Path" not in str(getattr(FIELDS.get(name), "type", ""))
    }


FILE = "seconds-of-cells.json"  # by kind of cell: [seconds, cells]
OF_FEATURES = "extract", "features"  # stages of a run that make features, or take given ones
_MOST = 64 << 20  # bytes of the file
_EXPANDED = 1000  # cells that are looked at for the time of a study with too many
#: How rows are dealt does not change what they cost, but for the number of clients.
_DEALING = set(PartitionOptions.__dataclass_fields__) - {"clients"}


def own_seconds(summary: Mapping[str, Any]) -> float:
    """The seconds of a summary, without those of the features."""
    stages = summary.get("stages", [])
    images = sum(float(s["seconds"]) for s in stages if s["stage"].startswith(OF_FEATURES))
    return max(0.0, float(summary["seconds"]) - images)


def note(took: Iterable[tuple[Cell, float]]) -> None:
    """Keep what cells took, where there is a store."""
    for folder, cells in _by_store(took).items():
        known = _known(folder)
        for kind, seconds in cells:
            total, count = known.get(kind, (0.0, 0))
            known[kind] = [round(total + seconds, 3), count + 1]
        with suppress(AflError), distinct_files():  # another study may be writing it
            write_text(json_text(known) + "\n", folder / FILE, overwrite=True)


def any_known(given: Mapping[str, Any]) -> bool:
    """Whether the store that these options mean knows any times."""
    options = ExtractOptions(data="", backbone="", store=given.get("store"))
    return (store_folder(options) / FILE).is_file()


def expected(cells: Iterable[Cell]) -> tuple[int, float]:
    """How many of these cells are of a kind that has been timed here, and seconds of all those."""
    count, sum_ = 0, 0.0
    for folder, pairs in _by_store((cell, 0.0) for cell in cells).items():
        known = _known(folder)
        for kind, _ in pairs:
            if kind in known:
                count, sum_ = count + 1, sum_ + known[kind][0] / known[kind][1]
    return count, sum_


def of_rest(folder: StudyFolder, cells: list[Cell], todo: list[Cell], jobs: int = 1) -> str:
    """The time that the remaining cells will take, as such cells took here, or by the mean.

    ``jobs``: cells that are carried out at the same time.
    """
    count, seconds = expected(todo)
    if todo and count == len(todo):
        return f", about {duration(seconds / jobs)}, as such cells took here before"
    known = [summary["seconds"] for c in cells if (summary := finished(folder, c)) is not None]
    if not known or not todo:
        return ""
    each = sum(known) / len(known)
    return f", about {duration(each * len(todo) / jobs)} ({each:.1f} s per cell so far)"


def of_all(wanted: Study, folder: StudyFolder) -> str:
    """The same for a study with too many cells, from any finished cells in its folder.

    Otherwise from the cells of one seed, if all of them are of kinds that have been timed here.
    """
    known = []
    for place in folder.root.glob(f"{StudyFolder.CELLS}/*/{SUMMARY}"):
        with suppress(AflError, KeyError, TypeError):
            known.append(float(read_json(place, "a summary")["seconds"]))
    if not known:
        few = wanted.changed({}, 1)
        cells = few.cells if few.count() <= _EXPANDED else []
        count, seconds = expected(cells)
        if cells and count == len(cells):
            whole = duration(seconds / count * wanted.count())
            return f", about {whole}, as such cells took here before"
        return " (how long one takes is not known here: try --seeds 1, or fix an option)"
    each = sum(known) / len(known)
    return f", about {duration(each * wanted.count())} at {each:.1f} s per cell"


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(5.4), duration(7500)
    ('5 s', '2.1 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _by_store(cells: Iterable[tuple[Cell, float]]) -> dict[Path, list[tuple[str, float]]]:
    by_store: dict[Path, list[tuple[str, float]]] = {}
    for cell, seconds in cells:
        folder = store_folder(cell.config.extract or ExtractOptions(data="", backbone=""))
        if folder.is_dir():
            with suppress(AflError, OSError):  # features that are not there have no kind
                by_store.setdefault(folder, []).append((_kind(cell), seconds))
    return by_store


def _kind(cell: Cell) -> str:
    """A name for all that decides the time of a cell: machine, features, clients, options."""
    options = {k: v for k, v in resolved(cell).items() if k not in {*SEEDS, *_DEALING}}
    method = cell.method or cell.config.own.head
    content = [platform.node(), method, features_of(cell.config), options]
    return Digest().json("kind", content).hex()[:32]


def _known(folder: Path) -> dict[str, Any]:
    """What the file says; nothing where there is none that can be read."""
    try:
        with distinct_files():
            seconds = read_json(folder / FILE, "seconds of cells", _MOST)
    except AflError:
        return {}
    whole = isinstance(seconds, dict) and all(map(_is_entry, seconds.values()))
    return seconds if whole else {}


def _is_entry(entry: Any) -> bool:
    numbers = isinstance(entry, list) and all(type(one) in (int, float) for one in entry)
    return numbers and len(entry) == 2 and entry[0] >= 0 and entry[1] >= 1
