"""Options of the softmax head: its own, and those of the heads whose features it is fitted on."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from ...errors import UsageError
from ...options.base import Absent, fields_of, flag
from ..options import BY_VARIANCE, HeadOptions, LinearOptions, RandomFeaturesOptions
from ..safle.options import SafleOptions

# Largest default number of columns D of codes: every round's file holds the factor, D²/2 numbers.
MOST_CODES = 8192


class CodeOptions(SafleOptions):
    """Those of SAFLe, with fewer codes by default."""

    most: ClassVar[int] = MOST_CODES


# For each --features: the head that makes them, and the defaults that differ here.
WRAPPED: dict[str, tuple[type[HeadOptions], dict[str, Any]]] = {
    "raw": (LinearOptions, {"intercept": True}),
    "random": (RandomFeaturesOptions, {"width": 2048, "compute": "float64"}),
    "safle": (CodeOptions, {}),
}
_EXPERTS = f"enough for every digit, at most {MOST_CODES} / V"


def _lenders() -> dict[str, dict[str, FieldInfo]]:
    """The fields taken over from other heads, by name, then by the --features that has them."""
    lenders: dict[str, dict[str, FieldInfo]] = {}
    for features, (cls, _) in WRAPPED.items():
        for name, info in fields_of(cls).items():
            if name in cls.lends:
                lenders.setdefault(name, {})[features] = info
    return lenders


def _borrowed(name: str, lenders: dict[str, FieldInfo]) -> tuple[Any, Any]:
    """The copy of another head's option: same name and range; None means not given."""
    features, first = next(iter(lenders.items()))
    texts = {who: str(f.description).split(" (default:")[0] for who, f in lenders.items()}
    each = "; ".join(f"with --features {who}: {text}" for who, text in texts.items())
    one = f"with --features {', '.join(texts)}: {first.description}"
    default = WRAPPED[features][1].get(name, first.default)
    text = one.split(" (default:")[0] if len(set(texts.values())) == 1 else each
    unset = _EXPERTS if name == "experts" else str(default)
    if default not in (None, False) or name == "experts":
        text = f"{text} (default: {unset})"
    elif default is None:
        text = one if len(lenders) == 1 else text
    limits = [m for m in first.metadata if not isinstance(m, Absent)]
    kind: Any = first.annotation
    kind = Annotated[(kind | None, *limits)] if limits else kind | None
    newer = any(isinstance(m, Absent) for m in first.metadata)
    return (Annotated[kind, Absent(None)] if newer else kind), Field(default=None, description=text)


def _borrower() -> type[HeadOptions]:
    """A class with the options of other heads."""
    found = {name: _borrowed(name, lenders) for name, lenders in _lenders().items()}
    body: dict[str, Any] = {name: info for name, (_, info) in found.items()}
    kinds = {name: kind for name, (kind, _) in found.items()}
    body |= {"__annotations__": kinds, "__module__": __name__}
    made: Any = dataclass(frozen=True, kw_only=True)(type("_Borrowed", (HeadOptions,), body))
    return made  # type: ignore[no-any-return]


_Borrowed: Any = _borrower()


@dataclass(frozen=True, kw_only=True)
class SoftmaxOptions(_Borrowed):  # type: ignore[misc]  # a base made at run time is Any
    """Options of the softmax head, which minimises the cross-entropy in a few more small rounds.

    Only options of the chosen --features are allowed. The head's file holds the values of all
    options, so a default and the same value given make the same head.
    """

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
    no_momentum: bool = Field(
        default=False,
        description="plain steps: they never increase the loss, but more rounds are needed",
    )
    lbfgs: Annotated[bool, Absent(False)] = Field(
        default=False,
        description="learn the curvature from the last two gradients (L-BFGS), in place of "
        "momentum: fewer rounds",
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

    def check(self) -> None:
        """Refuse other features' options and fill in the defaults of the chosen ones."""
        if self.lbfgs and self.no_momentum:
            raise UsageError("--lbfgs has no momentum to leave out: give it without --no-momentum")
        cls, defaults = WRAPPED[self.features]
        for name, lenders in _lenders().items():
            given = getattr(self, name)
            if self.features in lenders:
                if given is None:
                    self._set(**{name: defaults.get(name, lenders[self.features].default)})
                continue
            if given not in (None, False):
                raise UsageError(
                    f"{flag(name)} belongs to --features {' or '.join(lenders)}; this head has "
                    f"--features {self.features}"
                )
            self._set(**{name: None})
        wrapped = self.wrapped()
        self._set(**{name: getattr(wrapped, name) for name in cls.lends})

    def wrapped(self) -> HeadOptions:
        """The options of the head whose features Φ are, checked."""
        cls, defaults = WRAPPED[self.features]
        return cls(**{**defaults, **{name: getattr(self, name) for name in cls.lends}})

    def one_round(self) -> bool:
        return False

    def files(self) -> tuple[str, ...]:
        return self.wrapped().files()


OPTIONS = SoftmaxOptions
