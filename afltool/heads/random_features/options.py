"""Options of the linear head on one wide layer of random features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...options import option
from ...values.ridge import Auto, OneRidge
from ..options import (
    ACTIVATIONS,
    COMPUTE,
    FIXED,
    PROJECTIONS,
    LeastSquaresOptions,
    ridge_option,
    seed_option,
)


@dataclass(frozen=True, kw_only=True)
class RandomFeaturesOptions(LeastSquaresOptions):
    """Options of the linear head on one wide layer of random features, [σ(XA), X]."""

    lends: ClassVar[tuple[str, ...]] = (
        "width", "activation", "with_linear", "seed", "projection", "compute",
    )  # fmt: skip

    ridge: OneRidge = ridge_option(Auto())
    width: int = option(8192, "number of random features", at_least=1)
    activation: str = option("tanh", "activation σ", choices=ACTIVATIONS)
    with_linear: bool = option(False, "use the raw features beside the random ones")
    seed: int = seed_option("the random projection A and its bias, which are never stored or sent")
    projection: str = option(
        "linear-uniform",
        "random projection A: uniform weights and bias, or gaussian weights",
        choices=PROJECTIONS,
    )
    _compute = "number format of the products; sums are float64, or integers with fixed"
    compute: str = option("float32", _compute, choices=(*COMPUTE, FIXED))

    def check_room(self, dim: int) -> None:
        """Refuse a gram that does not fit: 16 bytes a pair, of a square and of two triangles."""
        from ...cache import memory

        side = self.width + self.with_linear * dim + self.intercept
        memory.need(16 * side * side, f"the gram of {side} features", "use a smaller --width")


OPTIONS = RandomFeaturesOptions
