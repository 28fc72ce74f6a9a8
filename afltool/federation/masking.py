"""Secure sums of integer vectors modulo 2^64: Bonawitz et al., CCS 2017, between all pairs.

y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(k_uv) − Σ_{v < u} PRG(k_uv). Any t members open b_u of a member
that stayed, or s_u of one that dropped out, never both.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import GCM
from numpy.typing import NDArray

from .. import cores
from ..errors import CorruptFileError
from .agreement import Agreement
from .keys import Keys, derive, exchange

Words = NDArray[np.uint64]
PRIME = 2**256 + 297  # the smallest prime above 2^256, so that any 32 bytes are a secret
SHARE, CHUNK, SEGMENT = 33, 1 << 15, 1 << 17
ZEROS = memoryview(bytes(8 * CHUNK))
TRIES = 1000  # sets of answers, where some of them are wrong


# ---------------------------------------------------------------- Shamir's secret sharing


def split(secret: bytes, threshold: int, places: Iterable[int]) -> list[bytes]:
    """Shares f(place) of f(0) = secret, f a random polynomial of degree t − 1."""
    f = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    return [(sum(c * pow(x, k, PRIME) for k, c in enumerate(f)) % PRIME).to_bytes(SHARE)
            for x in places]  # fmt: skip


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


@dataclass(frozen=True)
class Secrets:
    """What a member draws for one round; `public` is its offer."""

    pairs: bytes  # X25519 private key of the pairwise masks
    own: bytes  # key of its own mask

    @classmethod
    def draw(cls) -> Secrets:
        return cls(secrets.token_bytes(32), secrets.token_bytes(32))

    def offer(self, agreed: Agreement, me: Keys, number: int) -> bytes:
        """S_u, a commitment to b_u, and both secrets in shares, one box for each member."""
        places = range(1, len(agreed.members) + 1)
        both = zip(
            *(split(s, agreed.threshold, places) for s in (self.pairs, self.own)), strict=True
        )
        parts = [public_of(self.pairs), commitment(agreed, me.name, number, self.own)]
        for holder, pair in zip(agreed.members, both, strict=True):
            nonce = secrets.token_bytes(12)
            cipher = between(agreed, me, holder.name, me.name, number)
            parts.append(nonce + cipher.encrypt(nonce, b"".join(pair), None))
        return b"".join(parts)


BOX = 12 + 2 * SHARE + 16


def offer_size(agreed: Agreement) -> int:
    return 64 + BOX * len(agreed.members) if agreed.masked else 0


def public_of(secret: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def commitment(agreed: Agreement, name: str, number: int, secret: bytes) -> bytes:
    return hashlib.sha256(f"{agreed.digest} {number} {name}\0".encode() + secret).digest()


def between(agreed: Agreement, me: Keys, other: str, giver: str, number: int) -> AESGCM:
    """The cipher of the shares that ``giver`` has for the other of the two."""
    secret = me.shared(agreed.people[other])
    return AESGCM(derive(secret, agreed.digest, "share", number, giver))


def held(agreed: Agreement, me: Keys, giver: str, number: int, offer: bytes) -> dict[str, bytes]:
    """My shares of a member's two secrets."""
    place = [p.name for p in agreed.members].index(me.name)
    box = offer[64 + BOX * place :][:BOX]
    try:
        text = between(agreed, me, giver, giver, number).decrypt(box[:12], box[12:], None)
    except InvalidTag:  # others hold shares enough, or nobody's sum is opened
        text = bytes(2 * SHARE)
    return {"pairs": text[:SHARE], "own": text[SHARE:]}


def opened(agreed: Agreement, number: int, giver: str, kind: str, offer: bytes,
           shares: Mapping[int, bytes]) -> bytes:  # fmt: skip
    """A secret from any t right shares of it, compared with the offer."""
    spare = len(shares) - agreed.threshold
    without = (set(out) for k in range(spare + 1) for out in combinations(shares, k))
    for out in islice(without, TRIES):  # who of those who answered has not told the truth
        some = [x for x in shares if x not in out][: agreed.threshold]
        secret = join({x: shares[x] for x in some})
        if kind == "pairs" and public_of(secret) == offer[:32]:
            return secret
        if kind == "own" and commitment(agreed, giver, number, secret) == offer[32:64]:
            return secret
    raise CorruptFileError(
        f"the shares of {giver!r} in round {number} do not make what it offered: {giver!r}, or "
        "somebody who answered, broke the rules; begin a session without it"
    )


# ---------------------------------------------------------------- masks


def mask(x: Words, me: str, drawn: Secrets, offers: Mapping[str, bytes], salt: str) -> None:
    """Add the masks of ``me`` in place; ``offers``: of all members of the round."""
    streams = [(derive(drawn.own, salt, "own", me), False)]
    streams += [(k, me > other) for other, k in _pairs(drawn.pairs, me, offers, salt, offers)]
    add_streams(streams, x)


def unmask(total: Words, offers: Mapping[str, bytes], stayed: Collection[str],
           found: Mapping[str, bytes], salt: str) -> None:  # fmt: skip
    """Take away what does not cancel in the sum over those who stayed, in place."""
    streams = []
    for name, secret in found.items():
        if name in stayed:
            streams.append((derive(secret, salt, "own", name), True))
        else:  # what each who stayed has added for it
            streams += [(k, name > o) for o, k in _pairs(secret, name, offers, salt, stayed)]
    add_streams(streams, total)


def _pairs(secret: bytes, me: str, offers: Mapping[str, bytes], salt: str,
           others: Collection[str]) -> list[tuple[str, bytes]]:  # fmt: skip
    mine = X25519PrivateKey.from_private_bytes(secret)
    return [
        (other, derive(exchange(mine, offers[other][:32], other), salt, *sorted((me, other))))
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
