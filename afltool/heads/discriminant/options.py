"""Options of the one-shot classifiers from class sums."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError
from ...options import option
from ...values.ridge import Fixed, parse_ridge
from ..options import NUMBER, HeadOptions, ridge_option

#: Rule → the options that it takes beside ``rule``.
RULES: dict[str, tuple[str, ...]] = {
    "nearest-mean": (),
    "lda": ("shrinkage",),
    "fedcgs": ("shrinkage",),
    "fed3r": ("ridge",),
    "naive-bayes": (),
    "qda": ("shrinkage",),
}
RIDGE = 0.01  # of Fed3R


def _fixed(value: str | float) -> Fixed:
    ridge = parse_ridge(value)
    if not isinstance(ridge, Fixed):
        raise UsageError(f"--ridge of fed3r is a number ≥ 0; found {value!r}")
    return ridge


@dataclass(frozen=True, kw_only=True)
class DiscriminantOptions(HeadOptions):
    """Options of the classifiers that need one round: each rule solves from sums by class."""

    rule: str = option("lda", "which classifier", choices=tuple(RULES))
    _shrinkage = "s of the covariance (1 − s)Σ + s tr(Σ)/d I (lda, fedcgs, qda)"
    shrinkage: float = option(0.0, _shrinkage, at_least=0, at_most=1, at_solve=True)
    ridge: Fixed | None = ridge_option(
        None, "ridge λ of fed3r", unset=f"{RIDGE:g}", parse=_fixed, grammar=NUMBER
    )

    def check(self) -> None:
        takes = RULES[self.rule]
        for name, none in (("shrinkage", 0.0), ("ridge", None)):
            if getattr(self, name) != none and name not in takes:
                raise UsageError(f"--rule {self.rule} takes no --{name}; leave it out")

    @property
    def lam(self) -> float:
        """λ of fed3r."""
        return RIDGE if self.ridge is None else self.ridge.value


OPTIONS = DiscriminantOptions
