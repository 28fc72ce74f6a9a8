"""Options that several stages take, checked in one place. Not a stage itself."""

from __future__ import annotations

import re

from ..errors import UsageError
from ..store.schema import FEATURE_TYPES


def check_format(dtype: str, fraction_bits: int) -> None:
    """Refuse a number format that does not exist."""
    if dtype not in FEATURE_TYPES:
        raise UsageError(f"--dtype is {' or '.join(FEATURE_TYPES)}; found {dtype!r}")
    if not 0 <= fraction_bits <= 15:
        raise UsageError(f"--fraction-bits is 0 to 15 (9: range ±64); found {fraction_bits}")


def parse_shard(text: str | None) -> tuple[int, int]:
    """'I/N' with I from 0; nothing is '0/1'.

    >>> parse_shard("2/8")
    (2, 8)
    """
    if text is None:
        return 0, 1
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not int(match[1]) < int(match[2]):
        raise UsageError(f"--shard is I/N with I from 0 to N−1, such as 0/8; found {text!r}")
    return int(match[1]), int(match[2])
