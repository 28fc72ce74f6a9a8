"""Options of the softmax head: its own, and those of the features that it is fitted on."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ...errors import UsageError
from ...options.base import Absent, Holds, flag, grammar
from ..options import (
    BY_VARIANCE,
    Activation,
    Compute,
    HeadOptions,
    LinearOptions,
    Projection,
    RandomFeaturesOptions,
)
from ..safle.options import Bucketing, SafleOptions, parse_cuts

# Largest default number of columns D of codes: every round's file holds the factor, D²/2 numbers.
MOST_CODES = 8192


class CodeOptions(SafleOptions):
    """Those of SAFLe, with fewer codes by default."""

    most: ClassVar[int] = MOST_CODES


# For each --features: the head that makes them, the options that are its own, and the defaults that
# differ here.
WRAPPED: dict[str, tuple[type[HeadOptions], tuple[str, ...], dict[str, Any]]] = {
    "raw": (LinearOptions, (), {"intercept": True}),
    "random": (
        RandomFeaturesOptions,
        ("width", "activation", "with_linear", "seed", "projection", "compute"),
        {"width": 2048, "compute": "float64"},
    ),
    "safle": (
        CodeOptions,
        ("bucketing", "buckets", "group_size", "experts", "thresholds", "with_linear", "seed"),
        {},
    ),
}


def _of(features: str, text: str, **limits: Any) -> Any:
    """An option of the heads that make these features; None means not given."""
    return Field(default=None, description=f"with --features {features}: {text}", **limits)


@dataclass(frozen=True, kw_only=True)
class SoftmaxOptions(HeadOptions):
    """Options of the softmax head, which minimises the cross-entropy in a few more small rounds.

    Only options of the chosen --features are allowed. The head's file holds the values of all
    options, so a default and the same value given make the same head.
    """

    GONE: ClassVar = {"no_momentum": False, "lbfgs": Absent(False)}

    rounds: int = Field(default=20, ge=1, description="most gradient rounds after the first phases")
    penalty: float = Field(
        default=1e-3, gt=0, description="μ of the penalty (μN/2)‖W‖²; the intercept has no penalty"
    )
    standardise: Annotated[bool, Absent(False)] = Field(
        default=False, description=BY_VARIANCE.format("the penalty")
    )
    label_smoothing: float = Field(
        default=0.0, ge=0, lt=1, description="ε of the targets (1 − ε) one-hot + ε/C"
    )
    _tolerance = "stop when the norm of the gradient, divided by the rows, is below this"
    tolerance: float = Field(default=0.0, ge=0, description=_tolerance)
    _patience = (
        "with held-out clients: stop after this many rounds without a lower loss on them; 0: never"
    )
    patience: int = Field(default=5, ge=0, description=_patience)
    features: Literal["raw", "random", "safle"] = Field(
        default="raw",
        description="features to fit on: the raw ones, random features, or codes of safle",
    )
    width: int | None = _of("random", "number of random features (default: 2048)", ge=1)
    activation: Activation | None = _of("random", "activation σ (default: tanh)")
    with_linear: bool | None = _of("random or safle", "use the raw features beside them")
    seed: int | None = _of(
        "random or safle", "of the random projection, or of the shuffle of digits (default: 0)",
        ge=0, le=2**64 - 1,
    )  # fmt: skip
    projection: Projection | None = _of(
        "random", "uniform weights and bias, or gaussian weights (default: linear-uniform)"
    )
    compute: Compute | None = _of("random", "number format of the features (default: float64)")
    bucketing: Bucketing | None = _of("safle", "how a feature becomes digits (default: overlap)")
    buckets: int | None = _of("safle", "buckets B of a feature (default: 8)", ge=2, le=256)
    group_size: int | None = _of("safle", "digits G of a code (default: 3; 1 with integer)", ge=1)
    experts: int | None = _of(
        "safle", f"codes of a row (default: enough for every digit, at most {MOST_CODES} / V)", ge=1
    )
    thresholds: Annotated[str | None, Holds(), grammar(parse_cuts)] = _of(
        "safle", "federated, FILE or range:LO:HI, as of the head safle (default: federated)"
    )

    def check(self) -> None:
        """Refuse other features' options and fill in the defaults of the chosen ones."""
        own = WRAPPED[self.features][1]
        for name in {k for _, names, _ in WRAPPED.values() for k in names if k not in own}:
            if getattr(self, name) not in (None, False):
                owners = " or ".join(f for f, (_, names, _) in WRAPPED.items() if name in names)
                raise UsageError(
                    f"{flag(name)} belongs to --features {owners}; this head has --features "
                    f"{self.features}"
                )
            self._set(**{name: None})
        wrapped = self.wrapped()
        self._set(**{name: getattr(wrapped, name) for name in own})

    def wrapped(self) -> HeadOptions:
        """The options of the head whose features Φ are, checked."""
        cls, own, defaults = WRAPPED[self.features]
        given = {name: getattr(self, name) for name in own if getattr(self, name) is not None}
        return cls(**{**defaults, **given})

    def files(self) -> tuple[str, ...]:
        return self.wrapped().files()
