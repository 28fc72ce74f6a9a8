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
class SoftmaxOptions(Options):
    """Options of the softmax head: cross-entropy, in a few tiny rounds after the first."""

    rounds: int = option(20, "gradient rounds after the first phase")
    penalty: float = option(1e-3, "μ > 0 of the penalty (μN/2)‖W‖²; the intercept has none")
    label_smoothing: float = option(0.0, "ε: targets (1 − ε) one-hot + ε/C")
    momentum: bool = option(True, "Nesterov's momentum, with restarts when the loss rises")
    tolerance: float = option(0.0, "stop when the gradient's norm per row is below this")
    gamma: float = option(0.0, "recorded only: the sums never need it")

    def __post_init__(self) -> None:
        for name in ("penalty", "label_smoothing", "tolerance", "gamma"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.rounds < 1:
            raise UsageError(f"--rounds is at least 1; found {self.rounds}")
        if not 0 < self.penalty < float("inf"):
            raise UsageError(
                f"--penalty is a number > 0, such as 1e-3; found {self.penalty:g}: without it the "
                "loss may have no minimum"
            )
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"--label-smoothing is in [0, 1); found {self.label_smoothing:g}")
