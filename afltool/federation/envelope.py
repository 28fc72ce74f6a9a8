"""One message is one file: who says what in which round, signed, and its payload, encrypted.

    header (JSON line)  signature (64 bytes)  [key (32)]  nonce (12)  ciphertext (payload + 16)

The signature is of the header, which has the SHA-256 of all that follows. `Box` is the only place
that makes or reads such files, so nothing leaves a site that is not one of `KINDS`. A payload is
for all of the session, or for one reader alone: then with a key that is made for it and forgotten,
so that the sender's key does not open it later.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..errors import AflError, CorruptFileError
from .keys import Keys, Party, cipher_between, derive

DOMAIN = b"afltool federation 1\n"  # no other program signs texts with this beginning
KINDS = ("key", "hello", "close", "sums", "seen", "shares", "total", "head", "done")
OVERHEAD = 1024 + 64 + 32 + 12 + 16  # most bytes beside the payload: header, signature, key …


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
    group: bytes = b""

    def seal(self, kind: str, number: int, payload: bytes, to: bytes = b"") -> bytes:
        """``to``: the X25519 public key of its only reader; else it is for all of the session."""
        assert kind in KINDS
        about = self.session, kind, number, self.me.name
        own, nonce, cipher = b"", secrets.token_bytes(12), self._group_cipher(*about)
        if to:
            once = X25519PrivateKey.generate()
            own = once.public_key().public_bytes_raw()
            cipher = cipher_between(once, to, *about, own.hex())
        body = own + nonce + cipher.encrypt(nonce, payload, None)
        header = self._header(kind, number, self.me.name, sha256(body).hexdigest())
        return header + b"\n" + self.me.signing.sign(DOMAIN + header) + body

    def open(
        self,
        kind: str,
        number: int,
        sender: Party,
        data: bytes,
        mine: X25519PrivateKey | None = None,
    ) -> Envelope:
        """The payload; `CorruptFileError` of all that is not this message and whole. ``mine``: the
        key of its only reader."""
        about, body = (
            (self.session, kind, number, sender.name),
            self.body(kind, number, sender, data),
        )
        try:
            cipher = self._group_cipher(*about)
            if mine is not None:
                own, body = body[:32], body[32:]
                cipher = cipher_between(mine, own, *about, own.hex())
            payload = cipher.decrypt(body[:12], body[12:], None)
        except (InvalidTag, ValueError, AflError):
            raise CorruptFileError("it is encrypted with another key") from None
        return Envelope(sha256(data).hexdigest(), payload)

    def body(self, kind: str, number: int, sender: Party, data: bytes) -> bytes:
        """What the sender has signed, still encrypted."""
        header, _, rest = data.partition(b"\n")
        if not sender.has_signed(rest[:64], DOMAIN + header):
            raise CorruptFileError(f"it is not signed by {sender.name!r}")
        if header != self._header(kind, number, sender.name, sha256(rest[64:]).hexdigest()):
            raise CorruptFileError("it is another message, or was altered on its way")
        return rest[64:]

    def _header(self, kind: str, number: int, sender: str, sha: str) -> bytes:
        return canonical([self.session, kind, number, sender, sha])

    def _group_cipher(self, *about: object) -> AESGCM:
        return AESGCM(derive(self.group, *about))
