"""What a run's folder holds: each file done, missing, unfinished, damaged or stale, and why.

Only headers are read (`verify` reads every byte). A file is stale when it was made of other inputs
than those that lie beside it now, by their digests, or comes after one that is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ..errors import AflError
from ..files.features import open_features
from ..files.hdf5 import read_header
from ..files.outputs import partial_path
from ..inputs import read_json
from .config import RunConfig
from .last_round import last_round
from .layout import RunFolder

TRAIN, TEST = (RunFolder.FEATURES.format(split=split) for split in ("train", "test"))
CLIENTS = RunFolder.CLIENTS


@dataclass(frozen=True)
class Part:
    """A file of the run: done, missing, unfinished, damaged or stale; and why."""

    name: str
    state: str
    why: str = ""


class Parts:
    """The files of a run in order; each is compared with those that it should be made of.

    Args:
        folder: the run's folder.
        config: its options; None where they are unknown.
    """

    def __init__(self, folder: RunFolder, config: RunConfig | None) -> None:
        self.folder = folder
        self.everybody = config is not None and config.local_stats.participation == 1
        given = None if config is None else config.first_head
        self.first_head = given or folder.first_head
        self.headers: dict[str, Mapping[str, Any]] = {}
        self.states: dict[str, str] = {}
        self.of_held_out: set[str] = set()  # names of sums over held-out clients

    def all(self) -> Iterator[Part]:
        yield self.part(TRAIN, "features")
        yield self.part(TEST, "features")
        yield self.part(CLIENTS, "partition", rows=TRAIN)
        head = str(self.first_head)
        if self.first_head.parent == self.folder.root:
            head = self.first_head.name
        yield self.part(head, "head")
        last = last_round(self.folder, self.first_head)
        if last is not None:
            yield Part(f"rounds 1 to {last - 1}", "done", "files removed (--keep-rounds last)")
        for number in count(last or 1):
            suffix = RunFolder.suffix(number)
            total = RunFolder.TOTAL.format(suffix=suffix)
            held = RunFolder.HELD_OUT.format(suffix=suffix)
            self.of_held_out.add(held)
            made_of = {"features": TRAIN, "partition": CLIENTS}
            if number != last:  # the summary says what the head was that this one is made of
                made_of["head"] = head
            for name in [held, total] if self.holds_out() else [total]:
                yield self.part(name, "statistics", **made_of)
            head = RunFolder.HEAD.format(suffix=suffix)
            yield self.part(head, "head", total=total)
            if head not in self.headers or self.headers[head]["phase"] is None:
                break
        yield self.metrics(head)

    def part(self, name: str, kind: str, **made_of: str) -> Part:
        """One file, and what it was made of: names of parts by what they are to it."""
        found = self.look(name, kind, made_of)
        self.states[name] = found.state
        return found

    def look(self, name: str, kind: str, made_of: Mapping[str, str]) -> Part:
        path = self.folder / name
        if not path.exists():
            return self.absent(name, path)
        try:
            header = read_header(path, kind)
            theirs = _made_of(header)
        except AflError as error:
            return Part(name, "damaged", str(error))
        self.headers[name] = header
        for what, other in made_of.items():
            if self.states[other] != "done":
                return Part(name, "stale", f"{other}, which it was made of, is not done")
            wanted = self.rows() if what == "rows" else self.digest(other)
            if theirs.get(what) not in (None, wanted):
                return Part(name, "stale", f"made of other {what} than {other}")
        if kind == "statistics" and (lacking := self.lacking(name)):
            return Part(name, "stale", f"clients of the partition that are not in it: {lacking}")
        return Part(name, "done", header["digest"])

    def absent(self, name: str, path: Path) -> Part:
        if partial_path(path).exists():
            return Part(
                name,
                "unfinished",
                f"{partial_path(path).name} is not finished",
            )
        return Part(name, "missing")

    def holds_out(self) -> bool:
        """Whether the partition keeps clients for validation."""
        return bool(self.headers.get(CLIENTS, {}).get("held_out"))

    def digest(self, name: str) -> str:
        return str(self.headers[name]["digest"])

    def rows(self) -> str | None:
        """Which rows the training features are."""
        try:
            with open_features(self.folder / TRAIN) as features:
                return features.rows_digest()
        except AflError:
            return None

    def lacking(self, name: str) -> int:
        """Clients of the partition that a sum should have and has not."""
        if not self.everybody:
            return 0
        clients, wants_held = self.headers[CLIENTS], name in self.of_held_out
        held = set(clients["held_out"])
        wanted = {one for i, one in enumerate(clients["names"]) if (i in held) == wants_held}
        return len(wanted - set(self.headers[name]["clients"]["names"]))

    def metrics(self, head: str) -> Part:
        name = RunFolder.METRICS
        if not (self.folder / name).exists():
            return Part(name, "missing")
        try:
            found = read_json(self.folder / name, "the metrics")
            measured = found["head"]["digest"], found["features"]["digest"]
            share = float(found["top1"])
        except (AflError, ValueError, KeyError, TypeError):
            return Part(name, "damaged", "it is not what evaluate writes")
        if any(self.states[one] != "done" for one in (head, TEST)):
            return Part(name, "stale", f"{head} or {TEST} is not done")
        if measured != (self.digest(head), self.digest(TEST)):
            return Part(name, "stale", f"of another head than {head}, or other test features")
        return Part(name, "done", f"top-1 {share:.2%}")


def _made_of(header: Mapping[str, Any]) -> dict[str, str | None]:
    """Digests of the inputs, as a file tells them."""
    if header["kind"] == "partition":
        return {"rows": header["rows_digest"]}
    if header["kind"] == "statistics":
        table = header["clients"]
        return {
            "head": header["context"]["head"]["digest"],
            "features": _only(table["sources"]),
            "partition": _only([digest for digest, _ in table["partitions"]]),
        }
    return {"total": header["recipe"]["inputs"].get("total")}


def _only(values: list[str]) -> str | None:
    """The one that there should be; several never equal a digest."""
    return values[0] if len(values) == 1 else ", ".join(values) or None
