"""Bins of scores in fixed point: what sites declare before they count, so that counts add up."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from ..errors import UsageError
from .parsed import Parsed

ONE = 2.0**32  # a score in fixed point is round(s · 2^32): noise of a last bit crosses no edge
PARTS = 15  # bins of confidence in the expected calibration error; every unit has a multiple of it
MOST = 1 << 16
_NUMBER = r"[-+]?\d{1,4}(?:\.\d{1,6})?"
_FORM = re.compile(rf"({_NUMBER}):({_NUMBER}):(\d{{1,5}})")


@dataclass(frozen=True)
class Bins(Parsed):
    """``count`` bins (a, b] of equal width from ``first`` / ``per`` on, ``per`` in a unit.

    The first and the last one also have what lies beyond.

    >>> parse_bins("0:1:30").edges[:3]
    [0.0, 0.03333333333333333, 0.06666666666666667]
    """

    text: str
    first: int
    per: int
    count: int

    def __str__(self) -> str:
        return self.text

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


PROBABILITIES, SCORES = parse_bins("0:1:240"), parse_bins("-0.5:1.5:240")


def usual_bins(probabilities: bool) -> str:
    """The bins of a head's scores, unless others were agreed on."""
    return str(PROBABILITIES if probabilities else SCORES)
