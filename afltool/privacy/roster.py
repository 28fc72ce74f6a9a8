"""What a federation agrees on before a round: members, threshold, head, largest number of rows."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, MismatchError, NumericalError, UsageError
from ..phases import Phase
from ..store import headers
from . import messages as msg
from . import terms
from .identity import PUBLIC, Member
from .terms import Terms

INT64 = 2**63 - 1
VERSION = 2
HEAD = {"name": str, "phase": str, "digest": msg.SHA256}
PATTERN = {
    "version": headers.whole,
    "round": msg.hexadecimal(16),
    "members": [PUBLIC],
    "server": (PUBLIC, None),
    "threshold": headers.at_least_one,
    "colluding": headers.whole,
    "head": HEAD,
    "max_rows": headers.at_least_one,
    **terms.PATTERN,
}


@dataclass(frozen=True)
class Roster:
    """One round: ``members`` sorted by name, of whom ``threshold`` must stay.

    ``round`` is random, so equal agreements of two rounds have different digests. ``head``: name,
    phase and digest. ``max_rows``: no member has more rows; so every sum fits into int64.
    ``terms``: what is asked of every member's statistics. ``server``: the only one whose requests
    are answered, and who can read the answers. ``colluding``: how many members may work with it or
    with each other. ``path``: its file, for messages.
    """

    round: str
    members: tuple[Member, ...]
    threshold: int
    head: Mapping[str, str]
    max_rows: int
    terms: Terms
    server: Member | None = None
    colluding: int = 0
    path: Path = field(default=Path("roster"), compare=False)

    @classmethod
    def new(
        cls,
        members: Sequence[Member],
        head: Mapping[str, str],
        threshold: int | None = None,
        max_rows: int | None = None,
        *,
        terms: Terms,
        server: Member | None = None,
        colluding: int = 0,
    ) -> Roster:
        """A roster with a fresh random number.

        ``threshold`` is ⌊2n/3⌋ + 1 unless given, or more where ``colluding`` members require it.
        """
        n = len(members)
        most = INT64 // (max(n, 1) * row_bound(head["phase"]))
        least = max(2 * n // 3 + 1, (n + colluding) // 2 + 1, colluding + 2)
        made = cls(
            secrets.token_hex(16),
            tuple(sorted(members)),
            least if threshold is None else threshold,
            {k: head[k] for k in HEAD},
            most if max_rows is None else max_rows,
            terms,
            server,
            colluding,
        )
        made.check()
        return made

    def check(self) -> None:
        """Refuse a roster that protects no member, or whose sums might not fit into int64."""
        self._check_keys()
        self._check_threshold()
        n, row = len(self.members), row_bound(self.head["phase"])
        if n * self.max_rows * row > INT64:
            raise NumericalError(
                f"sums over {n} members of up to {self.max_rows} rows each could exceed int64; "
                f"lower --max-rows to {INT64 // (n * row)}"
            )

    def _check_keys(self) -> None:
        everybody = [*self.members, *([self.server] if self.server else [])]
        for what in ("name", "sign", "agree"):
            key, times = Counter(getattr(m, what) for m in everybody).most_common(1)[0]
            if times > 1:
                same = [m.name for m in everybody if getattr(m, what) == key]
                kind = "name" if what == "name" else "key"
                raise MismatchError(
                    f"{times} in the roster have one {kind}: {', '.join(map(repr, same))}; "
                    "each member, and the server, makes a key pair of its own (afltool keys new)"
                )
        if self.terms.masked and self.server is None:
            raise MismatchError(
                "a roster with masks names its server: give --server NAME.pub (afltool keys new)"
            )

    def _check_threshold(self) -> None:
        n, t, c = len(self.members), self.threshold, self.colluding
        if not (c + 2 <= t <= n and 2 * t > n + c):
            of = f"{n} members" + (f", {c} of them colluding," if c else "")
            raise UsageError(
                f"the threshold of {of} must be more than {(n + c) / 2:g}, at least {c + 2} and at "
                f"most {n}; found {t}. With fewer a server could ask some members for one secret, "
                "and others for the other one"
            )
        if self.terms.masked and self.terms.noise and self.sharing < 2:
            raise UsageError(
                f"noise shared under masks needs a threshold of at least {c + 3}; found {t}. A "
                f"member knows its own noise, and {c} may tell it theirs, so that of the "
                f"{self.sharing} others who must stay has to be enough, and they must be 2 or more"
            )

    @property
    def sharing(self) -> int:
        """The number of members, t − 1 − c, whose noise together must be enough for any member that
        knows its own and that of ``colluding`` others."""
        return self.threshold - 1 - self.colluding

    @property
    def limit(self) -> int:
        """The largest magnitude of a number of one member: n of them fit into int64."""
        return INT64 // len(self.members)

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": "roster",
            "version": VERSION,
            "round": self.round,
            "members": [m.as_dict() for m in self.members],
            "server": self.server and self.server.as_dict(),
            "threshold": self.threshold,
            "colluding": self.colluding,
            "head": dict(self.head),
            "max_rows": self.max_rows,
            **self.terms.as_dict(),
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

    def check_server(self, server: Member, where: str) -> None:
        """Refuse a key that is not the one of the roster's server."""
        if server != self.server:
            named = "names no server" if self.server is None else f"names {self.server.name!r}"
            same = " with other keys" if self.server and server.name == self.server.name else ""
            raise MismatchError(
                f"{where} is of {server.name!r}, but the roster {self.path} {named} as its server"
                f"{same}"
            )

    def check_signed_by_server(self, where: str, message: msg.Message) -> msg.Message:
        """The message; refused unless the roster's server signed it."""
        if self.server is None:
            raise MismatchError(f"{where} is of no use: the roster {self.path} names no server")
        return self.server.check(where, message)

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
    found = msg.parse(path)
    _check_version(path, found)
    body = msg.message_of(str(path), found, "roster", PATTERN).body
    roster = Roster(
        body["round"],
        tuple(Member.of(m) for m in body["members"]),
        body["threshold"],
        {k: body["head"][k] for k in HEAD},
        body["max_rows"],
        Terms.from_dict(body),
        body["server"] and Member.of(body["server"]),
        body["colluding"],
        path,
    )
    if list(roster.members) != sorted(roster.members) or not roster.members:
        raise CorruptFileError(f"{path} is damaged: its members are not sorted by name")
    roster.check()
    return roster


def _check_version(path: Path, found: Any) -> None:
    """Refuse a roster of another version; whatever else is wrong is found later."""
    if headers.mismatch(found, msg.SEALED) or found["body"].get("kind") != "roster":
        return
    version = found["body"].get("version", 1)
    if version != VERSION:
        raise CorruptFileError(
            f"{path} is a roster of version {version!r}; this afltool reads version {VERSION}, in "
            "which it names the server and the protection: make a new one (afltool roster), and "
            "compare its digest again"
        )


def save(path: Path, roster: Roster, overwrite: bool = False) -> Path:
    return msg.write(path, msg.Message(roster.as_dict()), overwrite)
