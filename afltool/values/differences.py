"""The first difference of two JSON values, for messages that name what does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def difference(a: Any, b: Any, of_a: str, of_b: str, path: str = "") -> str:
    """The first field in which two JSON values differ, with both values; '' if they are equal.

    ``of_a``, ``of_b``: words that say where the values stand. Digests are looked at last.

    >>> difference({"space": {"dim": 3}}, {"space": {"dim": 4}}, "in a.h5", "in b.h5")
    'space.dim is 4 in b.h5, 3 in a.h5'
    """
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys(), key=_digests_last):
            found = difference(a.get(key), b.get(key), of_a, of_b, f"{path}.{key}" if path else key)
            if found:
                return found
        return ""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return f"{path} has {len(b)} entries {of_b}, {len(a)} {of_a}"
        return next(
            (
                d
                for i, (x, y) in enumerate(zip(a, b, strict=True))
                if (d := difference(x, y, of_a, of_b, f"{path}[{i}]"))
            ),
            "",
        )
    return "" if a == b else f"{path} is {b!r} {of_b}, {a!r} {of_a}"


def _digests_last(key: str) -> tuple[bool, str]:
    """A digest says that something differs, the fields beside it say what."""
    return "digest" in key or "sha256" in key, key
