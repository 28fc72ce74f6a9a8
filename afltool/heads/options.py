"""What each head can be told; light enough for the command line to read at start-up.

A head's options are a frozen dataclass whose fields carry ``help``. ``at_solve`` marks options
that the statistics do not depend on: `solve` may still change them. The command line makes its
options from these fields, so a new head needs no change there.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..errors import UsageError


def option(default: Any, help: str, at_solve: bool = False) -> Any:
    """A field of an options dataclass with its help text."""
    return field(default=default, metadata={"help": help, "at_solve": at_solve})


def parse_ridge(value: str | float) -> str | float:
    """'auto', a path 'LO:HI:COUNT' to choose from, or a finite number ≥ 0."""
    if value == "auto":
        return "auto"
    if isinstance(value, str) and ":" in value:
        check_path(value)
        return value
    try:
        ridge = float(value)
    except ValueError:
        ridge = -1.0
    if not 0 <= ridge < float("inf"):
        raise UsageError(f"a ridge is a number ≥ 0, 'auto' or LO:HI:COUNT; found {value!r}")
    return ridge


def check_path(text: str) -> tuple[float, float, int]:
    """Ends and number of values of a ridge path 'LO:HI:COUNT', evenly spaced in log10.

    >>> check_path("1e-3:1e3:25")
    (0.001, 1000.0, 25)
    """
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
    return low, high, count


def check_gamma(value: float) -> float:
    """γ of the RI process: a finite number ≥ 0."""
    gamma = float(value)
    if not 0 <= gamma < float("inf"):
        raise UsageError(f"--gamma is a number ≥ 0; found {value}")
    return gamma


@dataclass(frozen=True)
class Options:
    """What every head takes."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def changeable(self) -> set[str]:
        """Names of the options that `solve` may still change."""
        return {f.name for f in fields(self) if f.metadata.get("at_solve")}

    def files(self) -> tuple[str, ...]:
        """Names of the options that name a file; see `heads.base.Source`."""
        return ()


@dataclass(frozen=True)
class LinearOptions(Options):
    """Options of the linear head (AFL)."""

    ridge: str | float = option(
        0.0,
        "final ridge λ ≥ 0; 'auto': generalised cross-validation; LO:HI:COUNT: a path",
        at_solve=True,
    )
    gamma: float = option(
        0.0, "γ ≥ 0 of the RI process, taken off again at the end: an intermediary only"
    )
    intercept: bool = option(False, "add a constant feature; the ridge leaves it alone")
    min_norm: bool = option(
        False, "accept a rank-deficient system: the minimum-norm solution", at_solve=True
    )
    keep_gamma: bool = option(
        False, "leave each client's γ in, as the paper's 'without RI removal'", at_solve=True
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", parse_ridge(self.ridge))
        object.__setattr__(self, "gamma", check_gamma(self.gamma))


@dataclass(frozen=True)
class SafleOptions(Options):
    """Options of the SAFLe head: codes of bucketed features, looked up in tables and added."""

    bucketing: str = option("overlap", "integer, onehot or overlap (one bit a threshold)")
    buckets: int = option(8, "buckets B of a feature")
    group_size: int | None = option(
        None, "digits G of a code; tables have V = k^G rows (G: 3, integer 1)"
    )
    experts: int | None = option(
        None, "number of codes E of a row (as many as use every digit once, at most 8192 / V)"
    )
    thresholds: str = option(
        "federated", "federated (one small round), a feature or head FILE, or range:LO:HI"
    )
    with_linear: bool = option(False, "hybrid: the raw features too, in one problem")
    ridge: str | float = option(
        "auto",
        "ridge λ ≥ 0 of the codes; 'auto': generalised cross-validation; LO:HI:COUNT: a path",
        at_solve=True,
    )
    linear_ridge: float = option(1.0, "ridge ≥ 0 of the raw features of a hybrid", at_solve=True)
    seed: int = option(0, "seed of the shuffle that deals digits into codes")
    gamma: float = option(
        0.0, "γ ≥ 0 of the RI process, taken off again at the end: an intermediary only"
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", parse_ridge(self.ridge))
        if self.group_size is None:
            object.__setattr__(self, "group_size", 1 if self.bucketing == "integer" else 3)
        for name in ("gamma", "linear_ridge"):
            object.__setattr__(self, name, float(getattr(self, name)))
            if not 0 <= getattr(self, name) < float("inf"):
                flag = name.replace("_", "-")
                raise UsageError(f"--{flag} is a number ≥ 0; found {getattr(self, name)}")
        self._check_codes()
        if self.thresholds.startswith("range:"):
            self.range()

    def _check_codes(self) -> None:
        if self.bucketing not in ("integer", "onehot", "overlap"):
            raise UsageError(f"--bucketing is integer, onehot or overlap; found {self.bucketing!r}")
        if not 2 <= self.buckets <= 256:
            raise UsageError(f"--buckets is 2 to 256; found {self.buckets}")
        if self.experts is not None and self.experts < 1:
            raise UsageError(f"--experts is at least 1; found {self.experts}")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"--seed is 0 to 2^32 − 1; found {self.seed}")
        assert self.group_size is not None
        if not 1 <= self.group_size <= 16 or self.size > 2**16:
            raise UsageError(
                f"--group-size {self.group_size} gives tables of {self.radix}^{self.group_size} "
                "rows; they have 2 to 65536"
            )

    @property
    def radix(self) -> int:
        """k, the values of one digit."""
        return self.buckets if self.bucketing == "integer" else 2

    @property
    def size(self) -> int:
        """V = k^G, the rows of one table."""
        return int(self.radix ** (self.group_size or 1))

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

    def files(self) -> tuple[str, ...]:
        named = self.thresholds != "federated" and not self.thresholds.startswith(
            ("range:", "features:", "head:")  # the last two: read already, by digest
        )
        return ("thresholds",) if named else ()
