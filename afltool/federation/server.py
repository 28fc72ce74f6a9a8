"""The server: it says who is in each round, and otherwise does what all do."""

from __future__ import annotations

import secrets
import time
from functools import partial
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import MismatchError
from ..files.atomic import delete, write_once
from .agreement import LARGEST, Agreement
from .envelope import canonical
from .keys import Keys
from .masking import public_of
from .place import Place
from .session import SESSION, Replica, Waiting
from .vectors import packed

FINISHED = "finished"  # who has signed the end; then the key of the session is deleted


class Server(Replica):
    """``deadline``: seconds after which a step goes on without those who are late, if the
    threshold allows it; None: never. See `Replica.turn`."""

    deadline: float | None = None
    mended = ("sent", "taken")  # also what is counted, should a member put something else there

    def __init__(self, place: Place, folder: Path, agreed: Agreement, me: Keys) -> None:
        super().__init__(place, folder, agreed, me)
        if me.party != agreed.server:
            raise MismatchError(f"the key of {me.name!r} is not that of the session's server")

    def go_on(self) -> None:
        if not (self.folder / FINISHED).exists():
            self.play()
        delete(self.folder / "group-key")

    def play(self) -> None:
        keys = write_once(self.folder / "group-key", secrets.token_bytes(64))
        self.box.group = keys[:32]
        if not self.agreed.masked:
            self.private["sums"] = X25519PrivateKey.from_private_bytes(keys[32:])
        self.publish(keys[:32] + public_of(keys[32:]))
        self.close(0)
        number = self.known()
        while True:
            head = self.head(number)
            if number > 1 and self.task(number - 1) is self.head(number - 1):
                self.post("head", number, partial(packed, self.head(number - 1), head))
            if self.task(number) is None:
                break
            self.close(number)
            total = self.total(number)
            if not self.agreed.masked:
                self.post("total", number, self.layout(number).joined(total).tobytes)
            self.keep_head(number + 1, self.solve(number, total))
            number += 1
        self.end(number)

    def publish(self, keys: bytes) -> None:
        """The agreement, and for each member the keys of the session."""
        there, begun = self.place.read(SESSION, LARGEST), (self.folder / "sent").exists()
        if there not in (None, b"", self.agreed.text) and not begun:
            raise MismatchError(f"{self.place.url} holds another session: take an empty place")
        if there != self.agreed.text:
            self.place.write(SESSION, self.agreed.text)
        for member in self.agreed.members:
            self.post("key", self.agreed.places[member.name], lambda: keys, member.agreeing)

    # ------------------------------------------------------------ who is in a round

    def close(self, number: int) -> None:
        """Who is in a round: all who were in the one before, after the deadline those who came."""
        if not self.path_of("close", number, self.me.name).exists():
            before, kind = self.closed(number - 1), "sums" if number else "hello"
            paths = {name: self.path_of(kind, number, name) for name in before}
            came = [n for n, path in paths.items() if path.exists() or self.take(kind, number, n)]
            late = [name for name in before if name not in came]
            enough = len(came) >= self.agreed.threshold or self.overlaps(number)
            if late and not (self.is_over() and enough):
                raise Waiting(f"the {kind} of {', '.join(late)} in round {number}")
            digests = {name: sha256(paths[name].read_bytes()).hexdigest() for name in came}
            said = {"before": self.close_digest(number - 1), "members": digests}
            self.post("close", number, lambda: canonical(said))
        self.closed(number)  # raises where the session has ended

    def is_over(self) -> bool:
        sent = [p.stat().st_mtime for p in (self.folder / "sent").iterdir()]
        return self.deadline is not None and time.time() - max(sent) >= self.deadline

    def end(self, number: int) -> None:
        """Sign the end, and wait until all who were in the last round have."""
        self.post("done", number, lambda: self.result(number))
        signed = {name: self.done(number, name) for name in self.closed(number - 1)}
        if wrong := [name for name, same in signed.items() if same is False]:
            self.say(f"{', '.join(wrong)} signed another end of the session")
        if late := [name for name, same in signed.items() if same is None]:
            if not self.is_over():
                raise Waiting(f"{', '.join(late)} to sign the end")
            self.say(f"{', '.join(late)} have not signed the end")
        write_once(self.folder / FINISHED, canonical([n for n in signed if signed[n]]))
