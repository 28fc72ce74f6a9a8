"""Stage `partition`: row ids and labels → which client owns which row. Features are never read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..files.hdf5 import recipe
from ..files.partitions import export_partition, load_partition, save_partition
from ..files.recipes import FOR_PEOPLE, Target
from ..files.tables import values_by_row
from ..options.partition import SCHEMES, PartitionOptions
from ..options.partition import Partition as Asked
from ..partitions import Partition, rows_digest
from ..partitions.assignment import assign, canonical_order
from ..values.arrays import file_sha256
from .runner import Files, Job, StageFunction


@StageFunction
def partition(o: Asked, files: Files) -> Job:
    """Deal the rows of a feature file to clients, by a scheme of `partitions.assignment.assign`.

    ``table``: see `afltool.files.tables.values_by_row`. With ``export`` there are two files, or
    after an error none.
    """
    rows = files.features(o.features)
    order = canonical_order(rows.row_ids)
    ids, labels, classes = rows.row_ids[order], rows.labels[order], rows.classes
    settings = o.to(PartitionOptions).recipe_options("column")
    shown = {k: v for k, v in settings.items() if v not in (None, False, 0.0) or k == "seed"}
    inputs: dict[str, Any] = {"rows": rows_digest(ids, labels), "classes": list(classes)}
    inputs |= SCHEMES.version(shown["scheme"])
    attribute = None
    if o.table is not None:
        shown["column"] = o.column or "client"
        attribute = values_by_row(o.table, shown["column"], ids)
        inputs["table"] = file_sha256(o.table)
    targets = [Target(o.out, recipe("partition", shown, inputs))]
    if o.export is not None:
        targets.insert(0, Target(o.export, FOR_PEOPLE))

    def compute(todo: Sequence[Target]) -> None:
        if targets[-1] in todo:
            of_rows = assign(ids, labels, len(classes), o, attribute=attribute)
            p = Partition(
                row_ids=ids, labels=labels, classes=classes, scheme=shown, **vars(of_rows)
            )
        else:
            p = load_partition(o.out)
        for one in todo:
            if one.path == o.out:
                save_partition(o.out, p, one.recipe)
            else:
                export_partition(o.out, p, one.path, o.overwrite)

    return Job(targets, compute)
