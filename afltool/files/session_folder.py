"""The folder of a session: the one place that names its files, for members, server and courier.

Round r is counted from 1: head r is the head that round r gathers for.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..values.names import file_of_name, file_stem


@dataclass(frozen=True)
class SessionFolder:
    """Paths below ``root``."""

    root: Path

    @property
    def session(self) -> Path:
        """What all agree on."""
        return self.root / "session.json"

    @property
    def offers(self) -> Path:
        return self.root / "offers"

    def offer(self, member: str) -> Path:
        return self.offers / f"offer-{file_stem(member)}.json"

    def head(self, number: int) -> Path:
        """The head that a round gathers for."""
        return self.root / f"head-{number}.h5"

    def round(self, number: int) -> Path:
        return self.root / f"round-{number}"

    def statistics(self, number: int, member: str) -> Path:
        """What a member sends in a round; the folder is for nothing else."""
        return self.round(number) / "statistics" / file_of_name(member)

    def total(self, number: int) -> Path:
        """The sum; the server's request and its signed message lie beside it."""
        return self.round(number) / "total.h5"

    def signed(self, number: int) -> Path:
        """What the server has signed of the sum."""
        return self.round(number) / "total.signed.json"

    def kept(self, member: str) -> Path:
        """A member's own counts, which never leave it; the folder is for nothing else."""
        return self.root / "kept" / file_of_name(member)

    def request(self, number: int) -> Path:
        return self.round(number) / "total.request.json"

    def reveal(self, number: int, member: str) -> Path:
        return self.round(number) / "reveals" / f"reveal-{file_stem(member)}.json"
