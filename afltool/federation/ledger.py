"""Which rows a site has masked, over all sessions: two sums with and without a member tell it all.

Rows are known by what they are, whatever their order, file, class list or key: the sum modulo 2^256
of SHA-256(features, class name) of each row.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import MismatchError
from ..files.atomic import write_bytes
from .agreement import Agreement


def meaning(X: NDArray[np.int16], y: NDArray[np.int64], classes: Sequence[str]) -> str:
    """The same for the same rows in another order, under other class numbers."""
    names = [f"\0{name}".encode() for name in classes]
    rows = np.ascontiguousarray(X, "<i2")
    total = sum(
        int.from_bytes(hashlib.sha256(row.tobytes() + names[label]).digest())
        for row, label in zip(rows, y, strict=True)
    )
    return f"{total % 2**256:064x}"


class Ledger:
    """A private file of the site, beside its configuration and not beside a key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claim(self, rows: str, agreed: Agreement, again: bool) -> None:
        """Record that these rows are masked in this session; refused after another one."""
        known: dict[str, dict[str, list[str]]] = (
            json.loads(self.path.read_text()) if self.path.exists() else {}
        )
        before = known.setdefault(rows, {})
        if before and agreed.digest not in before and not again:
            (session, members), *_ = before.items()
            gone = set(members).symmetric_difference(p.name for p in agreed.members)
            raise MismatchError(
                f"these rows were masked in the session {session[:12]}; its members differ by "
                f"{', '.join(sorted(gone)) or 'nobody'}. Whoever learns both sums knows the sum of "
                "those who are in one alone: --again says that you accept it"
            )
        before[agreed.digest] = [p.name for p in agreed.members]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(json.dumps(known).encode(), self.path, overwrite=True).chmod(0o600)
