"""Things that are dear to make, by key: the first few are kept, and the latest."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Generic, Protocol, TypeVar


class Sized(Protocol):
    """What can be kept: it knows its size."""

    @property
    def nbytes(self) -> int: ...


_making = RLock()
Made = TypeVar("Made", bound=Sized)


class Kept(Generic[Made]):
    """``make(*key)``, with up to ``room`` bytes of the first results kept, and the latest one.

    Memory does not grow with the number of keys. Who asks for one key again and again, or for the
    first few, pays once.
    """

    def __init__(self, make: Callable[..., Made], room: int) -> None:
        self._make, self._room = make, room
        self.kept: dict[tuple[int, ...], Made] = {}
        self._latest: dict[tuple[int, ...], Made] = {}

    def __call__(self, *key: int) -> Made:
        found = self.kept.get(key) or self._latest.get(key)
        return self._new(key) if found is None else found

    def _new(self, key: tuple[int, ...]) -> Made:
        with _making:  # one thread makes it, the others wait for it
            found = self.kept.get(key) or self._latest.get(key)
            if found is None:
                found = self._make(*key)
                if found.nbytes <= self._room:
                    self.kept[key] = found
                    self._room -= found.nbytes
                else:
                    self._latest = {key: found}
            return found
