"""Stage `convert`: a feature file → the same rows in another number format."""

from __future__ import annotations

from functools import partial

from ..files.hdf5 import recipe
from ..files.rows import RowStream, rounded
from ..math.gram import real
from ..options.features import Convert
from .runner import Files, Job, StageFunction


@StageFunction
def convert(o: Convert, files: Files) -> Job:
    """Write the rows of a feature file as round(x · 2^fraction_bits), int16, or as float32.

    Labels, row ids and classes stay the same, so a partition of one file fits the other. A
    conversion from float32 equals an extraction in the new format; one from int16 rounds a second
    time, so an entry can differ by one step. `InvalidDataError`, with row and column, for a value
    that does not fit, and where rounding makes a feature constant that varies (unless
    ``allow_constant``). Of images a network has made many features that stand for each other: what
    they lose is only said.
    """
    rows = files.features(o.features, labelled=False)
    given = rows.header["space"]
    space = {**given, "dtype": o.dtype, "fraction_bits": o.bits}
    before = {"digest": rows.header["digest"]}
    before |= {name: given[name] for name in ("dtype", "fraction_bits")}
    options = {"space": space, **o.stored("dtype", "fraction_bits")}
    made_by = recipe("convert", options, rows.meaning)
    was = {"converted": rows.header["provenance"]}
    header = rows.derived(made_by, was, space, converted_from=before)
    allowed = o.allow_constant or space.get("preprocessing") is not None
    of = "convert", o.features, space, rows.blocks, lambda _, X: real(X)
    blocks = partial(rounded, *of, allowed=allowed)
    stream = RowStream("convert", header, rows.given_labels, rows.row_ids, blocks)
    return Job.of_rows(o.out, made_by, partial(stream.write, o.out))
