"""One client for each value of a column: hospital, user, camera."""

from __future__ import annotations

from ...arrays import I64
from ..common import Dealt, SchemeOptions
from ..named import by_names, checked, in_order


def deal(labels: I64, options: SchemeOptions) -> Dealt:
    """Each distinct text of the column is a client of this name."""
    values = checked(options.attribute)
    return by_names(values, in_order(values))
