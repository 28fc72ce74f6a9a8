"""Cells of a study, one after another in one process; work that they share is done once.

A cell with complete and valid files is kept. A cell that fails is named, and the others go on.
Several processes may work on one folder: a cell that another one is at work on comes later.
"""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .. import progress
from ..errors import AflError, BusyError, IncompleteError, RidgeNeededError, StoppedError
from ..files.atomic import link_or_copy, write_text
from ..files.locks import marked
from ..files.outputs import make_folder
from ..files.schema import SUMMARY
from ..inputs import distinct_files, read_json
from ..plans.checks import EVALUATE, SOLVE, difference_of
from ..plans.config import RunConfig, read_config
from ..plans.here import run
from ..plans.layout import RunFolder
from ..plans.made import Made
from ..plans.summary import remove_rounds, tell_done
from ..progress import quiet
from .cells import Cell, StudyFolder, baseline
from .results import by_reason, finished, outdated

log = logging.getLogger("afltool.papers")
Failure = tuple[str, str]  # the name of a cell, and why it failed
MOST_NAMED = 5  # cells of one reason in the last message; each has its own line before it
WAIT = 5  # tenths of a second until a cell that another process is at work on is tried again
MOST_KILLED = 2  # processes that may die in a cell before the study leaves the cell out


class OneProcess:
    """The cells of a study, carried out here."""

    def __init__(self, folder: StudyFolder, total: int, names: Mapping[str, str]) -> None:
        self.folder, self.total, self.names, self.made = folder, total, names, Made()
        self.number = 0  # of the cell that is tried
        self.wants_ridge = False  # whether a cell failed for the lack of one
        self.busy: list[tuple[int, Cell]] = []  # other processes are at work on them
        self.waited: set[str] = set()  # keys of the cells of which that was said

    def prepare(self, cells: list[Cell]) -> None:
        """Make the features of the cells, and the partitions of baselines; all that can be made.

        Raises `IncompleteError` naming the cells whose shared work failed.
        """
        failures: list[Failure] = []
        for cell in cells:
            progress.stop_point()
            try:
                with distinct_files():
                    self.shared_work(cell)
            except StoppedError:
                raise
            except (AflError, MemoryError, OSError) as error:
                failures.append((self.names[cell.key], why_of(error)))
        if failures:
            reasons = by_reason(failures, MOST_NAMED)
            raise IncompleteError(f"what cells share could not be made: {reasons}")

    def shared_work(self, cell: Cell) -> None:
        """Make what this cell shares with others; a run links its features itself."""
        make_folder(self.folder.root / StudyFolder.SHARED)
        for step in cell.shared(self.folder):
            (self.made.stored if cell.method is None else self.made.carry_out)(step)

    def all(self, cells: list[Cell]) -> list[Failure]:
        """Carry out every cell; returns the failed ones.

        Cells that can take over one another's rounds come one after another.
        """
        failures: list[Failure] = []
        for group in groups(cells):
            with self.made.rounds_kept():
                failures += filter(None, map(self.tried, group))
        while self.busy:
            failures += self.again()
        return failures

    def advice(self) -> str:
        """The command that gives a ridge to the cells that failed without one."""
        words = shlex.join(["afltool", "study", str(self.folder.root), "--ridge", "auto"])
        return f", and this gives them a ridge: {words}" if self.wants_ridge else ""

    def again(self) -> list[Failure]:
        """Try each cell that another process was at work on once more, a little later."""
        for _ in range(WAIT):
            time.sleep(0.1)
            progress.stop_point()
        busy, self.busy, failed = self.busy, [], []
        for number, cell in busy:
            self.number = number - 1
            failed.append(self.tried(cell))
        return [one for one in failed if one is not None]

    def tried(self, cell: Cell) -> Failure | None:
        """Carry out a cell, unless it is finished; returns its failure if it fails."""
        self.number += 1
        summary = finished(self.folder, cell)
        if summary is not None:
            own = RunFolder(self.folder.cell(cell.key))
            if cell.thinned and own.head(1).exists():  # left by a process that was killed
                remove_rounds(own, len(summary["bytes_per_client"]))
            tell_done(own.root, cell.head)
            return None
        progress.stop_point()
        name, begun = self.names[cell.key], time.perf_counter()
        place = self.folder.cell(cell.key)
        try:
            with distinct_files(), quiet(log), _begun(place / StudyFolder.BEGUN):
                summary = self.one(cell)
        except StoppedError:
            raise
        except BusyError as error:
            self.later(cell, name, error)
            return None
        except (AflError, MemoryError, OSError) as error:
            self.wants_ridge |= isinstance(error, RidgeNeededError)
            return self.failed(cell, why_of(error))
        with suppress(FileNotFoundError):
            (place / StudyFolder.FAILED).unlink()
        log.info(
            "[%d/%d] %s: top-1 %.2f %% (%.1f s)", self.number, self.total, name,
            100 * summary["top1"], time.perf_counter() - begun,
        )  # fmt: skip
        return None

    def failed(self, cell: Cell, why: str) -> Failure:
        """Say why a cell failed, there and to the user."""
        name, place = self.names[cell.key], self.folder.cell(cell.key)
        log.error("[%d/%d] %s failed: %s", self.number, self.total, name, why)
        make_folder(place)
        write_text(why + "\n", place / StudyFolder.FAILED, overwrite=True)
        return name, why

    def later(self, cell: Cell, name: str, why: BusyError) -> None:
        if cell.key not in self.waited:
            log.info("[%d/%d] %s comes later: %s", self.number, self.total, name, why)
        self.waited.add(cell.key)
        self.busy.append((self.number, cell))

    def one(self, cell: Cell) -> dict[str, Any]:
        out = self.folder.cell(cell.key)
        old = outdated(self.folder, cell)
        if old is not None:
            log.info("%s is made again: %s", self.names[cell.key], old)
        again = old is not None
        if cell.method is None:
            take_over(self.folder, cell)
            run(cell.config, out, overwrite=again, made=self.made)
        else:
            self.shared_work(cell)
            baseline(cell.method, cell.files(self.folder), out, cell.settings, again)
        summary: dict[str, Any] = read_json(out / SUMMARY, "a summary")
        return summary


@contextmanager
def _begun(mark: Path) -> Iterator[None]:
    """A mark beside a cell while it runs; the mark stays if the process is killed.

    If two processes were killed while they ran a cell, perhaps for their memory, the cell counts as
    failed this time, so that the others can run; the next time it is tried again.
    """
    with marked(mark) as before:
        if before.begun >= MOST_KILLED:
            raise IncompleteError(
                f"{before.begun} processes were killed while they ran it, perhaps for their "
                f"memory; the last one was {before.last or 'not named'}"
            )
        yield


def groups(cells: list[Cell]) -> list[list[Cell]]:
    """The cells, with those together that can take over one another's rounds."""
    together: dict[str, list[Cell]] = {}
    for cell in cells:
        together.setdefault(cell.together(), []).append(cell)
    return list(together.values())


def why_of(error: BaseException) -> str:
    """What is said of a cell that failed."""
    if isinstance(error, MemoryError):
        return f"out of memory ({error})" if str(error) else "out of memory"
    return str(error) or type(error).__name__


def take_over(study: StudyFolder, cell: Cell) -> None:
    """Link features, partition, head and total of a failed cell that this one differs from late.

    A cell that has begun keeps what it has. `run` looks at the recipe of every file.
    """
    own = RunFolder(study.cell(cell.key))
    if own.options.exists() or cell.config.own.keep_clients:
        return
    for mark in sorted((study.root / study.CELLS).glob(f"*/{study.FAILED}")):
        other = RunFolder(mark.parent)
        if _serves(other, cell.config):
            for name, kind in _FILES.items():
                if (other / name).is_file():
                    link_or_copy(other / name, own / name, kind)
            return


def _serves(other: RunFolder, config: RunConfig) -> bool:
    start: Path = config.first_head or other.first_head
    with distinct_files(), suppress(AflError):
        theirs = RunConfig(**read_config(other.options))
        return start.exists() and not difference_of(theirs, config, start, {SOLVE, EVALUATE})
    return False


_FILES = {
    RunFolder.FEATURES.format(split="train"): "features",
    RunFolder.FEATURES.format(split="test"): "features",
    RunFolder.CLIENTS: "partition",
    RunFolder.FIRST_HEAD: "head",
    RunFolder.HELD_OUT.format(suffix=""): "statistics",
    RunFolder.TOTAL.format(suffix=""): "statistics",
}
