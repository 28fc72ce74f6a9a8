"""A stream of rows on its way into a feature file; what rounding takes from rows is measured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .. import parallel, progress
from ..errors import naming
from ..math.gram import FixedPoint, encode, real
from ..math.rounding import Rounding
from ..progress import log
from ..values.arrays import F64
from ..values.text import COLUMNS
from .feature_writer import as_float32, writing_features
from .features import Labels
from .hdf5 import Header

Parts = Iterable[tuple[int, Any]]  # the number of the first row, and rows


@dataclass(frozen=True)
class RowStream:
    """Rows that the writer of features pulls.

    ``header`` has what they are: space, classes, recipe, provenance, source. ``labels`` are None
    where there are none. ``blocks()`` gives the rows in order, in the type of the file; it may
    raise in the end what only all rows tell, and then no file is left.
    """

    what: str  # the stage
    header: Header
    labels: Labels | None
    row_ids: NDArray[Any]
    blocks: Callable[[], Iterator[NDArray[Any]]]

    def write(self, path: Path) -> None:
        """Write the file."""
        with writing_features(path, self.header["space"]) as writer:
            with progress.task(self.what, len(self.row_ids), "rows") as task:
                for values in self.blocks():
                    writer.append_values(values)
                    task.advance(len(values))
                    progress.stop_point()
            writer.finish(self.labels, self.row_ids, self.header)


def rounded(
    what: str,
    path: Path,
    space: Mapping[str, Any],
    parts: Callable[[], Parts],
    rows_of: Callable[[int, Any], F64],
    constant: Sequence[int] = (),
    allowed: bool = False,
) -> Iterator[NDArray[Any]]:
    """The rows of ``path``, ``parts()`` as ``rows_of`` makes them, in the number format of a space.

    It says what they lose. Rounding that makes a feature constant is refused unless it is
    ``allowed``, or it was known to be ``constant``.
    """
    columns, bits = space.get(COLUMNS), space["fraction_bits"]
    found = Rounding(space["dim"], constant)
    size = 40 * space["dim"]  # bytes of a row and what is made of it

    def stored(part: tuple[int, Any]) -> NDArray[Any]:
        with naming(path, columns=columns):
            x = rows_of(*part)
            if bits is None:
                single = as_float32(x, part[0])
                found.add(x, single)
                return single
            fixed = encode(x, bits, part[0])
        found.add(x, real(FixedPoint(fixed, bits)))
        return fixed

    yield from parallel.each(stored, parts(), lambda part: size * len(part[1]))
    if not allowed:
        with naming(path):
            found.check(columns)
    if found.shares.any():
        level = logging.WARNING if found.thin.any() else logging.INFO
        log.log(level, "%s: rounding takes most from %s", what, found.said(columns))
