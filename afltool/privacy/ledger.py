"""What a member has masked in all its rounds: the same rows twice are two sums to subtract."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import CorruptFileError, MismatchError
from ..files.atomic import write_once
from . import messages as msg
from .identity import Identity, derive
from .offers import ANSWERED, FORGOTTEN, RoundFolder, rounds_of


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
        if first != round_.roster.digest:
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
            write_once(self._place(content), round_.roster.digest.encode())
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
