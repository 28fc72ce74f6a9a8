"""What becomes of the files of a stage: those that are done stay, the others are made.

A stage is a function of options and files that gives a `Job`: it reads headers, checks all that can
be checked before any work, and says which files it makes and how. A command, a run and a job script
do the rest with `make`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from pathlib import Path
from typing import Any, Generic, TypeVar

from .. import parallel
from ..files.features import Features, open_features
from ..files.hdf5 import Header
from ..files.heads import HeadFile, load_head
from ..files.partitions import ClientRows
from ..files.recipes import Recipe, State, Target, is_done
from ..files.statistics import StatisticsFile, read_statistics
from ..memory import NOTHING, Carried, MemoryBudget
from ..options.base import Options
from ..options.common import list_option_files, refuse_files
from ..progress import event, log

Content = TypeVar("Content")
OptionsT = TypeVar("OptionsT", bound=Options)
KEPT, AGAIN, MISSING = "kept", "made again", "made, it was missing"


@dataclass(frozen=True)
class Job:
    """What a stage makes of its inputs.

    ``compute(todo)`` writes the files of some of the targets, in any order and from any thread.
    ``result``: what the stage answers instead of its last path.
    """

    targets: Sequence[Target]
    compute: Callable[[Sequence[Target]], None]
    result: Any = None

    @classmethod
    def for_file(cls, path: Path, recipe: Recipe, write: Callable[[], Any]) -> Job:
        """Of a single file."""
        return cls([Target(path, recipe)], lambda _: write())


class StageFunction(Generic[OptionsT]):
    """A stage as it is called with its options alone; ``job`` takes the files of a run as well.

    A job that makes no file of ours is what was found, instead of a `Job`.
    """

    def __init__(self, job: Callable[[OptionsT, Files], Any]) -> None:
        self.job = job
        update_wrapper(self, job)

    @contextmanager
    def opened(self, o: OptionsT, files: Files | None = None) -> Iterator[Any]:
        """The job, while its files are open and its threads at hand."""
        with (
            parallel.thread_limit(getattr(o, "threads", None)),
            (files or Files()).reading() as reading,
        ):
            yield self.job(o, reading)

    def __call__(self, o: OptionsT) -> Any:
        with self.opened(o) as job:
            if not isinstance(job, Job):
                return job
            read = (one for one in list_option_files(o) if not one[2])
            refuse_files([*read, *(("-o", one.path, True) for one in job.targets)])
            make(job, getattr(o, "overwrite", False))
            return job.targets[-1].path if job.result is None else job.result


@dataclass(frozen=True)
class Artifact:
    """The result of a job that is done now, and ``how``: kept, made, or made again."""

    path: Path
    how: str = KEPT


class Files:
    """The files that stages read, and what a run has made, as objects that its next steps take.

    ``room``: bytes that may stay in memory between steps, of heads, sums, rows, and what heads make
    of rows in one round for the next. Without it every file is read when it is asked for.
    """

    def __init__(self, room: MemoryBudget | None = None) -> None:
        self.room = MemoryBudget(0) if room is None else room
        self._open = ExitStack()
        self._kept: dict[Path, Any] = {}
        self._carried: dict[str, tuple[str, Carried]] = {}

    @contextmanager
    def reading(self) -> Iterator[Files]:
        """Inside, the files of rows that a job reads stay open."""
        with self._open:
            yield self

    def head(self, path: Path) -> HeadFile:
        """A head and its header."""
        return self._read(path, HeadFile, load_head)

    def statistics(self, path: Path, header: Header | None = None) -> StatisticsFile:
        """Sums and their header; refused where that was another ``header`` before."""
        return self._read(path, StatisticsFile, partial(read_statistics, seen=header))

    def features(self, path: Path, again: bool = False) -> Features:
        """Rows, open for reading; ``again``: they stay in memory if there is room."""
        rows = self._kept.get(path)
        if not isinstance(rows, Features):
            rows = self._open.enter_context(open_features(path))
            if again and self.room.take(rows.nbytes):
                rows = self._kept[path] = rows.load()
        return rows

    def clients(self, rows: Features, partition: Path) -> ClientRows:
        """Whose rows these are, by a partition."""
        known = self._read(partition, ClientRows, partial(ClientRows.from_partition, rows))
        if known.rows.meaning != rows.meaning:
            known = ClientRows.from_partition(rows, partition)
        return replace(known, rows=rows)

    def _read(self, path: Path, kind: type[Content], load: Callable[[Path], Content]) -> Content:
        known = self._kept.get(path)
        if not isinstance(known, kind):
            known = load(path)
            self.keep(path, known)
        return known

    def keep(self, path: Path, content: Any) -> None:
        """Keep what a file holds, as a reader has it, for the steps to come if there is room."""
        if self.room.free <= 0:
            return
        self.forget(path)
        if self.room.take(content.nbytes):
            self._kept[path] = content

    def forget(self, path: Path) -> None:
        """No step to come reads it."""
        if (known := self._kept.pop(path, None)) is not None:
            self.room.take(-known.nbytes)

    def take_rows(self, task: str, part: str) -> Carried:
        """What the round before left of a part of a task, such as a client."""
        before, kept = self._carried.get(part, ("", NOTHING))
        if before != task:
            kept.forget()
        return kept if before == task else Carried(room=self.room)

    def keep_rows(self, task: str, part: str, carried: Carried) -> None:
        """Keep what a round has left, for the next one."""
        self._carried[part] = task, carried


def make(job: Job, overwrite: bool = False) -> str:
    """Make those files of a job that are missing; gives how the first one was made, or `KEPT`.

    A file that is stale (`OutputExistsError`) or damaged (`CorruptFileError`) is refused; with
    ``overwrite`` all are made again, and for such a file it is said why.
    """
    was = {one.path: is_done(one, overwrite) for one in job.targets}
    todo = [one for one in job.targets if overwrite or was[one.path].word != "done"]
    _log_reasons(was)
    if todo:
        job.compute(todo)
    for path, found in was.items():
        if found.word == "done" and not overwrite:
            event("file_kept", path=path, kind=found.kind)
    return next((MISSING if was[one.path].word == "missing" else AGAIN for one in todo), KEPT)


def _log_reasons(was: Mapping[Path, State]) -> None:
    """Say which files are made again, and why, a line for each reason."""
    again: dict[str, list[Path]] = {}
    for path, found in was.items():
        if found.word in ("stale", "damaged"):
            again.setdefault(str(found), []).append(path)
    for reason, paths in again.items():
        more = f" and {len(paths) - 1} others" if len(paths) > 1 else ""
        log.info("%s%s: made again because %s", paths[0].name, more, reason)
