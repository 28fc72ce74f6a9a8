"""The client of every row as somebody else decided it."""

from __future__ import annotations

from ...arrays import I64
from ..common import Dealt, SchemeOptions
from ..named import by_names, checked, in_order


def deal(labels: I64, options: SchemeOptions) -> Dealt:
    """Clients by name; with a number of clients K they are 0 … K−1, some of them without rows."""
    values = checked(options.attribute)
    return by_names(values, options.numbers if options.clients else in_order(values))
