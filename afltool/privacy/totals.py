"""What the server tells its members of a sum: whose it is, and its digest, signed.

Under masks with shares it also holds the secrets that the answers gave, encrypted for each member.
So a member that has the masked files adds them up itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import CorruptFileError, MismatchError, UsageError
from ..files.schema import different_texts
from ..values.arrays import canonical_json
from . import messages as msg
from .identity import Identity, agree, decrypt, encrypt, public_of
from .reveal import Request, checked
from .roster import Roster

SECRET = 32  # bytes
TOTAL = {
    "server": msg.name,
    "roster": msg.SHA256,
    "members": different_texts,
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
    once, sealed = X25519PrivateKey.generate(), {}
    for member in roster.members if opened else ():
        text, secret = b"".join((opened or {}).values()), agree(once, member.agree, member.name)
        sealed[member.name] = encrypt(secret, text, *_purpose(plain, member.name))
    key = public_of(once) if opened else None
    msg.write(path, server.sign({**plain, "key": key, "sealed": sealed}), overwrite)


def _purpose(body: Mapping[str, Any], member: str) -> tuple[bytes, str, str, str]:
    """Salt and purpose of the key of what is for the eyes of one member."""
    about = canonical_json([body[key] for key in ("members", "digest", "request")])
    return bytes.fromhex(body["roster"]), "total", member, about


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
        facts = {"members": sorted(members), "request": request and request.digest}
        for key, value in {**facts, "digest": digest}.items():
            if self.body[key] != value:
                raise MismatchError(
                    f"{self.path} does not hold: the server has signed {self.body[key]} as the "
                    f"{key} of the sum, and the files give {value}; show it to the other members"
                )

    def opened(self, request: Request, me: Identity | None) -> dict[str, bytes]:
        """The secrets that the sum was opened with, each compared with its member's offer."""
        if me is None:
            raise UsageError("--check of a sum under masks needs --key, the key of a member")
        body, wrong = self.body, f"{self.path} holds nothing for {me.name!r}"
        sealed = body["sealed"].get(me.name)
        if body["key"] is None or not isinstance(sealed, str):
            raise CorruptFileError(wrong)
        secret = agree(me.agreeing, body["key"], body["server"])
        text = decrypt(secret, sealed, wrong, *_purpose(body, me.name))
        parts = (text[i : i + SECRET] for i in range(0, len(text), SECRET))
        pairs = zip(request.offers.by_member, parts, strict=False)
        return {name: checked(request, name, secret) for name, secret in pairs}
