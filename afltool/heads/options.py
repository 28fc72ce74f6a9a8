"""What the options of the heads have in common; light enough for the command line to read.

``AT_SOLVE`` are options that the statistics do not depend on: `solve` may still change them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from ..options.base import Absent, Choices, Options, Stored, get_option_set, grammar, option
from ..values.names import Phase
from ..values.ridge_spec import parse_fixed, parse_ridge

Activation = Literal["none", "gelu", "relu", "leaky-relu", "tanh", "hardswish", "softshrink"]
Compute = Literal["float32", "float64", "fixed"]
ACTIVATIONS: tuple[str, ...] = get_args(Activation)
PAPER = "paper"  # of `preset`
FIXED = "fixed"  # of `compute`: features in fixed point, sums that are integers

NUMBER = "a number ≥ 0"
RIDGE_GRAMMAR = f"{NUMBER}; auto for generalized cross-validation; LO:HI:COUNT for COUNT values"


@dataclass(frozen=True, kw_only=True)
class HeadOptions(Options):
    """What every head takes."""

    COMMON: ClassVar = frozenset({"ridge"})
    AT_SOLVE: ClassVar[frozenset[str]] = frozenset()
    #: Options of earlier versions by the values that are left of them, as files still say them;
    #: files say no `Absent` one.
    GONE: ClassVar[Mapping[str, Any]] = {}
    #: A switch that makes rounds cheaper, and needs the same clients and rows in each; if any.
    CHEAPER: ClassVar[str] = ""
    #: Presets that `PAPER` of a run stands for: that of its data set, else the last.
    PUBLISHED: ClassVar[tuple[str, ...]] = ()
    #: The kind of phase whose sums are the second ones of a layer, and share the draw of the first.
    SECOND: ClassVar[str] = ""

    def as_dict(self) -> dict[str, Any]:
        """All options, as files have them."""
        gone = {k: v for k, v in self.GONE.items() if not isinstance(v, Absent)}
        return {**self.recipe_options(), **gone}

    @classmethod
    def changeable(cls) -> frozenset[str]:
        """Names of the options that `solve` may still change."""
        return get_option_set(cls, "AT_SOLVE")

    def idle(self) -> Iterator[tuple[str, str]]:
        """Options that this head does not use, each with what would use it."""
        yield from ()

    @property
    def same_clients(self) -> str | None:
        """The option that needs the same clients with the same rows in every round, if it is on."""
        return self.CHEAPER if getattr(self, self.CHEAPER, False) else None

    def get_layer(self, phase: Phase) -> tuple[int, int]:
        """The layer of a phase, whose sums share a draw of clients, and which of them it is."""
        second = int(phase.kind == self.SECOND)
        return (phase.number or 0) - second, second


RIDGE_OF = f"ridge λ: {RIDGE_GRAMMAR}"
GAMMA = "γ that the pairwise law adds to a client's gram; it is not in the sums, nor in the head"
MIN_NORM = "with --ridge 0: where the data do not determine the head, take the least-norm one"
PRODUCTS = "number format of the products; sums are float64, or integers with fixed"
RidgeText = Annotated[float | str, grammar(parse_ridge)]
FixedRidge = Annotated[float | str | None, grammar(parse_fixed)]
Seed = Annotated[int, Field(ge=0, le=2**64 - 1)]


@dataclass(frozen=True, kw_only=True)
class LinearOptions(HeadOptions):
    """Ridge regression on one-hot labels (AFL)."""

    AT_SOLVE: ClassVar = frozenset({"ridge", "min_norm", "keep_gamma", "standardize"})

    ridge: RidgeText = option("auto", RIDGE_OF)
    gamma: float = option(0.0, GAMMA, ge=0)
    intercept: bool = option(False, "add a constant feature, to which the ridge does not apply")
    min_norm: bool = option(False, MIN_NORM)
    keep_gamma: bool = option(False, "keep γ, as in the paper's 'without RI removal'")
    _variance = "the ridge weighs each feature by its variance: as on features of variance one"
    standardize: Annotated[bool, Absent(False), Stored("standardise")] = option(False, _variance)

    def idle(self) -> Iterator[tuple[str, str]]:
        if self.ridge != 0:
            yield "min_norm", "--ridge 0"

    def check(self) -> None:
        if self.standardize and self.keep_gamma:
            raise UsageError("--keep-gamma needs the original features: leave out --standardize")


@dataclass(frozen=True, kw_only=True)
class RandomFeaturesOptions(LinearOptions):
    """Ridge regression on one wide layer of random features, [σ(XA), X]."""

    GONE: ClassVar = {"projection": "linear-uniform"}

    width: int = option(8192, "number of random features", ge=1)
    activation: Activation = option("tanh", "activation σ")
    with_linear: bool = option(False, "append the raw features to the random ones")
    _seed = "seed of the random projection A and its bias, which are never stored or sent"
    seed: Seed = option(0, _seed)
    compute: Compute = option("float64", PRODUCTS)


#: Rule → the options that it takes beside ``rule``.
RULES: dict[str, tuple[str, ...]] = {
    "nearest-mean": (), "lda": ("shrinkage",), "fedcgs": ("shrinkage",), "fed3r": ("ridge",),
    "naive-bayes": (), "qda": ("shrinkage",),
}  # fmt: skip
RIDGE = 0.01  # of Fed3R


@dataclass(frozen=True, kw_only=True)
class DiscriminantOptions(HeadOptions):
    """Classifiers of one round: each rule solves from sums by class."""

    AT_SOLVE: ClassVar = frozenset({"shrinkage", "ridge"})

    rule: Annotated[str, Choices(tuple(RULES))] = option("lda", "classifier")
    _shrinkage = "s of the covariance (1 − s)Σ + s tr(Σ)/d I (lda, fedcgs, qda)"
    shrinkage: float = option(0.0, _shrinkage, ge=0, le=1)
    ridge: FixedRidge = option(None, f"ridge λ of fed3r: {NUMBER} (default: {RIDGE:g})")

    def check(self) -> None:
        takes = RULES[self.rule]
        for name, none in (("shrinkage", 0.0), ("ridge", None)):
            if getattr(self, name) != none and name not in takes:
                raise UsageError(f"--rule {self.rule} takes no --{name}; leave it out")

    @property
    def lam(self) -> float:
        """λ of fed3r."""
        return RIDGE if self.ridge is None else float(self.ridge)
