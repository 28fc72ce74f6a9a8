"""Stage `convert`: a feature file → the same rows in another number format."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..files.feature_writer import writing_features
from ..files.features import open_features
from ..files.hdf5 import recipe, up_to_date
from ..math.gram import real
from ..options.common import on_cores
from ..options.features import Convert
from ._rounded import write_rounded


@on_cores
def convert(o: Convert) -> Path:
    """Write the rows of a feature file as round(x · 2^fraction_bits), int16, or as float32.

    Labels, row ids and classes stay the same, so a partition of one file fits the other. Only the
    number format of the feature space changes. A conversion from float32 equals an extraction in
    the new format. A conversion from int16 rounds a second time, so an entry can differ by one step
    from a direct extraction.

    Fewer bits make smaller statistics; docs/decisions/frontier.md has what that costs. Raises
    `InvalidDataError`, with row and column, for a value that does not fit, and where rounding makes
    a feature constant that varies (unless ``allow_constant``); then no file is written. Of images a
    network has made many features that stand for each other: what they lose is only said.
    """
    features, out, overwrite = o.features, o.out, o.overwrite
    with open_features(features, labelled=False) as rows:
        if out.exists() and out.samefile(features):
            raise UsageError(f"{out} is the file to convert: choose another -o")
        given, digest = rows.header["space"], rows.header["digest"]
        space = {**given, "dtype": o.dtype, "fraction_bits": o.bits}
        before = {"digest": digest, **{k: given[k] for k in ("dtype", "fraction_bits")}}
        made_by = recipe(
            "convert", {"space": space, **o.stored("dtype", "fraction_bits")}, rows.meaning
        )
        if up_to_date(out, made_by, overwrite):
            return out
        was = {"converted": rows.header["provenance"]}
        header = rows.derived(made_by, was, space, converted_from=before)
        with writing_features(out, space, expect_rows=len(rows)) as writer:
            of = "convert", features, writer, space, len(rows)
            allowed = o.allow_constant or space.get("preprocessing") is not None
            write_rounded(*of, rows.blocks, lambda _, X: real(X), allowed=allowed)
            writer.finish(rows.given_labels, rows.row_ids, header)
    return out
