"""Where a session is, for people: which round, and who is waited for. It needs no key.

It proves nothing: anybody who may write into the place can make it say something else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from .agreement import Agreement
from .compute import first_head
from .envelope import name_of
from .place import Place


@dataclass(frozen=True)
class Status:
    """``waiting_for``: names, and ``what`` of them; nobody at the end."""

    url: str
    session: str
    members: list[str]
    server: str
    round: int
    rounds: int
    what: str = ""
    waiting_for: list[str] = field(default_factory=list)
    state: str = "running"

    def __str__(self) -> str:
        if self.state != "running":
            return f"round {self.round} of {self.rounds}: {self.state}"
        who = ", ".join(self.waiting_for)
        at = f"round {self.round} of {self.rounds} at most" if self.round else "roll-call"
        return f"{at}: waiting for {self.what} of {who}"


@dataclass(frozen=True)
class Look:
    """What lies in the place of a session."""

    place: Place
    agreed: Agreement

    def has(self, kind: str, number: int, name: str) -> bool:
        return bool(self.place.size(name_of(kind, number, name)))

    def late(self, kind: str, number: int, names: list[str]) -> list[str]:
        return [name for name in names if not self.has(kind, number, name)]

    def step(self) -> tuple[int, str, list[str]]:
        """The round, and which message of whom is the next one; '' at the end."""
        names, server = [p.name for p in self.agreed.members], self.agreed.server.name
        if late := self.late("key", 1, [server]):
            return 0, "the beginning", late
        closed = next(r for r in count() if not self.has("close", r, server)) - 1
        if closed < 0:
            late = self.late("hello", 0, names)
            return 0, *(("the hello", late) if late else ("the close", [server]))
        if closed and self.has("done", closed + 1, server):
            return closed, *(
                ("the end", late) if (late := self.late("done", closed + 1, names)) else ("", [])
            )
        inside = [n for n in names if self.has("sums" if closed else "hello", closed, n)]
        late = self.late("sums", closed + 1, inside)
        if len(late) < len(inside):  # somebody knows the next head
            return closed + 1, *(("the sums", late) if late else ("the close", [server]))
        if closed == 0:
            return 1, "the sums", late
        missing = self.late("shares", closed, inside) if self.agreed.masked else []
        enough = len(inside) - len(missing) >= self.agreed.threshold
        if not enough:
            return closed, "the shares", missing
        if self.late("head", closed + 1, [server]):
            return closed, "the head", [server]
        return closed + 1, "the sums", late


def status(place: Place, agreed: Agreement) -> Status:
    """What a session waits for, as the files in its place tell."""
    phases = len(first_head(agreed).phases())
    rounds = phases + (agreed.scale is not None) + (agreed.evaluation is not None)
    number, what, late = Look(place, agreed).step()
    return Status(
        place.url,
        agreed.digest,
        [p.name for p in agreed.members],
        agreed.server.name,
        number,
        rounds,
        what,
        late,
        "running" if what else "solved",
    )
