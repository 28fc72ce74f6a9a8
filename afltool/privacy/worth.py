"""What the noise in a file is worth: ε computed from σ, not taken from the header."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, naming
from ..files.schema import ABSENT, described, mismatch, size, whole
from ..values.statistics import Context
from . import accountant
from .differential import OFF, WIDE, Noise, changes_of
from .masking import COUNTS
from .noise import LARGEST_SIGMA
from .terms import DISTRIBUTED, LOCAL

MOST = 1 << 20  # members of a round
SAME = 1e-6  # relative: an ε that was calibrated, and the one that its σ gives


form = described("local or distributed", lambda v: v in (LOCAL, DISTRIBUTED))
amount = described("a number from 1e-30 to 1e30", lambda v: size(v) and 1e-30 <= v <= 1e30)
budget = described("a number from 1e-30 on", lambda v: size(v) and v >= 1e-30)
share = described("a number above 0 and below 1", lambda v: size(v) and 0 < v < 1)
members = described("a whole number from 1 to 2^20", lambda v: whole(v) and 1 <= v <= MOST)
deviation = described(  # its square is no 0
    "a standard deviation from 1e-150 to 2^48", lambda v: size(v) and 1e-150 <= v <= LARGEST_SIGMA
)

# Whoever writes a header may write any number there: of others the sums below would overflow, or
# take for ever.
PATTERN = {
    "form": form,
    "epsilon": budget,
    "delta": share,
    "clip": amount,
    "members": members,
    "colluding": (whole, ABSENT),
    "sigma": {
        "gram": deviation,
        OFF: (deviation, ABSENT),
        "cross": deviation,
        COUNTS: deviation,
    },
}


def account(
    facts: Mapping[str, Any],
    clients: int,
    bits: int,
    sizes: Mapping[str, int],
    changes: tuple[tuple[str, float], ...] = (),
) -> str:
    """What the noise of statistics over a number of clients is worth, as sentences.

    ``facts``: the entry of the noise in a header; ``sizes``: how many numbers each array has;
    ``bits``: fraction bits of the features; ``changes``: of counts, see `differential.Noise`.

    Raises `CorruptFileError`: the entry is damaged, or has another ε than its σ gives.
    """
    pattern = {**PATTERN, "sigma": {k: deviation for k, _ in changes}} if changes else PATTERN
    if wrong := mismatch(facts, pattern):
        raise CorruptFileError(f"its header is damaged: in context.noise {wrong}")
    made, sigma = Noise.of(facts, bits, changes), facts["sigma"]
    if not _is_worth(made, sigma, sizes):
        raise CorruptFileError(
            f"its header says ε = {made.epsilon:g}, but its σ gives ε = "
            f"{made.epsilon_of(sigma, sizes, made.members):.4g} with δ = {made.delta:g}, rows of "
            f"norm up to {made.clip:g} and the noise of {made.members}: the header was altered, or "
            "another program made it; ask for the file again"
        )
    budget = f"(ε = {made.epsilon:g}, δ = {made.delta:g})"
    row = "for one row added or removed"
    row += "" if changes else f", of norm up to {made.clip:g}"
    if made.form == LOCAL:
        return f"Each client's numbers are {budget}-differentially private {row}."
    if clients < made.members:
        return (
            f"The noise of {clients} clients; that of {made.members} together makes the sum "
            f"{budget}-differentially private {row}."
        )
    outside, inside = (
        made.epsilon_of(sigma, sizes, n) for n in (clients, clients - 1 - made.colluding)
    )
    others = f" and that of {made.colluding} others" if made.colluding else ""
    return (
        f"The sum over {clients} clients is (ε = {outside:.4g}, δ = {made.delta:g})-differentially "
        f"private {row}; against a member, who knows its own noise{others}, ε = {inside:.4g}. It "
        f"was made to be {budget} with the noise of {made.members}."
    )


def account_of(
    path: Path, context: Context, clients: int, shapes: Mapping[str, Sequence[int]]
) -> str:
    """`account` of a file; ``shapes``: those of its arrays."""
    sizes = {name: prod(shape) for name, shape in shapes.items()}
    sizes[COUNTS] = len(context.classes)
    with naming(path, CorruptFileError):
        bits, changes = context.space["fraction_bits"], changes_of(context.head, shapes)
        return account(context.noise, clients, bits, sizes, changes)


def _is_worth(made: Noise, sigma: Mapping[str, float], sizes: Mapping[str, int]) -> bool:
    """Whether these σ are those of the budget.

    ε is compared, and δ where ε is so small that the last bits of σ change it. Noise that was
    widened to `WIDE` may be worth more.
    """
    epsilon = made.epsilon_of(sigma, sizes, made.members)
    if made.form == DISTRIBUTED:
        rho = made.rho(sigma, sizes, made.members)
        delta = accountant.concentrated_delta(rho, made.epsilon)
    else:
        delta = accountant.gaussian_delta(made.epsilon, made.multiplier(sigma, sizes))
    widened = made.form == DISTRIBUTED and min(sigma.values()) == WIDE
    return (
        math.isclose(epsilon, made.epsilon, rel_tol=SAME)
        or math.isclose(delta, made.delta, rel_tol=SAME)
        or (widened and epsilon < made.epsilon)
    )
