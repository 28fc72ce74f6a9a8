"""Stage `split`: a feature file → two, for training and for testing, cut by rows or by groups."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import progress
from ..errors import InvalidDataError
from ..files.feature_writer import FeatureWriter, writing_features
from ..files.features import Features
from ..files.hdf5 import recipe
from ..files.tables import column_by_row
from ..options.features import Split
from ..partitions import groups_for_testing, rows_for_testing
from ..progress import log
from ..values.arrays import Digest
from .runner import Files, Job, Put, Target, carry_out

PARTS = ("train", "test")
Mine = dict[str, NDArray[np.bool_]]  # which rows are a part's, by its name


def split(o: Split) -> tuple[Path, Path]:
    """Write the rows of a feature file into NAME-train.h5 and NAME-test.h5; returns both.

    The files go into the folder ``out``, by default beside NAME.h5. Each row goes into exactly one
    of them, in the order of the file. The share ``test`` of each class is for testing, drawn with
    ``seed`` by row ids and labels alone: files of other backbones are cut alike. With ``group``
    (TABLE:COLUMN) all rows of a group go to one side, and the shares are as near as groups allow.

    Raises:
        InvalidDataError: a part would have no rows.
    """
    train, test = carry_out(job, o)
    return train.path, test.path


def job(o: Split, files: Files) -> Job:
    path = o.features
    folder = path.parent if o.out is None else o.out
    rows = files.features(path)
    for_test, groups, in_groups = _drawn(rows, o)
    mine = {"train": ~for_test, "test": for_test}
    _check(path, mine, in_groups)
    _say(rows, mine, in_groups)

    def compute(todo: Sequence[Target], put: Put) -> None:
        with ExitStack() as stack:
            space, writers = rows.header["space"], {}
            for target in todo:
                writing = writing_features(target.path, space, "", int(mine[target.of].sum()))
                writers[target.of] = stack.enter_context(writing)
            _copy(rows, mine, writers)
            for target in todo:
                labels, ids = rows.labels[mine[target.of]], rows.row_ids[mine[target.of]]
                was = {"split": rows.header["provenance"]}
                cut = {"digest": rows.header["digest"], **target.recipe["options"]}
                header = rows.derived(target.recipe, was, split=target.of, split_from=cut)
                writers[target.of].finish(labels, ids, header)

    places = {part: folder / f"{path.stem}-{part}.h5" for part in PARTS}
    recipes = {part: _recipe(rows, o, groups, part) for part in PARTS}
    return Job([Target(places[part], recipes[part], part) for part in PARTS], compute)


def _drawn(
    rows: Features, o: Split
) -> tuple[NDArray[np.bool_], list[str] | None, tuple[int, int] | None]:
    """Which rows are for testing; the group of each row in canonical order; how many groups are for
    testing, and how many there are."""
    order = rows.by_id  # the same for any order of the file
    labels, for_test = rows.labels[order], np.empty(len(rows), bool)
    if o.group is None:
        for_test[order] = rows_for_testing(labels, o.test, o.seed)
        return for_test, None, None
    of_rows = column_by_row("--group", o.group, rows.row_ids)
    groups = [of_rows[i] for i in order]
    numbers = np.unique(np.array(groups, dtype=object), return_inverse=True)[1]
    mine = groups_for_testing(labels, numbers, o.test, o.seed)
    for_test[order] = mine
    return for_test, groups, (len(np.unique(numbers[mine])), int(numbers.max()) + 1)


def _recipe(rows: Features, o: Split, groups: list[str] | None, part: str) -> dict[str, Any]:
    inputs = dict(rows.meaning)
    if groups is not None:
        inputs["groups"] = Digest().json("groups", groups).hex()
    return recipe("split", {"part": part, **o.stored("group")}, inputs)


def _check(path: Path, mine: Mine, groups: tuple[int, int] | None) -> None:
    """Both parts have rows."""
    n, test = len(mine["test"]), int(mine["test"].sum())
    if not 0 < test < n:
        what = f"{n} rows" if groups is None else f"{n} rows (groups: {groups[1]})"
        empty = "training" if test else "testing"
        raise InvalidDataError(
            f"{path}: {what} cannot be split like this: the part for {empty} would be empty; "
            "choose another --test, or more and smaller groups"
        )


def _say(rows: Features, mine: Mine, groups: tuple[int, int] | None) -> None:
    """How many rows are for testing, and what classes a part lacks."""
    n, test = len(rows), int(mine["test"].sum())
    inside = "" if groups is None else f", {groups[0]} of {groups[1]} groups"
    log.info("split: %d of %d rows (%.2f %%) are for testing%s", test, n, 100 * test / n, inside)
    classes = len(rows.classes)
    counts = {part: np.bincount(rows.labels[at], minlength=classes) for part, at in mine.items()}
    every = counts["train"] + counts["test"]
    for part in PARTS:
        lacks = np.flatnonzero((counts[part] == 0) & (every > 0))
        if len(lacks):
            log.warning(
                "%d of %d classes have no row for %sing, such as %r with %d rows in all",
                len(lacks), int((every > 0).sum()), part, rows.classes[lacks[0]], every[lacks[0]],
            )  # fmt: skip


def _copy(rows: Features, mine: Mine, writers: dict[str, FeatureWriter]) -> None:
    """Every row into its part, as it is stored; the pass compares the digest of the whole."""
    with progress.task("split", len(rows), "rows") as task:
        for start, values in rows.stored_blocks():
            for part, writer in writers.items():
                writer.append_values(values[mine[part][start : start + len(values)]])
            task.advance(len(values))
            progress.stop_point()
