"""Random numbers by purpose, so that the order of the simulation cannot change them.

Every draw has a stream of its own: Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3", SC 2011) with key (seed, purpose) and counter (·, round, client, epoch). A client is
known by its name, not by its place, and the method is no part of the key: FedProx with μ = 0 sees
FedAvg's batches.
"""

from __future__ import annotations

import hashlib
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray


class Purpose(IntEnum):
    """The purposes that numbers are drawn for."""

    BATCHES = 0
    PARTICIPANTS = 1
    GENERATED = 2  # labels and noise for FedGen's generator at a client
    GENERATOR = 3  # labels and noise for its training at the server
    START = 4


def client_key(name: str) -> int:
    """64 bits that stand for a client's name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")


def stream(
    seed: int, purpose: Purpose, round: int = 0, client: int = 0, epoch: int = 0
) -> np.random.Philox:
    """The words of one purpose in one epoch of one client's round."""
    key = np.array([seed, int(purpose)], dtype=np.uint64)
    counter = np.array([0, round, client, epoch], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter)


def permutation(words: np.random.Philox, n: int) -> NDArray[np.int64]:
    """0 … n−1 in random order, (n,) int64: the order of n words."""
    return np.argsort(words.random_raw(n), kind="stable").astype(np.int64)


def normal(words: np.random.Philox, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Standard normal numbers of a shape."""
    return np.random.Generator(words).standard_normal(shape, dtype=dtype)


def choice(words: np.random.Philox, n: int, counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``n`` classes drawn in proportion to ``counts`` (C,), (n,) int64; not all may be 0."""
    ends = np.cumsum(counts)
    u = (words.random_raw(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    places: NDArray[np.int64] = np.searchsorted(ends, np.floor(u * ends[-1]), side="right")
    return places
