"""Options of the SAFLe head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...errors import UsageError
from ...options import option
from ..options import HeadOptions, gamma_option, parse_ridge, ridge_option, seed_option

# Largest D = E·V of the default number of codes: it takes 3.2 GB and half a minute to solve. Up to
# 768 features use every digit. It must not depend on the machine, because all sites need the same
# codes.
DEFAULT_SIDE = 16_384
# What a client of the paper sends with K = 100 (its section on communication).
PAPER = {
    "the paper's client, CIFAR-100 at 67 %": 70_000_000,
    "the paper's client, Tiny-ImageNet at 62.3 %": 60_000_000,
}


@dataclass(frozen=True, kw_only=True)
class SafleOptions(HeadOptions):
    """Options of the SAFLe head, which cuts features into buckets and adds up weights of codes."""

    lends: ClassVar[tuple[str, ...]] = (
        "bucketing", "buckets", "group_size", "experts", "thresholds", "with_linear", "seed",
    )  # fmt: skip

    bucketing: str = option(
        "overlap", "how a feature becomes digits", choices=("integer", "onehot", "overlap")
    )
    buckets: int = option(8, "buckets B of a feature", at_least=2, at_most=256)
    group_size: int | None = option(
        None, "digits G of a code; tables have V = k^G rows", at_least=1, unset="3; 1 with integer"
    )
    experts: int | None = option(
        None,
        "codes E of a row; `solve` says how many digits are left out",
        at_least=1,
        unset=f"enough for every digit, at most {DEFAULT_SIDE} / V",
    )
    thresholds: str = option(
        "federated",
        "federated for quantiles, found in a first small round; FILE for the quantiles of a "
        "feature file or the thresholds of a head; range:LO:HI for even steps. Only federated "
        "needs a second round",
        examples=("federated",),
        names_file=True,
    )
    with_linear: bool = option(
        False, "hybrid: fit the raw features as well, in the same least-squares problem"
    )
    ridge: str | float = ridge_option("auto", "ridge λ of the codes")
    linear_ridge: float = option(
        1.0, "ridge of the raw features of a hybrid", at_least=0, at_solve=True
    )
    seed: int = seed_option("the shuffle that deals digits into codes", at_most=2**32 - 1)
    gamma: float = gamma_option()

    def check(self) -> None:
        self._set(ridge=parse_ridge(self.ridge))
        if self.group_size is None:
            self._set(group_size=1 if self.bucketing == "integer" else 3)
        if self.digits_of_code > 16 or self.size > 2**16:
            raise UsageError(
                f"--group-size {self.group_size} gives tables of {self.radix}^{self.group_size} "
                "rows; they have 2 to 65536"
            )
        if self.thresholds.startswith("range:"):
            self.range()

    @property
    def digits_of_code(self) -> int:
        """G, known after the default is in."""
        assert self.group_size is not None
        return self.group_size

    @property
    def radix(self) -> int:
        """k, the values of one digit."""
        return self.buckets if self.bucketing == "integer" else 2

    @property
    def size(self) -> int:
        """V = k^G, the rows of one table."""
        return int(self.radix**self.digits_of_code)

    def digits_for(self, dim: int) -> int:
        """The digits of a row of ``dim`` features, d·L."""
        return dim * (1 if self.bucketing == "integer" else self.buckets)

    def experts_for(self, dim: int, most: int = DEFAULT_SIDE) -> int:
        """E: as asked, or enough for every digit where E·V stays within ``most``."""
        if self.experts is not None:
            return self.experts
        return max(1, min(self.experts_for_all(dim), most // self.size))

    def experts_for_all(self, dim: int) -> int:
        """The smallest E whose codes use every digit of ``dim`` features."""
        return -(-self.digits_for(dim) // self.digits_of_code)

    def range(self) -> tuple[float, float]:
        """LO and HI of thresholds range:LO:HI."""
        try:
            low, high = (float(part) for part in self.thresholds.split(":")[1:])
        except ValueError:
            low = high = 0.0
        if not -float("inf") < low < high < float("inf"):
            raise UsageError(
                f"--thresholds range:LO:HI needs numbers LO < HI; found {self.thresholds!r}"
            )
        return low, high

    def one_round(self) -> bool:
        return self.thresholds != "federated"

    def files(self) -> tuple[str, ...]:
        named = self.thresholds != "federated" and not self.thresholds.startswith(
            ("range:", "features:", "head:")  # the last two: read already, by digest
        )
        return ("thresholds",) if named else ()

    def yardsticks(self, phase: str, dim: int, clients: int) -> dict[str, int]:
        """Bytes of the whole matrix as dense float32, and of what a client of the paper sends."""
        if phase != "codes":
            return {}
        side = self.experts_for(dim) * self.size + dim * self.with_linear
        return {"dense float32, D × D": 4 * side**2} | (PAPER if clients == 1 else {})


OPTIONS = SafleOptions
