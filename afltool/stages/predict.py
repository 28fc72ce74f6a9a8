"""Stage `predict`: a solved head and images, or features, without labels → a table of classes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from .. import parallel, progress
from ..datasets.from_paths import Named, NamedImages, read_named
from ..errors import UsageError
from ..extraction.scoring import Scorer, features_source, image_source, make_network
from ..files.heads import load_solved_head
from ..files.tables import OF_ROWS, SUFFIXES, check_table, read_columns, writing_rows
from ..options.base import flag
from ..options.evaluation import Predict
from ..progress import log
from ._direct import feature_file, is_foreign
from .runner import Files, StageFunction


@StageFunction
def predict(o: Predict, files: Files) -> dict[str, Any]:
    """Write the class that a solved head gives to each image, or to each row of feature files.

    The network of images is the one that the head's feature space names. See `Scorer` for the
    columns. Gives the path, how many rows were written, how many have an error, and how many each
    class. Raises `MismatchError`: another space or class list than the head's; `InvalidDataError`:
    an image that cannot be used.
    """
    check_table(o.out, OF_ROWS)
    solved, header = load_solved_head(o.head)
    given, o = o.inputs, replace(o, inputs=tuple(_rows(one, o, header) for one in o.inputs))
    parts = _list_named(o, tables=given != o.inputs)
    scorer = Scorer(solved, header["classes"], o)
    of_files = {one: features_source(one, o.head, header) for one in parts if isinstance(one, Path)}
    images = any(isinstance(one, NamedImages) for one in parts)
    network = make_network(o.head, header, o, o.backbone) if images else None
    sources = []
    for part in parts:
        if isinstance(part, Path):
            sources.append(of_files[part])
        elif network is not None:
            sources.append(image_source(part, network, header["space"]))
    total = sum(source.size for source in sources)
    blocks = chain.from_iterable(source.blocks() for source in sources)
    with (
        writing_rows(o.out, scorer.columns, o.overwrite, o.as_json) as append,
        progress.task("predict", total, "rows" if of_files else "images") as task,
    ):
        room = solved.room
        for block, scored in parallel.map_threads(
            scorer.score_batch, blocks, lambda b: room(len(b.names))
        ):
            append(scorer.rows(block, scored))
            task.advance(len(block.names))
            progress.stop_point()
    if scorer.errors:
        log.warning("predict: %d of %d have no class, see the column error", scorer.errors, total)
    return {"path": str(o.out), "rows": total, **scorer.state()}


def _rows(path: Path, o: Predict, header: Mapping[str, Any]) -> Path:
    """What is named; of a table of features, which has no column of paths, its feature file."""
    if not is_foreign(path) or not path.is_file():
        return path
    listed = path.suffix.lower() in SUFFIXES
    images = listed and "path" in read_columns(path, (), ("path",))
    return path if images else feature_file(path, o, header, unlabeled=True)


def _list_named(o: Predict, tables: bool) -> Sequence[Named]:
    """What is named, and usable with these options; ``tables``: of features are among it."""
    parts = read_named(o.inputs, sys.stdin, o.data_root)
    images = any(isinstance(part, NamedImages) for part in parts)
    lists = any(str(one) == "-" or str(one).lower().endswith(SUFFIXES) for one in o.inputs)
    for there, used, what in (
        (images, o.OF_IMAGES, "images as inputs"),
        (lists, o.OF_TABLES, "a table of images as input"),
        (tables, o.OF_FEATURES, "a table or an archive of features as input"),
    ):
        if not there and (given := sorted(o.changed_options().keys() & used)):
            raise UsageError(f"{flag(given[0])} is used only with {what}: leave it out")
    return parts
