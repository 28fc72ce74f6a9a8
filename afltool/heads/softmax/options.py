"""Options of the softmax head: its own, and those of the heads whose features it is fitted on."""

from __future__ import annotations

from dataclasses import Field, dataclass, fields, make_dataclass
from typing import Any, ClassVar

from ...errors import UsageError
from ...options import flag, option
from ..options import HeadOptions, LinearOptions, RandomFeaturesOptions, standardise_option
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
_UNSET = {"experts": f"enough for every digit, at most {MOST_CODES} / V"}


def _lenders() -> dict[str, dict[str, Field[Any]]]:
    """The fields taken over from other heads, by name, then by the --features that has them."""
    lenders: dict[str, dict[str, Field[Any]]] = {}
    for features, (cls, _) in WRAPPED.items():
        for f in fields(cls):
            if f.name in cls.lends:
                lenders.setdefault(f.name, {})[features] = f
    return lenders


def _borrowed(name: str, lenders: dict[str, Field[Any]]) -> tuple[str, str, Any]:
    """The copy of another head's option: same name and range; None means not given."""
    first = next(iter(lenders.values()))
    texts = {who: str(f.metadata["help"]) for who, f in lenders.items()}
    each = "; ".join(f"with --features {who}: {text}" for who, text in texts.items())
    one = f"with --features {', '.join(texts)}: {first.metadata['help']}"
    default = WRAPPED[next(iter(lenders))][1].get(name, first.default)
    known = {k: v for k, v in first.metadata.items() if k not in ("help", "unset")}
    unset = _UNSET.get(name, first.metadata["unset"] if default is None else str(default))
    text = one if len(set(texts.values())) == 1 else each
    made = option(None, text, unset="" if default is False else unset, **known)
    return name, str(first.type).removesuffix(" | None") + " | None", made


_Borrowed: Any = make_dataclass(
    "_Borrowed",
    [_borrowed(name, lenders) for name, lenders in _lenders().items()],
    bases=(HeadOptions,),
    frozen=True,
    kw_only=True,
)


@dataclass(frozen=True, kw_only=True)
class SoftmaxOptions(_Borrowed):  # type: ignore[misc]  # a base made at run time is Any
    """Options of the softmax head, which minimises the cross-entropy in a few more small rounds.

    Only options of the chosen --features are allowed. The head's file holds the values of all
    options, so a default and the same value given make the same head.
    """

    rounds: int = option(20, "most gradient rounds after the first phases", at_least=1)
    penalty: float = option(
        1e-3, "μ of the penalty (μN/2)‖W‖²; the intercept has no penalty", above=0
    )
    standardise: bool = standardise_option("the penalty", at_solve=False)
    label_smoothing: float = option(
        0.0, "ε of the targets (1 − ε) one-hot + ε/C", at_least=0, below=1
    )
    no_momentum: bool = option(
        False, "plain steps: they never increase the loss, but more rounds are needed"
    )
    lbfgs: bool = option(
        False,
        "learn the curvature from the last two gradients (L-BFGS), in place of momentum: fewer "
        "rounds",
        newer=True,
    )
    tolerance: float = option(
        0.0, "stop when the norm of the gradient, divided by the rows, is below this", at_least=0
    )
    patience: int = option(
        5,
        "with held-out clients: stop after this many rounds without a lower loss on them; 0: never",
        at_least=0,
    )
    features: str = option(
        "raw",
        "features to fit on: the raw ones, random features, or codes of safle",
        choices=tuple(WRAPPED),
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
