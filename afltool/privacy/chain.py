"""A member's secrets of all rounds of a session: a chain of keys, of which the past is deleted.

The first key is drawn. Key r gives the two secrets of round r and key r + 1, by HKDF. So the
secrets of a round tell nothing of another one, and who finds key r learns nothing of rounds before.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..errors import MismatchError
from ..files.atomic import delete, write_once
from ..values.digest import canonical_json
from . import messages as msg
from .identity import Identity, derive

PREFIX = "secrets-"  # and the round whose key it is
PURPOSES = ("mask", "self")  # X25519 key of the pairwise masks, seed of the own mask


def next_key(key: bytes, session: str, number: int) -> bytes:
    """Key ``number`` + 1 from key ``number``."""
    return derive(key, bytes.fromhex(session), "session", "next", str(number))


def of_round(key: bytes, session: str, number: int) -> list[bytes]:
    """The secrets of round ``number`` from its key, in the order of `PURPOSES`."""
    salt = bytes.fromhex(session)
    return [derive(key, salt, "session", purpose, str(number)) for purpose in PURPOSES]


@dataclass(frozen=True)
class Chain:
    """The private files of a session: one key, encrypted with the member's, and its offer."""

    folder: Path
    session: str
    rounds: int
    me: Identity

    def offer(self, make: Callable[[list[list[bytes]]], msg.Message]) -> msg.Message:
        """The offer of all rounds: at the first call ``make`` makes it of their secrets."""
        path, first = self.folder / "offer", self._place(1)
        if not path.exists():
            if not first.exists():
                key = secrets.token_bytes(32)
                record = {"key": key.hex(), "offer": make(self._every(key)).as_dict()}
                write_once(first, self.me.lock(record, "chain"))
            found = self.me.unlock(first, first.read_bytes(), "chain")
            write_once(path, canonical_json(found["offer"]).encode())
        found = msg.parse(path)
        return msg.Message(found["body"], found["signature"])

    def _every(self, key: bytes) -> list[list[bytes]]:
        found = []
        for number in range(1, self.rounds + 1):
            found.append(of_round(key, self.session, number))
            key = next_key(key, self.session, number)
        return found

    def secrets(self, number: int) -> list[bytes]:
        """The secrets of a round; refused for one before a round that was masked or is over."""
        return of_round(self._key(number), self.session, number)

    def _key(self, number: int) -> bytes:
        kept = self._kept()
        if not kept or number < kept[-1]:
            raise MismatchError(
                f"{self.me.name!r} has no secrets of round {number} of the session "
                f"{self.session[:12]}: "
                + (f"it is at round {kept[-1]}, and" if kept else "it has made no offer, or")
                + " secrets of rounds that are over are deleted; rounds only go on"
            )
        path = self._place(kept[-1])
        key = bytes.fromhex(self.me.unlock(path, path.read_bytes(), "chain")["key"])
        for one in range(kept[-1], number):
            key = next_key(key, self.session, one)
        return key

    def go_on(self, number: int) -> None:
        """From now on only round ``number`` and later ones are possible."""
        kept = self._kept()
        if kept and number > kept[-1] and number <= self.rounds:
            key = {"key": self._key(number).hex()}
            write_once(self._place(number), self.me.lock(key, "chain"))
        for one in kept:
            if one < number:
                delete(self._place(one))

    def _kept(self) -> list[int]:
        """The rounds whose keys are there: one, or two where a step was killed."""
        names = (p.name.removeprefix(PREFIX) for p in self.folder.glob(f"{PREFIX}*"))
        return sorted(int(name) for name in names if name.isdigit())

    def _place(self, number: int) -> Path:
        return self.folder / f"{PREFIX}{number}"
