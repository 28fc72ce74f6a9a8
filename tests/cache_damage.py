"""Damage to a file that `local-stats --cache` left (.npz), for tests and the campaign."""

from __future__ import annotations

from random import Random


def damaged(data: bytes, how: str, draw: Random) -> bytes:
    """The bytes of a cache file after one kind of damage."""
    at, found = draw.randrange(len(data)), bytearray(data)
    if how == "one bit turned":
        found[at] ^= 1 << draw.randrange(8)
    elif how == "zeros at the end":
        found[at:] = bytes(len(data) - at)
    elif how == "cut":
        del found[at:]
    elif how == "rows swapped":
        found[:20], found[20:40] = found[20:40], found[:20]
    elif how == "NaN":
        found[:4] = b"\x00\x00\xc0\x7f"
    elif how == "another type":
        found = bytearray(data.replace(b"'<f", b"'<i"))
    elif how == "noise":
        found[:] = draw.randbytes(len(data))
    return bytes(found)


KINDS = (
    "one bit turned", "zeros at the end", "cut", "rows swapped", "NaN", "another type", "noise",
)  # fmt: skip
