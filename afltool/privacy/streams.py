"""Masks: ChaCha20 key streams added to arrays of numbers modulo 2^64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

from .. import cores

Words = NDArray[np.uint64]
Stream = tuple[bytes, bool]  # a key, and whether its stream is subtracted
CHUNK = 1 << 14  # numbers at a time: they stay in the cache while all streams are added
TOGETHER = 128  # streams that are open at a time
BLOCK = 8  # numbers of a block of ChaCha20, the unit of its counter
_ZEROS = memoryview(bytes(8 * CHUNK))


def add_streams(streams: Sequence[Stream], arrays: Sequence[Words]) -> None:
    """Add or subtract streams, 8 bytes a number, to flat arrays in place, modulo 2^64.

    A stream goes on from one array to the next, so the order of the arrays matters. All streams are
    added in one pass over the arrays. Each thread takes a part of the numbers and begins every
    stream there, by ChaCha20's counter: neither OpenSSL nor NumPy holds the interpreter while it
    computes. The sum does not depend on the number of threads.
    """
    count = sum(len(array) for array in arrays)
    parts = max(1, min(cores.threads(), -(-count // CHUNK)))
    ends = [count * i // parts // BLOCK * BLOCK for i in range(parts)] + [count]
    for _ in cores.each(lambda part: _add_part(streams, arrays, *part), pairwise(ends)):
        pass


def _add_part(streams: Sequence[Stream], arrays: Sequence[Words], start: int, stop: int) -> None:
    """Add numbers ``start`` … ``stop`` − 1 of the streams; ``start`` is a multiple of `BLOCK`."""
    view = memoryview(bytearray(8 * CHUNK))
    words = np.frombuffer(view, "<u8")
    for first in range(0, len(streams), TOGETHER):
        some = streams[first : first + TOGETHER]
        begun = [(_begun(key, start), np.subtract if minus else np.add) for key, minus in some]
        for piece in _pieces(arrays, start, stop):
            n = len(piece)
            zeros, bytes_, stream = _ZEROS[: 8 * n], view[: 8 * n], words[:n]
            for cipher, combine in begun:
                cipher.update_into(zeros, bytes_)
                combine(piece, stream, out=piece)


def _begun(key: bytes, number: int) -> CipherContext:
    """The key's stream from a number on. The nonce is 0: a key is used for one stream alone."""
    place = (number // BLOCK).to_bytes(4, "little") + bytes(12)
    return Cipher(ChaCha20(key, place), mode=None).encryptor()


def _pieces(arrays: Sequence[Words], start: int, stop: int) -> Iterator[Words]:
    """The numbers ``start`` … ``stop`` − 1 of the arrays one after the other, `CHUNK` at most."""
    for array in arrays:
        for at in range(max(start, 0), min(stop, len(array)), CHUNK):
            yield array[at : min(at + CHUNK, stop)]
        start, stop = start - len(array), stop - len(array)
