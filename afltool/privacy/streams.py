"""Masks: ChaCha20 key streams added to arrays of numbers modulo 2^64."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from numpy.typing import NDArray

Words = NDArray[np.uint64]
CHUNK = 1 << 14  # numbers at a time: what is added stays in the cache
_ZEROS = memoryview(bytes(8 * CHUNK))
_START = bytes(16)  # counter and nonce: a key is used for one stream alone


def add_stream(key: bytes, arrays: Iterable[Words], subtract: bool = False) -> None:
    """Add (or subtract) the key's stream, 8 bytes a number, to flat arrays in place, modulo 2^64.

    The stream goes on from one array to the next, so the order of the arrays matters.
    """
    stream = Cipher(ChaCha20(key, _START), mode=None).encryptor()
    buffer = bytearray(8 * CHUNK)
    view, words = memoryview(buffer), np.frombuffer(buffer, "<u8")
    combine = np.subtract if subtract else np.add
    for array in arrays:
        for start in range(0, len(array), CHUNK):
            piece = array[start : start + CHUNK]
            stream.update_into(_ZEROS[: 8 * len(piece)], view[: 8 * len(piece)])
            combine(piece, words[: len(piece)], out=piece)
