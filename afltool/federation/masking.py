"""Secure sums of integer vectors modulo 2^64: Bonawitz et al., CCS 2017, between all pairs.

y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(k_uv) − Σ_{v < u} PRG(k_uv). Any t members open b_u of a member
that stayed, or s_u of one that dropped out, never both.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from ..errors import CorruptFileError
from .agreement import Agreement
from .keys import Keys, derive, exchange, make_cipher

Words = NDArray[np.uint64]
PRIME = 2**256 + 297  # the smallest prime above 2^256, so that any 32 bytes are a secret
SHARE = 33  # bytes of a number below PRIME
OWN, PAIRS = "own", "pairs"  # the two secrets, b_u and s_u


def split_secret(secret: bytes, threshold: int, places: Iterable[int]) -> list[bytes]:
    """Shares f(place) of f(0) = secret, f a random polynomial of degree t − 1."""
    f = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    values = (sum(c * pow(x, k, PRIME) for k, c in enumerate(f)) for x in places)
    return [(value % PRIME).to_bytes(SHARE) for value in values]


def join(shares: Mapping[int, bytes]) -> bytes:
    """The secret, by Lagrange; of wrong or too few shares another number."""
    total = 0
    for x, share in shares.items():
        above = below = 1
        for other in shares.keys() - {x}:
            above, below = above * other % PRIME, below * (other - x) % PRIME
        total += int.from_bytes(share) * above * pow(below, -1, PRIME)
    return (total % PRIME).to_bytes(SHARE)[1:]


FIRST, HASHES, BOX = 96, 64, 2 * SHARE + 16  # bytes of the parts of an `Offer`


def make_offer(agreed: Agreement, number: int, giver: str, drawn: bytes) -> bytes:
    """An `Offer` of s_u and b_u, 32 bytes each; the key of its boxes is forgotten."""
    about, once = Offer(agreed, number, giver, b"").about, X25519PrivateKey.generate()
    pairs, own = drawn[:32], drawn[32:]
    parts = [derive_public(pairs), _hash(about, "", own), once.public_key().public_bytes_raw()]
    shares = (
        split_secret(secret, agreed.threshold, agreed.places.values()) for secret in (pairs, own)
    )
    for holder, pair, one in zip(agreed.members, *shares, strict=True):
        cipher = make_cipher(once, holder.agreeing, about, holder.key)
        box = cipher.encrypt(bytes(12), pair + one, None)  # the key is used once
        parts += [_hash(about, PAIRS, pair), _hash(about, OWN, one), box]
    return b"".join(parts)


@dataclass(frozen=True)
class Offer:
    """``data``: S_u, a commitment to b_u, the public part of the key of its boxes; then for each
    member, in their order, the hashes of its two shares and a box with both."""

    agreed: Agreement
    number: int
    giver: str
    data: bytes

    @classmethod
    def of(cls, agreed: Agreement, number: int, giver: str, payload: bytes) -> Offer:
        """That with which a hello or sums end; refused where it would stop those who use it."""
        made = cls(agreed, number, giver, payload[-offer_size(agreed) :])
        for key in (made.public, made.data[64:FIRST]):
            exchange(X25519PrivateKey.generate(), key)
        return made

    @property
    def public(self) -> bytes:
        return self.data[:32]

    @property
    def about(self) -> str:
        return f"{self.agreed.digest} {self.number} {self.giver}"

    def part(self, holder: str) -> tuple[dict[str, bytes], bytes]:
        """The hashes of a member's two shares, and its box."""
        part = self.data[FIRST + (HASHES + BOX) * (self.agreed.places[holder] - 1) :]
        return {PAIRS: part[:32], OWN: part[32:HASHES]}, part[HASHES : HASHES + BOX]

    def decrypt_shares(self, me: Keys) -> dict[str, bytes]:
        """My shares of both secrets; of a box that is rubbish some that nobody takes."""
        cipher = make_cipher(me.agreeing, self.data[64:FIRST], self.about, me.party.key)
        try:
            text = cipher.decrypt(bytes(12), self.part(me.name)[1], None)
        except InvalidTag:
            text = bytes(2 * SHARE)
        return {PAIRS: text[:SHARE], OWN: text[SHARE:]}

    def combine_shares(
        self, kind: str, answers: Mapping[str, bytes]
    ) -> tuple[bytes | None, list[str]]:
        """A secret, if t of the answers are its shares, as their hashes say; and whose are not."""
        hashes = {name: self.part(name)[0][kind] for name in answers}
        right = [n for n, share in answers.items() if _hash(self.about, kind, share) == hashes[n]]
        wrong = sorted(answers.keys() - set(right))
        if len(right) < self.agreed.threshold:
            return None, wrong
        secret = join({self.agreed.places[n]: answers[n] for n in right[: self.agreed.threshold]})
        known = derive_public(secret) if kind == PAIRS else _hash(self.about, "", secret)
        if known != (self.public if kind == PAIRS else self.data[32:64]):
            who = f"{self.giver!r} broke the rules in round {self.number}"
            raise CorruptFileError(f"{who}: its shares open nothing")
        return secret, wrong


def offer_size(agreed: Agreement) -> int:
    return FIRST + (HASHES + BOX) * len(agreed.members) if agreed.masked else 0


def derive_public(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _hash(about: str, kind: str, share: bytes) -> bytes:
    return hashlib.sha256(f"{about} {kind}\0".encode() + share).digest()


def mask(x: Words, me: str, drawn: bytes, offers: Mapping[str, Offer], salt: str) -> None:
    """Add the masks of ``me`` in place; ``offers``: of all members of the round."""
    own = derive(drawn[32:], salt, OWN, me), False
    add_streams([own, *_pairs(drawn[:32], me, offers, salt, offers)], x)


def unmask(
    total: Words,
    offers: Mapping[str, Offer],
    stayed: Collection[str],
    found: Mapping[str, bytes],
    salt: str,
) -> None:
    """Take away what does not cancel in the sum over those who stayed, in place."""
    for name, secret in found.items():
        own = [(derive(secret, salt, OWN, name), True)]  # or what each who stayed has added for it
        add_streams(own if name in stayed else _pairs(secret, name, offers, salt, stayed), total)


def _pairs(
    secret: bytes, me: str, offers: Mapping[str, Offer], salt: str, others: Collection[str]
) -> list[tuple[bytes, bool]]:
    """The streams that ``me`` adds; those that others add for it are of the other sign."""
    mine = X25519PrivateKey.from_private_bytes(secret)
    return [
        (derive(exchange(mine, offers[other].public), salt, *sorted((me, other))), me > other)
        for other in sorted(others)
        if other != me
    ]


def add_streams(streams: Sequence[tuple[bytes, bool]], x: Words) -> None:
    """Add key streams to a vector, or (True) subtract them: AES-256 in counter mode."""
    zeros = bytes(x.nbytes)
    for key, minus in streams:  # each key has this stream alone
        stream = Cipher(AES(key), CTR(bytes(16))).encryptor().update(zeros)
        (np.subtract if minus else np.add)(x, np.frombuffer(stream, "<u8"), out=x)
