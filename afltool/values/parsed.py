"""Values that a text says: each is parsed once, where it enters, and has one text form.

Those of `--ridge` are here: a ridge λ, or how one is chosen.
"""

from __future__ import annotations

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


Ridge = Fixed | Auto | Path


def parse_fixed(value: str | float, takes: str = "a number ≥ 0") -> Fixed:
    """A finite number ≥ 0; ``takes``: what a message says may be given."""
    ridge = _number(value)
    if not 0 <= ridge < float("inf"):
        raise UsageError(f"a ridge is {takes}; found {value!r}")
    return Fixed(ridge)


def parse_ridge(value: str | float) -> Ridge:
    """'auto', a path 'LO:HI:COUNT' to choose from, or a finite number ≥ 0."""
    if value == "auto":
        return Auto()
    if isinstance(value, str) and ":" in value:
        return _path(value)
    return parse_fixed(value, "a number ≥ 0, 'auto' or LO:HI:COUNT")


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
