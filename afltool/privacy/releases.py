"""The noise of a member's releases: drawn once for each, and never used for anything else.

Two releases with the same noise reveal their difference exactly, and the same release with other
noise halves what protects it. So each has a random number of its own, which is kept beside the
member's key together with everything that the release depends on.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError
from ..files.atomic import write_once
from ..values.differences import difference
from ..values.digest import canonical_json
from .identity import Identity, derive

FOLDER = "noise"  # in the folder of a round under masks, or beside those of the rounds
WHAT = "release"


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
        path = folder / FOLDER / name
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
