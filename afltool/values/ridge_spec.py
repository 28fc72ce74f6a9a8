"""Values that a text says: a ridge λ or how one is chosen, and bins of scores in fixed point."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction

from ..errors import UsageError

ONE = 2.0**32  # a score in fixed point is round(s · 2^32): noise of a last bit crosses no edge
PARTS = 15  # bins of confidence in the expected calibration error; every unit has a multiple of it
MOST = 1 << 16
AUTO = "auto"  # generalized cross-validation chooses, or held-out clients
_NUMBER = r"[-+]?\d{1,4}(?:\.\d{1,6})?"
_FORM = re.compile(rf"({_NUMBER}):({_NUMBER}):(\d{{1,5}})")


@dataclass(frozen=True)
class LiteralText:
    """A value that keeps the text it was made of."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class RidgePath(LiteralText):
    """One of ``count`` values from ``low`` to ``high`` is chosen, evenly spaced in log10."""

    low: float
    high: float
    count: int


Ridge = float | str | RidgePath  # λ itself, finite and ≥ 0; `AUTO`; a path


def parse_fixed(value: str | float, takes: str = "a number ≥ 0") -> float:
    """A finite number ≥ 0; ``takes``: what a message says may be given."""
    with suppress(ValueError):
        if 0 <= (ridge := float(value)) < float("inf"):
            return ridge
    raise UsageError(f"a ridge is {takes}; found {value!r}")


def parse_ridge(value: str | float) -> Ridge:
    """'auto', a path 'LO:HI:COUNT' to choose from, or a finite number ≥ 0."""
    if value == AUTO:
        return AUTO
    if not (isinstance(value, str) and ":" in value):
        return parse_fixed(value, "a number ≥ 0, 'auto' or LO:HI:COUNT")
    with suppress(ValueError):
        low, high, count = value.split(":")
        path = RidgePath(value, float(low), float(high), int(count))
        if 0 < path.low < path.high < float("inf") and 2 <= path.count <= 10_000:
            return path
    raise UsageError(
        "a ridge path is LO:HI:COUNT with 0 < LO < HI and 2 to 10000 values, such as "
        f"1e-3:1e3:25; found {value!r}"
    )


@dataclass(frozen=True)
class Bins(LiteralText):
    """``count`` bins (a, b] from ``first`` / ``per`` on; the outer ones have the rest.

    >>> parse_bins("0:1:30").edges[:3]
    [0.0, 0.03333333333333333, 0.06666666666666667]
    """

    first: int
    per: int
    count: int

    @property
    def edges(self) -> list[float]:
        """The edges, count + 1 of them."""
        return [(self.first + k) / self.per for k in range(self.count + 1)]


def parse_bins(text: str) -> Bins:
    """LO:HI:COUNT; `UsageError` unless LO is an edge and a unit has a multiple of 15 bins."""
    match = _FORM.fullmatch(text)
    if match:
        low, high, count = Fraction(match[1]), Fraction(match[2]), int(match[3])
        per = count / (high - low) if high > low else Fraction(1, 2)
        whole = per.denominator == 1 and (low * per).denominator == 1
        if whole and per % PARTS == 0 and low <= 0 and high >= 1 and 0 < count <= MOST:
            return Bins(text, int(low * per), int(per), count)
    raise UsageError(
        f"bins are LO:HI:COUNT, LO ≤ 0 and HI ≥ 1 both edges, a multiple of {PARTS} bins in a "
        f"unit, such as 0:1:240 or -0.5:1.5:240; found {text!r}"
    )


def usual_bins(probabilities: bool) -> str:
    """The bins of a head's scores, unless others were agreed on."""
    return "0:1:240" if probabilities else "-0.5:1.5:240"
