"""What the options of the heads have in common; light enough for the command line to read.

Each head's options are a frozen dataclass in its folder, one field an option, as
`afltool.options` describes. ``at_solve`` marks those that the statistics do not depend on:
`solve` may still change them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from ..errors import UsageError
from ..options import Options, option
from ..values.names import Phase
from ..values.parsed import Auto, Fixed, Ridge, parse_fixed, parse_ridge, text_form

ACTIVATIONS = ("none", "gelu", "relu", "leaky-relu", "tanh", "hardswish", "softshrink", "sigmoid")
PROJECTIONS = ("linear-uniform", "gaussian")
COMPUTE = ("float32", "float64")
FIXED = "fixed"  # of `compute`: features in fixed point, sums that are integers

NUMBER = "a number ≥ 0"
RIDGE_GRAMMAR = (
    f"{NUMBER}; auto for generalised cross-validation (GCV); LO:HI:COUNT to choose among COUNT "
    "values"
)


@dataclass(frozen=True, kw_only=True)
class HeadOptions(Options):
    """What every head takes.

    ``lends``: the options that decide the head's features; heads fitted on these features take them
    over. ``shows_rows``: sums of few rows show the space of the rows.
    """

    lends: ClassVar[tuple[str, ...]] = ()
    shows_rows: ClassVar[bool] = True
    #: Options of earlier versions by the values that are left of them, as files still say them.
    GONE: ClassVar[Mapping[str, Any]] = {}

    def as_dict(self) -> dict[str, Any]:
        """Values by name; of a ``newer`` option only another one than its default."""
        values = {f.name: (f, getattr(self, f.name)) for f in fields(self)}
        said = {
            name: text_form(value)
            for name, (f, value) in values.items()
            if not (f.metadata.get("newer") and value == f.default)
        }
        return {**said, **self.GONE}

    def changeable(self) -> set[str]:
        """Names of the options that `solve` may still change."""
        return {f.name for f in fields(self) if f.metadata.get("at_solve")}

    def facts(self) -> dict[str, bool]:
        """What is known of the head once its defaults are in; see `options.FACTS`."""
        return {}

    def row_groups(self) -> tuple[str, ...]:
        """Groups, one of which each row is in, if its sums are counts of rows by group."""
        return ()

    def least_of_group(self) -> int:
        """The fewest rows of a group, if there are any, in the sums of a client."""
        return 1

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
        for name, value in values.items():
            object.__setattr__(self, name, value)


def ridge_option(
    default: Ridge | None,
    what: str = "ridge λ",
    unset: str = "",
    parse: Any = parse_ridge,
    grammar: str = RIDGE_GRAMMAR,
) -> Any:
    """--ridge of a head that has one: its default, what parses it, and what that takes."""
    text, anywhere = f"{what}: {grammar}", f"ridge λ: {RIDGE_GRAMMAR} (default: by the head)"
    return option(
        default, text, at_solve=True, unset=unset, common=True, of_any=anywhere, parse=parse
    )


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


@dataclass(frozen=True, kw_only=True)
class LeastSquaresOptions(HeadOptions):
    """Options of the heads that are one ridge regression."""

    ridge: Ridge = ridge_option(Fixed(0.0))
    gamma: float = gamma_option()
    intercept: bool = option(False, "add a constant feature, to which the ridge does not apply")
    _min_norm = "where the data do not determine the head, take the minimum-norm solution"
    min_norm: bool = option(False, _min_norm, at_solve=True)
    keep_gamma: bool = option(
        False, "do not take γ off, as in the paper's 'without RI removal'", at_solve=True
    )
    standardise: bool = standardise_option("the ridge", at_solve=True)

    def check(self) -> None:
        if self.standardise and self.keep_gamma:
            raise UsageError("--keep-gamma needs the original features: leave out --standardise")


@dataclass(frozen=True, kw_only=True)
class LinearOptions(LeastSquaresOptions):
    """Options of the linear head (AFL)."""


@dataclass(frozen=True, kw_only=True)
class RandomFeaturesOptions(LeastSquaresOptions):
    """Options of the linear head on one wide layer of random features, [σ(XA), X]."""

    lends: ClassVar[tuple[str, ...]] = (
        "width", "activation", "with_linear", "seed", "projection", "compute",
    )  # fmt: skip

    ridge: Ridge = ridge_option(Auto())
    width: int = option(8192, "number of random features", at_least=1)
    activation: str = option("tanh", "activation σ", choices=ACTIVATIONS)
    with_linear: bool = option(False, "use the raw features beside the random ones")
    seed: int = seed_option("the random projection A and its bias, which are never stored or sent")
    projection: str = option(
        "linear-uniform",
        "random projection A: uniform weights and bias, or gaussian weights",
        choices=PROJECTIONS,
    )
    _compute = "number format of the products; sums are float64, or integers with fixed"
    compute: str = option("float64", _compute, choices=(*COMPUTE, FIXED))

    def check_room(self, dim: int) -> None:
        """Refuse a gram that does not fit: 16 bytes a pair, of a square and of two triangles."""
        from .. import memory

        side = self.width + self.with_linear * dim + self.intercept
        memory.need(16 * side * side, f"the gram of {side} features", "use a smaller --width")


#: Rule → the options that it takes beside ``rule``.
RULES: dict[str, tuple[str, ...]] = {
    "nearest-mean": (),
    "lda": ("shrinkage",),
    "fedcgs": ("shrinkage",),
    "fed3r": ("ridge",),
    "naive-bayes": (),
    "qda": ("shrinkage",),
}
RIDGE = 0.01  # of Fed3R


@dataclass(frozen=True, kw_only=True)
class DiscriminantOptions(HeadOptions):
    """Options of the classifiers that need one round: each rule solves from sums by class."""

    rule: str = option("lda", "which classifier", choices=tuple(RULES))
    _shrinkage = "s of the covariance (1 − s)Σ + s tr(Σ)/d I (lda, fedcgs, qda)"
    shrinkage: float = option(0.0, _shrinkage, at_least=0, at_most=1, at_solve=True)
    ridge: Fixed | None = ridge_option(
        None, "ridge λ of fed3r", unset=f"{RIDGE:g}", parse=parse_fixed, grammar=NUMBER
    )

    def check(self) -> None:
        takes = RULES[self.rule]
        for name, none in (("shrinkage", 0.0), ("ridge", None)):
            if getattr(self, name) != none and name not in takes:
                raise UsageError(f"--rule {self.rule} takes no --{name}; leave it out")

    @property
    def lam(self) -> float:
        """λ of fed3r."""
        return RIDGE if self.ridge is None else self.ridge.value


#: Options of the heads whose own module is heavy to load, by name.
OF_MODULES: dict[str, type[HeadOptions]] = {
    "linear": LinearOptions,
    "random-features": RandomFeaturesOptions,
    "discriminant": DiscriminantOptions,
    "network": HeadOptions,  # its arrays say everything
}
