"""Options of the deep residual analytic network (DeepAFL), and the published settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...errors import UsageError
from ...options import option
from ...values.names import Phase
from ...values.parsed import Fixed, Ridge
from ..options import (
    ACTIVATIONS,
    COMPUTE,
    FIXED,
    PROJECTIONS,
    HeadOptions,
    gamma_option,
    ridge_option,
    seed_option,
)

WEIGHTS, BLOCK = "weights", "block"  # kinds of phases: W_t is solved from it, or Ω_t
NOT_INCREMENTAL = ("no_skip", "identity_omega", "reconstruction")
RESIDUAL, CASCADE, ACTIVATED = "residual", "cascade", "activated-cascade"
# What is said of Ω, of F_t or of the sums for it: a cascade has none of them.
OF_BLOCKS = (*NOT_INCREMENTAL, "identity_projection", "from_phi0", "incremental")
FIXED_BITS = 11  # steps of 0.0005, up to ±16
DEFAULTS: dict[str, Any] = {
    "layers": 10,
    "ridge": Fixed(1.0),
    "block_ridge": 0.1,
    "activation": "gelu",
    "phi0_activation": "tanh",
}
# The paper's appendix E, and its released run script, where Φ_0 is tanh for every activation.
PRESETS: dict[str, dict[str, Any]] = {
    "cifar10": {"layers": 20, "ridge": Fixed(10.0), "block_ridge": 0.1},
    "cifar100": {"layers": 20, "ridge": Fixed(1.0), "block_ridge": 0.01},
    "tiny-imagenet": {"layers": 20, "ridge": Fixed(1.0), "block_ridge": 0.01},
    "released-script": {"layers": 20, "ridge": Fixed(1.0), "block_ridge": 0.05},
}
PAPER = "paper"  # of a run: the preset of its data set, else that of the released script


@dataclass(frozen=True, kw_only=True)
class DeepAFLOptions(HeadOptions):
    """Options of the deep residual analytic network (DeepAFL).

    An option that is not given has the preset's value, or else its default. The head's file holds
    the values of all options, so a default and the same value given make the same head.
    """

    GONE: ClassVar[Mapping[str, Any]] = {"single_round": False}

    layers: int | None = option(
        None, "number of residual layers T", at_least=0, unset=str(DEFAULTS["layers"])
    )
    width: int = option(1024, "both widths, d_Φ and d_F", at_least=1)
    feature_width: int | None = option(
        None, "width d_Φ of Φ_t", at_least=1, unset="the value of --width"
    )
    _hidden_width = "width d_F of σ(Φ_t B_t)"
    hidden_width: int | None = option(
        None,
        _hidden_width,
        at_least=1,
        unset="the value of --width",
        only={"hidden": True},
        of_axes=True,
    )
    ridge: Ridge | None = ridge_option(None, "ridge λ of every W_t", unset=str(DEFAULTS["ridge"]))
    _block_ridge = "ridge of every Ω_t, the paper's γ"
    block_ridge: float | None = option(
        None,
        _block_ridge,
        at_least=0,
        at_solve=True,
        unset=str(DEFAULTS["block_ridge"]),
        only={"blocks": True},
        of_axes=True,
    )
    gamma: float = gamma_option()
    _activation = "σ of the layers"
    activation: str | None = option(
        None,
        _activation,
        choices=ACTIVATIONS,
        unset=str(DEFAULTS["activation"]),
        only={"activated": True},
        of_axes=True,
    )
    phi0_activation: str | None = option(
        None, "σ of Φ_0", choices=ACTIVATIONS, unset=str(DEFAULTS["phi0_activation"])
    )
    seed: int = seed_option("the random projections A and B_t, which are never stored or sent")
    _projection = "A and B_t: uniform weights and bias, or gaussian weights"
    projection: str = option("linear-uniform", _projection, choices=PROJECTIONS)
    _preset = (
        "a published setting; paper is that of --data, or of the released script where the "
        "data set has none"
    )
    preset: str | None = option(None, _preset, choices=(PAPER, *PRESETS))
    no_skip: bool = option(
        False,
        "ablation: Φ_{t+1} = F_t Ω without Φ_t; Ω then fits Y, not the residual Y − Φ_t W_t",
    )
    identity_projection: bool = option(False, "ablation: B_t = I")
    identity_omega: bool = option(False, "ablation: Ω = I, so that layers learn nothing")
    _deepening = (
        "how a layer follows from the last one: residual blocks, or the paper's other "
        "strategies (E.3.7), Φ_{t+1} = Φ_t W_t B_t (cascade) or σ of it; these have no Ω"
    )
    deepening: str = option(
        RESIDUAL, _deepening, choices=(RESIDUAL, CASCADE, ACTIVATED), newer=True
    )
    _label_encoding = (
        "with a cascade: the layers fit Y Q_t, labels under a random map, so that "
        "Φ_{t+1} = Φ_t W_t Q_t B_t"
    )
    label_encoding: bool = option(False, _label_encoding, newer=True)
    from_phi0: bool = option(False, "variant (89): every layer starts from Φ_0, F_t = σ(Φ_0 B_t)")
    _reconstruction = "weight 1 − ρ of (88): Ω_t also fits Φ_0, so that later layers keep it"
    reconstruction: float = option(0.0, _reconstruction, at_least=0, at_most=1)
    incremental: bool = option(
        False,
        "send only the change of ΦᵀΦ: about half the bytes and one symmetric product less "
        "per layer; the same clients must take part in all rounds",
    )
    _patience = "with held-out clients: stop after this many layers without a smaller error on them"
    patience: int | None = option(None, _patience, at_least=1)
    _min_norm = "where the data do not determine the head, take the minimum-norm solution"
    min_norm: bool = option(False, _min_norm, at_solve=True)
    _compute = "number format of the products; sums are float64, or integers with fixed"
    compute: str = option("float64", _compute, choices=(*COMPUTE, FIXED))
    _fixed_bits = "with --compute fixed: fraction bits of Φ and F, whose range is ±2^(15 − bits)"
    fixed_bits: int | None = option(
        None, _fixed_bits, at_least=6, at_most=14, unset=str(FIXED_BITS), newer=True
    )

    def check(self) -> None:
        self._resolve()
        self._check_deepening()
        self._check_identities()
        self._check_fixed()
        for name in NOT_INCREMENTAL:
            if self.incremental and getattr(self, name):
                raise UsageError(
                    f"--incremental cannot be combined with --{name.replace('_', '-')}: ΦᵀΦ does "
                    "not change there, or the server knows it already"
                )

    def changeable(self) -> set[str]:
        """None: the sums of every round follow from what the solves before it made."""
        return set()

    @classmethod
    def for_everybody(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """`incremental`, unless it was given or other options exclude it."""
        decided = "incremental" in given or any(given.get(name) for name in NOT_INCREMENTAL)
        cascade = given.get("deepening", RESIDUAL) != RESIDUAL
        thin = not (decided or cascade or given.get("compute") == FIXED)
        return {"incremental": True} if thin else {}

    @classmethod
    def for_data(cls, given: Mapping[str, Any], data: str | None) -> dict[str, Any]:
        """The preset that `paper` stands for."""
        if given.get("preset") != PAPER:
            return {}
        return {"preset": data if data in PRESETS else "released-script"}

    def draw_of(self, phase: Phase) -> int:
        """W_t and Ω_{t+1}, which make a layer, share one draw (the paper's appendix M)."""
        return super().draw_of(phase) - (phase.kind == BLOCK)

    def turn_of(self, phase: Phase) -> int:
        return int(phase.kind == BLOCK)

    def turns(self) -> int:
        return 1 + (self.learns_blocks and not self.one_round())

    def one_round(self) -> bool:
        return self.depth == 0

    def same_clients(self) -> str | None:
        return "incremental" if self.incremental else None

    def _resolve(self) -> None:
        """Fill in the options that were not given; from then on the values include the preset."""
        if self.preset == PAPER:
            raise UsageError(
                "--preset paper is chosen by the data set of run, slurm or study; a head alone "
                f"has none: name one of {', '.join(PRESETS)}"
            )
        values = {**DEFAULTS, **PRESETS.get(self.preset or "", {})}
        for name, value in values.items():
            given = getattr(self, name)
            self._set(**{name: value if given is None else given})
        phi, hidden = self.feature_width or self.width, self.hidden_width or self.width
        self._set(feature_width=phi, hidden_width=hidden, width=phi, preset=None)

    def _check_deepening(self) -> None:
        if self.deepening == RESIDUAL and self.label_encoding:
            raise UsageError(
                f"--label-encoding is for --deepening {CASCADE} or {ACTIVATED}: residual blocks "
                "fit what is left of the labels"
            )
        for name in OF_BLOCKS:
            if self.deepening != RESIDUAL and getattr(self, name):
                raise UsageError(
                    f"--{name.replace('_', '-')} is for --deepening {RESIDUAL}; found "
                    f"--deepening {self.deepening}, whose layers have no Ω"
                )

    def _check_identities(self) -> None:
        if self.reconstruction and self.identity_omega:
            raise UsageError("--reconstruction is for learned layers; --identity-omega has none")
        for name in ("identity_projection", "identity_omega"):
            if getattr(self, name) and self.feature_width != self.hidden_width:
                raise UsageError(
                    f"--{name.replace('_', '-')} needs equal widths; found {self.feature_width} "
                    f"and {self.hidden_width}"
                )

    def _check_fixed(self) -> None:
        if self.compute != FIXED and self.fixed_bits is not None:
            raise UsageError("--fixed-bits is for --compute fixed")
        if self.compute == FIXED and self.incremental:
            raise UsageError(
                "--incremental cannot be combined with --compute fixed: Φ is rounded after every "
                "layer, so the server cannot tell the change of ΦᵀΦ from thin sums to the last bit"
            )
        if self.compute == FIXED:
            self._set(fixed_bits=self.fixed)

    @property
    def fixed(self) -> int:
        """Fraction bits of Φ and F in fixed point."""
        return self.fixed_bits or FIXED_BITS

    def facts(self) -> dict[str, bool]:
        layered = self.depth > 0
        return {
            "blocks": self.learns_blocks and layered,
            "hidden": self.deepening == RESIDUAL and layered,
            "activated": self.deepening != CASCADE and layered,
        }

    @property
    def learns_blocks(self) -> bool:
        """Whether layers have an Ω of their own, so that there are phases for it."""
        return self.deepening == RESIDUAL and not self.identity_omega

    @property
    def depth(self) -> int:
        """T, known after the defaults are in."""
        return int(self.layers or 0)

    @property
    def block_gamma(self) -> float:
        """The paper's γ."""
        return float(self.block_ridge or 0.0)

    @property
    def lam(self) -> Ridge:
        """λ, or how it is chosen; known after the defaults are in."""
        assert self.ridge is not None
        return self.ridge

    @property
    def widths(self) -> tuple[int, int]:
        """(d_Φ, d_F)."""
        return self.feature_width or self.width, self.hidden_width or self.width


OPTIONS = DeepAFLOptions
