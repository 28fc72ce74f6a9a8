"""Private keys under a passphrase: a key by scrypt, then one AEAD over the whole file.

scrypt (RFC 7914) takes 128·n·r bytes of memory for each guess of the passphrase. ChaCha20-Poly1305
(RFC 8439) encrypts the keys; all other fields of the file are its associated data.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from ..files.headers import described
from ..values.digest import canonical_json
from . import messages as msg

COST = {"n": 1 << 17, "r": 8, "p": 1}  # 128 MiB, about a third of a second
_NONCE = bytes(12)  # the salt is drawn anew, so every key encrypts only one text
SECRETS = {"sign": msg.hexadecimal(32), "agree": msg.hexadecimal(32)}
SEALED_BYTES = len(canonical_json(dict.fromkeys(SECRETS, "00" * 32))) + 16  # and the tag


memory = described(
    "a power of two from 2^14 to 2^18: 16 to 256 MiB",
    lambda v: type(v) is int and v in {1 << bits for bits in range(14, 19)},
)
eight = described("8, the block size", lambda v: type(v) is int and v == 8)
passes = described("a whole number from 1 to 4", lambda v: type(v) is int and 1 <= v <= 4)

# A forged file may not ask for more: whoever opens it would wait, or run out of memory.
PATTERN = {
    "kind": str,
    "name": msg.name,
    "scrypt": {"n": memory, "r": eight, "p": passes, "salt": msg.hexadecimal(16)},
    "sealed": msg.hexadecimal(SEALED_BYTES),
}


# PKCS #8 under PBES2 (RFC 8018) with PBKDF2 and 2,048 rounds: its first bytes, by OpenSSL.
_EARLIER = re.compile(
    rb"\x30(?:\x81.|\x82..)\x30.\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d\x30.\x30."
    rb"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0c\x30.\x04(?:\x08.{8}|\x10.{16})\x02\x02\x08\x00",
    re.DOTALL,
)


def check_earlier(pem: str) -> None:
    """`ValueError` unless a key in PEM is encrypted as earlier versions did it, with few rounds."""
    lines = pem.splitlines()
    if _EARLIER.match(base64.b64decode("".join(lines[1:-1]), validate=True)) is None:
        raise ValueError("encrypted in another way")


def lock(
    open_fields: Mapping[str, Any],
    secret: Mapping[str, str],
    passphrase: bytes,
    cost: Mapping[str, int] = COST,
) -> dict[str, Any]:
    """The fields of a key file: ``open_fields`` as they are, ``secret`` under the passphrase."""
    rest = {**open_fields, "scrypt": {**cost, "salt": secrets.token_hex(16)}}
    text = canonical_json(secret).encode()
    return {**rest, "sealed": _cipher(rest, passphrase).encrypt(_NONCE, text, _said(rest)).hex()}


def unlock(found: Mapping[str, Any], passphrase: bytes) -> dict[str, str]:
    """The secret fields; `ValueError` for another passphrase, or where any field was altered."""
    rest = {k: v for k, v in found.items() if k != "sealed"}
    sealed = bytes.fromhex(found["sealed"])
    try:
        text = _cipher(rest, passphrase).decrypt(_NONCE, sealed, _said(rest))
    except InvalidTag:
        raise ValueError("another passphrase, or an altered file") from None
    opened: dict[str, str] = json.loads(text)
    return opened


def _cipher(rest: Mapping[str, Any], passphrase: bytes) -> ChaCha20Poly1305:
    cost = rest["scrypt"]
    salt = bytes.fromhex(cost["salt"])
    key = Scrypt(salt, 32, cost["n"], cost["r"], cost["p"]).derive(passphrase)
    return ChaCha20Poly1305(key)


def _said(rest: Mapping[str, Any]) -> bytes:
    return canonical_json(rest).encode()
