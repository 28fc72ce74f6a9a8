"""What the softmax head can be told, and the features that it is fitted on.

Light enough for the command line to read at start-up, as `options`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from ..errors import UsageError
from .options import Options, SafleOptions, option
from .random_options import ACTIVATIONS, RandomFeaturesOptions

FEATURES = ("raw", "random", "safle")
# Which options belong to which features, with the values they have where they are not given.
DEFAULTS: dict[str, dict[str, Any]] = {
    "raw": {},
    "random": {
        "width": 2048,
        "activation": "tanh",
        "projection": "linear-uniform",
        "compute": "float64",
        "with_linear": False,
        "seed": 0,
    },
    "safle": {
        "bucketing": "overlap",
        "buckets": 8,
        "group_size": None,
        "experts": None,
        "thresholds": "federated",
        "with_linear": False,
        "seed": 0,
    },
}


def _of(features: str, text: str, name: str) -> Any:
    """An option of one kind of features; None stands for 'not given'."""
    default = DEFAULTS[features][name]
    shown = "" if default in (None, False) else f" (default: {default})"
    return option(None, f"{text} (--features {features}){shown}")


@dataclass(frozen=True)
class SoftmaxOptions(Options):
    """Options of the softmax head: cross-entropy, in a few tiny rounds after the first.

    Options of features that are not the chosen ones are refused; those of the chosen ones that are
    not given take their defaults, so two ways to say the same make the same head.
    """

    rounds: int = option(20, "most gradient rounds after the first phases")
    penalty: float = option(1e-3, "μ > 0 of the penalty (μN/2)‖W‖²; an intercept has none")
    label_smoothing: float = option(0.0, "ε: targets (1 − ε) one-hot + ε/C")
    no_momentum: bool = option(False, "plain steps, which never raise the loss, but need more")
    tolerance: float = option(0.0, "stop when the gradient's norm per row is below this")
    patience: int = option(
        5, "with held-out clients: stop when so many rounds lowered their loss no more; 0: never"
    )
    features: str = option("raw", "what is fitted on: raw, random or safle (codes)")
    with_linear: bool | None = option(
        None, "put the raw features beside them (--features random, safle)"
    )
    seed: int | None = option(
        None, "seed of projections or shuffles (--features random, safle) (default: 0)"
    )
    width: int | None = _of("random", "number of random features", "width")
    activation: str | None = _of("random", f"σ: {', '.join(ACTIVATIONS)}", "activation")
    projection: str | None = _of("random", "linear-uniform or gaussian", "projection")
    compute: str | None = _of(
        "random", "float64, whose sums of int16 features are exact, or float32", "compute"
    )
    bucketing: str | None = _of("safle", "integer, onehot or overlap", "bucketing")
    buckets: int | None = _of("safle", "buckets B of a feature", "buckets")
    group_size: int | None = _of(
        "safle", "digits G of a code; tables have V = k^G rows (3, integer 1)", "group_size"
    )
    experts: int | None = _of("safle", "number of codes E of a row", "experts")
    thresholds: str | None = _of(
        "safle",
        "federated (one small round), a feature or head FILE, or range:LO:HI",
        "thresholds",
    )
    gamma: float = option(0.0, "recorded only: the sums never need it")

    def __post_init__(self) -> None:
        for name in ("penalty", "label_smoothing", "tolerance", "gamma"):
            object.__setattr__(self, name, float(getattr(self, name)))
        self._check_rounds()
        self._resolve()

    def _check_rounds(self) -> None:
        if self.rounds < 1:
            raise UsageError(f"--rounds is at least 1; found {self.rounds}")
        if not 0 < self.penalty < float("inf"):
            raise UsageError(
                f"--penalty is a number > 0, such as 1e-3; found {self.penalty:g}: without it the "
                "loss may have no minimum"
            )
        if not 0 <= self.label_smoothing < 1:
            raise UsageError(f"--label-smoothing is in [0, 1); found {self.label_smoothing:g}")
        if not 0 <= self.tolerance < float("inf"):
            raise UsageError(f"--tolerance is a number ≥ 0; found {self.tolerance:g}")
        if self.patience < 0:
            raise UsageError(f"--patience is a number of rounds ≥ 0; found {self.patience}")

    def _resolve(self) -> None:
        """Refuse other features' options and fill in the defaults of these."""
        if self.features not in FEATURES:
            raise UsageError(f"--features is one of {', '.join(FEATURES)}; found {self.features!r}")
        own = DEFAULTS[self.features]
        for name in sorted({name for each in DEFAULTS.values() for name in each} - own.keys()):
            given = getattr(self, name)
            if given is not None and given is not False:
                whose = " or ".join(f for f in FEATURES if name in DEFAULTS[f])
                raise UsageError(
                    f"--{name.replace('_', '-')} belongs to --features {whose}; this head has "
                    f"--features {self.features}"
                )
            object.__setattr__(self, name, None)
        for name, default in own.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, default)
        if self.features == "safle":
            object.__setattr__(self, "group_size", self.safle().group_size)
        if self.features == "random":
            self.random()

    def random(self) -> RandomFeaturesOptions:
        """Those of the random features, checked."""
        return RandomFeaturesOptions(**self._those_of(RandomFeaturesOptions, "random"))

    def safle(self) -> SafleOptions:
        """Those of the codes, checked."""
        return SafleOptions(**self._those_of(SafleOptions, "safle"))

    def _those_of(self, kind: type[Options], features: str) -> dict[str, Any]:
        known = {f.name for f in fields(kind)} & DEFAULTS[features].keys()
        return {name: getattr(self, name) for name in known}

    def files(self) -> tuple[str, ...]:
        return self.safle().files() if self.features == "safle" else ()
