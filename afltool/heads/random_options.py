"""What the heads on random projections can be told: one wide layer, or residual layers.

Light enough for the command line to read at start-up, as `options`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from .options import LinearOptions, Options, check_gamma, option, parse_ridge

ACTIVATIONS = (
    "none", "gelu", "relu", "leaky-relu", "tanh", "hardswish", "softshrink", "sigmoid",
)  # fmt: skip
PROJECTIONS = ("linear-uniform", "gaussian")
COMPUTE = ("float32", "float64")

DEEP_DEFAULTS: dict[str, Any] = {
    "layers": 10,
    "ridge": 1.0,
    "block_ridge": 0.1,
    "activation": "gelu",
    "phi0_activation": "tanh",
}
# The paper's appendix E, and its released run script, whose Φ_0 is tanh whatever the activation.
PRESETS: dict[str, dict[str, Any]] = {
    "cifar10": {"ridge": 10.0, "block_ridge": 0.1},
    "cifar100": {"ridge": 1.0, "block_ridge": 0.01},
    "tiny-imagenet": {"ridge": 1.0, "block_ridge": 0.01},
    "released-script": {"layers": 20, "ridge": 1.0, "block_ridge": 0.05},
}


def _default(name: str) -> str:
    return f" (default: {DEEP_DEFAULTS[name]})"


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"--{name} is one of {', '.join(allowed)}; found {value!r}")


def _at_least(name: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise UsageError(f"--{name} is a whole number ≥ {least}; found {value!r}")


def _check_seed(seed: int) -> None:
    _at_least("seed", seed, 0)
    if seed >= 2**64:
        raise UsageError(f"--seed is below 2^64; found {seed}")


@dataclass(frozen=True)
class RandomFeaturesOptions(LinearOptions):
    """Options of the linear head on one wide layer of random features, [σ(XA), X]."""

    ridge: str | float = option(
        "auto",
        "final ridge λ ≥ 0; 'auto': generalised cross-validation; LO:HI:COUNT: a path",
        at_solve=True,
    )
    width: int = option(8192, "number of random features")
    activation: str = option("tanh", f"σ: {', '.join(ACTIVATIONS)}")
    with_linear: bool = option(False, "put the features themselves beside the random ones")
    seed: int = option(0, "seed of the random projections, which are never stored or sent")
    projection: str = option("linear-uniform", "linear-uniform (weights and bias) or gaussian")
    compute: str = option("float32", "float32 products with float64 sums, or float64 throughout")

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least("width", self.width, 1)
        _check_seed(self.seed)
        _one_of("activation", self.activation, ACTIVATIONS)
        _one_of("projection", self.projection, PROJECTIONS)
        _one_of("compute", self.compute, COMPUTE)


@dataclass(frozen=True)
class DeepAFLOptions(Options):
    """Options of the deep residual analytic network (DeepAFL).

    Options that are not given come from the preset, then from the defaults; the head's file holds
    the values, so two ways to say the same make the same head.
    """

    layers: int | None = option(None, "number of residual layers T" + _default("layers"))
    width: int = option(1024, "both widths, d_Φ and d_F")
    feature_width: int | None = option(None, "width d_Φ of Φ_t, if not --width")
    hidden_width: int | None = option(None, "width d_F of σ(Φ_t B_t), if not --width")
    ridge: str | float | None = option(
        None,
        "ridge λ of every W_t; 'auto': cross-validation in every layer" + _default("ridge"),
        at_solve=True,
    )
    block_ridge: float | None = option(
        None, "ridge of every Ω_t, the paper's γ" + _default("block_ridge"), at_solve=True
    )
    gamma: float = option(
        0.0, "γ ≥ 0 of the RI process, taken off again at the end: an intermediary only"
    )
    activation: str | None = option(None, f"σ: {', '.join(ACTIVATIONS)}" + _default("activation"))
    phi0_activation: str | None = option(None, "σ of Φ_0" + _default("phi0_activation"))
    seed: int = option(0, "seed of the random projections, which are never stored or sent")
    projection: str = option("linear-uniform", "linear-uniform (weights and bias) or gaussian")
    preset: str | None = option(None, f"a published setting: {', '.join(PRESETS)}")
    no_skip: bool = option(False, "ablation: Φ_{t+1} = F_t Ω, without Φ_t")
    identity_projection: bool = option(False, "ablation: B_t = I")
    identity_omega: bool = option(False, "ablation: Ω = I, nothing learned in the layers")
    from_phi0: bool = option(False, "variant (89): every layer is fed from Φ_0, F_t = σ(Φ_0 B_t)")
    single_round: bool = option(
        False, "with --from-phi0: one upload, from which the server replays all rounds"
    )
    reconstruction: float = option(
        0.0, "1 − ρ of (88), 0 to 1: every Ω_t also keeps what reconstructs Φ_0, with this weight"
    )
    incremental: bool = option(
        False,
        "send what changes of ΦᵀΦ, not all of it: about half the bytes and one symmetric product "
        "less in every layer; all rounds must be of the same clients",
    )
    patience: int | None = option(
        None, "with held-out clients: stop after so many layers without a smaller error on them"
    )
    min_norm: bool = option(
        False, "accept rank-deficient systems: the minimum-norm solution", at_solve=True
    )
    compute: str = option("float32", "float32 products with float64 sums, or float64 throughout")

    def __post_init__(self) -> None:
        self._resolve()
        for name in ("layers", "feature_width", "hidden_width"):
            _at_least(name.replace("_", "-"), getattr(self, name), int(name != "layers"))
        _check_seed(self.seed)
        _one_of("activation", self.sigma, ACTIVATIONS)
        _one_of("phi0-activation", self.sigma0, ACTIVATIONS)
        _one_of("projection", self.projection, PROJECTIONS)
        _one_of("compute", self.compute, COMPUTE)
        if not 0 <= self.block_gamma < float("inf"):
            raise UsageError(f"--block-ridge is a number ≥ 0; found {self.block_ridge}")
        if not 0 <= self.reconstruction <= 1:
            raise UsageError(f"--reconstruction is 0 to 1; found {self.reconstruction}")
        if self.patience is not None:
            _at_least("patience", self.patience, 1)
        self._check_identities()
        for name in ("no_skip", "identity_omega", "reconstruction", "single_round"):
            if self.incremental and getattr(self, name):
                raise UsageError(
                    f"--incremental is not for --{name.replace('_', '-')}: there nothing of ΦᵀΦ is "
                    "left to build on, or all of it is known"
                )
        if self.single_round and (not self.from_phi0 or self.no_skip or self.identity_omega):
            raise UsageError(
                "--single-round is for --from-phi0 with learned layers and their skip connections: "
                "only there the random layers depend on nothing learned"
            )

    def changeable(self) -> set[str]:
        """The ridges, when all rounds are replayed from one upload."""
        return {"ridge", "block_ridge", "patience", "min_norm"} if self.single_round else set()

    def _resolve(self) -> None:
        """Fill in what was not given; afterwards the preset has said all it can."""
        if self.preset is not None:
            _one_of("preset", self.preset, tuple(PRESETS))
        values = {**DEEP_DEFAULTS, **PRESETS.get(self.preset or "", {})}
        for name, value in values.items():
            given = getattr(self, name)
            object.__setattr__(self, name, value if given is None else given)
        for name in ("feature_width", "hidden_width"):
            object.__setattr__(self, name, getattr(self, name) or self.width)
        object.__setattr__(self, "width", self.feature_width)
        object.__setattr__(self, "preset", None)
        object.__setattr__(self, "ridge", parse_ridge(self.ridge or 0.0))
        object.__setattr__(self, "gamma", check_gamma(self.gamma))
        object.__setattr__(self, "block_ridge", float(self.block_gamma))
        object.__setattr__(self, "reconstruction", float(self.reconstruction))

    def _check_identities(self) -> None:
        if self.reconstruction and self.identity_omega:
            raise UsageError("--reconstruction is for learned layers; --identity-omega has none")
        for name in ("identity_projection", "identity_omega"):
            if getattr(self, name) and self.feature_width != self.hidden_width:
                raise UsageError(
                    f"--{name.replace('_', '-')} needs equal widths; found {self.feature_width} "
                    f"and {self.hidden_width}"
                )

    @property
    def depth(self) -> int:
        """T, known after the defaults are in."""
        assert self.layers is not None
        return self.layers

    @property
    def block_gamma(self) -> float:
        assert self.block_ridge is not None
        return self.block_ridge

    @property
    def sigma(self) -> str:
        return str(self.activation)

    @property
    def sigma0(self) -> str:
        return str(self.phi0_activation)

    @property
    def widths(self) -> tuple[int, int]:
        """(d_Φ, d_F)."""
        assert self.feature_width is not None
        assert self.hidden_width is not None
        return self.feature_width, self.hidden_width
