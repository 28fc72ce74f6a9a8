"""Stage `partition`: row ids and labels → which client owns which row. Features are never read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, UsageError
from ..files.atomic import together
from ..files.hdf5 import recipe
from ..files.partitions import load_partition, save_partition
from ..files.tables import values_by_row, write_records
from ..options.partition import SCHEMES, PartitionOptions
from ..options.partition import Partition as Asked
from ..partitions import Partition, rows_digest, summary
from ..partitions.dealing import assign, canonical_order
from ..values.arrays import file_sha256
from .runner import Files, Job, Write, carry_out


def partition(o: Asked) -> Path:
    """Deal the rows of a feature file to clients; see `partitions.dealing.assign` for the schemes.

    ``table``: for the schemes by-attribute and file, a CSV, parquet or JSON table with a column
    ``row`` (row ids) and the column named by ``column`` (for file: ``client``). A table of images,
    as `extract` takes it, has ``path`` instead of ``row`` and may name other images as well. See
    `afltool.files.tables.values_by_row` for tables with neither. With ``export`` there are two
    files, or after an error none.
    """
    with together():
        [made] = carry_out(job, o)
        if o.export is not None and not made.made:
            _write_table(o.out, load_partition(o.out), o.export, o.overwrite)
    return o.out


def job(o: Asked, files: Files) -> Job:
    rows = files.features(o.features)
    ids, labels, classes = rows.row_ids, rows.labels, rows.classes
    order = canonical_order(ids)
    ids, labels = ids[order], labels[order]
    settings = o.to(PartitionOptions).stored("column")
    attribute = None if o.table is None else values_by_row(o.table, o.column or "client", ids)
    shown = {k: v for k, v in settings.items() if v not in (None, False, 0.0) or k == "seed"}
    if o.table is not None:
        shown["column"] = o.column or "client"

    def dealt() -> Write:
        of_rows = assign(ids, labels, len(classes), o, attribute=attribute)
        p = Partition(row_ids=ids, labels=labels, classes=classes, scheme=shown, **vars(of_rows))
        if o.export is not None:
            _write_table(o.out, p, o.export, o.overwrite)
        return lambda path, how: save_partition(path, p, how)

    return Job.one(o.out, _recipe(shown, ids, labels, classes, o.table), dealt)


def _recipe(
    settings: Mapping[str, Any],
    ids: NDArray[np.bytes_],
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
    table: Path | None,
) -> dict[str, Any]:
    inputs: dict[str, Any] = {"rows": rows_digest(ids, labels), "classes": list(classes)}
    inputs |= SCHEMES.version(settings["scheme"])
    if table is not None:
        inputs["table"] = file_sha256(table)
    return recipe("partition", settings, inputs)


def describe(path: Path) -> dict[str, Any]:
    """What `partition --describe` shows: rows and classes a client, and how uneven they are."""
    p = load_partition(path)
    s = summary(p.client, p.effective_labels, len(p.names), len(p.classes))
    return {
        "path": str(path),
        "digest": p.digest(),
        "scheme": dict(p.scheme),
        "rows": len(p.row_ids),
        "clients": len(p.names),
        "empty_clients": s.empty_clients,
        "held_out_clients": int(p.held_out.sum()),
        "rows_per_client": {"min": s.min_rows, "median": s.median_rows, "max": s.max_rows},
        "classes_per_client": {
            "min": int(s.classes_per_client.min()),
            "median": float(np.median(s.classes_per_client)),
            "max": int(s.classes_per_client.max()),
        },
        "mean_total_variation": s.mean_total_variation,
        "relabelled_rows": int((p.labels != p.effective_labels).sum()),
    }


def export(path: Path, table: Path, *, overwrite: bool = False) -> Path:
    """Write the assignment as CSV, parquet or JSON: row, client, label, held_out."""
    return _write_table(path, load_partition(path), table, overwrite)


def _write_table(path: Path, p: Partition, table: Path, overwrite: bool) -> Path:
    if table.suffix not in (".csv", ".parquet", ".json"):
        raise UsageError(f"{table}: an export is a .csv, .parquet or .json file")
    columns = {
        "row": _row_texts(path, p),
        "client": [p.names[k] for k in p.client.tolist()],
        "label": p.effective_labels,
        "held_out": p.held_out[p.client],
    }
    return write_records(columns, table, overwrite)


def _row_texts(path: Path, p: Partition) -> list[str]:
    try:
        return [i.decode() for i in p.row_ids.tolist()]
    except UnicodeDecodeError as error:
        raise InvalidDataError(
            f"{path}: the row id {error.object!r} is not UTF-8, which a table of texts cannot hold"
        ) from None
