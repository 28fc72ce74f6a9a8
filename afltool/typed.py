"""Values of options, from files and programs, checked against the types of their fields."""

from __future__ import annotations

from numbers import Integral, Real
from pathlib import Path
from typing import Any

from .errors import UsageError

_WORDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a text",
    "Path": "a path",
}


def typed(annotation: Any, name: str, value: Any) -> Any:
    """The value of an option, of the type that its field says, such as 'float | None', or refused.

    A whole number does where a real one is wanted, and a text where a path is.
    """
    kinds = [kind.strip() for kind in str(annotation).split("|")]
    if value is None and "None" in kinds:
        return None
    if isinstance(value, bool):
        if "bool" in kinds:
            return value
    elif isinstance(value, Real) and "float" in kinds:
        return float(value)
    elif isinstance(value, Integral) and "int" in kinds:
        return int(value)
    elif isinstance(value, (str, Path)) and "Path" in kinds:
        return Path(value)
    elif isinstance(value, (str, Path)) and "str" in kinds:
        return str(value)
    words = " or ".join(_WORDS[kind] for kind in kinds if kind in _WORDS)
    raise UsageError(f"--{name.replace('_', '-')} takes {words}; found {value!r}")
