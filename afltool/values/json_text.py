"""The one place where JSON is written: headers, results, what digests are of.

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
