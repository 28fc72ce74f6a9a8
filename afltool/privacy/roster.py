"""What a federation agrees on before a round: members, threshold, head, largest number of rows.

The roster of a round of a session (`privacy.session`) is made of the session, and is no file.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, MismatchError
from ..files.schema import ABSENT, at_least_one, described, mismatch, whole
from ..options.privacy import ALL
from ..values.names import check_apart
from . import messages as msg
from .identity import PUBLIC, Identity, Member
from .terms import INT64, Terms, check_keys, check_rows, check_threshold, most_rows, usual_threshold
from .terms import PATTERN as TERMS

VERSION = 2
MASKS = 2  # how masks are made: docs/privacy.md; rosters that do not say it are of version 1
LEAST_NEIGHBOURS = 30  # up to 31 members all pairs have masks: there it costs little
HEAD = {"name": str, "phase": str, "digest": msg.SHA256}
everybody = described(f"the text {ALL}", lambda v: v == ALL)
PATTERN = {
    "version": whole,
    "round": msg.hexadecimal(16),
    "members": [PUBLIC],
    "server": (PUBLIC, None),
    "threshold": (at_least_one, everybody),
    "colluding": whole,
    "head": HEAD,
    "max_rows": at_least_one,
    "masks": (described(f"{MASKS}, which this afltool reads", lambda v: v == MASKS), ABSENT),
    **TERMS,
}


@dataclass(frozen=True)
class Series:
    """The place of a round in a session of this digest: ``number`` 1 … ``rounds``."""

    session: str
    number: int
    rounds: int

    @property
    def digest(self) -> str:
        """What the secrets of this round belong to, whichever head it turns out to have."""
        return msg.digest_of({"kind": "round", "session": self.session, "number": self.number})


@dataclass(frozen=True)
class Roster:
    """One round: ``members`` sorted by name, of whom ``threshold`` must stay.

    ``round`` is random, so equal agreements of two rounds have different digests. ``head``: name,
    phase and digest. ``max_rows``: no member has more rows; so every sum fits into int64.
    ``terms``: what is asked of every member's statistics. ``server``: the only one whose requests
    are answered, and who can read the answers. ``colluding``: how many members may work with it or
    with each other. ``all``: all members must stay, and masks have no shares. ``min_rows``: no
    member has fewer rows. ``masks``: the version of the masks, and of the offers. ``series``: which
    round of a session it is. ``path``: its file, for messages.
    """

    round: str
    members: tuple[Member, ...]
    threshold: int
    head: Mapping[str, str]
    max_rows: int
    terms: Terms
    server: Member | None = None
    colluding: int = 0
    all: bool = False
    min_rows: int = 0
    masks: int = 1
    series: Series | None = None
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
        all: bool = False,
    ) -> Roster:
        """A roster with a fresh random number.

        ``threshold`` is `usual_threshold` unless given, and with ``all`` their number.
        """
        check_apart((m.name for m in members), "a roster")  # their systems are not known
        n = len(members)
        usual = n if all else usual_threshold(n, colluding, terms.shares_noise)
        made = cls(
            secrets.token_hex(16),
            tuple(sorted(members)),
            usual if threshold is None else threshold,
            {k: head[k] for k in HEAD},
            most_rows(n, head["phase"]) if max_rows is None else max_rows,
            terms,
            server,
            colluding,
            all,
            masks=MASKS if terms.masked else 1,
        )
        made.check()
        return made

    def check(self) -> None:
        """Refuse a roster that protects no member, or whose sums might not fit into int64."""
        check_keys(self.members, self.server)
        if self.terms.masked and self.server is None:
            raise MismatchError(
                "a roster with masks names its server: give --server NAME.pub (afltool keys new)"
            )
        n, noise = len(self.members), self.terms.shares_noise
        check_threshold(n, self.threshold, self.colluding, noise)
        check_rows(n, self.max_rows, self.head["phase"])

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
            "threshold": ALL if self.all else self.threshold,
            "colluding": self.colluding,
            "head": dict(self.head),
            "max_rows": self.max_rows,
            **({} if self.masks == 1 else {"masks": self.masks}),
            **self.terms.as_dict(),
        }

    @cached_property
    def digest(self) -> str:
        """The digest that members compare over another channel; it is in every message of the
        round. Of a round of a session they compare that of the session."""
        if self.series is not None:
            return msg.digest_of({"kind": "round", "of": self.series.digest, "head": self.head})
        return msg.digest_of(self.as_dict())

    @property
    def compared(self) -> str:
        """The digest that people compare."""
        return self.digest if self.series is None else self.series.session

    @property
    def offered(self) -> str:
        """The digest that secrets and offers are made for, before the head of a round is known."""
        return self.digest if self.series is None else self.series.digest

    def names(self) -> list[str]:
        return [m.name for m in self.members]

    def place(self, name: str) -> int:
        """The place of a member, counted from 1, at which its shares are evaluated."""
        return self.names().index(name) + 1

    @property
    def degree(self) -> int:
        """The least number of members that each has pairwise masks with.

        One more than those whose masks an adversary may know: the ``colluding``, and the members
        whose pairwise secrets a server can open, ⌊(n − t)(n − c)/(t − c)⌋ with requests that differ
        (docs/privacy.md).
        """
        n, t, c = len(self.members), self.threshold, self.colluding
        if self.masks == 1:
            return n - 1
        opened = 0 if self.all else (n - t) * (n - c) // (t - c)
        return min(n - 1, max(LEAST_NEIGHBOURS, opened + c + 1))

    def neighbours(self, name: str) -> set[str]:
        """The members that a member has pairwise masks with: the nearest on the circle of all."""
        names, reach = self.names(), -(-self.degree // 2)
        at = names.index(name)
        return {names[(at + step) % len(names)] for step in range(-reach, reach + 1)} - {name}

    def member(self, name: str, where: str) -> Member:
        """The member of this name; `MismatchError` for a stranger."""
        for member in self.members:
            if member.name == name:
                return member
        raise MismatchError(
            f"{where} is of {name!r}, who is not among the {len(self.members)} members of the "
            f"roster {self.digest[:12]}"
        )

    def check_key(self, me: Identity) -> None:
        """Refuse the private key of a stranger, or of a member with other keys."""
        if self.member(me.name, f"the private key {me.path}") != me.member:
            raise MismatchError(
                f"the roster has other keys for {me.name!r} than {me.path}: it was made with "
                "another public file"
            )

    def check_message(self, where: str, message: msg.Message, digest: str = "") -> msg.Message:
        """The message; refused unless it is for this round (or for what has this ``digest``) and
        signed by the member it names."""
        body, wanted = message.body, digest or self.digest
        member = self.member(body["member"], where)
        if body["roster"] != wanted:
            raise MismatchError(
                f"{where} of {member.name!r} belongs to the roster {body['roster'][:12]}, not to "
                f"{wanted[:12]}: it is of another round, or its maker holds another roster"
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
        self, names: Collection[str], wanted: Collection[str], have: str, why: str = ""
    ) -> None:
        """Refuse fewer members than the threshold; ``have``: what they have done."""
        if len(names) < self.threshold:
            raise MismatchError(
                f"{len(names)} of {len(wanted)} members have {have}, at least {self.threshold} "
                f"must{why}. Missing: {', '.join(repr(n) for n in wanted if n not in names)}"
            )

    def collect(
        self,
        paths: Iterable[str | Path],
        kind: str,
        pattern: Mapping[str, Any],
        check: Callable[[str, msg.Message], None],
        digest: str = "",
    ) -> dict[str, msg.Message]:
        """The messages of a round by member, each checked; refused where a member made two."""
        messages: dict[str, msg.Message] = {}
        for path in msg.files(paths):
            message = self.check_message(str(path), msg.read(path, kind, pattern), digest)
            check(str(path), message)
            member = message.body["member"]
            if messages.setdefault(member, message) != message:
                raise MismatchError(
                    f"{path}: {member!r} has made two different {kind}s; ask which one is valid: "
                    "all members must use the same"
                )
        return messages

    def check_head(self, where: str, binding: Mapping[str, Any]) -> None:
        """Refuse statistics that were gathered for another head or phase than the roster's."""
        for key in ("name", "phase", "digest"):
            if binding.get(key) != self.head[key]:
                raise MismatchError(
                    f"{where} does not fit the roster {self.path}: the {key} of the head is "
                    f"{binding.get(key)!r}, in the roster {self.head[key]!r}"
                )


# ---------------------------------------------------------------- files


def load(path: Path) -> Roster:
    """Read a roster and check what it claims."""
    message = msg.parse(path)
    _check_version(path, message)
    return of_body(msg.message_of(str(path), message, "roster", PATTERN).body, path)


def of_body(body: msg.Body, path: Path) -> Roster:
    """What the body of a roster says, checked."""
    everyone = body["threshold"] == ALL
    roster = Roster(
        body["round"],
        tuple(Member.of(m) for m in body["members"]),
        len(body["members"]) if everyone else body["threshold"],
        {k: body["head"][k] for k in HEAD},
        body["max_rows"],
        Terms.from_dict(body),
        body["server"] and Member.of(body["server"]),
        body["colluding"],
        everyone,
        masks=body.get("masks", 1),
        path=path,
    )
    if list(roster.members) != sorted(roster.members) or not roster.members:
        raise CorruptFileError(f"{path} is damaged: its members are not sorted by name")
    roster.check()
    return roster


def _check_version(path: Path, value: Any) -> None:
    """Refuse a roster of another version; whatever else is wrong is found later."""
    if mismatch(value, msg.SEALED) or value["body"].get("kind") != "roster":
        return
    version = value["body"].get("version", 1)
    if version != VERSION:
        raise CorruptFileError(
            f"{path} is a roster of version {version!r}; this afltool reads version {VERSION}, in "
            "which it names the server and the protection: make a new one (afltool roster), and "
            "compare its digest again"
        )
