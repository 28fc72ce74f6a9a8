"""Files and figures that several runs in one process have in common: made once, then linked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from ..digest import Digest, array_kind, canonical_json
from ..stages.local_stats import NOT_KNOWN, Known
from ..store.atomic import link_or_copy
from ..store.hdf5 import read_header
from ..store.heads import load_head

Value = TypeVar("Value")


class Shared:
    """What runs have made so far, by what it was made of.

    Keys hold everything that the recipe of a stage holds, so a linked file is the one that the
    stage would have made: the same command on the same folder finds it up to date.
    """

    def __init__(self) -> None:
        self._files: dict[object, Path] = {}
        self._values: dict[object, Any] = {}

    def _name(self, key: Callable[[], Any]) -> object:
        """What a file or figure is known by."""
        return canonical_json(key())

    def file(
        self, key: Callable[[], Any], place: Path, kind: str, make: Callable[[], Path]
    ) -> Path:
        """The file ``place``: a link to an equal one where there is one, otherwise made."""
        name = self._name(key)
        known = self._files.get(name)
        if known is not None and known.exists() and not place.exists():
            return link_or_copy(known, place, kind)
        self._files[name] = made = make()
        return made

    def sums(self, key: Callable[[], Any], paths: Known, make: Callable[[Known], Path]) -> Path:
        """Sums, which ``make`` computes or takes over from files of equal sums.

        ``paths``: where they are written; see `local_stats` for the order.
        """
        name = self._name(key)
        known: Known = self._values.get(name, NOT_KNOWN)
        there = all(path is None or path.exists() for path in known)
        made = make(known if there else NOT_KNOWN)
        self._values.setdefault(name, paths)
        return made

    def value(self, key: Callable[[], Any], make: Callable[[], Value]) -> Value:
        """A figure or a path that is found once."""
        name = self._name(key)
        if name not in self._values:
            self._values[name] = make()
        found: Value = self._values[name]
        return found

    def metrics(
        self, key: Callable[[], Any], make: Callable[[], dict[str, Any]], **paths: Path
    ) -> dict[str, Any]:
        """What `evaluate` found, once; ``paths`` are those of this run."""
        found = self.value(key, make)
        return {**found, **{k: {**found[k], "path": str(path)} for k, path in paths.items()}}


class Alone(Shared):
    """A run that shares nothing; no key is looked at."""

    def _name(self, key: Callable[[], Any]) -> object:
        return object()


def extract_key(split: str, options: Mapping[str, Any]) -> list[Any]:
    """What the features of a split are asked for by."""
    return ["extract", split, _texts({**options, "split": split})]


def sums_key(
    train: Path, clients: Path, head: Path, options: Mapping[str, Any], holds_out: bool
) -> list[Any]:
    """Everything that the sums for a head depend on: not γ, nor what only its solves use.

    What earlier solves have made of these options is in the head's arrays.
    """
    start, state = load_head(head)[0], Digest()
    for name, array in sorted(start.arrays().items()):
        state.array(name, array, array_kind(array))
    solving = {f.name for f in fields(start.options) if f.metadata.get("at_solve")}
    kept = {k: v for k, v in start.options.as_dict().items() if k not in {*solving, "gamma"}}
    of_files = [
        read_header(train, "features")["digest"], read_header(clients, "partition")["digest"]
    ]  # fmt: skip
    how = _texts({k: v for k, v in options.items() if k not in ("partition", "cache")})
    return ["sums", of_files, start.name, start.phase(), kept, state.hex(), how, holds_out]


def head_key(total: Path, held: Path | None, options: Mapping[str, Any]) -> list[Any]:
    """Everything that a solved head depends on, from the headers of the sums."""
    header = read_header(total, "statistics")
    gammas = sorted(Counter(header["clients"]["gamma"]).items())
    of_held = None if held is None else read_header(held, "statistics")["digest"]
    return ["head", header["digest"], header["context"], gammas, of_held, _texts(options)]


def partition_key(train: Path, options: Mapping[str, Any]) -> list[Any]:
    """Everything that a partition depends on."""
    return ["partition", read_header(train, "features")["digest"], _texts(options)]


def metrics_key(heads: list[Path], rows: list[Path | None], asked: list[bool]) -> list[Any]:
    """Everything that an evaluation depends on; ``asked``: of each round, and what else."""
    found = [read_header(head, "head")["digest"] for head in heads[0 if asked[0] else -1 :]]
    of_rows = [None if one is None else read_header(one, "features")["digest"] for one in rows]
    return ["metrics", found, of_rows, asked]


def _texts(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) for name, value in options.items()}
