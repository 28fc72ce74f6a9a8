"""Options of evaluation as statistics: what sites agree on, and whose rows are counted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..values.bins import Bins, parse_bins
from .fields import Options, option
from .statistics import LocalStatsOptions

LEAST = 10  # rows of a group, unless said otherwise


@dataclass(frozen=True, kw_only=True)
class RoundOptions(Options):
    """What every site of a round of evaluation has alike, beside the heads."""

    _bins = "bins of the scores, LO:HI:COUNT, LO ≤ 0, HI ≥ 1; a unit has a multiple of 15 of them"
    bins: Bins | None = option(
        None, _bins, unset="0:1:240 for probabilities, else -0.5:1.5:240", parse=parse_bins
    )
    _groups = "group of rows that is counted apart; may be repeated, the same at every site"
    groups: tuple[str, ...] = option((), _groups)
    _least = "fewest rows of a group in a file that can be read; groups without rows are allowed"
    min_group: int = option(LEAST, _least, at_least=1)


@dataclass(frozen=True, kw_only=True)
class CountOptions(RoundOptions, LocalStatsOptions):
    """Whose rows are counted, for which heads, and what is done to the counts before they leave."""

    _beside = "another solved head that is counted in the same round; may be repeated"
    beside: tuple[Path, ...] = option((), _beside)
