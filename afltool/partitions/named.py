"""Clients that a column names: one for each text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ..errors import InvalidDataError
from ..names import check_name
from .common import Dealt


def checked(attribute: Sequence[str | None]) -> tuple[str, ...]:
    """The texts, one for each row; `InvalidDataError` for rows without one."""
    missing = sum(1 for name in attribute if not name)
    if missing:
        raise InvalidDataError(
            f"attribute: expected a value in each of {len(attribute)} rows, found {missing} "
            "without one. Name a client for them"
        )
    found = tuple(name for name in attribute if name)
    for name in set(found):
        check_name(name)
    return found


def by_names(values: Sequence[str], names: tuple[str, ...]) -> Dealt:
    """Each row to the client that its text names; `InvalidDataError` for other names."""
    index = {name: k for k, name in enumerate(names)}
    strangers = sorted(set(values) - index.keys())
    if strangers:
        raise InvalidDataError(
            f"file: expected client names 0 to {len(names) - 1}, found {len(strangers)} others, "
            f"such as {strangers[0]!r}. Without a number of clients names are used as they are"
        )
    return np.array([index[name] for name in values], np.int32), names


def in_order(values: Sequence[str]) -> tuple[str, ...]:
    """The names: numerals without leading zeros by their numbers, if all are; else as texts.

    >>> in_order(["10", "9", "9"]), in_order(["10", "09"])
    (('9', '10'), ('09', '10'))
    """
    names = set(values)
    if all(re.fullmatch("0|[1-9][0-9]*", name) for name in names):
        return tuple(sorted(names, key=lambda name: (len(name), name)))
    return tuple(sorted(names))
