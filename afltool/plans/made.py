"""What runs have made already: equal steps are carried out once, then linked."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..errors import OutputExistsError
from ..files.atomic import link_or_copy, second_name
from ..files.hdf5 import read_header
from ..files.locks import alone
from ..files.tables import write_json
from ..inputs import distinct_files, read_json
from ..memory import NO_CACHE, Cache, Sums
from ..values.arrays import canonical_json
from .checks import is_linked
from .plan import LINK, Step


class Alone:
    """A run that shares nothing with others."""

    processes = 1  # that carry out runs at the same time and share the memory
    sums: Sums | None = None  # see `memory.Cache`

    def carry_out(self, step: Step, overwrite: bool = False, cache: Cache = NO_CACHE) -> Path:
        """The file of a step: linked where it is given or stored, else made."""
        place = step.out
        assert place is not None
        if step.stage.name == LINK:
            given = step.files()["file"]
            assert isinstance(given, Path)
            return place if given == place else _linked(given, step, overwrite)
        if step.stage.stored:
            return place if _is_there(step) else _linked(stored(step), step, overwrite)
        self.make(step, overwrite, cache)
        return place

    def make(self, step: Step, overwrite: bool, cache: Cache) -> None:
        """Make the file of a step."""
        step.make(overwrite=overwrite, cache=cache)

    def value(self, step: Step, make: Callable[[], Any], cache: Cache = NO_CACHE) -> Any:
        """What a step finds that is no file of its own."""
        return make()


class Made(Alone):
    """Results of steps by their recipes, in a folder that any number of processes share.

    The process that comes first makes a result under a lock; for the others it is busy meanwhile,
    then they link it. The recipe is the one that the file of a step has: the same command on the
    same folder finds a linked file up to date. Sums are known by what is summed, too.
    """

    def __init__(self, root: Path, processes: int = 1) -> None:
        self.root, self.processes = root, processes
        self._sums = self.sums = _Sums(root)

    def make(self, step: Step, overwrite: bool, cache: Cache) -> None:
        place = step.out
        assert place is not None
        name, task = _looked_at(step, cache)
        shared = self.root / name
        with alone(shared, MAKER):
            if shared.exists() and not place.exists():
                link_or_copy(shared, place, step.stage.writes)
                return
            step.make(overwrite=overwrite, cache=cache, task=task)
            if place.is_file():
                second_name(place, shared)

    def value(self, step: Step, make: Callable[[], Any], cache: Cache = NO_CACHE) -> Any:
        """What a step finds that is no file of its own; found once."""
        shared = self.root / f"{_looked_at(step, cache)[0]}.json"
        with alone(shared, MAKER):
            if shared.exists():
                with distinct_files():  # another cell has written it
                    return read_json(shared, "what a step found")
            write_json(found := make(), shared)
            return found

    def release(self) -> None:
        """Let others sum what this run has begun to sum and did not end."""
        self._sums.locks.close()


MAKER = "another process"  # so busy errors call who makes something


class _Sums:
    """Files of sums and their digests by what is summed; who asks for unknown ones makes them."""

    def __init__(self, root: Path) -> None:
        self.root, self.locks, self._mine = root, ExitStack(), set[str]()

    def get(self, content: str) -> tuple[Path, str] | None:
        """The known sums, or None; then they are locked until they are set.

        Raises `BusyError` while another process makes them.
        """
        shared = self.root / f"sums-{content}"
        if not shared.exists() and content not in self._mine:
            self.locks.enter_context(alone(shared, MAKER))
            self._mine.add(content)
            self.locks.callback(self._mine.discard, content)
        if not shared.exists():
            return None
        with distinct_files():
            return shared, str(read_header(shared, "statistics")["digest"])

    def __setitem__(self, content: str, made: tuple[Path, str]) -> None:
        second_name(made[0], self.root / f"sums-{content}")
        self.locks.close()


def stored(step: Step) -> Path:
    """The features of a step in their store, which has them or gets them."""
    kept = replace(step, out=None).make()
    assert isinstance(kept, Path)
    return kept


def _looked_at(step: Step, cache: Cache) -> tuple[str, Any]:
    """A name for what a step makes, and what its work need not look at again."""
    code, files, task = step.stage.module, step.files(), None
    given = files, step.stage.given(files, step.options), step.head_options, cache
    if hasattr(code, "task_of"):
        task = code.task_of(*given)
        recipe = task.made_by
    else:
        recipe = code.recipe_of(*given) if hasattr(code, "recipe_of") else step.key()
    digest = sha256(canonical_json(recipe).encode()).hexdigest()
    return f"{step.stage.name}-{digest[:32]}", task


def _linked(given: Path, step: Step, overwrite: bool) -> Path:
    """A file from elsewhere under the name that a run has for it; see `is_linked`."""
    assert step.out is not None
    kind = step.stage.writes
    there = is_linked(given, step.out, kind, overwrite)
    return step.out if there else link_or_copy(given, step.out, kind)


def _is_there(step: Step) -> bool:
    """Whether features are in their place already, perhaps merged there by a batch system."""
    assert step.out is not None
    with suppress(OutputExistsError):
        return step.out.exists() and step.make() == step.out
    return False
