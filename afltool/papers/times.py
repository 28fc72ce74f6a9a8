"""How long cells take: by those of the study, or by such cells on this machine before.

The latter are kept in the store beside the features. The file is a convenience: if it is lost or
damaged, estimates are, and nothing else.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import AflError
from ..files.atomic import write_text
from ..files.schema import SUMMARY
from ..inputs import distinct_files, read_json
from ..options.features import ExtractOptions
from ..options.partition import PartitionOptions
from ..sources.extraction.remembered import store_folder
from ..values.digest import Digest
from ..values.json_text import json_text
from .cells import SEEDS, Cell, features_of
from .description import Study
from .layout import StudyFolder
from .results import finished, resolved

FILE = "seconds-of-cells.json"  # by kind of cell: [seconds, cells]
OF_FEATURES = "extract", "features"  # stages of a run that make features, or take given ones
_MOST = 64 << 20  # bytes of the file
_EXPANDED = 1000  # cells that are looked at for the time of a study with too many
#: How rows are dealt does not change what they cost, but for the number of clients.
_DEALING = set(PartitionOptions.__dataclass_fields__) - {"clients"}


def own_seconds(found: Mapping[str, Any]) -> float:
    """The seconds of a summary, without those of the features."""
    stages = found.get("stages", [])
    images = sum(float(s["seconds"]) for s in stages if s["stage"].startswith(OF_FEATURES))
    return max(0.0, float(found["seconds"]) - images)


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
    for folder, found in _by_store((cell, 0.0) for cell in cells).items():
        known = _known(folder)
        for kind, _ in found:
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
    known = [found["seconds"] for c in cells if (found := finished(folder, c)) is not None]
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
    found: dict[Path, list[tuple[str, float]]] = {}
    for cell, seconds in cells:
        folder = store_folder(cell.config.extract or ExtractOptions(data="", backbone=""))
        if folder.is_dir():
            with suppress(AflError, OSError):  # features that are not there have no kind
                found.setdefault(folder, []).append((_kind(cell), seconds))
    return found


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
            found = read_json(folder / FILE, "seconds of cells", _MOST)
    except AflError:
        return {}
    whole = isinstance(found, dict) and all(map(_is_entry, found.values()))
    return found if whole else {}


def _is_entry(entry: Any) -> bool:
    numbers = isinstance(entry, list) and all(type(one) in (int, float) for one in entry)
    return numbers and len(entry) == 2 and entry[0] >= 0 and entry[1] >= 1
