"""Messages of one party: written once before they leave, sent again when lost, read with limits."""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import AflError, CorruptFileError, MismatchError, UnreachableError
from ..files.atomic import write_once
from ..progress import log
from .agreement import Agreement
from .envelope import OVERHEAD, Box, Envelope, name_of
from .keys import Keys
from .place import Carrier

VARIABLE = {"close": 1 << 20, "done": 1 << 16, "head": 0}  # payloads of at most a known size
Check = Callable[[bytes], None]


class Messages(ABC):
    """What a party has ``sent`` and ``taken``: files of its ``folder`` that never change."""

    def __init__(self, place: Carrier, folder: Path, agreed: Agreement, me: Keys) -> None:
        self.place, self.folder, self.agreed, self.me = place, folder, agreed, me
        self.box, self._said, self._mended = Box(agreed.digest, me), set[str](), False
        if me.party not in agreed.people.values():
            raise MismatchError(f"the key of {me.name!r} is not that of the session")

    def turn(self) -> str:
        """Do what can be done now; returns what is waited for, '' at the end.

        Raises `IncompleteError` where the session has ended without a head, or goes on without this
        member; `MismatchError` where somebody broke the rules in a way that cannot be passed over;
        `UnreachableError` where the place does not answer: later the same call goes on.
        """
        session = self.agreed.digest.encode()
        if write_once(self.folder / "of-session", session) != session:
            raise MismatchError(f"{self.folder} is of another session: take a folder of its own")
        self.mend()
        return self.go_on()

    @abstractmethod
    def go_on(self) -> str:
        """`turn`, after what was lost is there again."""

    @abstractmethod
    def known(self) -> int:
        """The newest round whose head is here."""

    @abstractmethod
    def payload_size(self, kind: str, number: int) -> int:
        """Bytes of a payload, whose reader knows them beforehand; of some kinds the most."""

    def run(self, poll: float = 5.0, report: Callable[[str], None] = log.info) -> None:
        """Turns until the end; ``report`` gets each new line of what is waited for."""
        while True:
            try:
                waits = self.turn()
            except UnreachableError as error:
                waits = f"the place: {error}"
            if not waits:
                return
            self.say(f"waiting for {waits}", report)
            time.sleep(poll)

    def say(self, text: str, report: Callable[[str], None] = log.info) -> None:
        if text not in self._said:
            self._said.add(text)
            report(text)

    def path_of(self, kind: str, number: int, sender: str) -> Path:
        own = "sent" if sender == self.me.name else "taken"
        return self.folder / own / name_of(kind, number, sender)

    def post(self, kind: str, number: int, make: Callable[[], bytes], to: bytes = b"") -> str:
        """Send a message, made only once; returns its digest."""
        path = self.path_of(kind, number, self.me.name)
        if not path.exists():
            data = self.box.seal(kind, number, make(), to)
            there = self.place.read(path.name, len(data) + VARIABLE.get(kind, 0))
            if there is not None and self.box.is_mine(kind, number, there):
                raise MismatchError(
                    f"{self.place.url} has {path.name}, signed by you, and {self.folder} does not "
                    "know it: it was restored from a backup, or another copy of your key takes "
                    "part; this session is over for this site"
                )
            write_once(path, data)
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.before_sending(path.name, digest)
        self._send(path)
        return digest

    def before_sending(self, name: str, digest: str) -> None:  # noqa: B027
        """What a member does between writing a message and sending it."""

    def _send(self, path: Path) -> None:
        if self.place.size(path.name) != path.stat().st_size:
            self.place.write(path.name, path.read_bytes())

    def mend(self) -> None:
        """Send again what the place has lost: at first of every round, then of the newest ones.

        What a reader finds to be rubbish it empties, so that a look at the sizes is enough.
        """
        newest = self.known() - 1
        for path in self.to_mend():
            if not self._mended or int(path.name.partition("-")[0]) >= newest:
                self._send(path)
        self._mended = True

    def to_mend(self) -> list[Path]:
        return sorted((self.folder / "sent").glob("[0-9]*"))

    def take(
        self,
        kind: str,
        number: int,
        sender: str,
        digest: str = "",
        size: int | None = None,
        check: Check | None = None,
    ) -> Envelope | None:
        """A message of somebody if it has come and is whole, kept; what is not counts as not there.

        ``digest``: which one counts; else the first one. ``size``: of its payload, if another than
        that of its kind. ``check``: raises an `AflError` for one that is of no use.
        """
        path = self.path_of(kind, number, sender)
        size = self.payload_size(kind, number) if size is None else size
        kept = path.exists()
        data = path.read_bytes() if kept else self.place.read(path.name, size + OVERHEAD)
        if data is None:
            return None
        try:
            person = self.agreed.people[sender]
            found = self.box.open(kind, number, person, data, self.box_key(kind))
            if kind not in VARIABLE and len(found.payload) != size:
                raise CorruptFileError("another length")
            if digest not in ("", found.digest):
                raise CorruptFileError("not the one that the server has counted")
            if check is not None:
                check(found.payload)
        except AflError as error:
            self.say(f"the {kind} of {sender!r} in round {number} counts as not there: {error}")
            if data and not kept:  # so that whoever has the right one sends it again
                with suppress(AflError):
                    self.place.write(path.name, b"")
            return None
        if not kept:
            write_once(path, data)
        return found

    def box_key(self, kind: str) -> X25519PrivateKey | None:
        """My key for messages that are for one reader alone."""
        return self.me.agreeing if kind == "key" else None
