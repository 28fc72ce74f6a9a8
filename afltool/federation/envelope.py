"""One message is one file: who says what in which round, signed, and its payload, encrypted.

    header (JSON line)  signature (64 bytes)  nonce (12 bytes)  ciphertext (payload + 16 bytes)

The signature is of the header, which has the SHA-256 of all that follows. `Box` is the only place
that makes or reads such files, so nothing leaves a site that is not one of `KINDS`.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..errors import CorruptFileError, MismatchError
from .keys import Keys, Party, derive

DOMAIN = b"afltool federation 1\n"  # no other program signs texts with this beginning
KINDS = ("key", "hello", "close", "sums", "seen", "shares", "total", "head")
HEADER, OVERHEAD = 1024, 1024 + 64 + 12 + 16  # most bytes beside the payload


def canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def name_of(kind: str, number: int, sender: str) -> str:
    return f"{number:03d}-{kind}-{sender}"


@dataclass(frozen=True)
class Envelope:
    """A message whose signature was checked; ``digest`` is of the whole file."""

    digest: str
    payload: bytes


@dataclass
class Box:
    """Seals what ``me`` says in a session, and opens what others say; ``group`` is their key."""

    session: str
    me: Keys
    group: bytes | None = None

    def seal(self, kind: str, number: int, payload: bytes, to: Party | None = None) -> bytes:
        nonce = secrets.token_bytes(12)
        body = nonce + self._cipher(kind, number, self.me.name, to).encrypt(nonce, payload, None)
        about = [self.session, kind, number, self.me.name]
        header = canonical([*about, hashlib.sha256(body).hexdigest()])
        assert kind in KINDS and len(header) < HEADER
        return header + b"\n" + self.me.signing.sign(DOMAIN + header) + body

    def open(self, kind: str, number: int, sender: Party, data: bytes,
             between: Party | None = None) -> Envelope:  # fmt: skip
        """The payload; refused, with the sender's name, unless it is this message and whole."""
        where = f"the {kind} of {sender.name!r} in round {number}"
        header, _, rest = data.partition(b"\n")
        signature, body = rest[:64], rest[64:]
        sender.check(where, signature, DOMAIN + header)
        about = [self.session, kind, number, sender.name, hashlib.sha256(body).hexdigest()]
        if header != canonical(about):
            raise MismatchError(f"{where} is another message, or was altered on its way")
        try:
            cipher = self._cipher(kind, number, sender.name, between)
            payload = cipher.decrypt(body[:12], body[12:], None)
        except InvalidTag:
            raise CorruptFileError(f"{where} is encrypted with another key") from None
        return Envelope(hashlib.sha256(data).hexdigest(), payload)

    def _cipher(self, kind: str, number: int, sender: str, other: Party | None) -> AESGCM:
        """Between two parties, or for all of the session."""
        secret = self.group if other is None else self.me.shared(other)
        assert secret is not None
        return AESGCM(derive(secret, self.session, "message", kind, number, sender))
