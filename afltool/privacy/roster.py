"""What a federation agrees on before a round: members, threshold, head, largest number of rows."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, MismatchError, NumericalError, UsageError
from ..phases import Phase
from ..store import headers
from . import messages as msg
from .identity import PUBLIC, Member

INT64 = 2**63 - 1
HEAD = {"name": str, "phase": str, "digest": msg.SHA256}
PATTERN = {
    "round": msg.hexadecimal(16),
    "members": [PUBLIC],
    "threshold": headers.at_least_one,
    "head": HEAD,
    "max_rows": headers.at_least_one,
}


@dataclass(frozen=True)
class Roster:
    """One round: ``members`` sorted by name, of whom ``threshold`` must stay.

    ``round`` is random, so equal agreements of two rounds have different digests. ``head``: name,
    phase and digest. ``max_rows``: no member has more rows; so every sum fits into int64.
    """

    round: str
    members: tuple[Member, ...]
    threshold: int
    head: Mapping[str, str]
    max_rows: int

    @classmethod
    def new(
        cls,
        members: Sequence[Member],
        head: Mapping[str, str],
        threshold: int | None = None,
        max_rows: int | None = None,
    ) -> Roster:
        """A roster with a fresh random number; ``threshold`` is ⌊2n/3⌋ + 1 unless given."""
        n = len(members)
        most = INT64 // (max(n, 1) * row_bound(head["phase"]))
        made = cls(
            secrets.token_hex(16),
            tuple(sorted(members)),
            2 * n // 3 + 1 if threshold is None else threshold,
            {k: head[k] for k in HEAD},
            most if max_rows is None else max_rows,
        )
        made.check()
        return made

    def check(self) -> None:
        """Refuse a roster that protects no member, or whose sums might not fit into int64."""
        n, t = len(self.members), self.threshold
        for what in ("name", "sign", "agree"):
            key, times = Counter(getattr(m, what) for m in self.members).most_common(1)[0]
            if times > 1:
                same = [m.name for m in self.members if getattr(m, what) == key]
                kind = "name" if what == "name" else "key"
                raise MismatchError(
                    f"{times} members of the roster have one {kind}: {', '.join(map(repr, same))}; "
                    "each member makes a key pair of its own (afltool keys new)"
                )
        if not (2 <= t <= n < 2 * t):
            raise UsageError(
                f"the threshold of {n} members must be more than half, at least 2 and at most "
                f"{n}; found {t}. With fewer a server could ask half of the members for one secret "
                "and half for the other"
            )
        if n * self.max_rows * row_bound(self.head["phase"]) > INT64:
            raise NumericalError(
                f"sums over {n} members of up to {self.max_rows} rows each could exceed int64; "
                f"lower --max-rows to {INT64 // (n * row_bound(self.head['phase']))}"
            )

    @property
    def limit(self) -> int:
        """The largest magnitude of a number of one member: n of them fit into int64."""
        return INT64 // len(self.members)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": "roster",
            "round": self.round,
            "members": [m.as_dict() for m in self.members],
            "threshold": self.threshold,
            "head": dict(self.head),
            "max_rows": self.max_rows,
        }

    def digest(self) -> str:
        """The digest that members compare over another channel; it is in every message of the
        round."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return msg.digest_of(self.as_dict())

    def names(self) -> list[str]:
        return [m.name for m in self.members]

    def place(self, name: str) -> int:
        """The place of a member, counted from 1, at which its shares are evaluated."""
        return self.names().index(name) + 1

    def member(self, name: str, where: str) -> Member:
        """The member of this name; `MismatchError` for a stranger."""
        for member in self.members:
            if member.name == name:
                return member
        raise MismatchError(
            f"{where} is of {name!r}, who is not among the {len(self.members)} members of the "
            f"roster {self.digest()[:12]}"
        )

    def check_message(self, where: str, message: msg.Message) -> msg.Message:
        """The message; refused unless it is for this round and signed by the member it names."""
        body = message.body
        member = self.member(body["member"], where)
        if body["roster"] != self.digest():
            raise MismatchError(
                f"{where} of {member.name!r} belongs to the roster {body['roster'][:12]}, not to "
                f"{self.digest()[:12]}: it is of another round, or its maker holds another roster"
            )
        return member.check(where, message)

    def check_enough(
        self, found: Collection[str], asked: Collection[str], have: str, why: str = ""
    ) -> None:
        """Refuse fewer members than the threshold; ``have``: what they have done."""
        if len(found) < self.threshold:
            raise MismatchError(
                f"{len(found)} of {len(asked)} members have {have}, at least {self.threshold} "
                f"must{why}. Missing: {', '.join(repr(n) for n in asked if n not in found)}"
            )

    def collect(
        self,
        paths: Iterable[str | Path],
        kind: str,
        pattern: Mapping[str, Any],
        check: Callable[[str, msg.Message], None],
    ) -> dict[str, msg.Message]:
        """The messages of a round by member, each checked; refused where a member made two."""
        found: dict[str, msg.Message] = {}
        for path in msg.files(paths):
            message = self.check_message(str(path), msg.read(path, kind, pattern))
            check(str(path), message)
            member = message.body["member"]
            if found.setdefault(member, message) != message:
                raise MismatchError(
                    f"{path}: {member!r} has made two different {kind}s; ask which one holds, all "
                    "members must use the same"
                )
        return found

    def check_head(self, where: str, binding: Mapping[str, Any]) -> None:
        """Refuse statistics that were gathered for another head or phase than the roster's."""
        for key in ("name", "phase", "digest"):
            if binding.get(key) != self.head[key]:
                raise MismatchError(
                    f"{where} is for another head than the roster: its {key} is "
                    f"{binding.get(key)!r}, the roster's is {self.head[key]!r}"
                )


def row_bound(phase: str) -> int:
    """The most that one row adds to a number of a phase, in its units (docs/privacy.md).

    Features are below 2^15. A gradient, and the cross of a DeepAFL block, multiply them by
    residuals of at most 2^24.
    """
    return 2**39 if Phase(phase).kind in ("gradient", "block") else 2**30


def load(path: Path) -> Roster:
    """Read a roster and check what it claims."""
    body = msg.read(path, "roster", PATTERN).body
    members = tuple(Member(m["name"], m["sign"], m["agree"]) for m in body["members"])
    if list(members) != sorted(members) or not members:
        raise CorruptFileError(f"{path} is damaged: its members are not sorted by name")
    roster = Roster(body["round"], members, body["threshold"], body["head"], body["max_rows"])
    roster.check()
    return roster


def save(path: Path, roster: Roster, overwrite: bool = False) -> Path:
    return msg.write(path, msg.Message(roster.as_dict()), overwrite)
