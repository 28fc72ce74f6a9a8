"""The first difference of two JSON values, for messages that name what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(a: Any, b: Any, path: str = "") -> str:
    """The first field in which two JSON values differ, with both values; '' if they are equal.

    Digests are looked at last.

    >>> difference({"space": {"dim": 3}}, {"space": {"dim": 4}})
    'space.dim is 4 here and 3 there'
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys(), key=_digests_last):
            found = difference(a.get(key), b.get(key), f"{path}.{key}" if path else key)
            if found:
                return found
        return ""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"{path} has {len(b)} entries here and {len(a)} there"
        return next(
            (
                d
                for i, (x, y) in enumerate(zip(a, b, strict=True))
                if (d := difference(x, y, f"{path}[{i}]"))
            ),
            "",
        )
    return "" if a == b else f"{path} is {b!r} here and {a!r} there"


def _digests_last(key: str) -> tuple[bool, str]:
    """A digest says that something differs, the fields beside it say what."""
    return "digest" in key or "sha256" in key, key
