"""What runs of one process have made already: equal steps are carried out once, then linked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import OutputExistsError
from ..files.atomic import link_or_copy
from ..memory import NO_CACHE, Cache, Sums
from ..values.arrays import canonical_json
from .checks import is_linked
from .layout import RunFolder
from .plan import LINK, Step
from .summary import remove_rounds


class Made:
    """Results of steps by what they are made of.

    Before its inputs are there a step is known by its structure, then by its recipe, which is the
    one that its file has: the same command on the same folder finds a linked file up to date.
    """

    def __init__(self, metrics: dict[str, Any] | None = None, processes: int = 1) -> None:
        self.found: dict[str, Any] = {} if metrics is None else metrics
        self.sums: Sums | None = self.found  # see `memory.Cache`; no step has such a name
        self.processes = processes  # that carry out runs at the same time and share the memory
        self._keeping = False
        self._kept: list[tuple[RunFolder, int]] = []

    def carry_out(self, step: Step, overwrite: bool = False, cache: Cache = NO_CACHE) -> Path:
        """The file of a step: linked where it is given or an equal one is there, else made."""
        place = step.out
        assert place is not None
        if step.stage.name == LINK:
            given = step.files()["file"]
            assert isinstance(given, Path)
            return place if given == place else _linked(given, step, overwrite)
        if step.stage.stored:
            return place if _is_there(step) else _linked(self.stored(step), step, overwrite)
        name, task = self._looked_at(step, cache)
        known: Path | None = self.found.get(name)
        if known is not None and known.exists():
            if known == place:
                return known
            if not place.exists():
                return link_or_copy(known, place, step.stage.writes)
        self.found[name] = step.make(overwrite=overwrite, cache=cache, task=task)
        return place

    def stored(self, step: Step) -> Path:
        """The features of a step in their store, which has them or gets them."""
        kept: Path = self.value(step, replace(step, out=None).make)
        return kept

    def value(self, step: Step, make: Callable[[], Any], cache: Cache = NO_CACHE) -> Any:
        """What a step finds that is no file of its own; found once."""
        name, _ = self._looked_at(step, cache)
        known = self.found.get(name)
        if known is None:
            self.found[name] = known = make()
        return known

    def _looked_at(self, step: Step, cache: Cache) -> tuple[str, Any]:
        """A name for what a step makes, and what its work need not look at again."""
        code, files = step.stage.module, step.files()
        given = files, step.stage.given(files, step.options), step.head_options, cache
        if hasattr(code, "task_of"):
            task = code.task_of(*given)
            return canonical_json(task.made_by), task
        recipe = code.recipe_of(*given) if hasattr(code, "recipe_of") else step.key()
        return canonical_json(recipe), None

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


class Alone(Made):
    """A run that shares nothing: no recipe is looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.sums = None

    def _looked_at(self, step: Step, cache: Cache) -> tuple[str, Any]:
        return str(len(self.found)), None


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
