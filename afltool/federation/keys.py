"""Keys, and the messages that they sign and encrypt.

A party has one OpenSSH Ed25519 key. It signs, and as X25519 (as in `age`) it opens boxes. One
message is one file: who says what in which round, signed, and its payload, encrypted.

    header (JSON line)  signature (64 bytes)  [key (32)]  nonce (12)  ciphertext (payload + 16)

The signature is of the header, which has the SHA-256 of all that follows. A payload for one reader
alone is under a key that is made for it and forgotten: the sender's does not open it later.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature, InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from msgspec import convert, to_builtins
from nacl.exceptions import RuntimeError as WeakKey
from nacl.signing import SigningKey, VerifyKey

from ..errors import AflError, CorruptFileError, InputError, UsageError
from ..files.atomic import write_bytes, write_once
from ..inputs import read_json, read_text
from ..values.arrays import canonical_json

NAME = re.compile(  # no two look alike, and a shared folder may lie on Windows
    r"(?!(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$))[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9_-])?",
    re.A | re.I,
)
Private = X25519PrivateKey
T = TypeVar("T")
PUBLIC = "the key 'ssh-ed25519 … NAME'"
DOMAIN = b"afltool federation 1\n"  # no other program signs texts with this beginning
OVERHEAD = 1024 + 64 + 32 + 12 + 16  # most bytes beside the payload: header, signature, key …


@dataclass(frozen=True, order=True)
class Party:
    """A name, which is part of file names on every system, and its public key in hexadecimal."""

    name: str
    key: str

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and NAME.fullmatch(self.name)):
            raise UsageError(
                f"{self.name!r} is no name of a party: up to 64 of A-Z, a-z, 0-9, '.', '_', '-', "
                "not ending in a dot, and no device of Windows"
            )
        try:
            if not re.fullmatch("[0-9a-f]{64}", self.key):
                raise ValueError
            _ = self.agreeing
        except (WeakKey, ValueError, TypeError):  # of small order: anybody could sign for it
            raise CorruptFileError(f"the public key of {self.name!r} is no Ed25519 key") from None

    @property
    def agreeing(self) -> bytes:
        """The X25519 public key that boxes are made for."""
        return bytes(VerifyKey(bytes.fromhex(self.key)).to_curve25519_public_key())

    def has_signed(self, signature: bytes, text: bytes) -> bool:
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.key)).verify(signature, text)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class Keys:
    """A party with its private keys."""

    party: Party
    signing: Ed25519PrivateKey
    agreeing: Private

    @classmethod
    def of(cls, name: str, signing: Ed25519PrivateKey) -> Keys:
        seed = SigningKey(signing.private_bytes_raw())
        agreeing = Private.from_private_bytes(bytes(seed.to_curve25519_private_key()))
        return cls(Party(name, signing.public_key().public_bytes_raw().hex()), signing, agreeing)

    @property
    def name(self) -> str:
        return self.party.name


def new(name: str, folder: Path, passphrase: bytes | None = None) -> Path:
    """Write NAME (private, mode 600) and NAME.pub as ssh-keygen does; returns the public file."""
    me = Keys.of(name, Ed25519PrivateKey.generate())  # refuses what is no name
    lock = form.BestAvailableEncryption(passphrase) if passphrase else form.NoEncryption()
    data = me.signing.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, lock)
    key = me.signing.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    path, public = folder / name, folder / f"{name}.pub"
    taken = [one for one in (path, public) if os.path.lexists(one)]
    if taken or write_once(path, data) != data:
        raise UsageError(f"{(taken or [path])[0]} exists: a key is never overwritten")
    return write_bytes(key + f" {name}\n".encode(), public)


def load(path: Path, passphrase: bytes | None = None) -> Keys:
    """A private key; its name is that of the public file beside it."""
    data = read_text(path, "the key").encode()
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"others can read the private key {path}: chmod 600 {path}")
    try:
        key = form.load_ssh_private_key(data, passphrase)
        if not isinstance(key, Ed25519PrivateKey):
            raise ValueError("it is no Ed25519 key: ssh-keygen -t ed25519")
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path} cannot be opened, look at the passphrase: {error}") from None
    public = load_public(path.with_name(f"{path.name}.pub"))
    if (me := Keys.of(public.name, key)).party != public:
        raise UsageError(f"{path}.pub is not the public part of {path}: ssh-keygen -y -f {path}")
    return me


def load_public(path: Path) -> Party:
    words = read_text(path, PUBLIC).strip().split(" ", 2)
    try:
        key = form.load_ssh_public_key(" ".join(words[:2]).encode())
        if not isinstance(key, Ed25519PublicKey) or len(words) != 3:
            raise ValueError
    except (ValueError, UnsupportedAlgorithm):
        raise CorruptFileError(f"{path}: expected {PUBLIC}") from None
    return Party(words[2], key.public_bytes_raw().hex())


def exchange(mine: Private, theirs: bytes) -> bytes:
    """X25519; refused for keys of small order, with which every secret would be 0."""
    try:
        return mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:
        raise CorruptFileError("an X25519 key would make every secret 0") from None


def derive(secret: bytes, *purpose: object) -> bytes:
    """A key of 32 bytes for one purpose."""
    info = b"afltool federation 1\0" + "\0".join(map(str, purpose)).encode()
    return HKDF(SHA256(), 32, None, info).derive(secret)


def make_cipher(mine: Private, theirs: bytes, *purpose: object) -> AESGCM:
    """The cipher between a key that is made for one message and forgotten, and its reader's."""
    return AESGCM(derive(exchange(mine, theirs), "box", *purpose))


def canonical(value: Any) -> bytes:
    return canonical_json(value).encode()


def read_typed(kind: type[T], path: Path) -> T:
    """What a JSON file of this party holds: of this type, and nothing beside it."""
    value = read_json(path, "what afltool has written")
    try:
        made = convert(value, kind)
        if canonical(to_builtins(made)) == canonical(value):
            return made
        raise ValueError("it has more than afltool writes")
    except ValueError as error:
        raise CorruptFileError(f"{path} is damaged: {error}; restore it") from None


def name_of(kind: str, number: int, sender: str) -> str:
    return f"{number:03d}-{kind}-{sender}"


@dataclass
class Box:
    """Seals what ``me`` says in a session, and opens what others say; ``group`` is their key."""

    session: str
    me: Keys
    group: bytes = b""

    def seal(self, kind: str, number: int, payload: bytes, to: bytes = b"") -> bytes:
        """``to``: the X25519 public key of its only reader; else it is for all of the session."""
        about, nonce = (kind, number, self.me.name), secrets.token_bytes(12)
        once = Private.generate() if to else None
        own = once.public_key().public_bytes_raw() if once else b""
        body = own + nonce + self._cipher(about, once, to, own).encrypt(nonce, payload, None)
        header = self._header(*about, sha256(body).hexdigest())
        return header + b"\n" + self.me.signing.sign(DOMAIN + header) + body

    def open(
        self, kind: str, number: int, sender: Party, data: bytes, mine: Private | None = None
    ) -> bytes:
        """The payload of this message alone, whole; ``mine``: the key of its only reader."""
        if not self.is_of(kind, number, sender, data):
            raise CorruptFileError(f"it is not signed by {sender.name!r}, or was altered")
        body = data.partition(b"\n")[2][64:]
        own, body = (body[:32], body[32:]) if mine else (b"", body)
        try:
            cipher = self._cipher((kind, number, sender.name), mine, own, own)
            return cipher.decrypt(body[:12], body[12:], None)
        except (InvalidTag, ValueError, AflError):
            raise CorruptFileError("it is encrypted with another key") from None

    def _cipher(self, about: Any, mine: Private | None, theirs: bytes, once: bytes) -> AESGCM:
        about = self.session, *about
        if mine is None:
            return AESGCM(derive(self.group, *about))
        return make_cipher(mine, theirs, *about, once.hex())

    def is_of(self, kind: str, number: int, sender: Party, data: bytes) -> bool:
        """Whether it is this message, as its sender has signed it."""
        header, _, rest = data.partition(b"\n")
        expected = self._header(kind, number, sender.name, sha256(rest[64:]).hexdigest())
        return header == expected and sender.has_signed(rest[:64], DOMAIN + header)

    def _header(self, kind: str, number: int, sender: str, sha: str) -> bytes:
        return canonical([self.session, kind, number, sender, sha])
