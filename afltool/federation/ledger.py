"""What a site has summed over all sessions: two sums with and without a member tell it exactly.

A private folder of the site, beside its configuration and not beside a key:

    key                      of the hashes of rows
    SESSION/SHA/rows         which rows of this site: several of its members may be in a session
    SESSION/SHA/people-NNN   who was in the sums of a round that were opened
    SESSION/NNN-KIND-…       the digest of what was sent: a restored folder sends nothing else
    SESSION/rho              what a session with noise has spent, whatever its rows

Rows are known by what they are before any scaling, whatever their order, file or classes. In
another number format they cannot be compared, and count as the same if they have as many features.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

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
        key = write_once(self.folder / "key", secrets.token_bytes(32))
        found, labeled = list[bytes](), list[bytes]()
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
        paths = sorted(self.folder.glob("*/*/people-*"))
        known = [(p, p.parts[-3], read_json(p, "a session of the ledger")) for p in paths]
        follows = {session: before["follows"] for _, session, before in known}
        for path, session, before in known:
            left = {c.key for c in agreed.consents if session in _line(c.session, follows)}
            apart = (now.keys() ^ before["people"].keys()) - left
            if agreed.follows == session:
                apart -= now.keys()  # who joins has agreed to this, whose text names the other
            overlap = _overlap(agreed, rows, before["format"], path.with_name("rows"))
            if session == agreed.digest or not apart or not overlap:
                continue
            names = ", ".join(sorted({**before["people"], **now}[key] for key in apart))
            what = (
                f"{overlap} of the {len(rows)} rows of this site are, or may be, in the sums of "
                f"the session {session[:12]}, too; with both sums the sum of {names} is known"
            )
            if len(apart) <= max(agreed.colluding, before["colluding"]) + 1:
                raise MismatchError(
                    f"{what} nearly alone: each must sign that it leaves, and the session must "
                    "follow that one (session leave)"
                )
            if not self.again:
                raise MismatchError(f"{what}: --again says that you accept it")

    def claim(self, agreed: Agreement, number: int, inside: Iterable[str], rows: Hashes) -> None:
        """Write down, before a sum can be opened, that these rows are in it."""
        people = {agreed.people[name].key: name for name in sorted(inside)}
        content = {"people": people, "colluding": agreed.colluding, "format": _format(agreed),
                   "follows": agreed.follows}  # fmt: skip
        where = f"{agreed.digest}/{hashlib.sha256(rows.tobytes()).hexdigest()[:32]}"
        with one_at_a_time(self.folder):
            self.check(agreed, people.values(), rows)
            write_once(self.folder / where / "rows", rows.tobytes())
            write_once(self.folder / where / f"people-{number}", canonical(content))

    def note(self, agreed: Agreement, name: str, digest: str) -> None:
        """Refuse another message than the one that was sent by this name before."""
        known = write_once(self.folder / agreed.digest / name, digest.encode())
        if known != digest.encode():
            raise MismatchError(
                f"another {name} has left this site before: its folder was restored from a backup; "
                "this session is over for this site"
            )

    def spend(self, agreed: Agreement, rho: float) -> None:
        write_once(self.folder / agreed.digest / "rho", repr(rho).encode())

    def spent(self) -> float:
        """Σ ρ of all sessions with noise: what they tell together is ρ-zCDP."""
        return sum(float(path.read_bytes()) for path in sorted(self.folder.glob("*/rho")))


def _format(agreed: Agreement) -> list[int | None]:
    """Features of a row, and the fraction bits of their numbers; None for raw ones."""
    bits = agreed.space["fraction_bits"] if agreed.scale is None else None
    return [agreed.space["dim"], bits]


def _overlap(agreed: Agreement, rows: Hashes, of: list[int | None], path: Path) -> int:
    """How many rows are, or may be, among those in a file; ``of``: their format."""
    (dim, bits), here = of, _format(agreed)
    if dim == here[0] and bits != here[1]:
        return len(rows)
    return len(np.intersect1d(rows, np.frombuffer(path.read_bytes(), UNSIGNED)))


def _line(session: str, follows: Mapping[str, str]) -> Iterator[str]:
    """A session that somebody has left, and those that it follows."""
    while session:
        yield session
        session = follows.get(session, "")
