"""A member's numbers under masks: pairwise masks, which cancel in the sum, and a mask of its own.

y_u = x_u + PRG(b_u) + Σ_{v > u} PRG(k_uv) − Σ_{v < u} PRG(k_uv) modulo 2^64, where u and v agree on
k_uv by X25519, and b_u is known to u alone (Bonawitz et al., CCS 2017, section 4). v runs over the
neighbours of u (`Roster.neighbours`; Bell et al., CCS 2020): all members unless they are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES, ChaCha20
from cryptography.hazmat.primitives.ciphers.modes import GCM
from numpy.typing import NDArray

from .. import cores
from ..errors import InvalidDataError, NumericalError
from ..values.arrays import I64
from ..values.statistics import Statistics
from .identity import agree, derive
from .offers import Offers, Secrets
from .roster import Roster

COUNTS = "class_counts"  # masked as the other arrays are
Words = NDArray[np.uint64]
Masked = dict[str, Words]
Stream = tuple[bytes, bool]  # a key, and whether its stream is subtracted
CHUNK = 1 << 15  # numbers at a time: they stay in the cache while all streams are added
TOGETHER = 128  # streams that are open at a time
SEGMENT = 1 << 17  # numbers of a part of a stream: where a thread may begin
_ZEROS = memoryview(bytes(8 * CHUNK))


def pair_key(offers: Offers, mine: X25519PrivateKey, me: str, other: str) -> bytes:
    """The key of the mask of two members; both derive the same one.

    In a session it depends on the offers of all, too: with other ones no masks cancel.
    """
    names, roster = sorted((me, other)), offers.roster
    salt = roster.digest if roster.series is None else offers.digest
    secret = agree(mine, offers.mask_key(other), other)
    return derive(secret, bytes.fromhex(salt), "pair", *names)


def self_key(roster: Roster, secret: bytes, name: str) -> bytes:
    """The key of a member's own mask."""
    return derive(secret, bytes.fromhex(roster.digest), "self", name)


def flat(arrays: Masked) -> list[Words]:
    """The arrays as flat views, sorted by name; the streams run through them in this order."""
    return [arrays[name].reshape(-1) for name in sorted(arrays)]


def pair_stream(key: bytes, me: str, other: str, subtract: bool = False) -> Stream:
    """The mask of a pair as member ``me`` adds it: the first by name adds, the other subtracts."""
    return key, (me > other) != subtract


def plain(roster: Roster, me: str, statistics: Statistics) -> Masked:
    """The numbers modulo 2^64, checked against the bound that keeps the sum within int64."""
    if not statistics.exact:
        raise InvalidDataError(
            f"the statistics of {me!r} are real numbers, and masks need integers: use int16 "
            "features and a head with integer sums; random-features and deepafl have them with "
            "--compute fixed"
        )
    if statistics.rows > roster.max_rows:
        raise InvalidDataError(
            f"{me!r} has {statistics.rows} rows, the roster allows {roster.max_rows}: make a "
            "roster with a larger --max-rows"
        )
    numbers = {**statistics.arrays, COUNTS: statistics.class_counts}
    if COUNTS in statistics.arrays:
        raise InvalidDataError(f"an array named {COUNTS!r} cannot be masked")
    for name, array in numbers.items():
        largest = max(int(array.max(initial=0)), -int(array.min(initial=0)))
        if largest > roster.limit:
            raise NumericalError(
                f"the array {name!r} of {me!r} has an entry of magnitude {largest}; with "
                f"{len(roster.members)} members it may be at most {roster.limit}, so that the sum "
                "fits into int64: use fewer --fraction-bits"
            )
    return {name: a.astype(np.int64).view(np.uint64) for name, a in numbers.items()}


def mask(offers: Offers, me: str, drawn: Secrets, arrays: Masked) -> None:
    """Add the masks of ``me`` to the arrays in place."""
    roster, mine = offers.roster, drawn.mask_key
    streams = [] if roster.all else [(self_key(roster, drawn.self, me), False)]
    for other in sorted(roster.neighbours(me) & offers.by_member.keys()):
        key = pair_key(offers, mine, me, other)
        streams.append(pair_stream(key, me, other))
    add_streams(streams, flat(arrays), BEGUN[roster.masks])


def add_into(total: Masked, arrays: Masked, who: str) -> None:
    """Add a member's masked arrays to a sum in place; `InvalidDataError` if the shapes differ."""
    shapes = [{name: a.shape for name, a in x.items()} for x in (total, arrays)]
    if shapes[0] != shapes[1]:
        raise InvalidDataError(
            f"the arrays of {who!r} are {shapes[1]}, those of the others {shapes[0]}"
        )
    for name, a in total.items():
        np.add(a, arrays[name], out=a)


def unmask(
    offers: Offers, survivors: Iterable[str], secrets: Mapping[str, bytes], total: Masked
) -> None:
    """Subtract the masks that did not cancel from the sum over ``survivors``, in place.

    ``found``: the self-mask's secret of each survivor, and the private key of the pairwise masks of
    each member that dropped out after its offer. Where all must stay, nothing is left to subtract.
    """
    roster, stayed = offers.roster, set(survivors)
    streams: list[Stream] = []
    for name in () if roster.all else offers.by_member:
        if name in stayed:
            streams.append((self_key(roster, secrets[name], name), True))
            continue
        gone = X25519PrivateKey.from_private_bytes(secrets[name])
        for other in sorted(stayed & roster.neighbours(name)):
            key = pair_key(offers, gone, name, other)
            streams.append(pair_stream(key, other, name, subtract=True))
    add_streams(streams, flat(total), BEGUN[roster.masks])


def as_integers(total: Masked, most: int) -> tuple[dict[str, Any], I64]:
    """Arrays and class counts of an unmasked sum, int64.

    Refuses an entry beyond ``most``: sums of honest members stay within it, so some member broke
    the rules.
    """
    numbers = {name: a.view(np.int64) for name, a in total.items()}
    for name, a in numbers.items():
        largest = max(int(a.max(initial=0)), -int(a.min(initial=0)))
        if largest > most:
            raise NumericalError(
                f"the sum makes no sense: an entry of {name!r} is {largest}, but at most {most} if "
                "all members are honest; one of them masked other numbers"
            )
    return {k: a for k, a in numbers.items() if k != COUNTS}, numbers[COUNTS]


# ---------------------------------------------------------------- key streams


def chacha20(key: bytes, segment: int) -> CipherContext:
    """ChaCha20 from a segment on, by its counter: the stream of version 1."""
    block = segment * SEGMENT // 8  # of 64 bytes
    return Cipher(ChaCha20(key, block.to_bytes(4, "little") + bytes(12)), mode=None).encryptor()


def aes256(key: bytes, segment: int) -> CipherContext:
    """AES-256 in counter mode, the number of the segment its nonce: the stream of version 2.

    As GCM, whose tag nobody needs: OpenSSL has wider instructions for it than for the counter mode
    alone, and streams take half of the time of ChaCha20.
    """
    return Cipher(AES(key), GCM(segment.to_bytes(12))).encryptor()


BEGUN = {1: chacha20, 2: aes256}  # by the version of masks in the roster


def add_streams(
    streams: Sequence[Stream],
    arrays: Sequence[Words],
    begun: Callable[[bytes, int], CipherContext] = aes256,
) -> None:
    """Add or subtract streams, 8 bytes a number, to flat arrays in place, modulo 2^64.

    A stream goes on from one array to the next, so the order of the arrays matters. All streams are
    added in one pass over the arrays. Threads take segments: neither OpenSSL nor NumPy holds the
    interpreter while it computes. The sum does not depend on the number of threads. A key is used
    for one stream alone.
    """

    def add(segment: int) -> None:
        view = memoryview(bytearray(8 * CHUNK))
        words = np.frombuffer(view, "<u8")
        for first in range(0, len(streams), TOGETHER):
            some = streams[first : first + TOGETHER]
            both = [(begun(key, segment), np.subtract if minus else np.add) for key, minus in some]
            for piece in _pieces(arrays, segment * SEGMENT, (segment + 1) * SEGMENT):
                n = len(piece)
                zeros, bytes_, stream = _ZEROS[: 8 * n], view[: 8 * n], words[:n]
                for cipher, combine in both:
                    cipher.update_into(zeros, bytes_)
                    combine(piece, stream, out=piece)

    for _ in cores.each(add, range(-(-sum(map(len, arrays)) // SEGMENT))):
        pass


def _pieces(arrays: Sequence[Words], start: int, stop: int) -> Iterator[Words]:
    """The numbers ``start`` … ``stop`` − 1 of the arrays one after the other, `CHUNK` at most."""
    for array in arrays:
        for at in range(max(start, 0), min(stop, len(array)), CHUNK):
            yield array[at : min(at + CHUNK, stop)]
        start, stop = start - len(array), stop - len(array)
