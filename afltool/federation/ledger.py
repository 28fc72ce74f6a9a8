"""What a site has summed over all sessions: two sums with and without a member tell it exactly.

A private folder of the site, beside its configuration and not beside a key:

    key                      of the hashes of rows
    SESSION/SHA/rows         which rows of this site: several of its members may be in a session
    SESSION/SHA/people-NNN   who was in the sums of a round that were opened
    SESSION/NNN-KIND-…       the digest of what was sent: a restored folder sends nothing else
    SESSION/rho              what a session with noise has spent, whatever its rows

Rows are known by what they are before any scaling, whatever their order, file or classes; in
another format they count as the same. The same members tell nothing new, unless rows changed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec import Struct, to_builtins
from numpy.typing import NDArray

from ..errors import MismatchError
from ..files.atomic import write_once
from ..files.locks import alone
from .agreement import Agreement
from .keys import canonical, read_typed
from .rows import Raw

Hashes = NDArray[np.uint64]
Names = Iterable[str]


class Summed(Struct, frozen=True, forbid_unknown_fields=True):
    """A round whose sum was opened, or may have been."""

    people: dict[str, str]  # keys of its members, and their names
    format: tuple[int, int | None]  # features of a row, fraction bits of their numbers; raw: None
    labels: str  # digest of the rows with the names of their classes
    classes: tuple[str, ...]
    colluding: int
    follows: str

    @classmethod
    def of(cls, agreed: Agreement, inside: Names, labels: bytes) -> Summed:
        people = {agreed.people[name].key: name for name in sorted(inside)}
        bits = agreed.space["fraction_bits"] if agreed.scale is None else None
        form = agreed.space["dim"], bits
        return cls(people, form, labels.hex(), agreed.classes, agreed.colluding, agreed.follows)


@dataclass(frozen=True)
class Ledger:
    """``again``: rows may be in sums of other sites, too, if that exposes nobody nearly alone."""

    folder: Path
    again: bool = False

    def hashes(self, agreed: Agreement, blocks: Iterable[Raw]) -> tuple[Hashes, bytes]:
        """The keyed hash of each row, sorted, and one of all rows with the names of classes."""
        key = write_once(self.folder / "key", secrets.token_bytes(32))
        found, labeled = list[bytes](), list[bytes]()
        names = [f"\0{name}".encode() for name in agreed.classes]
        for X, y in blocks:
            kind = "<i2" if X.dtype.kind in "iu" else "<f8"
            for row, label in zip(np.ascontiguousarray(X, kind), y.tolist(), strict=True):
                found.append(hashlib.blake2b(row.tobytes(), key=key, digest_size=8).digest())
                labeled.append(found[-1] + names[label % len(names)])
        digest = hashlib.sha256(b"".join(sorted(labeled))).digest()
        return np.sort(np.frombuffer(b"".join(found), "<u8")), digest

    def check(self, agreed: Agreement, inside: Names, rows: Hashes, labels: bytes = b"") -> None:
        """Refuse sums that with earlier ones would tell of few members, or of changed rows.

        ``rows``, ``labels``: as `hashes` has them.
        """
        now = Summed.of(agreed, inside, labels)
        rounds = {
            path: read_typed(Summed, path) for path in sorted(self.folder.glob("*/*/people-*"))
        }
        follows = {path.parts[-3]: before.follows for path, before in rounds.items()}
        goes_on = agreed.follows not in follows  # or whose consents would count there, too?
        # A scale follows from the rows of all sites, and other groups may differ in a few rows.
        moves = agreed.scale is not None or (agreed.evaluation and agreed.evaluation.groups)
        for path, before in rounds.items():
            session = path.parts[-3]
            summed = np.frombuffer(path.with_name("rows").read_bytes(), "<u8")
            left = {c.key for c in agreed.consents if session in _line(c.session, follows)}
            apart = (now.people.keys() ^ before.people.keys()) - left
            if agreed.follows == session:
                apart -= now.people.keys()  # who joins has agreed to this, whose text names it
            alike = now.format == before.format
            overlap = int(np.isin(rows, summed).sum())
            if not alike and now.format[0] == before.format[0]:
                overlap = len(rows)  # in other numbers nobody can tell
            goes_on |= session == agreed.follows and alike and overlap > 0
            if session == agreed.digest or not overlap:
                continue
            changed = not alike or not np.array_equal(rows, summed)
            changed |= before.classes == now.classes and before.labels != now.labels
            names = ", ".join(sorted({**before.people, **now.people}[key] for key in apart))
            if apart and len(apart) <= max(now.colluding, before.colluding) + 1:
                told = f"the sum of {names} is known nearly alone: each must sign that it leaves"
            elif (apart or changed or moves) and not self.again:
                told = f"the sum of {names}" if apart else "rows that have changed, or are moved,"
                told += " may be known: --again says that you accept it"
            else:
                continue
            raise MismatchError(
                f"{overlap} of the {len(rows)} rows of this site are, or may be, in the sums of "
                f"the session {session[:12]}, too; with both sums {told}"
            )
        if not goes_on:
            raise MismatchError(
                f"this session says that it follows {agreed.follows[:12]}, of other rows: who "
                "leaves it would have left that one, too; ask the server for a new one"
            )

    def claim(
        self, agreed: Agreement, number: int, inside: Names, rows: Hashes, labels: bytes = b""
    ) -> None:
        """Write down, before a sum can be opened, that these rows are in it; see `check`."""
        where = self.folder / agreed.digest / hashlib.sha256(rows.tobytes()).hexdigest()[:32]
        with alone(self.folder / "claim", wait=True):
            self.check(agreed, inside, rows, labels)
            write_once(where / "rows", rows.tobytes())
            summed = canonical(to_builtins(Summed.of(agreed, inside, labels)))
            write_once(where / f"people-{number}", summed)

    def note(self, agreed: Agreement, name: str, digest: str) -> None:
        """Refuse another message than the one that was sent by this name before."""
        known = write_once(self.folder / agreed.digest / name, digest.encode())
        if known != digest.encode():
            raise MismatchError(
                f"another {name} has left this site: its folder was restored from a backup; this "
                "session is over for this site"
            )


def _line(session: str, follows: Mapping[str, str]) -> Iterator[str]:
    """A session that somebody has left, and those that it follows."""
    while session:
        yield session
        session = follows.get(session, "")
