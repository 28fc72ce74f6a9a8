"""Options of the SAFLe head."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic.dataclasses import dataclass

from ...errors import UsageError
from ...options.base import Absent, grammar, option
from ...values.ridge_spec import parse_ridge
from ..options import RIDGE_GRAMMAR, HeadOptions

# Largest D = E·V of the default number of codes: it takes 3.2 GB and half a minute to solve, and is
# not of the machine, because all sites need the same codes.
DEFAULT_SIDE = 16_384
# The paper's own shape: every digit is in one code (E·G = d·L), V = 32, and one round, which needs
# thresholds without data. It does not say where they lie; pooled features lie mostly in this range.
PAPER_SIZE, PAPER_CUTS = 32, "range:0:2"
Bucketing = Literal["integer", "onehot", "overlap"]
FEDERATED = "federated"  # thresholds are quantiles of all clients' features, from a first round
READ = ("features:", "head:")  # in solved heads up to 0.3, whose thresholds a file had given
LINEAR_RIDGE = 1.0  # of the raw features of a hybrid


def even_steps(thresholds: str) -> tuple[float, float] | None:
    """LO and HI of 'range:LO:HI', thresholds in even steps; None of 'federated', and of `READ`.

    >>> even_steps("range:0:2")
    (0.0, 2.0)
    """
    if thresholds == FEDERATED or thresholds.startswith(READ):
        return None
    kind, *ends = thresholds.split(":")
    try:
        low, high = map(float, ends)
    except ValueError:
        low = high = 0.0
    if kind != "range" or not -float("inf") < low < high < float("inf"):
        wanted = f"--thresholds is {FEDERATED}, or range:LO:HI with numbers LO < HI"
        raise UsageError(f"{wanted}; found {thresholds!r}")
    return low, high


def parse_cuts(thresholds: str) -> str:
    """The text itself, checked."""
    even_steps(thresholds)
    return thresholds


@dataclass(frozen=True, kw_only=True)
class SafleOptions(HeadOptions):
    """Features cut into buckets, and weights of their codes added up (SAFLe)."""

    AT_SOLVE: ClassVar = frozenset({"ridge"})
    GONE: ClassVar = {"gamma": 0.0, "linear_ridge": LINEAR_RIDGE}

    bucketing: Bucketing = option("overlap", "how features are quantized")
    buckets: int = option(8, "buckets B per feature", ge=2, le=256)
    _group = "digits G of a code; tables have V = k^G rows (default: 3; 1 with integer)"
    group_size: int | None = option(None, _group, ge=1)
    _experts = f"codes E of a row (default: enough for every digit, at most {DEFAULT_SIDE} / V)"
    experts: int | None = option(None, _experts, ge=1)
    _every_digit = "so many codes that every digit is used, whatever number of columns that takes"
    every_digit: Annotated[bool, Absent(False)] = option(False, _every_digit)
    _thresholds = (
        "federated for quantiles, found in a first small round, or range:LO:HI for even steps "
        f"(default: {FEDERATED})"
    )
    thresholds: Annotated[str | None, grammar(parse_cuts)] = option(
        None, _thresholds, examples=[FEDERATED]
    )
    _linear = "hybrid: fit the raw features as well, in the same least-squares problem"
    with_linear: bool = option(False, _linear)
    _ridge = f"ridge λ of the codes: {RIDGE_GRAMMAR} (default: auto; with --preset paper 0)"
    ridge: Annotated[float | str | None, grammar(parse_ridge)] = option(None, _ridge)
    _seed = "seed of the shuffle that deals digits into codes"
    seed: int = option(0, _seed, ge=0, le=2**32 - 1)
    _preset = (
        "paper: the paper's own shape, one round: every digit, V = 32 (or the next smaller "
        f"power of k), thresholds {PAPER_CUTS}, ridge 0"
    )
    preset: Annotated[Literal["paper"] | None, Absent(None)] = option(None, _preset)

    def check(self) -> None:
        self.excludes("every_digit", "experts")
        if self.ridge is None:  # (18) has none
            self._set(ridge="auto" if self.preset is None else 0.0)
        most = 1 if self.bucketing == "integer" else 3
        if self.preset is not None:  # where no value is given; the file then holds these
            most = max((g for g in range(1, 6) if self.radix**g <= PAPER_SIZE), default=1)
            every = self.experts is None
            self._set(thresholds=self.thresholds or PAPER_CUTS, every_digit=every, preset=None)
        self._set(thresholds=self.thresholds or FEDERATED, group_size=self.group_size or most)
        if self.digits_of_code > 16 or self.size > 2**16:
            shape = f"{self.radix}^{self.group_size}"
            raise UsageError(f"--group-size gives tables of {shape} rows; they have 2 to 65536")

    @property
    def federated(self) -> bool:
        """Whether clients find the thresholds together, in a round of histograms."""
        return self.thresholds == FEDERATED

    @property
    def steps(self) -> tuple[float, float] | None:
        """The range of thresholds in even steps."""
        return even_steps(self.thresholds or FEDERATED)

    @property
    def digits_of_code(self) -> int:
        """G, known after the default is in."""
        return int(self.group_size or 0)

    @property
    def radix(self) -> int:
        """k, the values of one digit."""
        return self.buckets if self.bucketing == "integer" else 2

    @property
    def size(self) -> int:
        """V = k^G, the rows of one table."""
        return int(self.radix**self.digits_of_code)

    @property
    def each(self) -> int:
        """T, the thresholds of one feature."""
        return self.buckets - (self.bucketing != "overlap")

    def digits_for(self, dim: int) -> int:
        """The digits of a row of ``dim`` features, d·L."""
        return dim * (1 if self.bucketing == "integer" else self.buckets)

    def experts_for(self, dim: int) -> int:
        """E, the codes of a row: as asked, or enough for every digit within `DEFAULT_SIDE`."""
        if self.experts is not None:
            return self.experts
        if self.every_digit:
            return self.experts_for_all(dim)
        return max(1, min(self.experts_for_all(dim), DEFAULT_SIDE // self.size))

    def experts_for_all(self, dim: int) -> int:
        """The smallest E whose codes use every digit of ``dim`` features."""
        return -(-self.digits_for(dim) // self.digits_of_code)

    def columns_for(self, dim: int) -> int:
        """Columns of the whole problem: D = E·V, or d + D with the raw features."""
        return self.experts_for(dim) * self.size + dim * self.with_linear
