"""Keys: one OpenSSH Ed25519 key a party. It signs, and agrees on secrets as X25519 (as `age` does).

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
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.exceptions import RuntimeError as WeakKey
from nacl.signing import SigningKey, VerifyKey

from ..errors import CorruptFileError, InputError, UsageError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # a file's name; no two look alike
RAW = form.Encoding.Raw, form.PublicFormat.Raw


@dataclass(frozen=True, order=True)
class Party:
    """A name and its public key, as hexadecimal digits."""

    name: str
    key: str

    def __post_init__(self) -> None:
        self.check_name(self.name)
        try:
            VerifyKey(bytes.fromhex(self.key)).to_curve25519_public_key()
        except (WeakKey, ValueError):  # of small order: anybody could sign for it
            raise CorruptFileError(f"the public key of {self.name!r} is no Ed25519 key") from None

    @staticmethod
    def check_name(name: str) -> None:
        if not NAME.fullmatch(name):
            raise UsageError(f"{name!r} is no name of a party: letters, digits, '.', '_', '-'")

    @property
    def agreeing(self) -> bytes:
        return bytes(VerifyKey(bytes.fromhex(self.key)).to_curve25519_public_key())

    def check(self, where: str, signature: bytes, text: bytes) -> None:
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.key)).verify(signature, text)
        except InvalidSignature:
            raise CorruptFileError(f"{where} is not signed by {self.name!r}") from None


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

    def shared(self, other: Party) -> bytes:
        return exchange(self.agreeing, other.agreeing, other.name)


def new(name: str, folder: Path, passphrase: bytes | None = None) -> Path:
    """Write NAME (private, mode 600) and NAME.pub as ssh-keygen does; returns the public file."""
    Party.check_name(name)
    path, key = folder / name, Ed25519PrivateKey.generate()
    lock = form.BestAvailableEncryption(passphrase) if passphrase else form.NoEncryption()
    data = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, lock)
    folder.mkdir(parents=True, exist_ok=True)
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
    line = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
    path.with_name(f"{name}.pub").write_bytes(line + f" {name}\n".encode())
    return path.with_name(f"{name}.pub")


def load(path: Path, passphrase: bytes | None = None) -> Keys:
    """A private key; its name is that of the public file beside it."""
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        raise InputError(f"others can read the private key {path}: chmod 600 {path}")
    try:
        key = form.load_ssh_private_key(path.read_bytes(), passphrase)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{path} cannot be opened: {error}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(f"{path} is no Ed25519 key: ssh-keygen -t ed25519")
    return Keys.of(load_public(path.with_name(f"{path.name}.pub")).name, key)


def load_public(path: Path) -> Party:
    line = path.read_text().strip()
    words = line.split(" ", 2)
    try:
        key = form.load_ssh_public_key(" ".join(words[:2]).encode())
        assert isinstance(key, Ed25519PublicKey) and len(words) == 3
    except (ValueError, AssertionError):
        raise CorruptFileError(f"{path}: expected 'ssh-ed25519 … NAME'") from None
    return Party(words[2], key.public_bytes(*RAW).hex())


def exchange(mine: X25519PrivateKey, theirs: bytes, whose: str) -> bytes:
    try:
        return mine.exchange(X25519PublicKey.from_public_bytes(theirs))
    except ValueError:
        raise CorruptFileError(f"a key of {whose!r} would make every secret 0") from None


def derive(secret: bytes, *purpose: object) -> bytes:
    """A key of 32 bytes for one purpose."""
    info = b"afltool federation 1\0" + "\0".join(map(str, purpose)).encode()
    return HKDF(SHA256(), 32, None, info).derive(secret)
