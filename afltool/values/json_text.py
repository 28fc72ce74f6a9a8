"""The one place where JSON is written, and where the first difference of two values is found.

JSON has no NaN and no infinity. Python writes them all the same, and no other reader takes such a
file, so they are refused here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from ..errors import NumericalError


def json_text(value: Any, **style: Any) -> str:
    """``value`` as JSON; ``style`` is that of `json.dumps`.

    Raises:
        NumericalError: a number in it is NaN or infinite; the message says which.

    >>> json_text({"a": [1, 2.5]})
    '{"a": [1, 2.5]}'
    """
    try:
        return json.dumps(value, allow_nan=False, **style)
    except ValueError:
        where = _not_finite(value)
        if where is None:
            raise
        raise NumericalError(
            f"{where}, which no file can hold: a result that is not a finite number is not written;"
            " look at the features (are they very large, or all 0?)"
        ) from None


def _not_finite(value: Any, path: str = "") -> str | None:
    """The first number in it that is not finite, as 'report.ridge is nan'; None without one."""
    if isinstance(value, float) and not isfinite(value):
        return f"{path or 'a number'} is {value}"
    pairs: Any = ()
    if isinstance(value, Mapping):
        pairs = ((f"{path}.{key}".lstrip("."), one) for key, one in value.items())
    elif isinstance(value, (list, tuple)):
        pairs = ((f"{path}[{i}]", one) for i, one in enumerate(value))
    return next((found for name, one in pairs if (found := _not_finite(one, name))), None)


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
