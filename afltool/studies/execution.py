"""A study carried out in one process: cell by cell; work that cells share is done once.

A cell with complete and valid files is kept. A cell that fails is named, and the others go on.
"""

from __future__ import annotations

import fnmatch
import logging
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from .. import progress
from ..errors import AflError, IncompleteError, NumericalError, StoppedError, UsageError
from ..inputs import distinct_files, read_json
from ..options.shards import parse_shard
from ..runs.layout import RunFolder
from ..runs.pipeline import link_file, run
from ..runs.shared import Shared, extract_key, partition_key
from ..runs.thinned import last_round
from ..stages.baseline import baseline
from ..stages.extract import extract
from ..stages.partition import partition
from ..stages.solve import solve
from ..store.atomic import write_text
from ..store.folders import SUMMARY, BaselineFolder
from ..store.hdf5 import read_header
from ..store.outputs import make_folder
from . import times
from .axes import changed_default
from .cells import BASELINE, LABEL, OF_BASELINE, Cell
from .description import Study
from .layout import StudyFolder

log = logging.getLogger("afltool.studies")
MOST_KILLED = 2  # processes that may die in a cell before the study leaves the cell out


def study(
    wanted: Study,
    out: str | Path,
    *,
    most: int = 1000,
    check: bool = False,
    only: str | None = None,
    prepare: bool = False,
) -> Path:
    """Carry out every cell of a study in the folder ``out``; returns it.

    ``only``: these cells alone, by the names of their folders, or part 'I/N' of the cells.
    ``prepare``: only what these cells share.

    Raises:
        UsageError: more cells than ``most``; nothing was begun.
        IncompleteError: some cells failed, the others are done.
        NumericalError: with ``check``, a total solved alone gives another head.
    """
    folder = StudyFolder(out)
    check_size(wanted, folder, most)
    cells = part_of(wanted.cells, only)
    make_folder(folder.root)
    wanted.keep(folder)
    work = _Execution(folder, len(cells), names_of_cells(wanted.cells))
    if prepare:
        work.prepare(cells)
        return folder.root
    todo = [cell for cell in cells if finished(folder, cell) is None]
    log.info(
        "study %s: %d cells, %d done, %d to do%s", wanted.name, len(cells),
        len(cells) - len(todo), len(todo), _estimate(folder, cells, todo),
    )  # fmt: skip
    failures = work.all(cells)
    times.note(work.took)
    if check:
        check_heads(folder, cells)
    if failures:
        raise IncompleteError(
            f"{len(failures)} of {len(cells)} cells failed: {'; '.join(failures)}. The others are "
            "done; the same command tries these again"
        )
    return folder.root


def check_size(wanted: Study, folder: StudyFolder, most: int) -> None:
    """Refuse a study of more cells than ``most``, before anything is begun."""
    if wanted.count() > most:
        raise UsageError(
            f"the study {wanted.name} has {wanted.count():,} cells{_how_long(wanted, folder)}; "
            f"--most {wanted.count()} starts it, more options make it smaller"
        )


def part_of(cells: list[Cell], only: str | None) -> list[Cell]:
    """The cells that ``only`` names, in their order; all of them for None."""
    if only is None:
        return cells
    if "/" in only:
        part, parts = parse_shard(only, "--only")
        return cells[len(cells) * part // parts : len(cells) * (part + 1) // parts]
    wanted = [one.strip() for one in only.split(",") if one.strip()]
    found = [cell for cell in cells if any(fnmatch.fnmatchcase(cell.key, one) for one in wanted)]
    if lacking := [one for one in wanted if not fnmatch.filter([c.key for c in found], one)]:
        raise UsageError(
            f"--only {lacking[0]}: no cell of the study has this name; cells are named as their "
            "folders (afltool status), or give part I/N"
        )
    return found


class _Execution:
    def __init__(self, folder: StudyFolder, total: int, names: Mapping[str, str]) -> None:
        self.folder, self.total, self.names, self.shared = folder, total, names, Shared()
        self.took: list[tuple[Cell, float]] = []

    def prepare(self, cells: list[Cell]) -> None:
        """Make the features of the cells, and the partitions of baselines; all that can be made.

        Raises `IncompleteError` naming the cells whose shared work failed.
        """
        failures: list[str] = []
        for cell in cells:
            progress.stop_point()
            try:
                with distinct_files():
                    self.shared_work(cell)
            except StoppedError:
                raise
            except (AflError, MemoryError, OSError) as error:
                failures.append(f"{self.names[cell.key]} ({_why(error)})")
        if failures:
            raise IncompleteError(f"what cells share could not be made: {'; '.join(failures)}")

    def shared_work(self, cell: Cell) -> None:
        """What this cell shares with others."""
        if cell.method is not None:
            self.prepared(cell)
        elif cell.config.extract is not None:
            for split in ("train", "test"):
                options = {**vars(cell.config.extract), "split": split}
                key = partial(extract_key, split, vars(cell.config.extract))
                self.shared.value(key, partial(extract, **options))

    def all(self, cells: list[Cell]) -> list[str]:
        """Carry out every cell; returns the failed ones by name, with the reason."""
        failures: list[str] = []
        for number, cell in enumerate(cells, 1):
            if finished(self.folder, cell) is not None:
                continue
            progress.stop_point()
            name, begun = self.names[cell.key], time.perf_counter()
            place = self.folder.cell(cell.key) / StudyFolder.FAILED
            try:
                with distinct_files(), _quiet(), _begun(place.with_name(StudyFolder.BEGUN)):
                    found = self.one(cell)
            except StoppedError:
                raise
            except (AflError, MemoryError, OSError) as error:
                why = _why(error)
                log.error("[%d/%d] %s failed: %s", number, self.total, name, why)
                failures.append(f"{name} ({why})")
                make_folder(place.parent)
                write_text(why + "\n", place, overwrite=True)
                continue
            with suppress(FileNotFoundError):
                place.unlink()
            self.took.append((cell, times.own_seconds(found)))
            log.info(
                "[%d/%d] %s: top-1 %.2f %% (%.1f s)", number, self.total, name,
                100 * found["top1"], time.perf_counter() - begun,
            )  # fmt: skip
        return failures

    def one(self, cell: Cell) -> dict[str, Any]:
        out = self.folder.cell(cell.key)
        old = outdated(self.folder, cell)
        if old is not None:
            log.info("%s is made again: %s", self.names[cell.key], old)
        again = old is not None
        if cell.method is None:
            run(cell.config, out, overwrite=again, shared=self.shared)
        else:
            train, test, clients = self.prepared(cell)
            own = {k: v for k, v in cell.settings.items() if k in OF_BASELINE}
            settings = {k: v for k, v in cell.settings.items() if k not in OF_BASELINE}
            baseline(
                cell.method, train, out, settings=settings, overwrite=again, partition=clients,
                test=test, **own,
            )  # fmt: skip
        found: dict[str, Any] = read_json(out / SUMMARY, "a summary")
        return found

    def prepared(self, cell: Cell) -> tuple[Path, Path, Path]:
        """Features and partition of a baseline, made by what `--print` shows."""
        train, test, clients = cell.files(self.folder)
        if cell.config.extract is not None:
            for split, place in (("train", train), ("test", test)):
                options = {**vars(cell.config.extract), "split": split}
                key = ["features", str(place)]
                self.shared.value(partial(list, key), partial(_features, options, place))
        if cell.config.partition is not None:
            options = vars(cell.config.partition)
            self.shared.value(
                lambda: ["clients", str(clients), partition_key(train, options)],
                lambda: str(partition(train, clients, **options)),
            )
        return train, test, clients


def _features(options: dict[str, Any], place: Path) -> str:
    make_folder(place.parent)
    return str(link_file(extract(**options), place, "features"))


@contextmanager
def _begun(mark: Path) -> Iterator[None]:
    """A mark beside a cell while it runs; the mark stays if the process is killed.

    If two processes were killed while they ran a cell, perhaps for their memory, the cell counts as
    failed this time, so that the others can run; the next time it is tried again.
    """
    make_folder(mark.parent)
    text = mark.read_text("utf-8", "replace").strip() if mark.is_file() else ""
    killed = int(text) if text.isdecimal() else 0
    try:
        if killed >= MOST_KILLED:
            raise IncompleteError(
                f"{killed} processes were killed while they ran it, perhaps for their memory"
            )
        with distinct_files():
            write_text(f"{killed + 1}\n", mark, overwrite=True)
        yield
    finally:
        with suppress(FileNotFoundError):
            mark.unlink()


@contextmanager
def _quiet() -> Iterator[None]:
    """A study logs one line per cell, not one per stage; with -v it logs all lines."""
    parent = logging.getLogger("afltool")
    before, own = parent.level, log.level
    log.setLevel(parent.getEffectiveLevel())
    if before > logging.DEBUG:
        parent.setLevel(max(before, logging.WARNING))
    try:
        yield
    finally:
        parent.setLevel(before)
        log.setLevel(own)


def _why(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return f"out of memory ({error})" if str(error) else "out of memory"
    return str(error) or type(error).__name__


# ------------------------------------------------------------ finished cells


def finished(folder: StudyFolder, cell: Cell) -> dict[str, Any] | None:
    """The summary of a cell if its folder has the head of the summary; otherwise None.

    It is None, too, where a default has changed since the cell was made; see `changed_default`.
    """
    found = _kept(folder, cell)
    return found if found is not None and changed_default(cell, found) is None else None


def outdated(folder: StudyFolder, cell: Cell) -> str | None:
    """Which default has changed since the cell was made, if one has."""
    with distinct_files():  # looking at an output is not reading it
        found = _kept(folder, cell)
    return None if found is None else changed_default(cell, found)


def _kept(folder: StudyFolder, cell: Cell) -> dict[str, Any] | None:
    place = folder.cell(cell.key)
    if not (place / SUMMARY).is_file():
        return None
    try:
        found = read_json(place / SUMMARY, "a summary")
        head = place / BaselineFolder.HEAD
        if cell.method is None:
            head = RunFolder(place).head(len(found["bytes_per_client"]))
        intact = read_header(head, "head")["digest"] == found["head_digest"]
    except (AflError, KeyError, TypeError):
        return None
    return found if intact and is_whole(found) else None


#: The entries that tables and pages take from the summary of a run or a baseline.
NUMBERS = ("top1", "n", "seconds", "upload_bytes", "download_bytes")


def is_whole(found: Mapping[str, Any]) -> bool:
    """Whether a summary still has the figures, digests and versions with which it was written."""
    digests, needed = found.get("digests"), {"train", "test", "partition", "head"}
    rounds = found.get("rounds")
    return (
        all(type(found.get(name)) in (int, float) for name in NUMBERS)
        and isinstance(digests, dict)
        and digests.keys() >= needed | ({"total", "first_head"} if "stages" in found else set())
        and all(isinstance(one, str) for one in digests.values())
        and isinstance(found.get("versions"), dict)
        and isinstance(rounds, list)
        and all(isinstance(one, dict) and isinstance(one.get("phase"), str) for one in rounds)
    )


def failure(folder: StudyFolder, cell: Cell) -> str | None:
    """Why a cell has no result, if it was tried."""
    place = folder.cell(cell.key) / StudyFolder.FAILED
    return place.read_text("utf-8", "replace").strip() if place.is_file() else None


def names_of_cells(cells: list[Cell]) -> dict[str, str]:
    """Names for people, by key: the label and the options that differ among its cells."""
    found: dict[str, str] = {}
    for label in dict.fromkeys(cell.label for cell in cells):
        alike = [cell for cell in cells if cell.label == label]
        axes = varying(alike)
        for cell in alike:
            told = [f"{n.replace('_', '-')} {cell.setting[n]}" for n in axes if n in cell.setting]
            found[cell.key] = ", ".join([label, *told])
    return found


def varying(cells: list[Cell]) -> list[str]:
    """Names of the options that are not equal in all cells."""
    names = dict.fromkeys(name for cell in cells for name in cell.setting)
    return [
        name
        for name in names
        if name not in (LABEL, "head", BASELINE)
        and len({str(cell.setting.get(name)) for cell in cells}) > 1
    ]


# ------------------------------------------------------------ how long


def _estimate(folder: StudyFolder, cells: list[Cell], todo: list[Cell]) -> str:
    """The time that the remaining cells will take, as such cells took here, or by the mean."""
    count, seconds = times.expected(todo)
    if todo and count == len(todo):
        return f", about {duration(seconds)}, as such cells took here before"
    known = [found["seconds"] for c in cells if (found := finished(folder, c)) is not None]
    if not known or not todo:
        return ""
    each = sum(known) / len(known)
    return f", about {duration(each * len(todo))} ({each:.1f} s a cell so far)"


def _how_long(wanted: Study, folder: StudyFolder) -> str:
    """The same for a study with too many cells, from any finished cells in its folder."""
    known = []
    for place in folder.root.glob(f"{StudyFolder.CELLS}/*/{SUMMARY}"):
        with suppress(AflError, KeyError, TypeError):
            known.append(float(read_json(place, "a summary")["seconds"]))
    if not known:
        return " (how long one takes is not known here: try --seeds 1, or fix an option)"
    each = sum(known) / len(known)
    return f", about {duration(each * wanted.count())} at {each:.1f} s a cell"


def duration(seconds: float) -> str:
    """Seconds in words.

    >>> duration(5.4), duration(7500)
    ('5 s', '2.1 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# ------------------------------------------------------------ solved alone


def check_heads(folder: StudyFolder, cells: list[Cell]) -> int:
    """Solve every round of every run again, by itself; returns the number of heads that agree.

    Raises `NumericalError` naming the cell whose head differs.
    """
    names, agreed, left = names_of_cells(cells), 0, 0
    for cell in cells:
        found = finished(folder, cell)
        if found is None or cell.method is not None:
            continue
        place = RunFolder(folder.cell(cell.key))
        start = cell.config.first_head or place.first_head
        if last_round(place, start) is not None:
            left += 1
            log.info(
                "%s: kept its last round alone (--keep-rounds last), so it is not solved again",
                names[cell.key],
            )
            continue
        for number in range(1, len(found["bytes_per_client"]) + 1):
            held = place.held_out(number) if place.held_out(number).exists() else None
            with (
                tempfile.TemporaryDirectory(dir=folder.root) as scratch,
                distinct_files(),
                _quiet(),
            ):
                how = {**vars(cell.config.solve), "head": start, "validate": held}
                alone = solve(place.total(number), Path(scratch) / "head.h5", **how)
                pair = [read_header(p, "head")["digest"] for p in (alone, place.head(number))]
            if pair[0] != pair[1]:
                raise NumericalError(
                    f"{names[cell.key]}: solved alone, round {number} gives the head "
                    f"{pair[0]}; the cell has {pair[1]}"
                )
            start, agreed = place.head(number), agreed + 1
    not_solved = f"; {left} cells kept their last round alone and cannot be checked" if left else ""
    log.info("study: %d heads solved alone have the digests of the cells%s", agreed, not_solved)
    return agreed
