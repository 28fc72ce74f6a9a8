"""Files and figures that several runs in one process have in common: made once, then linked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from ..cache.cache import Cache, Sums
from ..files.atomic import link_or_copy
from ..files.features import meaning
from ..files.hdf5 import read_header
from ..files.heads import load_head
from ..values.digest import canonical_json
from .last_round import remove_rounds
from .layout import RunFolder

Value = TypeVar("Value")


class Shared:
    """What runs have made so far, by what it was made of.

    Keys hold everything that the recipe of a stage holds, so a linked file is the one that the
    stage would have made: the same command on the same folder finds it up to date.
    """

    def __init__(self) -> None:
        self._files: dict[object, Path] = {}
        self._values: dict[object, Any] = {}
        self.sums: Sums | None = {}  # see `local_stats`
        self._keeping = False
        self._kept: list[tuple[RunFolder, int]] = []

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

    @contextmanager
    def rounds_kept(self) -> Iterator[None]:
        """In this block one run keeps its rounds to the end, so that others take over its sums."""
        self._keeping = True
        try:
            yield
        finally:
            self._keeping = False
            while self._kept:
                remove_rounds(*self._kept.pop())

    def remove_rounds(self, folder: RunFolder, last: int) -> None:
        """What `--keep-rounds last` removes, now or at the end of `rounds_kept`."""
        if self._keeping and not self._kept:
            self._kept.append((folder, last))
        else:
            remove_rounds(folder, last)


class Alone(Shared):
    """A run that shares nothing; no key is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = None

    def _name(self, key: Callable[[], Any]) -> object:
        return object()


def extract_key(split: str, options: Mapping[str, Any]) -> list[Any]:
    """What the features of a split are asked for by."""
    return ["extract", split, _texts({**options, "split": split})]


def head_key(
    start: Path, total: Path, held: Path | None, options: Mapping[str, Any], cache: Cache
) -> list[Any]:
    """Everything that a solved head depends on, from the headers of the sums.

    Also the clients, if heads of this kind remember them for later rounds.
    """
    header = read_header(total, "statistics", cache)
    remembers = load_head(start, cache)[0].not_in_digest
    gammas = sorted(Counter(header["clients"]["gamma"]).items())
    who = header["clients"] if remembers else None
    of_held = None if held is None else read_header(held, "statistics", cache)["digest"]
    return ["head", header["digest"], header["context"], gammas, who, of_held, _texts(options)]


def partition_key(train: Path, options: Mapping[str, Any]) -> list[Any]:
    """Everything that a partition depends on."""
    return ["partition", meaning(read_header(train, "features")), _texts(options)]


def metrics_key(
    heads: list[Path], rows: list[Path | None], asked: list[bool], cache: Cache
) -> list[Any]:
    """Everything that an evaluation depends on; ``asked``: of each round, and what else."""
    solved = [read_header(head, "head", cache) for head in heads[0 if asked[0] else -1 :]]
    found = [[head["digest"], head["classes"]] for head in solved]
    of_rows = [
        None if one is None else meaning(read_header(one, "features", cache)) for one in rows
    ]
    return ["metrics", found, of_rows, asked]


def _texts(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) for name, value in options.items()}
