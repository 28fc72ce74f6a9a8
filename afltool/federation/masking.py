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
from cryptography.hazmat.primitives.ciphers.modes import GCM
from numpy.typing import NDArray

from .. import cores
from ..errors import AflError, CorruptFileError
from .agreement import Agreement
from .keys import Keys, Party, check_public, cipher_between, derive, exchange

Words = NDArray[np.uint64]
PRIME = 2**256 + 297  # the smallest prime above 2^256, so that any 32 bytes are a secret
SHARE, CHUNK, SEGMENT = 33, 1 << 15, 1 << 17
ZEROS = memoryview(bytes(8 * CHUNK))
OWN, PAIRS = "own", "pairs"  # the two secrets, b_u and s_u


# ---------------------------------------------------------------- Shamir's secret sharing


def split(secret: bytes, threshold: int, places: Iterable[int]) -> list[bytes]:
    """Shares f(place) of f(0) = secret, f a random polynomial of degree t − 1."""
    f = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [
        (sum(c * pow(x, k, PRIME) for k, c in enumerate(f)) % PRIME).to_bytes(SHARE) for x in places
    ]


def join(shares: Mapping[int, bytes]) -> bytes:
    """The secret, by Lagrange; of wrong or too few shares another number."""
    total = 0
    for x, share in shares.items():
        above = below = 1
        for other in shares:
            if other != x:
                above, below = above * other % PRIME, below * (other - x) % PRIME
        total += int.from_bytes(share) * above * pow(below, -1, PRIME)
    return (total % PRIME).to_bytes(SHARE)[1:]


# ---------------------------------------------------------------- a member's offer of a round

# An offer is S_u, a commitment to b_u, the public part of the key of its boxes; then for each
# member, in their order, the hashes of its two shares and a box with both.
FIRST, HASHES, BOX = 96, 64, 2 * SHARE + 16


@dataclass(frozen=True)
class Secrets:
    """What a member draws for one round."""

    pairs: bytes  # X25519 private key of the pairwise masks
    own: bytes  # key of its own mask

    @classmethod
    def draw(cls) -> Secrets:
        return cls(secrets.token_bytes(32), secrets.token_bytes(32))

    def offer(self, agreed: Agreement, me: Keys, number: int) -> bytes:
        """Both secrets in shares; the key of the boxes is forgotten, so it opens none later."""
        places = range(1, len(agreed.members) + 1)
        once = X25519PrivateKey.generate()
        sender = once.public_key().public_bytes_raw()
        parts = [public_of(self.pairs), _hash(agreed, number, me.name, "", self.own), sender]
        both = (split(s, agreed.threshold, places) for s in (self.pairs, self.own))
        for holder, pairs, own in zip(agreed.members, *both, strict=True):
            cipher = cipher_between(once, holder.agreeing, *_about(agreed, number, me.name, holder))
            for kind, share in ((PAIRS, pairs), (OWN, own)):
                parts.append(_hash(agreed, number, me.name, kind, share))
            parts.append(cipher.encrypt(bytes(12), pairs + own, None))  # the key is used once
        return b"".join(parts)


def offer_size(agreed: Agreement) -> int:
    return FIRST + (HASHES + BOX) * len(agreed.members) if agreed.masked else 0


def check_offer(agreed: Agreement, offer: bytes) -> None:
    """Refuse an offer that would stop those who use it."""
    if len(offer) != offer_size(agreed):
        raise CorruptFileError("an offer of another length")
    if agreed.masked:
        check_public(offer[:32])
        check_public(offer[64:FIRST])


def public_of(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def _hash(agreed: Agreement, number: int, giver: str, kind: str, share: bytes) -> bytes:
    return hashlib.sha256(f"{agreed.digest} {number} {giver} {kind}\0".encode() + share).digest()


def _about(agreed: Agreement, number: int, giver: str, holder: Party) -> tuple[object, ...]:
    return agreed.digest, "share", number, giver, holder.key


def _part(agreed: Agreement, offer: bytes, holder: str) -> tuple[dict[str, bytes], bytes]:
    """The hashes of a member's two shares, and its box."""
    at = FIRST + (HASHES + BOX) * (agreed.places[holder] - 1)
    hashes = {PAIRS: offer[at : at + 32], OWN: offer[at + 32 : at + HASHES]}
    return hashes, offer[at + HASHES : at + HASHES + BOX]


def held(agreed: Agreement, me: Keys, giver: str, number: int, offer: bytes) -> dict[str, bytes]:
    """My shares of a member's two secrets; of a box that is rubbish some that nobody takes."""
    about, box = _about(agreed, number, giver, me.party), _part(agreed, offer, me.name)[1]
    try:
        text = cipher_between(me.agreeing, offer[64:FIRST], *about).decrypt(bytes(12), box, None)
    except (InvalidTag, AflError):
        text = bytes(2 * SHARE)
    return {PAIRS: text[:SHARE], OWN: text[SHARE:]}


def right_shares(
    agreed: Agreement,
    number: int,
    giver: str,
    kind: str,
    offer: bytes,
    answers: Mapping[str, bytes],
) -> dict[str, bytes]:
    """Those of the answers, by name, that are the shares whose hashes are in the offer."""
    hashes = {name: _part(agreed, offer, name)[0][kind] for name in answers}
    return {
        name: share
        for name, share in answers.items()
        if _hash(agreed, number, giver, kind, share) == hashes[name]
    }


def opened(
    agreed: Agreement, number: int, giver: str, kind: str, offer: bytes, shares: Mapping[str, bytes]
) -> bytes:
    """A secret from t or more right shares of it, compared with the offer."""
    some = {agreed.places[n]: s for n, s in list(shares.items())[: agreed.threshold]}
    secret = join(some)
    known = _hash(agreed, number, giver, "", secret) if kind == OWN else public_of(secret)
    same = known == (offer[32:64] if kind == OWN else offer[:32])
    if not same:
        raise CorruptFileError(
            f"{giver!r} broke the rules in round {number}: its shares do not make what it has "
            "offered, so nobody can open the sum"
        )
    return secret


# ---------------------------------------------------------------- masks


def mask(x: Words, me: str, drawn: Secrets, offers: Mapping[str, bytes], salt: str) -> None:
    """Add the masks of ``me`` in place; ``offers``: of all members of the round."""
    streams = [(derive(drawn.own, salt, OWN, me), False)]
    streams += [(k, me > other) for other, k in _pairs(drawn.pairs, me, offers, salt, offers)]
    add_streams(streams, x)


def unmask(
    total: Words,
    offers: Mapping[str, bytes],
    stayed: Collection[str],
    found: Mapping[str, bytes],
    salt: str,
) -> None:
    """Take away what does not cancel in the sum over those who stayed, in place."""
    streams = []
    for name, secret in found.items():
        if name in stayed:
            streams.append((derive(secret, salt, OWN, name), True))
        else:  # what each who stayed has added for it
            streams += [(k, name > o) for o, k in _pairs(secret, name, offers, salt, stayed)]
    add_streams(streams, total)


def _pairs(
    secret: bytes, me: str, offers: Mapping[str, bytes], salt: str, others: Collection[str]
) -> list[tuple[str, bytes]]:
    mine = X25519PrivateKey.from_private_bytes(secret)
    return [
        (other, derive(exchange(mine, offers[other][:32]), salt, *sorted((me, other))))
        for other in sorted(others)
        if other != me
    ]


def add_streams(streams: Sequence[tuple[bytes, bool]], x: Words) -> None:
    """Add key streams to a vector, or (True) subtract them: AES-256 in counter mode, as GCM."""

    def add(segment: int) -> None:
        view = memoryview(bytearray(8 * CHUNK))
        ciphers = [Cipher(AES(key), GCM(segment.to_bytes(12))).encryptor() for key, _ in streams]
        for at in range(segment * SEGMENT, min((segment + 1) * SEGMENT, len(x)), CHUNK):
            piece = x[at : min(at + CHUNK, (segment + 1) * SEGMENT)]
            size = 8 * len(piece)
            for cipher, (_, minus) in zip(ciphers, streams, strict=True):
                cipher.update_into(ZEROS[:size], view[:size])
                words = np.frombuffer(view[:size], "<u8")
                (np.subtract if minus else np.add)(piece, words, out=piece)

    for _ in cores.each(add, range(-(-len(x) // SEGMENT))):
        pass
