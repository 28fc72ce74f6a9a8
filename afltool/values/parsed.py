"""Values that a text says: each is parsed once, where it enters, and has one text form.

Those of `--ridge` are here: a ridge λ, how one is chosen, or one for each slice of the features.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError


class Parsed:
    """Base of frozen values that are made of a text; ``str`` of one is that text."""

    def text_form(self) -> str | float:
        """What files and scripts hold of it: its text, or the number that it is."""
        return str(self)


@dataclass(frozen=True)
class Written(Parsed):
    """A value that keeps the text it was made of."""

    text: str

    def __str__(self) -> str:
        return self.text


def text_form(value: Any) -> Any:
    """The value of an option as files and scripts hold it.

    >>> text_form((1, None, "a"))
    (1, None, 'a')
    """
    if isinstance(value, tuple):
        return tuple(map(text_form, value))
    return value.text_form() if isinstance(value, Parsed) else value


def is_parsed(value: Any) -> bool:
    """Whether it, or each of several values, is parsed."""
    several = value if isinstance(value, tuple) and value else (value,)
    return all(isinstance(one, Parsed) for one in several)


EACH_SLICE = "slices=auto"


@dataclass(frozen=True)
class Fixed(Parsed):
    """λ itself, finite and ≥ 0."""

    value: float

    def __str__(self) -> str:
        return str(self.value)

    def text_form(self) -> float:
        return self.value


@dataclass(frozen=True)
class Auto(Parsed):
    """Generalised cross-validation chooses, or held-out clients."""

    def __str__(self) -> str:
        return "auto"


@dataclass(frozen=True)
class Path(Written):
    """One of ``count`` values from ``low`` to ``high`` is chosen, evenly spaced in log10."""

    low: float
    high: float
    count: int


@dataclass(frozen=True)
class PerSlice(Written):
    """Name and ridge of each slice of the features; none where they are to be chosen."""

    ridges: tuple[tuple[str, float], ...] = ()

    @classmethod
    def of(cls, ridges: Iterable[tuple[str, float]]) -> PerSlice:
        """That of names and ridges.

        >>> str(PerSlice.of([("penultimate", 10.0), ("blocks.5", 31.6)]))
        'penultimate=10,blocks.5=31.6'
        """
        pairs = tuple(ridges)
        return cls(",".join(f"{name}={value:g}" for name, value in pairs), pairs)


OneRidge = Fixed | Auto | Path
Ridge = OneRidge | PerSlice


def parse_fixed(value: str | float, takes: str = "a number ≥ 0") -> Fixed:
    """A finite number ≥ 0; ``takes``: what a message says may be given."""
    ridge = _number(value)
    if not 0 <= ridge < float("inf"):
        raise UsageError(f"a ridge is {takes}; found {value!r}")
    return Fixed(ridge)


def parse_ridge(value: str | float, others: str = " or LO:HI:COUNT") -> OneRidge:
    """'auto', a path 'LO:HI:COUNT' to choose from, or a finite number ≥ 0.

    ``others``: what a message says may be given beside a number and 'auto'.
    """
    if value == "auto":
        return Auto()
    if isinstance(value, str) and ":" in value and "=" not in value:
        return _path(value)
    return parse_fixed(value, f"a number ≥ 0, 'auto'{others}")


def parse_ridges(value: str | float) -> Ridge:
    """What `parse_ridge` takes, or ridges of slices.

    >>> parse_ridges("penultimate=10,blocks.5=100").ridges
    (('penultimate', 10.0), ('blocks.5', 100.0))
    """
    if not isinstance(value, str) or "=" not in value:
        return parse_ridge(value, f", LO:HI:COUNT, NAME=λ,NAME=λ or {EACH_SLICE}")
    return PerSlice(value, () if value == EACH_SLICE else _by_slice(value))


def _number(text: str | float) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _path(text: str) -> Path:
    parts = text.split(":")
    try:
        low, high, count = float(parts[0]), float(parts[1]), int(parts[2])
        good = len(parts) == 3 and 0 < low < high < float("inf") and 2 <= count <= 10_000
    except (ValueError, IndexError):
        good = False
    if not good:
        raise UsageError(
            "a ridge path is LO:HI:COUNT with 0 < LO < HI and 2 to 10000 values, such as "
            f"1e-3:1e3:25; found {text!r}"
        )
    return Path(text, low, high, count)


def _by_slice(text: str) -> tuple[tuple[str, float], ...]:
    ridges: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().rpartition("=")
        ridge = _number(value)
        if not name or name in ridges or not 0 < ridge < float("inf"):
            raise UsageError(
                "ridges of slices are NAME=λ,NAME=λ with λ > 0 and each name once, such as "
                f"penultimate=10,blocks.5=100; found {part.strip()!r} in {text!r}"
            )
        ridges[name] = ridge
    return tuple(ridges.items())
