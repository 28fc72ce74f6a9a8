"""The client of every row as a column names it: one for each text."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from ...errors import InvalidDataError
from ...values.arrays import I64
from ...values.names import check_name
from ..common import Dealt, SchemeOptions


def deal(labels: I64, options: SchemeOptions) -> Dealt:
    """Clients by name; with a number of clients K they are 0 … K−1, some of them without rows.

    Raises `InvalidDataError` for rows without a name, and for names beyond those numbers.
    """
    values = _checked(options.attribute)
    names = options.numbers if options.clients else in_order(values)
    index = {name: k for k, name in enumerate(names)}
    strangers = sorted(set(values) - index.keys())
    if strangers:
        raise InvalidDataError(
            f"file: expected client names 0 to {len(names) - 1}, found {len(strangers)} others, "
            f"such as {strangers[0]!r}. Without a number of clients names are used as they are"
        )
    return np.array([index[name] for name in values], np.int32), names


def _checked(attribute: Sequence[str | None]) -> tuple[str, ...]:
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


def in_order(values: Sequence[str]) -> tuple[str, ...]:
    """The names: numerals without leading zeros by their numbers, if all are; else as texts.

    >>> in_order(["10", "9", "9"]), in_order(["10", "09"])
    (('9', '10'), ('09', '10'))
    """
    names = set(values)
    if all(re.fullmatch("0|[1-9][0-9]*", name) for name in names):
        return tuple(sorted(names, key=lambda name: (len(name), name)))
    return tuple(sorted(names))
