"""What a run's folder holds: each file done, missing, unfinished, damaged or stale, and why.

Only headers are read (`verify` reads every byte). A file is stale when it was made of other inputs
than those that lie beside it now, by their digests, or comes after one that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, cast

from ..errors import AflError
from ..files.features import open_features
from ..files.hdf5 import read_header
from ..files.outputs import partial_path
from ..files.schema import EVALUATION, MADE_OF, ROWS
from ..inputs import read_json
from ..stages.stage import STATISTICS as SUMS
from ..stages.stage import Input
from .config import RunConfig
from .layout import RunFolder
from .plan import Step, first_steps, last_steps, round_steps
from .summary import last_round


@dataclass(frozen=True)
class Part:
    """A file of the run: done, missing, unfinished, damaged or stale; and why."""

    name: str
    state: str
    why: str = ""


class Parts:
    """The files of a run in order; each is compared with those that it should be made of."""

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self.folder, self.config = folder, config
        self.headers: dict[Path, Mapping[str, Any]] = {}
        self.states: dict[Path, str] = {}
        self.removed: Path | None = None  # a head of which only the summary says what it was

    def all(self) -> Iterator[Part]:
        config, folder = self.config, self.folder
        head = config.first_head or folder.first_head
        rows = {"features": folder.features("train")}  # of a given partition, too
        for step in first_steps(config, folder):
            yield from self.of(step, rows)
        held = bool(self.headers.get(folder.clients, {}).get("held_out"))
        last = last_round(folder, head)
        if last is not None:
            yield Part(f"rounds 1 to {last - 1}", "done", "files removed (--keep-rounds last)")
        for number in count(last or 1):
            self.removed = head if number == last else None
            made_of: dict[str, Input] = {}
            for step in round_steps(config, folder, number, head, held):
                made_of |= step.files()
                if step.out != folder.stats(number):  # whose files the total has
                    yield from self.of(step, made_of)
            head = folder.head(number)
            if self.headers.get(head, {}).get("phase") is None:
                break
        for step in last_steps(config, folder, [head]):
            yield from self.of(step)

    def of(self, step: Step, made_of: Mapping[str, Input] | None = None) -> Iterator[Part]:
        """The files of a step; ``made_of``: what its round was made of until then."""
        for path in step.results():
            look = self.metrics if path == self.folder / RunFolder.METRICS else self.look
            state = look(path, step.stage.writes, made_of or step.files())
            self.states[path] = state.state
            yield state

    def name(self, path: Path) -> str:
        """A file as people see it: by its name in the folder, or where it is."""
        return path.name if path.parent == self.folder.root else str(path)

    def look(self, path: Path, kind: str, made_of: Mapping[str, Input]) -> Part:
        name = self.name(path)
        if not path.exists():
            begun = partial_path(path)
            why = f"{begun.name} is not finished" if begun.exists() else ""
            return Part(name, "unfinished" if why else "missing", why)
        try:
            header = self.headers[path] = read_header(path, kind)
        except AflError as error:
            return Part(name, "damaged", str(error))
        for role, place in MADE_OF.get(kind, {}).items():
            other = made_of.get(role)
            if not isinstance(other, Path) or other == self.removed:
                continue
            if self.states.get(other) != "done":
                return Part(name, "stale", f"{self.name(other)}, which it was made of, is not done")
            of_rows = place == ROWS
            wanted = self.rows() if of_rows else self.headers[other]["digest"]
            if _digest(header, place) not in (None, wanted):
                what = "rows" if of_rows else role
                return Part(name, "stale", f"made of other {what} than {self.name(other)}")
        if kind == SUMS and (lacking := self.lacking(path)):
            return Part(name, "stale", f"clients of the partition that are not in it: {lacking}")
        return Part(name, "done", header["digest"])

    def rows(self) -> str | None:
        """Which rows the training features are."""
        try:
            with open_features(self.folder.features("train")) as features:
                return features.rows_digest()
        except AflError:
            return None

    def lacking(self, path: Path) -> int:
        """Clients of the partition that a sum should have and has not."""
        if self.config.local_stats.participation < 1:
            return 0
        clients = self.headers[self.folder.clients]
        wants_held = path.name.startswith(RunFolder.HELD_OUT.partition("{")[0])
        held = set(clients["held_out"])
        wanted = {one for i, one in enumerate(clients["names"]) if (i in held) == wants_held}
        return len(wanted - set(self.headers[path]["clients"]["names"]))

    def metrics(self, path: Path, _: str, made_of: Mapping[str, Input]) -> Part:
        if not path.exists():
            return Part(path.name, "missing")
        try:
            values = read_json(path, "the metrics")
            measured = [_digest(values, place) for place in MADE_OF[EVALUATION].values()]
            share = float(values["top1"])
        except (AflError, ValueError, KeyError, TypeError, AttributeError):
            return Part(path.name, "damaged", "it is not what evaluate writes")
        head, test = others = [cast(Path, made_of[role]) for role in MADE_OF[EVALUATION]]
        if any(self.states[one] != "done" for one in others):
            return Part(path.name, "stale", f"{head.name} or {test.name} is not done")
        if [self.headers[one]["digest"] for one in others] != measured:
            what = f"of another head than {head.name}, or other test features"
            return Part(path.name, "stale", what)
        return Part(path.name, "done", f"top-1 {share:.2%}")


def _digest(part: Any, place: str) -> Any:
    """What a header or JSON has in a place; None where the last name of it is unknown.

    Of a list of digests the one that there should be; several are a text that equals no digest.
    """
    *names, last = place.split(".")
    for name in names:
        part = part[name]
    value = part.get(last)
    if isinstance(value, list):
        return ", ".join(one if isinstance(one, str) else one[0] for one in value) or None
    return value
