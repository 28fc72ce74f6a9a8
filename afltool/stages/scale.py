"""Stage `scale`: sums of a site's features, of which all sites' scaling is made before statistics.

`solve` makes the scaling of their total, as it makes a head; `import --scale` takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from ..errors import InvalidDataError, naming
from ..files.hdf5 import recipe
from ..files.outputs import make_folder
from ..files.statistics import write_statistics
from ..heads.base import Block, binding, statistics_of
from ..heads.scaling import ScalingHead, ScalingOptions
from ..math.rounding import Rounding
from ..options.features import Scale
from ..sources.embeddings import Keys, check_rows, open_embeddings, space_of
from ..values.arrays import file_sha256
from ..values.names import check_name, file_of_name
from ..values.statistics import Client, ClientId, Context
from ..values.text import COLUMNS
from .runner import Files, Job, StageFunction, Write

ROWS = ("rows",)  # labels are not looked at: all rows are of one class


@StageFunction
def scale(o: Scale, files: Files) -> Job:
    """Write the sums of one site's features into the folder ``out``; gives the file.

    ``rows``: a feature file, or embeddings as `import` takes them; NaN is a missing value."""
    rows = o.rows
    x = open_embeddings(rows, Keys.of(o))
    check_rows(rows, x)
    if len(x) < o.min_rows:
        raise InvalidDataError(f"{rows} has {len(x)} rows, fewer than --min-rows {o.min_rows}")
    name = rows.stem if o.client is None else o.client
    check_name(name)
    source, space = file_sha256(rows), space_of(x, o.backbone)
    chosen = ScalingOptions(unit_bits=o.unit_bits)
    options = {"clients": [name], **chosen.as_dict(), "keys": [o.x, o.y, o.row_ids]}
    options |= o.stored("backbone", "client", "unit_bits")
    made_by = recipe("scale", options, {"features": source, "space": space})
    head = ScalingHead(chosen).bind(space["dim"], len(ROWS))
    found, columns = Rounding(space["dim"]), space.get(COLUMNS)

    def blocks() -> Iterator[Block]:
        """The rows; what is lost is measured where they are summed as multiples of 2^-unit_bits."""
        for block in x.blocks():
            wide = np.asarray(block, dtype=np.float64)
            known = np.where(np.isfinite(wide), wide, 0.0)  # the others are missing, or refused
            found.add(known, np.rint(known * 2.0**o.unit_bits) * 2.0**-o.unit_bits)
            yield wide, np.zeros(len(block), dtype=np.int64)

    def compute() -> Write:
        client = {ClientId(name): Client(len(x), source=source)}
        with naming(rows, columns=columns):
            context = Context(space, ROWS, binding(head))
            sums, _ = statistics_of(head, blocks(), client, context)
        if found.lost.any():
            raise InvalidDataError(
                f"{rows}: units of 2^-{o.unit_bits} make {int(found.lost.sum())} features constant "
                f"that vary, such as {found.said(columns)}: let all sites take more --unit-bits"
            )
        make_folder(o.out)
        return partial(write_statistics, s=sums)

    return Job.one(o.out / file_of_name(name), made_by, compute)
