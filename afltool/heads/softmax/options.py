"""Options of the softmax head: its own, and those of the heads whose features it is fitted on."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ...errors import UsageError
from ...options.base import Absent, Holds, fields_of, flag, grammar
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


def _theirs(name: str, *features: str, default: str = "", **limits: Any) -> Any:
    """An option of the heads that make these features; None means not given.

    ``default``: how the default is said where it is not the head's own.
    """
    texts = {who: str(fields_of(WRAPPED[who][0])[name].description) for who in features}
    parts = (f"with --features {who}: {text.split(' (default:')[0]}" for who, text in texts.items())
    cls, _, defaults = WRAPPED[features[0]]
    said = default or defaults.get(name, fields_of(cls)[name].default)
    text = "; ".join(parts)
    return Field(default=None, description=f"{text} (default: {said})" if said else text, **limits)


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
    tolerance: float = Field(
        default=0.0,
        ge=0,
        description="stop when the norm of the gradient, divided by the rows, is below this",
    )
    patience: int = Field(
        default=5,
        ge=0,
        description="with held-out clients: stop after this many rounds without a lower loss on "
        "them; 0: never",
    )
    features: Literal["raw", "random", "safle"] = Field(
        default="raw",
        description="features to fit on: the raw ones, random features, or codes of safle",
    )
    width: int | None = _theirs("width", "random", ge=1)
    activation: Activation | None = _theirs("activation", "random")
    with_linear: bool | None = _theirs("with_linear", "random", "safle")
    seed: int | None = _theirs("seed", "random", "safle", ge=0, le=2**64 - 1)
    projection: Projection | None = _theirs("projection", "random")
    compute: Compute | None = _theirs("compute", "random")
    bucketing: Bucketing | None = _theirs("bucketing", "safle")
    buckets: int | None = _theirs("buckets", "safle", ge=2, le=256)
    group_size: int | None = _theirs("group_size", "safle", default="3; 1 with integer", ge=1)
    _experts = f"enough for every digit, at most {MOST_CODES} / V"
    experts: int | None = _theirs("experts", "safle", default=_experts, ge=1)
    thresholds: Annotated[str | None, Holds(), grammar(parse_cuts)] = _theirs(
        "thresholds", "safle", default="federated"
    )

    def check(self) -> None:
        """Refuse other features' options and fill in the defaults of the chosen ones."""
        own = WRAPPED[self.features][1]
        others = dict.fromkeys(k for _, names, _ in WRAPPED.values() for k in names if k not in own)
        for name in others:
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

    def one_round(self) -> bool:
        return False

    def files(self) -> tuple[str, ...]:
        return self.wrapped().files()


OPTIONS = SoftmaxOptions
