"""Stage `split`: a feature file → two, for training and for testing, cut by rows or by groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError
from ..files.features import Features
from ..files.hdf5 import recipe
from ..files.recipes import Target
from ..files.rows import RowStream
from ..files.tables import column_by_row
from ..options.features import Split
from ..partitions import groups_for_testing, rows_for_testing
from ..progress import log
from ..values.arrays import Digest
from .runner import Files, Job, Put, StageFunction

PARTS = ("train", "test")


@StageFunction
def split(o: Split, files: Files) -> Job:
    """Write the rows of a feature file into NAME-train.h5 and NAME-test.h5; gives both.

    The files go into the folder ``out``, by default beside NAME.h5. Each row goes into exactly one
    of them, in the order of the file. The share ``test`` of each class is for testing, drawn with
    ``seed`` by row ids and labels alone: files of other backbones are cut alike. With ``group``
    (TABLE:COLUMN) all rows of a group go to one side, and the shares are as near as groups allow.

    Raises:
        InvalidDataError: a part would have no rows.
    """
    path = o.features
    folder = path.parent if o.out is None else o.out
    rows = files.features(path)
    for_test, groups = _drawn(rows, o)
    n, test = len(rows), int(for_test.sum())
    if not 0 < test < n:
        among = "" if groups is None else f" in {len(set(groups))} groups"
        raise InvalidDataError(
            f"{path}: the part for {'training' if test else 'testing'} would have none of the {n} "
            f"rows{among}; choose another --test, or more and smaller groups"
        )
    log.info("split: %d of %d rows (%.2f %%) are for testing", test, n, 100 * test / n)
    mine = {"train": ~for_test, "test": for_test}
    inputs = dict(rows.meaning)
    if groups is not None:
        inputs["groups"] = Digest().json("groups", groups).hex()
    places = {part: folder / f"{path.stem}-{part}.h5" for part in PARTS}
    options = {part: {"part": part, **o.stored("group")} for part in PARTS}
    targets = [Target(places[p], recipe("split", options[p], inputs), p) for p in PARTS]

    def compute(todo: Sequence[Target], put: Put) -> None:
        for target in todo:
            _stream(rows, target, mine[target.of]).write(target.path)

    return Job(targets, compute, result=tuple(places.values()))


def _drawn(rows: Features, o: Split) -> tuple[NDArray[np.bool_], list[str] | None]:
    """Which rows are for testing, and the group of each row in canonical order."""
    order = rows.by_id  # the same for any order of the file
    labels, for_test = rows.labels[order], np.empty(len(rows), bool)
    if o.group is None:
        for_test[order] = rows_for_testing(labels, o.test, o.seed)
        return for_test, None
    of_rows = column_by_row("--group", o.group, rows.row_ids)
    groups = [of_rows[i] for i in order]
    numbers = np.unique(np.array(groups, dtype=object), return_inverse=True)[1]
    for_test[order] = groups_for_testing(labels, numbers, o.test, o.seed)
    return for_test, groups


def _stream(rows: Features, target: Target, mine: NDArray[np.bool_]) -> RowStream:
    """The rows of a part, as they are stored; each pass compares the digest of the whole."""
    was: dict[str, Any] = {"split": rows.header["provenance"]}
    cut = {"digest": rows.header["digest"], **target.recipe["options"]}
    header = rows.derived(target.recipe, was, split=target.of, split_from=cut)

    def blocks() -> Iterator[NDArray[Any]]:
        for start, values in rows.stored_blocks():
            yield values[mine[start : start + len(values)]]

    return RowStream("split", header, rows.labels[mine], rows.row_ids[mine], blocks)
