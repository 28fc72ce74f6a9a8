"""The server: it says who is in each round, and otherwise does what all do."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import MismatchError
from ..files.atomic import delete, write_once
from .agreement import LARGEST, Agreement
from .envelope import canonical
from .keys import Keys
from .masking import check_offer, public_of
from .place import Carrier
from .session import SESSION, Replica
from .vectors import packed

FINISHED = "finished"  # who has signed the end; then the key of the session is deleted


class Server(Replica):
    """``deadline``: seconds after which a step goes on without those who are late, if the
    threshold allows it; None: never. See `Replica.turn`."""

    deadline: float | None = None

    def __init__(self, place: Carrier, folder: Path, agreed: Agreement, me: Keys) -> None:
        super().__init__(place, folder, agreed, me)
        self._came = dict[tuple[int, str], str]()  # digests of what was read
        if me.party != agreed.server:
            raise MismatchError(f"the key of {me.name!r} is not that of the session's server")

    def go_on(self) -> str:
        if (self.folder / FINISHED).exists():
            return ""
        keys = write_once(self.folder / "group-key", secrets.token_bytes(64))
        self.box.group, self.opening = keys[:32], X25519PrivateKey.from_private_bytes(keys[32:])
        self.publish(keys[:32] + public_of(keys[32:]))
        if waits := self.close(0):
            return waits
        number = self.known()
        while True:
            head = self.head(number)
            if number > 1 and self.task(number - 1) is self.head(number - 1):
                self.post("head", number, partial(packed, self.head(number - 1), head))
            if self.task(number) is None:
                return self.end(number)
            if waits := self.close(number):
                return waits
            total = self.total(number)
            if isinstance(total, str):
                return total
            if not self.agreed.masked:
                self.post("total", number, self.layout(number).joined(total).tobytes)
            self.keep_head(number + 1, self.solve(number, total))
            number += 1

    def publish(self, keys: bytes) -> None:
        """The agreement, and for each member the keys of the session."""
        there, begun = self.place.read(SESSION, LARGEST), (self.folder / "sent").exists()
        if there not in (None, b"", self.agreed.text) and not begun:
            raise MismatchError(f"{self.place.url} holds another session: take an empty place")
        if there != self.agreed.text:
            self.place.write(SESSION, self.agreed.text)
        self.begin_heads()
        for member in self.agreed.members:
            self.post("key", self.agreed.places[member.name], lambda: keys, member.agreeing)

    def to_mend(self) -> list[Path]:
        """Also what members have sent and is counted, should they put something else there."""
        return [*super().to_mend(), *sorted((self.folder / "taken").glob("[0-9]*"))]

    def box_key(self, kind: str) -> X25519PrivateKey | None:
        return self.opening if kind == "sums" and not self.agreed.masked else None

    # ------------------------------------------------------------ who is in a round

    def close(self, number: int) -> str:
        """Who is in a round: all who were in the one before, after the deadline those who came."""
        if not self.path_of("close", number, self.me.name).exists():
            before = self.closed(number - 1) if number else self.agreed.places
            assert before is not None
            came = {name: digest for name in before if (digest := self.arrived(number, name))}
            late = [name for name in before if name not in came]
            enough = len(came) >= self.agreed.threshold or self.overlaps(number)
            if late and not (self.is_over() and enough):
                return f"the {'sums' if number else 'hello'} of {', '.join(late)} in round {number}"
            said = {"before": self.close_digest(number - 1), "members": came}
            self.post("close", number, lambda: canonical(said))
        self.closed(number)  # raises where the session has ended
        return ""

    def arrived(self, number: int, name: str) -> str:
        """The digest of a member's message of a round, '' where it has not come whole."""
        if (number, name) not in self._came:
            kind, check = "sums" if number else "hello", partial(self.check_sums, number)
            found = self.take(kind, number, name, check=check if number else self.check_hello)
            if found is None:
                return ""
            self._came[number, name] = found.digest
        return self._came[number, name]

    def check_sums(self, number: int, data: bytes) -> None:
        layout = self.layout(number)
        if offer := data[8 * layout.size :]:
            check_offer(self.agreed, offer)
        if not self.agreed.masked:
            layout.check(np.frombuffer(data, "<i8", layout.size), self.agreed.max_rows)

    def is_over(self) -> bool:
        sent = [p.stat().st_mtime for p in (self.folder / "sent").iterdir()]
        return self.deadline is not None and time.time() - max(sent) >= self.deadline

    def end(self, number: int) -> str:
        """Sign the end, and wait until all who were in the last round have; then forget the key."""
        self.post("done", number, lambda: self.result(number))
        inside: Mapping[str, str] = self.closed(number - 1) or {}
        signed = {name: self.done(number, name) for name in inside}
        if wrong := [name for name, same in signed.items() if same is False]:
            self.say(f"{', '.join(wrong)} signed another end of the session")
        late = [name for name, same in signed.items() if same is None]
        if late and not self.is_over():
            return f"{', '.join(late)} to sign the end"
        write_once(self.folder / FINISHED, canonical([n for n in signed if signed[n]]))
        delete(self.folder / "group-key")
        if late:
            self.say(f"{', '.join(late)} have not signed the end")
        return ""
