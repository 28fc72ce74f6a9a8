"""Stage `convert`: a feature file → the same rows in another number format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .. import progress
from ..errors import InvalidDataError, UsageError
from ..files import recipe, up_to_date
from ..linalg.fixedpoint import real
from ..store.features import Features, open_features, writing_features
from ..store.provenance import provenance
from ._options import check_format


def convert(
    features: str | Path,
    out: str | Path,
    *,
    dtype: str = "int16",
    fraction_bits: int = 9,
    overwrite: bool = False,
) -> Path:
    """Write the rows of a feature file as round(x · 2^fraction_bits), int16, or as float32.

    Labels, row ids and classes stay, so that a partition of the one is a partition of the other,
    and so does the feature space but for its number format: what is converted from float32 is what
    would have been extracted so. Rounding twice is not rounding once: with fewer bits than an int16
    file has, an entry can be a step off where a direct one would have been rounded at a half.

    Fewer bits make smaller statistics; docs/decisions/frontier.md has what that costs. Values that
    do not fit are refused (`InvalidDataError`, with row and column), and nothing is written then.
    """
    path, out = Path(features), Path(out)
    check_format(dtype, fraction_bits)
    bits = fraction_bits if dtype == "int16" else None
    with open_features(path) as rows:
        if out.exists() and out.samefile(path):
            raise UsageError(f"{out} is what is to be converted: choose another -o")
        space = {**rows.header["space"], "dtype": dtype, "fraction_bits": bits}
        made_by = recipe("convert", {"space": space}, {"features": rows.header["digest"]})
        if up_to_date(out, made_by, overwrite):
            return out
        header = {
            "recipe": made_by,
            "provenance": provenance(converted=rows.header["provenance"]),
            "space": space,
            "classes": rows.header["classes"],
            "source": {**rows.header["source"], "converted_from": _origin(rows)},
        }
        with writing_features(out, rows.dim, dtype, bits, expect_rows=len(rows)) as writer:
            with progress.task("convert", len(rows), "rows") as task:
                for _, X in rows.blocks():
                    try:
                        writer.append(real(X))
                    except InvalidDataError as error:
                        raise InvalidDataError(f"{path}: {error}") from None
                    task.advance(len(X))
                    progress.stop_point()
            writer.finish(rows.labels, rows.row_ids, header)
    return out


def _origin(rows: Features) -> dict[str, Any]:
    """What was converted: digest and number format."""
    space = rows.header["space"]
    return {
        "digest": rows.header["digest"],
        "dtype": space["dtype"],
        "fraction_bits": space["fraction_bits"],
    }
