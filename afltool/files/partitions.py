"""Writes and reads partition files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptFileError, MismatchError
from ..partitions.rows import Partition
from . import hdf5, schema
from .arrays import damage_as_error
from .features import Features
from .provenance import provenance


def save_partition(path: Path, p: Partition, made_by: Mapping[str, Any]) -> Path:
    """Write a partition file."""
    header = {
        "digest": p.digest(),
        "recipe": dict(made_by),
        "provenance": provenance(),
        "names": list(p.names),
        "held_out": np.flatnonzero(p.held_out).tolist(),
        "classes": list(p.classes),
        "scheme": dict(p.scheme),
        "rows_digest": p.rows_digest(),
    }
    arrays = {schema.ROW_IDS: p.row_ids, schema.LABELS: p.labels, schema.CLIENT: p.client}
    if not np.array_equal(p.labels, p.effective_labels):
        arrays[schema.EFFECTIVE_LABELS] = p.effective_labels
    return hdf5.write_file(path, "partition", header, arrays)


def load_partition(path: Path) -> Partition:
    """Read a partition file; its digest is checked."""
    header, arrays = hdf5.read_file(path, "partition")
    with damage_as_error(path):
        held_out = np.zeros(len(header["names"]), dtype=bool)
        held_out[header["held_out"]] = True
        p = Partition(
            row_ids=arrays[schema.ROW_IDS],
            labels=arrays[schema.LABELS],
            effective_labels=arrays.get(schema.EFFECTIVE_LABELS, arrays[schema.LABELS]),
            client=arrays[schema.CLIENT],
            names=tuple(header["names"]),
            held_out=held_out,
            classes=tuple(header["classes"]),
            scheme=header["scheme"],
        )
    hdf5.check_digest(path, header, p.digest())
    _check_indices(path, "client", p.client, len(p.row_ids), len(p.names))
    for labels in (p.labels, p.effective_labels):
        _check_indices(path, "label", labels, len(p.row_ids), len(p.classes))
    return p


def _check_indices(path: Path, what: str, found: NDArray[Any], rows: int, end: int) -> None:
    if len(found) != rows or (rows and not 0 <= found.min() <= found.max() < end):
        raise CorruptFileError(
            f"{path} is damaged: expected a {what} from 0 to {end - 1} for each of {rows} rows"
        )


def partition_of(rows: Features, path: str | Path) -> Partition:
    """Read a partition file; `MismatchError` if it is of other rows than the feature file."""
    p = load_partition(Path(path))
    if rows.rows_digest() == p.rows_digest() and rows.classes == p.classes:
        return p
    ids, labels = rows.row_ids[rows.by_id], rows.labels[rows.by_id]
    if rows.classes != p.classes:
        numbers = f"{len(p.classes)} in the partition, {len(rows.classes)} in the features"
        what = f"the classes differ ({numbers})"
    elif len(ids) != len(p.row_ids):
        what = f"{len(p.row_ids)} rows in the partition, {len(ids)} in the features"
    elif not np.array_equal(ids, p.row_ids):
        at = int(np.flatnonzero(ids != p.row_ids)[0])
        what = f"row {_shown(ids[at])} of the features is {_shown(p.row_ids[at])} in the partition"
    else:
        what = f"the labels differ in {int((labels != p.labels).sum())} of {len(ids)} rows"
    raise MismatchError(
        f"the partition {path} is of other rows than {rows.path}: {what}; make a partition of "
        "this file, or give the file that it was made of"
    )


def _shown(row_id: bytes) -> str:
    return repr(row_id.decode(errors="replace"))
