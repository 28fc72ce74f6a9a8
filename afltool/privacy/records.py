"""What a member keeps beside its key over all its rounds: what it has masked, and drawn as noise.

The same rows masked twice are two sums to subtract. Two releases with the same noise reveal their
difference exactly, and the same release with other noise halves what protects it. So each release
has a random number of its own, which is kept together with everything that the release depends on.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, MismatchError
from ..files.atomic import write_once
from ..values.differences import difference
from ..values.digest import canonical_json
from . import messages as msg
from .identity import Identity, derive
from .offers import ANSWERED, FORGOTTEN, NOISE, RoundFolder, rounds_of

WHAT = "release"


@dataclass(frozen=True)
class Ledger:
    """One file for each statistics that were masked, beside the member's private key.

    Its name is a digest of what they are under the member's key, so it tells others nothing; it
    holds the digest of the first roster they were masked for. A file is written once and whole.
    """

    folder: Path
    me: Identity

    @classmethod
    def of(cls, me: Identity) -> Ledger:
        return cls(rounds_of(me) / "masked", me)

    def check(self, content: str, round_: RoundFolder, again: bool) -> None:
        """Refuse what was masked for another roster; ``content``: which rows, for which round."""
        path = self._place(content)
        if again or not path.exists() or self._used(round_):
            return
        first = path.read_text("ascii", "replace")
        if not msg.SHA256(first):
            raise CorruptFileError(f"{path} is damaged: it holds no digest of a roster")
        if first != round_.roster.offered:
            raise MismatchError(
                f"{self.me.name!r} has masked the same rows before, for the same round of a head "
                f"and the roster {first[:12]}. Whoever learns the sums of both rounds, and their "
                "members differ by one, knows the statistics of that one: one sum less the other. "
                f"{self._told(first)}. If the other round never came to a sum, or has the same "
                "members until its end, give --again"
            )

    def claim(self, content: str, round_: RoundFolder, again: bool) -> None:
        """`check`, with the record that they are masked now."""
        if not self._used(round_):
            write_once(self._place(content), round_.roster.offered.encode())
            self.check(content, round_, again)

    def _told(self, first: str) -> str:
        """What the member knows of the other round, whose roster has the digest ``first``."""
        folder = rounds_of(self.me) / first[:32]
        if (folder / ANSWERED).exists():
            return "It has answered there, so the server may have that sum, whatever it says"
        done = (folder / FORGOTTEN).exists()
        return "It has not answered there" + (" and no longer can" if done else "")

    @staticmethod
    def _used(round_: RoundFolder) -> bool:
        """Whether the round has masked: then its own record says what may be masked in it."""
        return (round_.folder / "used").exists()

    def _place(self, content: str) -> Path:
        return self.folder / derive(self.me.private_key("ledger"), b"", "masked", content).hex()


@dataclass(frozen=True)
class Release:
    """One release: ``context`` is everything that it depends on, ``nonce`` its 32 random bytes."""

    context: Mapping[str, Any]
    nonce: bytes

    @classmethod
    def of(cls, me: Identity, folder: Path, context: Mapping[str, Any]) -> Release:
        """The release of a context: its number is drawn at the first call, the same one later.

        The record lies below ``folder``, and is on the disk before the number is used. Its name and
        its bytes tell nothing without the private key.

        Raises `CorruptFileError`: a record that is damaged, or of another release or key.
        """
        text = canonical_json(context)
        name = derive(me.private_key(WHAT), text.encode(), "name").hex()[:32]
        path = folder / NOISE / name
        drawn = {"context": json.loads(text), "nonce": secrets.token_hex(32)}
        data = path.read_bytes() if path.exists() else write_once(path, me.lock(drawn, WHAT))
        return cls._checked(path, drawn["context"], me.unlock(path, data, WHAT))

    @classmethod
    def _checked(cls, path: Path, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Release:
        if where := difference(found["context"], wanted, "in the file", "now"):
            raise CorruptFileError(
                f"{path} records the noise of another release, which is used for nothing else: "
                f"{where}; bring the file back to where it was"
            )
        return cls(wanted, bytes.fromhex(found["nonce"]))

    def key(self) -> bytes:
        """The key of the noise."""
        return derive(self.nonce, canonical_json(self.context).encode(), "noise")
