"""Options of the deep residual analytic network (DeepAFL), and the published settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic.dataclasses import dataclass

from ...errors import UsageError
from ...options.base import Absent, Choices, flag, grammar, option
from ...values.ridge_spec import parse_ridge
from ..options import (
    FIXED,
    GAMMA,
    MIN_NORM,
    PAPER,
    PRODUCTS,
    RIDGE_GRAMMAR,
    Activation,
    Compute,
    HeadOptions,
    Seed,
)

WEIGHTS, BLOCK = "weights", "block"  # kinds of phases: W_t is solved from it, or Ω_t
NOT_INCREMENTAL = ("no_skip", "identity_omega", "random_omega", "reconstruction")
RESIDUAL, CASCADE, ACTIVATED = "residual", "cascade", "activated-cascade"
# What is said of Ω, of F_t or of the sums for it: a cascade has none of them.
OF_BLOCKS = (*NOT_INCREMENTAL, "identity_projection", "from_phi0", "incremental")
NOT_FIXED = (*NOT_INCREMENTAL, "identity_projection", "incremental", "deepening")
FIXED_BITS = 11  # steps of 0.0005, up to ±16
DEFAULTS: dict[str, Any] = {
    "layers": 10, "ridge": 1.0, "block_ridge": 0.1, "activation": "gelu", "phi0_activation": "tanh",
}  # fmt: skip
# The paper's appendix E, and its released run script, where Φ_0 is tanh for every activation.
PRESETS: dict[str, dict[str, Any]] = {
    "cifar10": {"layers": 20, "ridge": 10.0, "block_ridge": 0.1},
    "cifar100": {"layers": 20, "ridge": 1.0, "block_ridge": 0.01},
    "tiny-imagenet": {"layers": 20, "ridge": 1.0, "block_ridge": 0.01},
    "released-script": {"layers": 20, "ridge": 1.0, "block_ridge": 0.05},
}


@dataclass(frozen=True, kw_only=True)
class DeepAFLOptions(HeadOptions):
    """The deep residual analytic network (DeepAFL)."""

    GONE: ClassVar[Mapping[str, Any]] = {
        "single_round": False, "patience": None, "projection": "linear-uniform",
    }  # fmt: skip
    CHEAPER, PUBLISHED = "incremental", tuple(PRESETS)
    SECOND = BLOCK  # W_t and Ω_{t+1}, which make a layer, share one draw (the paper's appendix M)

    _layers = f"number of residual layers T (default: {DEFAULTS['layers']})"
    layers: int | None = option(None, _layers, ge=0)
    width: int = option(1024, "both widths, d_Φ and d_F", ge=1)
    _phi = "width d_Φ of Φ_t (default: the value of --width)"
    feature_width: int | None = option(None, _phi, ge=1)
    _hidden = "width d_F of σ(Φ_t B_t) (default: the value of --width)"
    hidden_width: int | None = option(None, _hidden, ge=1)
    _ridge = f"ridge λ of every W_t: {RIDGE_GRAMMAR} (default: {DEFAULTS['ridge']})"
    ridge: Annotated[float | str | None, grammar(parse_ridge)] = option(None, _ridge)
    _block_ridge = f"ridge of every Ω_t, the paper's γ (default: {DEFAULTS['block_ridge']})"
    block_ridge: float | None = option(None, _block_ridge, ge=0)
    gamma: float = option(0.0, GAMMA, ge=0)
    _activation = f"σ of the layers (default: {DEFAULTS['activation']})"
    activation: Activation | None = option(None, _activation)
    _first = f"σ of Φ_0 (default: {DEFAULTS['phi0_activation']})"
    phi0_activation: Activation | None = option(None, _first)
    _seed = "seed of the random projections A and B_t, which are never stored or sent"
    seed: Seed = option(0, _seed)
    _preset = "a published setting; paper is that of --data, else of the released script"
    preset: Annotated[str | None, Choices((PAPER, *PRESETS))] = option(None, _preset)
    _no_skip = "ablation: Φ_{t+1} = F_t Ω without Φ_t; Ω then fits Y, not the residual Y − Φ_t W_t"
    no_skip: bool = option(False, _no_skip)
    identity_projection: bool = option(False, "ablation: B_t = I")
    _omega = "ablation: Ω = I, so that layers learn nothing"
    identity_omega: bool = option(False, _omega)
    _random = "ablation: Ω_t random and frozen, as A is, so that layers learn nothing"
    random_omega: Annotated[bool, Absent(False)] = option(False, _random)
    _bias = "which random projections have a bias: A, every B_t, both, none"
    bias: Annotated[Literal["both", "first", "layers", "none"], Absent("both")] = option(
        "both", _bias
    )
    _deepening = (
        "residual blocks, or the paper's other strategies (E.3.7), Φ_{t+1} = Φ_t W_t B_t (cascade) "
        "or σ of it; these have no Ω"
    )
    deepening: Annotated[
        Literal["residual", "cascade", "activated-cascade"], Absent("residual")
    ] = option("residual", _deepening)
    _label_encoding = (
        "with a cascade: fit Y Q_t, labels under a random map: Φ_{t+1} = Φ_t W_t Q_t B_t"
    )
    label_encoding: Annotated[bool, Absent(False)] = option(False, _label_encoding)
    _from_phi0 = "variant (89): every layer starts from Φ_0, F_t = σ(Φ_0 B_t)"
    from_phi0: bool = option(False, _from_phi0)
    _reconstruction = "weight 1 − ρ of (88): Ω_t also fits Φ_0, so that later layers keep it"
    reconstruction: float = option(0.0, _reconstruction, ge=0, le=1)
    _incremental = (
        "send only the change of ΦᵀΦ: about half the bytes and one symmetric product less per "
        "layer; the same clients must take part in all rounds"
    )
    incremental: bool = option(False, _incremental)
    min_norm: bool = option(False, MIN_NORM)
    compute: Compute = option("float64", PRODUCTS)
    _bits = (
        "with --compute fixed: fraction bits of Φ and F, whose range is ±2^(15 − bits) (default: "
        f"{FIXED_BITS})"
    )
    fixed_bits: Annotated[int | None, Absent(None)] = option(None, _bits, ge=6, le=14)

    def check(self) -> None:
        self._resolve()
        self.excludes("incremental", *NOT_INCREMENTAL)  # ΦᵀΦ is known there, or does not change
        self.excludes("reconstruction", "identity_omega", "random_omega", "no_skip")
        self.excludes("identity_omega", "random_omega")
        if self.deepening == RESIDUAL and self.label_encoding:
            raise UsageError(f"--label-encoding is for --deepening {CASCADE} or {ACTIVATED}")
        for name in OF_BLOCKS:
            self.only_where(name, "deepening", RESIDUAL)
        for name in ("identity_projection", "identity_omega"):
            if getattr(self, name) and self.feature_width != self.hidden_width:
                raise UsageError(f"{flag(name)} needs equal widths; found {self.widths}")
        self.only_where("fixed_bits", "compute", FIXED)
        if self.compute == FIXED:
            for name in (one for one in NOT_FIXED if one in self.changed_options()):
                raise UsageError(f"{flag(name)} cannot be combined with --compute fixed")
            self._set(fixed_bits=self.fixed_bits or FIXED_BITS)

    def _resolve(self) -> None:
        """Fill in the options that were not given; from then on the values include the preset."""
        if self.preset == PAPER:
            known = ", ".join(PRESETS)
            raise UsageError(f"--preset paper is chosen by the data set of a run: name {known}")
        values = {**DEFAULTS, **PRESETS.get(self.preset or "", {})}
        self._set(**{k: v for k, v in values.items() if getattr(self, k) is None})
        phi, hidden = self.widths
        self._set(feature_width=phi, hidden_width=hidden, width=phi, preset=None)

    def idle(self) -> Iterator[tuple[str, str]]:
        layered = self.depth > 0
        if not (self.learns_blocks and layered):
            yield "block_ridge", "layers that learn an Ω"
        if not (self.deepening == RESIDUAL and layered):
            yield "hidden_width", "layers that have an F_t of their own"
        if not (self.deepening != CASCADE and layered):
            yield "activation", "layers that have an activation"

    @property
    def learns_blocks(self) -> bool:
        """Whether layers have an Ω of their own, so that there are phases for it."""
        frozen = self.identity_omega or self.random_omega
        return self.deepening == RESIDUAL and not frozen

    @property
    def depth(self) -> int:
        """T, known after the defaults are in."""
        return int(self.layers or 0)

    @property
    def widths(self) -> tuple[int, int]:
        """(d_Φ, d_F)."""
        return self.feature_width or self.width, self.hidden_width or self.width
