"""Keys: one OpenSSH Ed25519 key a party. It signs, and as X25519 (as in `age`) it opens boxes.

`ssh-keygen -t ed25519 -C north -f north` makes one, `ssh-keygen -p` changes its passphrase.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.exceptions import RuntimeError as WeakKey
from nacl.signing import SigningKey, VerifyKey

from .. import machine
from ..errors import CorruptFileError, InputError, UsageError
from ..files.atomic import write_bytes, write_once
from ..inputs import read_text
from ..values.names import DEVICES

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9_-])?")  # no two look alike
KEY = re.compile(r"[0-9a-f]{64}")
PUBLIC = "the key 'ssh-ed25519 … NAME'"


@dataclass(frozen=True, order=True)
class Party:
    """A name, which is part of file names on every system, and its public key in hexadecimal."""

    name: str
    key: str

    def __post_init__(self) -> None:
        self.check_name(self.name)
        try:
            if not KEY.fullmatch(self.key):
                raise ValueError
            VerifyKey(bytes.fromhex(self.key)).to_curve25519_public_key()
        except (WeakKey, ValueError, TypeError):  # of small order: anybody could sign for it
            raise CorruptFileError(f"the public key of {self.name!r} is no Ed25519 key") from None

    @staticmethod
    def check_name(name: object) -> None:
        good = isinstance(name, str) and NAME.fullmatch(name)
        if not good or re.fullmatch(DEVICES, str(name), re.I):
            raise UsageError(
                f"{name!r} is no name of a party: up to 64 of A-Z, a-z, 0-9, '.', '_', '-', not "
                "ending in a dot, and no device of Windows"
            )

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
    agreeing: X25519PrivateKey

    @classmethod
    def of(cls, name: str, signing: Ed25519PrivateKey) -> Keys:
        seed = SigningKey(signing.private_bytes_raw())
        agreeing = X25519PrivateKey.from_private_bytes(bytes(seed.to_curve25519_private_key()))
        return cls(Party(name, signing.public_key().public_bytes_raw().hex()), signing, agreeing)

    @property
    def name(self) -> str:
        return self.party.name


def new(name: str, folder: Path, passphrase: bytes | None = None) -> Path:
    """Write NAME (private, mode 600) and NAME.pub as ssh-keygen does; returns the public file."""
    Party.check_name(name)
    path, key = folder / name, Ed25519PrivateKey.generate()
    lock = form.BestAvailableEncryption(passphrase) if passphrase else form.NoEncryption()
    data = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, lock)
    line = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    if os.path.lexists(path) or write_once(path, data) != data:
        raise UsageError(f"{path} exists: a key is never overwritten")
    return write_bytes(line + f" {name}\n".encode(), path.with_name(f"{name}.pub"))


def load(path: Path, passphrase: bytes | None = None) -> Keys:
    """A private key; its name is that of the public file beside it."""
    data = read_text(path, "the key").encode()
    if not machine.WINDOWS and stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"others can read the private key {path}: chmod 600 {path}")
    try:
        key = form.load_ssh_private_key(data, passphrase)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} cannot be opened, look at the passphrase: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is no Ed25519 key: ssh-keygen -t ed25519")
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
    except ValueError:
        raise CorruptFileError(f"{path}: expected {PUBLIC}") from None
    return Party(words[2], key.public_bytes_raw().hex())


# ---------------------------------------------------------------- secrets


def exchange(mine: X25519PrivateKey, theirs: bytes) -> bytes:
    """X25519; refused for keys of small order, with which every secret would be 0."""
    try:
        return mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:
        raise CorruptFileError("an X25519 key would make every secret 0") from None


def derive(secret: bytes, *purpose: object) -> bytes:
    """A key of 32 bytes for one purpose."""
    info = b"afltool federation 1\0" + "\0".join(map(str, purpose)).encode()
    return HKDF(SHA256(), 32, None, info).derive(secret)


def cipher_between(mine: X25519PrivateKey, theirs: bytes, *purpose: object) -> AESGCM:
    """The cipher between a key that is made for one message and forgotten, and its reader's."""
    return AESGCM(derive(exchange(mine, theirs), "box", *purpose))
