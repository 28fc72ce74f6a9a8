"""What the header of every kind holds (docs/format.md), checked before anybody uses it.

A pattern is a type or a predicate of a JSON value, a list of one pattern for lists, a mapping for
objects that have at least these keys, or a tuple of alternatives; None stands for null, ABSENT for
a key that is not there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError
from .schema import FEATURE_TYPES


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


def whole(value: Any) -> bool:
    """a whole number from 0 on"""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def at_least_one(value: Any) -> bool:
    """a whole number from 1 on"""
    return whole(value) and value >= 1


def bits(value: Any) -> bool:
    """a number of bits from 0 to 15"""
    return whole(value) and value <= 15


def size(value: Any) -> bool:
    """a finite number from 0 on"""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 <= value < math.inf


def number_format(value: Any) -> bool:
    """int16 or float32"""
    return isinstance(value, str) and value in FEATURE_TYPES


SPACE = {"dim": at_least_one, "dtype": number_format, "fraction_bits": (bits, None)}
ADDABLE_SPACE = {  # of statistics and heads, which may be made of other rows than feature files
    "dim": (at_least_one, ABSENT),
    "dtype": (number_format, ABSENT),
    "fraction_bits": (bits, None, ABSENT),
}
COMMON = {
    "digest": str,
    "recipe": {"stage": str, "options": dict, "inputs": dict},
    "provenance": dict,
}
CLIENTS = {
    "names": [str],
    "rows": [whole],
    "gamma": [size],
    "partition": [whole],
    "source": [whole],
    "held_out": [whole],
    "partitions": [[str]],
    "sources": [str],
    "dealt_to": ([whole], ABSENT),  # files of the first days lack it
}
BOUND_HEAD = {
    "name": (str, ABSENT),
    "options": (dict, ABSENT),
    "phase": (str, ABSENT),
    "digest": (str, ABSENT),
}
BY_KIND: dict[str, Mapping[str, Any]] = {
    "features": {"space": SPACE, "classes": [str], "source": dict},
    "partition": {
        "names": [str],
        "held_out": [whole],
        "classes": [str],
        "scheme": dict,
        "rows_digest": str,
    },
    "statistics": {
        "phase": str,
        "context": {"space": ADDABLE_SPACE, "classes": [str], "head": BOUND_HEAD},
        "clients": CLIENTS,
    },
    "head": {
        "name": str,
        "options": dict,
        "phase": (str, None),
        "dim": (at_least_one, None),
        "space": (ADDABLE_SPACE, None),
        "classes": ([str], None),
        "report": dict,
    },
}


def check(path: Path, kind: str, header: Any) -> None:
    """Raise `CorruptFileError` naming the first field that is not what the format says."""
    wrong = _mismatch(header, {**COMMON, **BY_KIND[kind]}, "")
    if wrong:
        raise CorruptFileError(f"{path} is damaged: in its header {wrong}")


def _mismatch(value: Any, pattern: Any, name: str) -> str:
    """What is wrong, in words; '' if nothing is."""
    if isinstance(pattern, tuple):
        found = [_mismatch(value, one, name) for one in pattern]
        return "" if "" in found else found[0]
    if isinstance(pattern, Mapping):
        if not isinstance(value, dict):
            return _said(name, "an object", value)
        inner = ((value.get(k, ABSENT), p, f"{name}.{k}") for k, p in pattern.items())
    elif isinstance(pattern, list):
        if not isinstance(value, list):
            return _said(name, "a list", value)
        inner = ((one, pattern[0], f"{name}[{i}]") for i, one in enumerate(value))
    elif _is(value, pattern):
        return ""
    else:
        return _said(name, _words(pattern), value)
    return next((wrong for one in inner if (wrong := _mismatch(*one))), "")


def _is(value: Any, pattern: Any) -> bool:
    if pattern is None or pattern is ABSENT:
        return value is pattern
    return isinstance(value, pattern) if isinstance(pattern, type) else bool(pattern(value))


def _words(pattern: Any) -> str:
    if isinstance(pattern, type):
        return "a text" if pattern is str else "an object"
    return "null" if pattern is None else str(pattern.__doc__)


def _said(name: str, expected: str, found: Any) -> str:
    text = repr(found)
    return f"{name[1:] or 'all'} is {text[:40]}{'…' * (len(text) > 40)}, not {expected}"
