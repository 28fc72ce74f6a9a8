"""Keys of a member: Ed25519 to sign, X25519 to agree on secrets; a private and a public file.

A private file may be under a passphrase: a key by scrypt (RFC 7914), which takes 128·n·r bytes of
memory for each guess, then one ChaCha20-Poly1305 (RFC 8439) over the keys, with all other fields of
the file as its associated data.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256 as Sha256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from ..errors import CorruptFileError, InputError, UsageError
from ..files.atomic import write_once
from ..files.schema import described, mismatch
from ..progress import log
from ..values import names
from ..values.arrays import canonical_json
from . import messages as msg

PUBLIC = {"name": msg.name, "sign": msg.hexadecimal(32), "agree": msg.hexadecimal(32)}
PRIVATE = {"kind": str, "name": msg.name, "sign": str, "agree": str}
NONCE = bytes(12)  # where a key encrypts only one text
COST = {"n": 1 << 17, "r": 8, "p": 1}  # of scrypt: 128 MiB, about a third of a second
SEALED_BYTES = len(canonical_json(dict.fromkeys(("agree", "sign"), "00" * 32))) + 16  # and the tag

memory = described(
    "a power of two from 2^14 to 2^18: 16 to 256 MiB",
    lambda v: type(v) is int and v in {1 << bits for bits in range(14, 19)},
)
eight = described("8, the block size", lambda v: type(v) is int and v == 8)
passes = described("a whole number from 1 to 4", lambda v: type(v) is int and 1 <= v <= 4)

# A forged file may not ask for more: whoever opens it would wait, or run out of memory.
LOCKED = {
    "kind": str,
    "name": msg.name,
    "scrypt": {"n": memory, "r": eight, "p": passes, "salt": msg.hexadecimal(16)},
    "sealed": msg.hexadecimal(SEALED_BYTES),
}

# PKCS #8 under PBES2 (RFC 8018) with PBKDF2 and 2,048 rounds, as earlier versions wrote it: its
# first bytes, by OpenSSL.
_EARLIER = re.compile(
    rb"\x30(?:\x81.|\x82..)\x30.\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0d\x30.\x30."
    rb"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x05\x0c\x30.\x04(?:\x08.{8}|\x10.{16})\x02\x02\x08\x00",
    re.DOTALL,
)


@dataclass(frozen=True, order=True)
class Member:
    """A name and two public keys, as hexadecimal digits."""

    name: str
    sign: str
    agree: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Member:
        """That of a message with the fields `PUBLIC`."""
        return cls(*(body[k] for k in PUBLIC))

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "sign": self.sign, "agree": self.agree}

    def check(self, where: str, message: msg.Message) -> msg.Message:
        """The message; `CorruptFileError`, naming this member, unless it signed the message."""
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.sign))
            key.verify(bytes.fromhex(message.signature), message.signed())
        except (InvalidSignature, ValueError):
            raise CorruptFileError(
                f"{where} is not signed by {self.name!r}: it was altered, or somebody else made it "
                f"in this name; ask {self.name!r} for it again"
            ) from None
        return message


@dataclass(frozen=True)
class Identity:
    """A member with its private keys."""

    member: Member
    signing: Ed25519PrivateKey
    agreeing: X25519PrivateKey
    path: Path = Path()

    @classmethod
    def new(cls, name: str) -> Identity:
        """Keys drawn anew."""
        if not msg.name(name):
            raise UsageError(f"a member needs {msg.name.__doc__}; found {name!r}")
        return cls.of(name, Ed25519PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def of(
        cls, name: str, signing: Ed25519PrivateKey, agreeing: X25519PrivateKey, path: Path = Path()
    ) -> Identity:
        return cls(Member(name, public_of(signing), public_of(agreeing)), signing, agreeing, path)

    @property
    def name(self) -> str:
        return self.member.name

    def sign(self, body: msg.Body) -> msg.Message:
        """The body with this member's signature."""
        return msg.Message(body, self.signing.sign(msg.Message(body).signed()).hex())

    def public(self) -> msg.Message:
        """The public file's message, signed by its own key."""
        return self.sign({"kind": "public-key", **self.member.as_dict()})

    def private_key(self, purpose: str) -> bytes:
        """32 secret bytes that only the holder of the private file can derive."""
        return derive(self.agreeing.private_bytes_raw(), b"", "private", purpose)

    def lock(self, value: Mapping[str, Any], what: str) -> bytes:
        """A record that only the holder of the private file can read; ``what`` it is."""
        nonce, text = secrets.token_bytes(12), canonical_json(value).encode()
        return nonce + self._cipher().encrypt(nonce, text, what.encode())

    def unlock(self, path: Path, data: bytes, what: str) -> dict[str, Any]:
        """What `lock` made of a record, found at ``path``; refused if it is anything else."""
        try:
            text = self._cipher().decrypt(data[:12], data[12:], what.encode())
        except (InvalidTag, ValueError):
            raise CorruptFileError(
                f"{path} is damaged, or of another key than {self.path}"
            ) from None
        secret: dict[str, Any] = json.loads(text)
        return secret

    def _cipher(self) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(self.private_key("round folder"))


def public_of(key: Ed25519PrivateKey | X25519PrivateKey) -> str:
    """The public key of a private one, as hexadecimal digits."""
    return key.public_key().public_bytes_raw().hex()


def derive(secret: bytes, salt: bytes, *purpose: str) -> bytes:
    """A key of 32 bytes by HKDF-SHA-256; another salt or purpose gives another key."""
    info = b"afltool " + canonical_json(purpose).encode()
    return HKDF(Sha256(), 32, salt, info).derive(secret)


def agree(mine: X25519PrivateKey, theirs: str, whose: str) -> bytes:
    """The secret that two keys agree on; a key of ``whose`` that forces a known one is refused."""
    try:
        return mine.exchange(X25519PublicKey.from_public_bytes(bytes.fromhex(theirs)))
    except ValueError:
        raise CorruptFileError(
            f"a public key of {whose!r} is invalid: the secret would be 0"
        ) from None


def encrypt(secret: bytes, text: bytes, salt: bytes, *purpose: str) -> str:
    """A text under the key that is derived from a secret for it alone, as hexadecimal digits."""
    key = derive(secret, salt, *purpose)
    return ChaCha20Poly1305(key).encrypt(NONCE, text, None).hex()


def decrypt(secret: bytes, sealed: str, wrong: str, salt: bytes, *purpose: str) -> bytes:
    """What `encrypt` made of a text; `CorruptFileError` that says what is ``wrong`` otherwise."""
    key = derive(secret, salt, *purpose)
    try:
        return ChaCha20Poly1305(key).decrypt(NONCE, bytes.fromhex(sealed), None)
    except (InvalidTag, ValueError):
        raise CorruptFileError(wrong) from None


# ---------------------------------------------------------------- files


def save_private(identity: Identity, folder: Path, passphrase: bytes | None = None) -> Path:
    """Write NAME.key, with mode 600; refused where it exists."""
    private = folder / f"{names.file_stem(identity.name)}{names.KEY}"
    data = b"" if private.exists() else canonical_json(_private(identity, passphrase)).encode()
    if not data or write_once(private, data) != data:
        raise UsageError(
            f"{private} exists: a private key is never replaced; choose another name or folder"
        )
    return private


def save_public(identity: Identity, folder: Path) -> Path:
    """Write NAME.pub."""
    return msg.write(folder / f"{names.file_stem(identity.name)}{names.PUBLIC}", identity.public())


def _private(identity: Identity, passphrase: bytes | None) -> dict[str, Any]:
    """The fields of a private file: PKCS #8 in PEM, or raw keys under the passphrase."""
    owner = {"kind": "private-key", "name": identity.name}
    keys: dict[str, Any] = {"sign": identity.signing, "agree": identity.agreeing}
    if passphrase is None:
        pem = form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()
        return {**owner, **{k: key.private_bytes(*pem).decode() for k, key in keys.items()}}
    raw = {k: key.private_bytes_raw().hex() for k, key in keys.items()}
    return locked(owner, raw, passphrase)


def locked(
    open_fields: Mapping[str, Any],
    secret: Mapping[str, str],
    passphrase: bytes,
    cost: Mapping[str, int] = COST,
) -> dict[str, Any]:
    """The fields of a key file: ``open_fields`` as they are, ``secret`` under the passphrase."""
    rest = {**open_fields, "scrypt": {**cost, "salt": secrets.token_hex(16)}}
    text, public = (canonical_json(one).encode() for one in (secret, rest))
    return {**rest, "sealed": _scrypt(rest, passphrase).encrypt(NONCE, text, public).hex()}


def _scrypt(fields: Mapping[str, Any], passphrase: bytes) -> ChaCha20Poly1305:
    """The cipher of a file: its salt is drawn anew, so that every key encrypts only one text."""
    cost = fields["scrypt"]
    key = Scrypt(bytes.fromhex(cost["salt"]), 32, cost["n"], cost["r"], cost["p"])
    return ChaCha20Poly1305(key.derive(passphrase))


def load(path: Path, passphrase: bytes | None = None) -> Identity:
    """Read a private file; refused where others may read it too."""
    message = msg.parse(path)
    by_scrypt = isinstance(message, dict) and "scrypt" in message
    wrong = mismatch(message, LOCKED if by_scrypt else PRIVATE, exact=True)
    if wrong or message["kind"] != "private-key":
        raise CorruptFileError(
            f"{path} is not a private key of afltool: {wrong or message['kind']}"
        )
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise InputError(
            f"{path} is a private key that others can read (mode {mode:o}): chmod 600 {path}"
        )
    try:
        signing, agreeing = (_unlocked if by_scrypt else _pem)(message, passphrase)
    except TypeError:
        need = "needs a passphrase" if passphrase is None else "has no passphrase"
        raise UsageError(f"{path} {need}: see --passphrase-file") from None
    except ValueError:
        raise InputError(f"{path} cannot be opened: the passphrase or the file is wrong") from None
    if not isinstance(signing, Ed25519PrivateKey) or not isinstance(agreeing, X25519PrivateKey):
        raise CorruptFileError(f"{path} holds keys of another kind than Ed25519 and X25519")
    if passphrase is not None and not by_scrypt:
        log.warning(
            f"{path}: its passphrase is easy to guess for anyone who has the file (PBKDF2 with few "
            f"rounds, as earlier versions wrote it): afltool keys lock {path} --passphrase-file "
            "OLD --new-passphrase-file NEW -o FOLDER writes it anew"
        )
    return Identity.of(message["name"], signing, agreeing, path)


def _unlocked(value: Mapping[str, Any], passphrase: bytes | None) -> tuple[Any, Any]:
    if passphrase is None:
        raise TypeError("no passphrase")
    rest = {k: v for k, v in value.items() if k != "sealed"}
    sealed, public = bytes.fromhex(value["sealed"]), canonical_json(rest).encode()
    try:
        raw = json.loads(_scrypt(rest, passphrase).decrypt(NONCE, sealed, public))
    except InvalidTag:
        raise ValueError("another passphrase, or an altered file") from None
    sign, agree = (bytes.fromhex(raw[k]) for k in ("sign", "agree"))
    return Ed25519PrivateKey.from_private_bytes(sign), X25519PrivateKey.from_private_bytes(agree)


def _pem(value: Mapping[str, Any], passphrase: bytes | None) -> tuple[Any, Any]:
    """Keys in PEM: without a passphrase, or with one as earlier versions encrypted them."""
    for key in ("sign", "agree"):
        if "ENCRYPTED" in value[key]:
            check_earlier(value[key])
    sign, agree = (
        form.load_pem_private_key(value[k].encode(), passphrase) for k in ("sign", "agree")
    )
    return sign, agree


def check_earlier(pem: str) -> None:
    """`ValueError` unless a key in PEM is encrypted as earlier versions did it, with few rounds."""
    lines = pem.splitlines()
    if _EARLIER.match(base64.b64decode("".join(lines[1:-1]), validate=True)) is None:
        raise ValueError("encrypted in another way")


def load_public(path: Path) -> Member:
    """Read a public file; its own signature is checked."""
    value = msg.parse(path)
    if isinstance(value, dict) and value.get("kind") == "private-key":
        raise UsageError(
            f"{path} is a private key, which never leaves its owner: give the public file "
            f"{path.with_suffix(names.PUBLIC)}"
        )
    message = msg.message_of(str(path), value, "public-key", PUBLIC)
    member = Member.of(message.body)
    member.check(str(path), message)
    return member
