"""Rows from outside on their way into a feature file: what rounding takes from them is measured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import cores
from ..errors import InvalidDataError, naming
from ..files.feature_writer import FeatureWriter
from ..math.gram import REALS, FixedPoint, encode, largest_bits, real
from ..math.rounding import Rounding
from ..progress import log
from ..values.arrays import F64
from ..values.text import COLUMNS

Parts = Iterable[tuple[int, Any]]  # the number of the first row, and rows


def write_rounded(
    what: str,
    path: Path,
    writer: FeatureWriter,
    space: Mapping[str, Any],
    rows: int,
    parts: Callable[[], Parts],
    rows_of: Callable[[int, Any], F64],
    constant: Sequence[int] = (),
    allowed: bool = False,
) -> None:
    """Write the rows of ``path``, ``parts()`` as ``rows_of`` makes them, and say what they lose.

    Rounding that makes a feature constant is refused unless it is ``allowed``, or it was known to
    be ``constant``. A value beyond the fixed point is refused with what holds all rows.
    """
    columns, found = space.get(COLUMNS), Rounding(space["dim"], constant)
    size = 40 * space["dim"]  # bytes of a row and what is made of it

    def stored(part: tuple[int, Any]) -> Any:
        with naming(path, columns=columns):
            x = rows_of(*part)
            values = writer.stored(part[0], x)
        found.add(x, values if writer.bits is None else real(FixedPoint(values, writer.bits)))
        return values

    try:
        writer.fill(what, rows, cores.each(stored, parts(), lambda part: size * len(part[1])))
    except InvalidDataError as error:
        if "--fraction-bits" in error.advice:
            with naming(path, columns=columns):
                advice = _advice(lambda: (rows_of(*part) for part in parts()), space, constant)
            error.args = (str(error).replace(error.advice, f"{advice}{REALS}"),)
        raise
    if not allowed:
        with naming(path):
            found.check(columns)
    if found.varies.any() and not found.exact:
        level = logging.WARNING if found.thin.any() else logging.INFO
        log.log(level, "%s: rounding takes most from %s", what, found.said(columns))


def _advice(
    blocks: Callable[[], Iterator[F64]], space: Mapping[str, Any], constant: Sequence[int]
) -> str:
    """The most fraction bits that hold all rows, and what they cost."""
    bits = largest_bits(np.max([np.abs(x).max() for x in blocks()]))
    if bits is None:
        return "; no number of fraction bits holds all rows"
    found = Rounding(space["dim"], constant)
    for x in blocks():
        found.add(x, real(FixedPoint(encode(x, bits), bits)))
    said = found.said(space.get(COLUMNS))
    if lost := int(found.lost.sum()):
        return f"; {bits} fraction bits hold all rows and make {lost} constant, such as {said}"
    return f"; --fraction-bits {bits} would hold all rows, and takes most from {said}"
