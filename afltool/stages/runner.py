"""What becomes of the files of a stage: those that are done stay, the others are made.

A stage is a function ``job(options, files) -> Job``. It reads headers and what recipes need, checks
all that can be checked before any work, and says which files it makes and how. The command, a run
and a job script do the rest with `make`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeVar

from .. import cores
from ..errors import AflError, OutputExistsError, UsageError
from ..files.hdf5 import Header, fingerprint, read_header, strict, unusable, verify
from ..files.outputs import check_output
from ..memory import NOTHING, Carried, Remembered, Room
from ..options.common import Output, identity
from ..progress import event, log
from ..values.arrays import canonical_json
from ..values.text import telling_first

if TYPE_CHECKING:  # a stage loads only what it reads
    from ..files.features import Features
    from ..files.heads import HeadFile
    from ..files.partitions import ClientRows
    from ..files.statistics import StatisticsFile

Recipe = Mapping[str, Any]  # see `hdf5.recipe`
RULE = "ridge_rule"  # what chose a ridge, in the recipe of a solved head
LONGEST = 60  # characters of a value that a reason has
Write = Callable[[Path, Recipe], Any]  # writes what was computed; may return what is in the file
Content = TypeVar("Content")


@dataclass(frozen=True)
class Target:
    """A file that a job makes. ``of``: what it is of, in the words of the job's ``compute``."""

    path: Path
    recipe: Recipe
    of: Any = None


Put = Callable[[Target, Write], None]


@dataclass(frozen=True)
class Job:
    """What a stage makes of its inputs; the last target is what its command prints.

    ``compute(todo, put)`` makes some of the targets: many may come of one pass over rows. It calls
    ``put(target, write)`` once for each, in any order and from any thread. A file of rows, which is
    written while they are made, it writes itself. ``keeps``: heads and sums stay for the steps to
    come; not those of single clients, which are read once.
    """

    targets: Sequence[Target]
    compute: Callable[[Sequence[Target], Put], None]
    keeps: bool = True

    @classmethod
    def one(cls, path: Path, recipe: Recipe, compute: Callable[[], Write]) -> Job:
        """Of a stage that makes a single file, which is written when it was computed."""
        return cls([Target(path, recipe)], lambda todo, put: put(todo[0], compute()))

    @classmethod
    def of_rows(cls, path: Path, recipe: Recipe, write: Callable[[], None]) -> Job:
        """Of a stage that writes a single file while it makes its rows."""
        return cls([Target(path, recipe)], lambda todo, put: write())


# ---------------------------------------------------------------- is it done?


@dataclass(frozen=True)
class State:
    """The answer to "is it done?"; ``reason``: why a file is stale or damaged, on one line."""

    word: Literal["done", "missing", "stale", "damaged"]
    reason: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}" if self.reason else self.word


def state(
    target: Target, every_byte: bool = False, read: Callable[[Path], Header] = verify
) -> State:
    """Whether a file is there and was made by its recipe: by its header, or by ``every_byte``.

    ``read``: who reads every byte and gives the header. What was only to be tolerated does not
    matter where nothing had to be.
    """
    path, wanted = target.path, target.recipe
    if not os.path.lexists(path):
        return State("missing")
    try:
        header = read(path) if every_byte else read_header(path)
    except (AflError, OSError) as error:
        return State("damaged", str(error))
    made_by = _filled(header, wanted)
    if not (header.get("source") or {}).get("skipped"):
        made_by, wanted = strict(made_by), strict(wanted)
    then, now = (json.loads(canonical_json(one)) for one in (made_by, wanted))
    reason = change(then, now)
    return State("stale" if reason else "done", reason, header["kind"])


def change(then: Any, now: Any, path: str = "") -> str:
    """The first field in which two recipes differ, with both values; '' if they are equal.

    >>> change({"options": {"ridge": 1.0}}, {"options": {"ridge": 2.0}})
    'ridge 1.0 → 2.0'
    """
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for key in sorted(then.keys() | now.keys(), key=telling_first):
            inner = f"{path}.{key}" if path else key
            if found := change(then.get(key), now.get(key), inner):
                return found
        return ""
    if then == now:
        return ""
    name = path.removeprefix("options.")
    if isinstance(then, list) and isinstance(now, list) and len(then) != len(now):
        return f"{name} {len(then)} → {len(now)} entries"
    return f"{name} {_short(then)} → {_short(now)}"


def _short(value: Any) -> str:
    """A value on a part of a line; of a digest its beginning."""
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return f"{value[:8]}…"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _filled(header: Mapping[str, Any], wanted: Recipe) -> dict[str, Any]:
    """The recipe of a file; what older versions left out of it is read from its other fields.

    They did not name the space and the classes of the features among the inputs. The header has
    those of the file itself, which are the same; of a converted file it has the number format that
    was converted. Nor did they name the clients that a head remembers: those are taken for equal.
    The rule that chose a ridge was the first version of it.
    """
    made_by = header["recipe"]
    own = header.get("context", header)
    before = header["source"]["converted_from"] if made_by["stage"] == "convert" else {}
    space = {k: before.get(k, v) for k, v in (own.get("space") or {}).items()}
    clients = wanted["inputs"].get("clients")
    known = {"space": space, "classes": own.get("classes"), "clients": clients}
    absent = {k: v for k, v in known.items() if k in wanted["inputs"] and v is not None}
    rule = str(wanted["options"].get(RULE, ""))
    first = {RULE: rule} if rule.endswith(" 1") else {}
    return {
        **made_by,
        "options": {**first, **made_by["options"]},
        "inputs": {**absent, **made_by["inputs"]},
    }


def is_done(target: Target, overwrite: bool = False) -> bool:
    """Whether a file need not be made, after every byte of it was read.

    Raises, unless ``overwrite``, `OutputExistsError` for one that is stale, `CorruptFileError` for
    one that is damaged.
    """
    return _judged(target, overwrite).word == "done" and not overwrite


def _judged(target: Target, overwrite: bool, read: Callable[[Path], Header] = verify) -> State:
    """The state of a target, after it was read whole; refused where it is neither done nor free."""
    path = target.path
    if overwrite or not os.path.lexists(path) or path.is_dir():
        check_output(path)
    found = state(target, not overwrite, read)
    if overwrite or found.word in ("missing", "done"):
        return found
    if found.word == "stale":
        raise OutputExistsError(
            f"{path} exists and was made differently: {found.reason}; choose another -o, or use "
            "--overwrite"
        )
    raise unusable(path, found.reason)


KEPT, MISSING = "kept", "made, it was missing"


@dataclass(frozen=True)
class Artifact:
    """A file of a job that is done now, and ``how``: kept, made, or made again."""

    path: Path
    how: str = KEPT

    @property
    def made(self) -> bool:
        return self.how != KEPT

    @classmethod
    def of(cls, path: Path, was: State, again: bool) -> Self:
        """A file that ``was`` in a state; ``again``: it is made whatever that is."""
        if was.word == "missing":
            return cls(path, MISSING)
        return cls(path, KEPT if was.word == "done" and not again else "made again")


def in_place(path: Path, made: Sequence[Artifact]) -> Artifact:
    """One for all files of a step, whose result is ``path``: how the first was made, if one was."""
    first = next((one for one in made if one.made), made[-1])
    return replace(first, path=path)


# ---------------------------------------------------------------- what is read, and passed on


class Files:
    """The files that stages read, and what a run has made, as objects that its next steps take.

    ``room``: bytes that may stay in memory between steps, of heads, sums, rows, and what heads make
    of rows in one round for the next. Without it every file is read when it is asked for. ``sums``:
    what several runs know of each other's sums, by content; None where nobody asks for them.
    """

    def __init__(self, room: Room | None = None, sums: Sums | None = None) -> None:
        self.room, self.sums = room, sums
        self.opened: list[Path] = []  # by the job under way
        self._open = ExitStack()
        self._kept: dict[Path, tuple[Any, int]] = {}
        self._carried: dict[str, tuple[str, Remembered]] = {}
        self._lock = Lock()

    def head(self, path: Path) -> HeadFile:
        """A head and its header."""
        from ..files.heads import HeadFile, load_head

        return self._read(path, HeadFile, load_head)

    def statistics(self, path: Path, header: Mapping[str, Any] | None = None) -> StatisticsFile:
        """Sums and their header; refused where that was another ``header`` before."""
        from ..files.statistics import StatisticsFile, read_statistics

        seen = None if header is None else fingerprint(header)
        return self._read(path, StatisticsFile, partial(read_statistics, seen=seen))

    def verified(self, path: Path) -> Header:
        """The header of a file, after every byte of it was read and compared."""
        kind = read_header(path)["kind"] if self.room is not None else ""
        if kind in ("head", "statistics"):
            header: Header = (self.head if kind == "head" else self.statistics)(path).header
            return header
        return verify(path)

    def header(self, path: Path, kind: str | None = None) -> Header:
        """The header of a file."""
        self.opened.append(path)
        header: Header | None = getattr(self._known(path, object), "header", None)
        return read_header(path, kind) if header is None else header

    @contextmanager
    def reading(self) -> Iterator[Files]:
        """Inside, the files of a job stay open, and ``opened`` has their paths."""
        self.opened.clear()
        with self._open:
            yield self

    def features(self, path: Path, labelled: bool = True, again: bool = False) -> Features:
        """Rows, open for reading; those that are needed ``again`` stay in memory if there is room.

        ``labelled``: see `open_features`.
        """
        from ..files.features import Features, open_features

        self.opened.append(path)
        rows: Features | None = self._known(path, Features)
        if rows is None:
            rows = self._open.enter_context(open_features(path, labelled))
            if again and self.room is not None and self.room.take(rows.nbytes):
                rows = rows.in_memory()
                self._kept[path] = rows, rows.nbytes
        if labelled:
            _ = rows.labels
        return rows

    def clients(self, rows: Features, partition: Path) -> ClientRows:
        """Whose rows these are, by a partition."""
        from ..files.partitions import ClientRows

        self.opened.append(partition)
        known: ClientRows | None = self._known(partition, ClientRows)
        if known is None or known.rows.meaning != rows.meaning:
            known = ClientRows.by(rows, partition)
            self.keep(partition, known)
        return replace(known, rows=rows)

    def _read(self, path: Path, kind: type[Content], load: Callable[[Path], Content]) -> Content:
        self.opened.append(path)
        kept: Content | None = self._known(path, kind)
        if kept is None:
            kept = load(path)
            self.keep(path, kept)
        return kept

    def _known(self, path: Path, kind: Any) -> Any:
        content, _ = self._kept.get(path, (None, 0))
        return content if isinstance(content, kind) else None

    def keep(self, path: Path, content: Any) -> None:
        """Keep what a file holds for the steps to come, if there is room."""
        if self.room is None:
            return
        if hasattr(content, "as_read"):
            content = content.as_read()
        with self._lock:
            self._forget(path)
            if self.room.take(content.nbytes):
                self._kept[path] = content, content.nbytes

    def forget(self, path: Path) -> None:
        """No step to come reads it."""
        with self._lock:
            self._forget(path)

    def _forget(self, path: Path) -> None:
        _, size = self._kept.pop(path, (None, 0))
        if self.room is not None:
            self.room.give(size)

    def carried(self, task: str, part: str) -> Carried:
        """What the round before left of a part of a task, such as a client."""
        before, kept = self._carried.get(part, ("", None))
        if kept is not None and before == task:
            return kept
        if kept is not None:
            kept.forget()
        return NOTHING if self.room is None else Remembered(room=self.room)

    def left(self, task: str, part: str, carried: Carried) -> None:
        """Keep what a round has left, for the next one."""
        if isinstance(carried, Remembered):
            self._carried[part] = task, carried


class Sums(Protocol):
    """Files of sums and their digests, by what is summed; a dict is one."""

    def get(self, content: str, /) -> tuple[Path, str] | None: ...

    def __setitem__(self, content: str, made: tuple[Path, str], /) -> None: ...


# ---------------------------------------------------------------- the one runner


def carry_out(
    job: Callable[[Any, Files], Job], o: Output, files: Files | None = None
) -> list[Artifact]:
    """The files of a stage's job, by the threads of its options; see `make`."""
    with cores.using(getattr(o, "threads", None)), (files or Files()).reading() as reading:
        return make(job(o, reading), reading, o.overwrite)


def make(job: Job, files: Files, overwrite: bool = False) -> list[Artifact]:
    """The files of a job, in its order; those that are missing are made.

    A file that is stale (`OutputExistsError`) or damaged (`CorruptFileError`) is refused; with
    ``overwrite`` all are made again, and for such a file it is said why.
    """
    check_outputs(job.targets, files.opened)
    read = files.verified if job.keeps else verify
    was = {target.path: _judged(target, overwrite, read) for target in job.targets}
    todo = [one for one in job.targets if overwrite or was[one.path].word != "done"]
    for path, found in was.items():
        if found.word == "done" and not overwrite:
            event("file_kept", path=path, kind=found.kind)
    _say_why(was)

    def put(target: Target, write: Write) -> None:
        content = write(target.path, target.recipe)
        if job.keeps and hasattr(content, "header"):
            files.keep(target.path, content)

    if todo:
        job.compute(todo, put)
    return [Artifact.of(path, found, overwrite) for path, found in was.items()]


def _say_why(was: Mapping[Path, State]) -> None:
    """Say which files are made again, and why, a line for each reason."""
    again: dict[str, list[Path]] = {}
    for path, found in was.items():
        if found.word in ("stale", "damaged"):
            again.setdefault(str(found), []).append(path)
    for reason, paths in again.items():
        more = f" and {len(paths) - 1} others" if len(paths) > 1 else ""
        log.info("%s%s: made again because %s", paths[0].name, more, reason)


def check_outputs(targets: Sequence[Target], inputs: Sequence[Path]) -> None:
    """Refuse an output that the job reads, by whatever name."""
    read = {one for path in inputs if (one := identity(path)) is not None}
    for target in targets:
        if read and identity(target.path) in read:
            raise UsageError(f"{target.path} is a file that this command reads: choose another -o")
