"""A phase of a head: what its clients sum up next. Its text form is made and read here."""

from __future__ import annotations

import re
from typing import Self

_FORM = re.compile(r"(?P<kind>.*?)(?:-(?P<number>\d+))?", re.DOTALL)


class Phase(str):
    """A kind, and for phases that come again their number: ``gram``, ``weights-3``.

    It is its own text: files, recipes and messages hold it as it is.

    >>> phase = Phase.of("weights", 3)
    >>> phase, phase.kind, phase.number, Phase("class-sums").kind, Phase("gram").number
    ('weights-3', 'weights', 3, 'class-sums', None)
    """

    __slots__ = ()

    @classmethod
    def of(cls, kind: str, number: int) -> Self:
        return cls(f"{kind}-{number}")

    @property
    def kind(self) -> str:
        """What is summed up, without the number."""
        return self._parts()[0]

    @property
    def number(self) -> int | None:
        """Which time this kind is summed up; None where it is summed up once."""
        number = self._parts()[1]
        return None if number is None else int(number)

    def _parts(self) -> tuple[str, str | None]:
        found = _FORM.fullmatch(self)
        assert found is not None  # every text has a kind, the empty one too
        return found["kind"], found["number"]
