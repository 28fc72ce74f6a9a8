"""One client for each value of a column: hospital, user, camera."""

from __future__ import annotations

from ..common import Dealt, Ints, SchemeOptions
from ..named import by_names, checked, in_order


def deal(labels: Ints, options: SchemeOptions) -> Dealt:
    """Each distinct text of the column is a client of this name."""
    values = checked(options.attribute)
    return by_names(values, in_order(values))
