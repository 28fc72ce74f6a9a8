"""Statistics added up by AFL's pairwise law instead of by their sum: the same head, to rounding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from ..errors import InvalidDataError, UsageError
from ..math.blas import length, pack
from ..math.pairwise import Party, fold, party, without_gamma
from ..math.ridge import cross_matrix, gram_matrix
from ..values.statistics import Statistics, Sum


def pairwise_total(parts: Iterable[Statistics], repeats: bool = False) -> Statistics:
    """Fold clients one after another by Theorem 1, then remove Kγ by (16).

    Takes phases whose arrays are gram and cross. The result holds float64 arrays in real units.
    Each client's γ (head option ``gamma``) makes its matrix invertible. ``repeats``: see `Sum`.
    """
    counts: list[Sum] = []  # carries clients and row counts, with the checks of a sum

    def parties() -> Iterator[Party]:
        for part in parts:
            if set(part.arrays) != {"gram", "cross"}:
                raise UsageError(
                    f"--law pairwise is for phases with gram and cross; phase {part.phase!r} has "
                    f"{', '.join(sorted(part.arrays))}: use --law sum"
                )
            bare = replace(part, arrays={})
            counts[:] = [counts[0].add(bare) if counts else Sum(bare, repeats)]
            bits = part.context.space.get("fraction_bits") if part.exact else None
            gamma = sum(g * n for g, n in part.gammas.items())
            part.check_finite()
            gram, cross = part.arrays["gram"], part.arrays["cross"]
            if cross.ndim != 2 or gram.shape != (length(len(cross)),):
                raise InvalidDataError(
                    f"gram {gram.shape} and cross {cross.shape} of {_who(part)} do not fit: "
                    "expected d(d+1)/2 numbers beside d rows; make the statistics again"
                )
            yield party(gram_matrix(gram, bits), cross_matrix(cross, bits), gamma)

    G, H = without_gamma(fold(parties()))
    return replace(counts[0].result(), arrays={"gram": pack(G), "cross": H})


def _who(part: Statistics) -> str:
    return f"client {min(part.clients)}" if part.clients else "nobody"
