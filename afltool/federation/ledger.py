"""What a site has summed over all sessions: two sums with and without a member tell it exactly.

A private folder of the site, beside its configuration and not beside a key:

    key                      of the hashes of rows
    SESSION/SHA/rows         which rows of this site: several of its members may be in a session
    SESSION/SHA/people-NNN   who was in the sums of a round that were opened
    SESSION/NNN-KIND-…       the digest of what was sent: a restored folder sends nothing else
    SESSION/rho              what a session with noise has spent, whatever its rows

Rows are known by what they are before any scaling, whatever their order, file or classes. In
another number format they cannot be compared, and count as the same if they have as many features.
The same members tell nothing new, unless rows, a scale or groups have changed: then both sums tell
of those rows that have, or that another scale rounds to other integers.
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

from ..errors import CorruptFileError, MismatchError
from ..files.atomic import write_once
from ..files.locks import alone
from ..inputs import read_json
from .agreement import Agreement
from .keys import canonical
from .rows import Raw

Hashes = NDArray[np.uint64]
Names = Iterable[str]
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

    def check(self, agreed: Agreement, inside: Names, rows: Hashes, labels: bytes = b"") -> None:
        """Refuse sums that with earlier ones would tell more than their members allow.

        That may be sums of few members, or of rows that have changed. ``labels``: the second result
        of `hashes`.
        """
        now = {agreed.people[name].key: name for name in inside}
        known = [_known(path) for path in sorted(self.folder.glob("*/*/people-*"))]
        follows = {session: before["follows"] for session, before, _ in known}
        goes_on = agreed.follows not in follows  # or whose consents would count there, too?
        # A scale follows from the rows of all sites, and other groups may differ in a few rows.
        moves = agreed.scale is not None or (agreed.evaluation and agreed.evaluation.groups)
        for session, before, summed in known:
            left = {c.key for c in agreed.consents if session in _line(c.session, follows)}
            apart = (now.keys() ^ before["people"].keys()) - left
            if agreed.follows == session:
                apart -= now.keys()  # who joins has agreed to this, whose text names the other
            overlap, changed = _compared(agreed, rows, before["format"], summed)
            alike = overlap and before["format"] == _format(agreed)
            goes_on |= bool(session == agreed.follows and alike)
            if session == agreed.digest or not overlap:
                continue
            if before.get("classes") == list(agreed.classes):
                changed |= before["labels"] != labels.hex()
            names = ", ".join(sorted({**before["people"], **now}[key] for key in apart))
            what = (
                f"{overlap} of the {len(rows)} rows of this site are, or may be, in the sums of "
                f"the session {session[:12]}, too; with both sums "
            )
            if apart and len(apart) <= max(agreed.colluding, before["colluding"]) + 1:
                raise MismatchError(
                    f"{what}the sum of {names} is known nearly alone: each must sign that it "
                    "leaves, and the session must follow that one (session leave)"
                )
            if (apart or changed or moves) and not self.again:
                told = f"the sum of {names}" if apart else "rows that have changed, or are moved,"
                raise MismatchError(f"{what}{told} may be known: --again says that you accept it")
        if not goes_on:
            raise MismatchError(
                f"this session says that it follows {agreed.follows[:12]}, of other rows: who "
                "leaves it would have left that one, too; ask the server for a new one"
            )

    def claim(
        self, agreed: Agreement, number: int, inside: Names, rows: Hashes, labels: bytes = b""
    ) -> None:
        """Write down, before a sum can be opened, that these rows are in it; see `check`."""
        people = {agreed.people[name].key: name for name in sorted(inside)}
        terms = {k: getattr(agreed, k) for k in ("colluding", "follows", "classes")}
        content = {"people": people, "format": _format(agreed), "labels": labels.hex(), **terms}
        where = f"{agreed.digest}/{hashlib.sha256(rows.tobytes()).hexdigest()[:32]}"
        with alone(self.folder / "claim", wait=True):
            self.check(agreed, people.values(), rows, labels)
            write_once(self.folder / where / "rows", rows.tobytes())
            write_once(self.folder / where / f"people-{number}", canonical(content))

    def note(self, agreed: Agreement, name: str, digest: str) -> None:
        """Refuse another message than the one that was sent by this name before."""
        known = write_once(self.folder / agreed.digest / name, digest.encode())
        if known != digest.encode():
            raise MismatchError(
                f"another {name} has left this site: its folder was restored from a backup; this "
                "session is over for this site"
            )

    def spend(self, agreed: Agreement, rho: float) -> None:
        write_once(self.folder / agreed.digest / "rho", repr(rho).encode())

    def spent(self) -> float:
        """Σ ρ of all sessions with noise: what they tell together is ρ-zCDP."""
        return sum(float(path.read_bytes()) for path in sorted(self.folder.glob("*/rho")))


def _known(path: Path) -> tuple[str, dict[str, Any], Hashes]:
    """A session, what the ledger has of a round of it, and which rows were in it."""
    try:
        before = read_json(path, "a session of the ledger")
        if not isinstance(before["people"], dict) or len(before["format"]) != 2:
            raise TypeError
        _ = before["follows"], int(before["colluding"])
        rows = np.frombuffer(path.with_name("rows").read_bytes(), UNSIGNED)
    except (LookupError, TypeError, ValueError):
        raise CorruptFileError(f"{path} or rows beside it is damaged: restore both") from None
    return path.parts[-3], before, rows


def _format(agreed: Agreement) -> list[int | None]:
    """Features of a row, and the fraction bits of their numbers; None for raw ones."""
    bits = agreed.space["fraction_bits"] if agreed.scale is None else None
    return [agreed.space["dim"], bits]


def _compared(
    agreed: Agreement, rows: Hashes, of: list[int | None], summed: Hashes
) -> tuple[int, bool]:
    """How many rows are, or may be, among those that were summed, and whether others differ;
    ``of``: the format of those that were summed."""
    (dim, bits), here = of, _format(agreed)
    if dim == here[0] and bits != here[1]:
        return len(rows), True
    return int(np.isin(rows, summed).sum()), not np.array_equal(rows, summed)


def _line(session: str, follows: Mapping[str, str]) -> Iterator[str]:
    """A session that somebody has left, and those that it follows."""
    while session:
        yield session
        session = follows.get(session, "")
