"""Which clients take part in a phase of a head."""

from __future__ import annotations

from ..errors import UsageError
from ..heads.base import Head
from ..options import flag
from ..options.statistics import LocalStatsOptions
from ..partitions.rows import Assignment, draw_clients
from ..values.phases import Phase


def check_participation(head: Head, o: LocalStatsOptions) -> None:
    """Refuse a draw of clients for a head that needs the same ones in every round.

    So is a second draw in a layer, for a head whose layers have one sum.
    """
    needing, share = head.options.same_clients(), o.participation
    if share < 1 and o.participation_kind == "inconsistent" and head.options.turns() == 1:
        raise UsageError(
            f"--participation-kind {o.participation_kind} is for heads with two sums per layer, "
            f"such as deepafl; this {head.name} head has one: leave it out"
        )
    if share < 1 and needing is not None:
        raise UsageError(
            f"this {head.name} head needs the same clients in every round; found --participation "
            f"{share:g}: leave it out, or begin a head without {flag(needing)}"
        )


def drawn_clients(head: Head, dealt: Assignment, o: LocalStatsOptions) -> list[int]:
    """The clients that take part in the head's next phase."""
    phase, seed = Phase(head.phase() or ""), o.participation_seed or 0
    turn = head.options.turn_of(phase) * (o.participation_kind == "inconsistent")
    return draw_clients(dealt.held_out, o.participation, seed, head.options.draw_of(phase), turn)
