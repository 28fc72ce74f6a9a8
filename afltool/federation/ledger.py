"""What a site has summed over all sessions: two sums with and without a member tell it exactly.

A private folder of the site, beside its configuration and not beside a key:

    key                 of the hashes of rows
    SESSION/people-NNN  who was in the sums of a round that were opened
    SESSION/rows        which rows of this site
    SESSION/NNN-KIND-…  the digest of what was sent: a folder that was restored sends nothing else
    SESSION/rho         what a session with noise has spent, whatever its rows

Rows are known by what they are before any scaling, whatever their order, file or classes. In
another number format they cannot be compared, and count as the same if they have as many features.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MismatchError
from ..files.atomic import write_once
from ..files.locks import one_at_a_time
from ..inputs import read_json
from .agreement import Agreement
from .envelope import canonical
from .rows import Raw

Hashes = NDArray[np.uint64]
UNSIGNED = np.dtype("<u8")


@dataclass(frozen=True)
class Ledger:
    """``again``: rows may be in sums of other sites, too, if that exposes nobody nearly alone."""

    folder: Path
    again: bool = False

    def hashes(self, agreed: Agreement, blocks: Iterable[Raw]) -> tuple[Hashes, bytes]:
        """The keyed hash of each row, sorted, and one of all rows with the names of their classes.

        A gram is the same whatever the classes are, so the ledger has the rows alone.
        """
        key, found, labeled = self._key(), list[bytes](), list[bytes]()
        names = [f"\0{name}".encode() for name in agreed.classes]
        for X, y in blocks:
            kind = "<i2" if X.dtype.kind in "iu" else "<f8"
            for row, label in zip(np.ascontiguousarray(X, kind), y.tolist(), strict=True):
                found.append(hashlib.blake2b(row.tobytes(), key=key, digest_size=8).digest())
                labeled.append(found[-1] + names[label % len(names)])
        digest = hashlib.sha256(b"".join(sorted(labeled))).digest()
        return np.sort(np.frombuffer(b"".join(found), UNSIGNED)), digest

    def check(self, agreed: Agreement, inside: Iterable[str], rows: Hashes) -> None:
        """Refuse sums that with earlier ones would tell of few members more than they allow."""
        now = {agreed.people[name].key: name for name in inside}
        paths = sorted(self.folder.glob("*/people-*"))
        known = {p: read_json(p, "a session of the ledger") for p in paths}
        follows = {p.parent.name: before["follows"] for p, before in known.items()}
        for path, before in known.items():
            if path.parent.name == agreed.digest:
                continue
            left = {c.key for c in agreed.consents if path.parent.name in _line(c.session, follows)}
            theirs = np.frombuffer(path.with_name("rows").read_bytes(), UNSIGNED)
            (dim, bits), here = before["format"], _format(agreed)
            uncertain = dim == here[0] and bits != here[1]
            overlap = len(rows) if uncertain else len(np.intersect1d(rows, theirs))
            apart = now.keys() ^ before["people"].keys()
            if agreed.follows == path.parent.name:
                apart -= now.keys()  # who joins has agreed to this, whose text names the other
            if overlap and (alone := sorted({**before["people"], **now}[k] for k in apart - left)):
                self._refuse(agreed, before, path.parent.name, overlap, len(rows), alone)

    def _refuse(
        self,
        agreed: Agreement,
        before: Mapping[str, Any],
        session: str,
        overlap: int,
        rows: int,
        alone: list[str],
    ) -> None:
        what = (
            f"{overlap} of the {rows} rows of this site are, or may be, in the sums of the session "
            f"{session[:12]}, too; with both sums the sum of {', '.join(alone)} is known"
        )
        if len(alone) <= max(agreed.colluding, before["colluding"]) + 1:
            raise MismatchError(
                f"{what} nearly alone: each must sign that it leaves, and the session must follow "
                "that one (session leave)"
            )
        if not self.again:
            raise MismatchError(f"{what}: --again says that you accept it")

    def claim(self, agreed: Agreement, number: int, inside: Iterable[str], rows: Hashes) -> None:
        """Write down, before a sum can be opened, that these rows are in it."""
        people = {agreed.people[name].key: name for name in sorted(inside)}
        content = {"people": people, "colluding": agreed.colluding, "format": _format(agreed),
                   "follows": agreed.follows}  # fmt: skip
        self._key()
        with one_at_a_time(self.folder):
            self.check(agreed, people.values(), rows)
            self._once(f"{agreed.digest}/rows", rows.tobytes())
            self._once(f"{agreed.digest}/people-{number}", canonical(content))

    def note(self, agreed: Agreement, name: str, digest: str) -> None:
        """Refuse another message than the one that was sent by this name before."""
        if self._once(f"{agreed.digest}/{name}", digest.encode()) != digest.encode():
            raise MismatchError(
                f"another {name} has left this site before: its folder was restored from a backup; "
                "this session is over for this site"
            )

    def spend(self, agreed: Agreement, rho: float) -> None:
        self._once(f"{agreed.digest}/rho", repr(rho).encode())

    def spent(self) -> float:
        """Σ ρ of all sessions with noise: what they tell together is ρ-zCDP."""
        return sum(float(path.read_bytes()) for path in sorted(self.folder.glob("*/rho")))

    def _key(self) -> bytes:
        return self._once("key", secrets.token_bytes(32))

    def _once(self, name: str, data: bytes) -> bytes:
        return write_once(self.folder / name, data)


def _format(agreed: Agreement) -> list[int | None]:
    """Features of a row, and the fraction bits of their numbers; None for raw ones."""
    bits = agreed.space["fraction_bits"] if agreed.scale is None else None
    return [agreed.space["dim"], bits]


def _line(session: str, follows: Mapping[str, str]) -> Iterator[str]:
    """A session that somebody has left, and those that it follows."""
    while session:
        yield session
        session = follows.get(session, "")
