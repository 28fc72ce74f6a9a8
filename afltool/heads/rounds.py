"""What is recorded of a round. It travels beside the head, in the header of the head's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..values.arrays import Array
from ..values.phases import Phase
from ..values.statistics import Statistics

Facts = Mapping[str, Any]
LAST = Phase("last")  # the round that a head was solved in; the list of rounds has its phase


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a solve found: figures of the ``head`` as it is now, and of this ``round`` alone.

    ``sent``: what each client gets; None means all that is new in the head's arrays. ``replayed``:
    rounds that the server has computed from this round's sums.
    """

    head: Facts = field(default_factory=dict)
    round: Facts = field(default_factory=dict)
    sent: Sequence[Array] | None = None
    replayed: Sequence[Round] = ()


@dataclass(frozen=True, kw_only=True)
class Round:
    """A round of a head.

    ``upload_bytes`` is an upper bound for one client: the size of the total's arrays, whose numbers
    are larger. ``download_bytes``: the size of what each client gets. ``solve_seconds``: time of
    the server's solve, where somebody has taken it. ``facts``: further figures of this round.
    ``head``: figures of the head after it. ``replayed``: see `Found`; for these nothing was sent.
    """

    phase: Phase
    rows: int
    clients: int
    upload_bytes: int = 0
    download_bytes: int = 0
    solve_seconds: float | None = None
    ridge: float | None = None
    training_mse: float | None = None
    facts: Facts = field(default_factory=dict)
    head: Facts = field(default_factory=dict)
    replayed: Sequence[Round] = ()

    @classmethod
    def of(cls, total: Statistics, found: Found, upload: int = 0, download: int = 0) -> Round:
        """The round that solved ``total``; a replayed one has neither upload nor download."""
        facts = dict(found.round)
        own = {name: facts.pop(name, found.head.get(name)) for name in ("ridge", "training_mse")}
        return cls(
            phase=total.phase, rows=total.rows, clients=len(total.clients), **own, facts=facts,
            upload_bytes=upload, download_bytes=download, head=found.head, replayed=found.replayed,
        )  # fmt: skip

    def taking(self, seconds: float) -> Round:
        """The same with the time of the solve."""
        return replace(self, solve_seconds=round(seconds, 4))

    def entry(self) -> dict[str, Any]:
        """The round as a head's file has it."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        rest = {name: own.pop(name) for name in ("facts", "head", "replayed")}
        return {**{k: v for k, v in own.items() if v is not None}, **rest["facts"]}

    def report(self, before: Facts) -> dict[str, Any]:
        """What the head's file says after this round; ``before``: what it said until then."""
        new = [one.entry() for one in (self, *self.replayed)]
        return {**self.head, "phases": [*before.get("phases", []), *new]}
