"""Stage `convert`: a feature file → the same rows in another number format."""

from __future__ import annotations

from pathlib import Path

from ..files.feature_writer import writing_features
from ..files.hdf5 import recipe
from ..math.gram import real
from ..options.features import Convert
from ._rounded import write_rounded
from .runner import Files, Job, carry_out


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
    return carry_out(job, o)[-1].path


def job(o: Convert, files: Files) -> Job:
    rows = files.features(o.features, labelled=False)
    given, digest = rows.header["space"], rows.header["digest"]
    space = {**given, "dtype": o.dtype, "fraction_bits": o.bits}
    before = {"digest": digest, **{k: given[k] for k in ("dtype", "fraction_bits")}}
    options = {"space": space, **o.stored("dtype", "fraction_bits")}
    made_by = recipe("convert", options, rows.meaning)

    def write() -> None:
        was = {"converted": rows.header["provenance"]}
        header = rows.derived(made_by, was, space, converted_from=before)
        with writing_features(o.out, space, expect_rows=len(rows)) as writer:
            of = "convert", o.features, writer, space, len(rows)
            allowed = o.allow_constant or space.get("preprocessing") is not None
            write_rounded(*of, rows.blocks, lambda _, X: real(X), allowed=allowed)
            writer.finish(rows.given_labels, rows.row_ids, header)

    return Job.of_rows(o.out, made_by, write)
