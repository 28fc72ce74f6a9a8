"""Options of the softmax head."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic.dataclasses import dataclass

from ...errors import UsageError
from ...options.base import Absent, flag, option
from ..options import Activation, Compute, HeadOptions, RandomFeaturesOptions

#: Options of random features, and their defaults here; None of others.
RANDOM: dict[str, Any] = {
    "width": 2048,
    "activation": "tanh",
    "with_linear": False,
    "seed": 0,
    "compute": "float64",
}
CODES = ("bucketing", "buckets", "group_size", "experts", "thresholds")  # options up to 0.3


def _random_option(text: str, **limits: Any) -> Any:
    """An option of random features; None means not given."""
    return option(None, f"with --features random: {text}", **limits)


@dataclass(frozen=True, kw_only=True)
class SoftmaxOptions(HeadOptions):
    """The softmax head, which minimizes the cross-entropy in a few more small rounds."""

    GONE: ClassVar = {
        "no_momentum": False, "lbfgs": Absent(False), "standardise": Absent(False),
        "label_smoothing": 0.0, "tolerance": 0.0,
        "patience": 5, **dict.fromkeys((*CODES, "projection")),
    }  # fmt: skip

    rounds: int = option(20, "gradient rounds after the first phase", ge=1)
    penalty: float = option(1e-3, "μ of the penalty (μN/2)‖W‖²; the intercept has no penalty", gt=0)
    features: Literal["raw", "random"] = option(
        "raw", "features to fit on: the raw ones, or random features"
    )
    width: int | None = _random_option("number of random features (default: 2048)", ge=1)
    activation: Activation | None = _random_option("activation σ (default: tanh)")
    with_linear: bool | None = _random_option("use the raw features beside them")
    seed: int | None = _random_option("seed of the projection (default: 0)", ge=0, le=2**64 - 1)
    compute: Compute | None = _random_option("number format of the features (default: float64)")

    def check(self) -> None:
        """Fill in the defaults of random features, or refuse their options."""
        for name, default in RANDOM.items():
            given = getattr(self, name)
            if self.features == "raw" and given not in (None, False):
                raise UsageError(
                    f"{flag(name)} belongs to --features random; this head has --features raw"
                )
            value = default if given is None else given
            self._set(**{name: None if self.features == "raw" else value})

    def random(self) -> RandomFeaturesOptions | None:
        """The options of the random features, if they are fitted on."""
        if self.features == "raw":
            return None
        return RandomFeaturesOptions(**{name: getattr(self, name) for name in RANDOM})
