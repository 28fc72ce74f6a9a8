"""What the options of the heads have in common; light enough for the command line to read.

Each head's options are a frozen dataclass in its folder, one field an option, as
`afltool.options.fields` describes. ``at_solve`` marks those that the statistics do not depend on:
`solve` may still change them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ..errors import UsageError
from ..options import Options, option
from ..values.phases import Phase

ACTIVATIONS = (
    "none", "gelu", "relu", "leaky-relu", "tanh", "hardswish", "softshrink", "sigmoid",
)  # fmt: skip
PROJECTIONS = ("linear-uniform", "gaussian")
COMPUTE = ("float32", "float64")
FIXED = "fixed"  # of `compute`: features in fixed point, sums that are integers
EACH_SLICE = "slices=auto"  # of --ridge: a ridge is chosen for each slice of the features


@dataclass(frozen=True, kw_only=True)
class HeadOptions(Options):
    """What every head takes.

    ``lends``: the options that decide the head's features; heads fitted on these features take them
    over.
    """

    lends: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Values by name; of a ``newer`` option only another one than its default."""
        found = {f.name: (f, getattr(self, f.name)) for f in fields(self)}
        return {
            name: value
            for name, (f, value) in found.items()
            if not (f.metadata.get("newer") and value == f.default)
        }

    def changeable(self) -> set[str]:
        """Names of the options that `solve` may still change."""
        return {f.name for f in fields(self) if f.metadata.get("at_solve")}

    def facts(self) -> dict[str, bool]:
        """What is known of the head once its defaults are in; see `options.used_with.FACTS`."""
        return {}

    def files(self) -> tuple[str, ...]:
        """Names of the options that name a file; see `heads.base.Source`."""
        return ()

    def one_round(self) -> bool:
        """Whether the first sum solves the head, so that later rows can still be added to it."""
        return True

    def same_clients(self) -> str | None:
        """The option that needs the same clients with the same rows in every round, if any."""
        return None

    @classmethod
    def for_everybody(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Further options that make rounds cheaper if all clients take part in each round."""
        return {}

    @classmethod
    def for_data(cls, given: Mapping[str, Any], data: str | None) -> dict[str, Any]:
        """Options that a run replaces because of its data set; None: it is given its features."""
        return {}

    def draw_of(self, phase: Phase) -> int:
        """Number of the draw of clients for a phase, if only a share of them takes part."""
        return phase.number or 0

    def turn_of(self, phase: Phase) -> int:
        """Which sum of its layer a phase gathers, from 0; the others share its draw, `draw_of`."""
        return 0

    def turns(self) -> int:
        """How many sums a layer takes."""
        return 1

    def check_room(self, dim: int) -> None:
        """Refuse, before rows are read, a solve for which this machine has too little memory.

        ``dim``: number of features. Of heads whose problem is much larger than the features'.
        """

    def figures(self, phase: str, read: Callable[[], Mapping[str, Any]]) -> dict[str, float]:
        """Figures of a phase's sums that tell what is sent, by name; ``read`` gets its arrays."""
        return {}

    def yardsticks(self, phase: str, dim: int, clients: int) -> dict[str, int]:
        """Sizes in bytes, by name, to compare the statistics of this many clients with."""
        return {}

    def _set(self, **values: Any) -> None:
        """Set fields of this frozen object while it is made."""
        for name, value in values.items():
            object.__setattr__(self, name, value)


def ridge_option(
    default: str | float | None, what: str = "ridge λ", unset: str = "", more: str = ""
) -> Any:
    """A ridge: the class that has it gives its value to `parse_ridge`."""
    text = (
        f"{what}: a number ≥ 0; auto for generalised cross-validation (GCV); LO:HI:COUNT to "
        f"choose among COUNT values{more}"
    )
    return option(default, text, at_solve=True, unset=unset, common=True)


def gamma_option() -> Any:
    """γ, an option of every head that works with the pairwise law."""
    text = "γ that clients add to the gram; `solve` takes it off, so the head does not depend on it"
    return option(0.0, text, at_least=0)


def standardise_option(penalty: str, at_solve: bool) -> Any:
    """Whether a penalty on large weights is of features with variance one."""
    text = f"{penalty} weighs each feature by its variance: as on features of variance one"
    return option(False, text, at_solve=at_solve, newer=True)


def seed_option(drawn: str, at_most: int = 2**64 - 1) -> Any:
    """A seed, and what is drawn from it."""
    return option(0, f"seed of {drawn}", at_least=0, at_most=at_most)


def parse_ridge(value: str | float) -> str | float:
    """'auto', a path 'LO:HI:COUNT' to choose from, or a finite number ≥ 0."""
    if value == "auto":
        return "auto"
    if isinstance(value, str) and ":" in value and "=" not in value:
        check_path(value)
        return value
    try:
        ridge = float(value)
    except ValueError:
        ridge = -1.0
    if not 0 <= ridge < float("inf"):
        raise UsageError(f"a ridge is a number ≥ 0, 'auto' or LO:HI:COUNT; found {value!r}")
    return ridge


def ridges_by_slice(text: str) -> dict[str, float]:
    """The ridge of each slice of the features, by its name.

    >>> ridges_by_slice("penultimate=10,blocks.5=100")
    {'penultimate': 10.0, 'blocks.5': 100.0}
    """
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.strip().rpartition("=")
        try:
            ridge = float(value)
        except ValueError:
            ridge = -1.0
        if not name or name in found or not 0 < ridge < float("inf"):
            raise UsageError(
                "ridges of slices are NAME=λ,NAME=λ with λ > 0 and each name once, such as "
                f"penultimate=10,blocks.5=100; found {part.strip()!r} in {text!r}"
            )
        found[name] = ridge
    return found


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


@dataclass(frozen=True, kw_only=True)
class LeastSquaresOptions(HeadOptions):
    """Options of the heads that are one ridge regression.

    ``by_slice``: whether their features are those of a feature file, so that each of its slices
    may have its own ridge.
    """

    by_slice: ClassVar[bool] = False

    ridge: str | float = ridge_option(0.0)
    gamma: float = gamma_option()
    intercept: bool = option(False, "add a constant feature, to which the ridge does not apply")
    min_norm: bool = option(
        False, "where the data do not determine the head, take the minimum-norm solution",
        at_solve=True,
    )  # fmt: skip
    keep_gamma: bool = option(
        False, "do not take γ off, as in the paper's 'without RI removal'", at_solve=True
    )
    standardise: bool = standardise_option("the ridge", at_solve=True)

    def check(self) -> None:
        if self.slice_ridges() is None and not self.each_slice():
            self._set(ridge=parse_ridge(self.ridge))
        elif self.keep_gamma:
            raise UsageError("--keep-gamma is for a single ridge: leave out the ridges of slices")
        if self.standardise and self.keep_gamma:
            raise UsageError("--keep-gamma needs the original features: leave out --standardise")

    def each_slice(self) -> bool:
        """Whether a ridge of each slice is to be chosen."""
        return self.by_slice and self.ridge == EACH_SLICE

    def slice_ridges(self) -> dict[str, float] | None:
        """The ridge of each slice by name, where ``ridge`` gives them."""
        if self.by_slice and isinstance(self.ridge, str) and "=" in self.ridge:
            return None if self.each_slice() else ridges_by_slice(self.ridge)
        return None
