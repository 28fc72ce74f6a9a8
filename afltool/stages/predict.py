"""Stage `predict`: a solved head and images, or features, without labels → a table of classes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from .. import cores, progress
from ..errors import InputError, UsageError
from ..files.heads import load_solved_head
from ..files.tables import SUFFIXES, check_table, writing_rows
from ..options.base import flag
from ..options.common import on_cores
from ..options.evaluation import Predict
from ..progress import log
from ..sources.extraction.scoring import (
    ItemSource,
    Scorer,
    features_source,
    image_source,
    network_of,
)
from ..sources.images.from_paths import Named, NamedImages, read_named
from ..sources.images.heard import Heard


@on_cores
def predict(o: Predict) -> dict[str, Any]:
    """Write the class that a solved head gives to each image, or to each row of feature files.

    ``named``: folders, image files, tables with a column of paths, feature files (see
    `sources.images.from_paths`). ``out``: a .csv, .jsonl or .parquet file, or '-' for CSV
    on stdout, with ``as_json`` JSON Lines. The network of images is the one that the head's feature
    space names; the space that it makes is compared with the head's, before any image is read.

    The columns are ``path`` (of a feature file the row id), ``predicted``, ``score``, ``error``
    (why an image has no class), then ``predicted_2``, ``score_2`` … up to ``top``, with
    ``coverage`` ``set`` (the classes in it, a JSON list), with ``scores`` one ``score:CLASS`` for
    each class. Scores are probabilities where the head defines
    them, else its least-squares values: see `afltool.heads.checks.probabilities`.

    Returns the path, how many rows were written, how many have an error, and how many each class.

    Raises:
        MismatchError: another space or class list than the head's, with the field that differs.
        InvalidDataError: an image that cannot be used, unless ``on_error`` is 'row'.
    """
    head, named, out, overwrite, as_json = o.head, o.inputs, o.out, o.overwrite, o.as_json
    check_table(out, jsonl=True)
    solved, header = load_solved_head(head)
    parts = _named(named, o)
    scorer = Scorer(solved, header["classes"], o)
    heard = Heard()
    sources = _sources(parts, head, header, o, heard)
    total = sum(source.size for source in sources)
    blocks = chain.from_iterable(source.blocks() for source in sources)
    unit = "rows" if any(isinstance(part, Path) for part in parts) else "images"
    with (
        heard.listening("predict"),
        writing_rows(out, scorer.columns, overwrite, as_json) as append,
        progress.task("predict", total, unit) as task,
    ):
        room = solved.room
        for block, scored in cores.each(scorer.scored, blocks, lambda b: room(len(b.names))):
            append(scorer.rows(block, scored))
            task.advance(len(block.names))
            progress.stop_point()
    if scorer.errors:
        log.warning("predict: %d of %d have no class, see the column error", scorer.errors, total)
    return {"path": str(out), "rows": total, **scorer.state()}


def _named(named: Sequence[Path], o: Predict) -> list[Named]:
    """What is named, and usable with these options."""
    parts = read_named(named, sys.stdin, o.data_root, o.path_column)
    names = [str(one) for one in named]
    images = any(isinstance(part, NamedImages) for part in parts)
    tables = "-" in names or any(one.lower().endswith(SUFFIXES) for one in names)
    for there, used, what in (
        (images, o.OF_IMAGES, "images as inputs"),
        (tables, o.OF_TABLES, "a table of images as input"),
    ):
        if not there and (given := sorted(o.changed().keys() & used)):
            raise UsageError(
                f"{flag(given[0])} is used only with {what}, and there is none here: leave it out"
            )
    if o.on_error == "stop":
        _check_absent(parts)
    return parts


def _check_absent(parts: Sequence[Named]) -> None:
    absent = [
        (part.describe(i), why)
        for part in parts
        if isinstance(part, NamedImages)
        for i, why in part.absent.items()
    ]
    if absent:
        (where, why), more = absent[0], len(absent) - 1
        raise InputError(
            f"cannot use the image {where}: {why}{f', and {more} more like it' * (more > 0)}; "
            "check the paths, or use --on-error row"
        )


def _sources(
    parts: Sequence[Named], head: Path, header: dict[str, Any], o: Predict, heard: Heard
) -> list[ItemSource]:
    """Where rows come from, checked against the head; one network for all images."""
    files = {part: features_source(part, head, header) for part in parts if isinstance(part, Path)}
    images = [part for part in parts if isinstance(part, NamedImages)]
    network = network_of(head, header, o, o.backbone) if images else None
    sources = []
    for part in parts:
        if isinstance(part, Path):
            sources.append(files[part])
        elif network is not None:
            sources.append(image_source(part, network, header["space"], o.on_error == "row", heard))
    return sources
