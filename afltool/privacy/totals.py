"""What the server tells its members of a sum: whose it is, and its digest, signed.

Under masks with shares it also holds the secrets that the answers gave, encrypted for each member.
So a member that has the masked files adds them up itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from ..errors import CorruptFileError, MismatchError, UsageError
from ..files import headers
from ..values.digest import canonical_json
from . import messages as msg
from .identity import Identity, agree, derive
from .offers import NONCE
from .request import Request
from .reveal import checked
from .roster import Roster

SECRET = 32  # bytes
TOTAL = {
    "server": msg.name,
    "roster": msg.SHA256,
    "members": headers.different_texts,
    "digest": msg.SHA256,
    "request": (msg.SHA256, None),
    "key": (msg.hexadecimal(32), None),
    "sealed": dict,
}


def place(total: Path) -> Path:
    """Where the signed message of a total lies."""
    return total.with_name(f"{total.stem}.signed.json")


def tell(
    total: Path,
    server: Identity,
    roster: Roster,
    members: Iterable[str],
    digest: str,
    request: Request | None = None,
    opened: Mapping[str, bytes] | None = None,
    overwrite: bool = False,
) -> None:
    """Sign a total beside it, unless that was done; refused where another one was signed."""
    plain = {
        "kind": "total",
        "server": server.name,
        "roster": roster.digest,
        "members": sorted(members),
        "digest": digest,
        "request": request and request.digest,
    }
    path = place(total)
    if path.exists() and not overwrite:
        there = Told.load(path, roster).body
        if any(there[key] != value for key, value in plain.items()):
            raise MismatchError(f"{path} signs another total than {total}: choose another -o")
        return
    once = X25519PrivateKey.generate()
    sealed = _sealed(roster, once, plain, b"".join(opened.values())) if opened else {}
    key = once.public_key().public_bytes_raw().hex() if opened else None
    msg.write(path, server.sign({**plain, "key": key, "sealed": sealed}), overwrite)


def _sealed(
    roster: Roster, once: X25519PrivateKey, plain: Mapping[str, Any], text: bytes
) -> dict[str, str]:
    """A text for the eyes of each member."""
    found = {}
    for member in roster.members:
        key = _key(plain, member.name, agree(once, member.agree, member.name))
        found[member.name] = ChaCha20Poly1305(key).encrypt(NONCE, text, None).hex()
    return found


def _key(body: Mapping[str, Any], member: str, secret: bytes) -> bytes:
    about = [body[key] for key in ("members", "digest", "request")]
    return derive(secret, bytes.fromhex(body["roster"]), "total", member, canonical_json(about))


@dataclass(frozen=True)
class Told:
    """What the server has signed of a total."""

    path: Path
    body: Mapping[str, Any]

    @classmethod
    def load(cls, path: Path, roster: Roster) -> Told:
        """Read it; refused unless the roster's server signed it for this round."""
        message = msg.read(path, "total", TOTAL)
        roster.check_signed_by_server(str(path), message)
        if message.body["roster"] != roster.digest:
            raise MismatchError(f"{path} is of another round, or of another roster")
        return cls(path, message.body)

    def check(self, digest: str, members: Iterable[str], request: Request | None = None) -> None:
        """Refuse it unless it says this digest, of the sum over these members."""
        found = {"members": sorted(members), "request": request and request.digest}
        for key, value in {**found, "digest": digest}.items():
            if self.body[key] != value:
                raise MismatchError(
                    f"{self.path} does not hold: the server has signed {self.body[key]} as the "
                    f"{key} of the sum, and the files give {value}; show it to the other members"
                )

    def opened(self, request: Request, me: Identity | None) -> dict[str, bytes]:
        """The secrets that the sum was opened with, each compared with its member's offer."""
        if me is None:
            raise UsageError("--check of a sum under masks needs --key, the key of a member")
        body = self.body
        try:
            key = _key(body, me.name, agree(me.agreeing, body["key"] or "", body["server"]))
            sealed = bytes.fromhex(body["sealed"].get(me.name, ""))
            text = ChaCha20Poly1305(key).decrypt(NONCE, sealed, None)
        except (InvalidTag, ValueError, CorruptFileError):
            raise CorruptFileError(f"{self.path} holds nothing for {me.name!r}") from None
        parts = (text[i : i + SECRET] for i in range(0, len(text), SECRET))
        pairs = zip(request.offers.by_member, parts, strict=False)
        return {name: checked(request, name, secret) for name, secret in pairs}
