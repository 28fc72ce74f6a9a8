"""Rows of predictions: blocks of images or of stored features, scored by a head."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import progress
from ..datasets.base import CorruptImageError
from ..datasets.from_paths import NamedImages
from ..errors import InvalidDataError, MismatchError, UsageError
from ..files.features import open_features, stored_as
from ..files.heads import check_fits
from ..files.tables import Cell
from ..heads.base import Head
from ..heads.calibration import CalibratedHead
from ..heads.checks import compute_reported_scores
from ..math.gram import FixedPoint, Rows
from ..math.metrics.figures import cut_blocks, top_classes
from ..options.evaluation import Predict
from ..options.features import NetworkOptions
from ..values.arrays import F64, I64, Array
from ..values.text import difference, json_text
from .engines import load_network
from .frozen import read_frozen
from .network import Network
from .space import get_preprocessing, make_space, options_for

IMAGES = 256  # items of a block


class RowBatch(NamedTuple):
    """Items by name, and their rows."""

    names: Sequence[str]
    X: Rows


class ItemSource(NamedTuple):
    """Items in order: their number, and what reads their blocks."""

    size: int
    blocks: Callable[[], Iterator[RowBatch]]


#: Of rows: classes with the highest scores (n, top), their scores, and what else stands in columns.
Scored = tuple[I64, F64, list[list[Any]]]


class Scorer:
    """Makes the rows of a table of predictions, and counts them; ``columns``: names and types."""

    def __init__(self, head: Head, classes: Sequence[str], o: Predict) -> None:
        self.head, self.classes, self.options = head, list(classes), o
        self.top, self.least = min(o.top, len(classes)), o.min_confidence or -np.inf
        for option, given, able in (
            ("--min-confidence", o.min_confidence, head.log_probabilities),
            ("--coverage", o.coverage, isinstance(head, CalibratedHead)),
        ):
            if given is not None and not able:
                raise UsageError(
                    f"{option} needs a head that was calibrated, and a {head.name} head is not: "
                    "afltool evaluate --counts, then afltool calibrate"
                )
        self.errors, self.counts = 0, np.zeros(len(classes), dtype=np.int64)
        self.columns: dict[str, type] = {"path": str, "predicted": str, "score": float}
        self.columns["error"] = str
        for k in range(2, self.top + 1):
            self.columns |= {f"predicted_{k}": str, f"score_{k}": float}
        if o.coverage is not None:
            self.columns["set"] = str
        if o.scores:
            self.columns |= {f"score:{name}": float for name in classes}

    def state(self) -> dict[str, Any]:
        """The counts so far: rows with an error, rows of each class."""
        counts = dict(zip(self.classes, self.counts.tolist(), strict=True))
        return {"errors": self.errors, "predicted": counts}

    def score_batch(self, block: RowBatch) -> tuple[RowBatch, Scored]:
        """A block with what the head gives to its rows, in any thread."""
        more: list[list[Any]] = [[] for _ in range(len(block.X))]
        if self.options.coverage is not None and isinstance(self.head, CalibratedHead):
            V = self.head.values(block.X)
            S, more = self.head.calibrate_values(V), self._sets(self.head, V)
        else:
            S = self.head.decision_function(block.X)
        order, R = top_classes(S, self.top), compute_reported_scores(self.head, S)
        if self.options.scores:
            more = [[*one, *scores] for one, scores in zip(more, R.tolist(), strict=True)]
        return block, (order, np.take_along_axis(R, order, axis=1), more)

    def rows(self, block: RowBatch, scored: Scored) -> Iterator[Sequence[Cell]]:
        """A list of cells for each item of a block, in the order of `columns`."""
        order, best, more = scored
        sure = best[:, 0] >= self.least
        self.counts += np.bincount(order[sure, 0], minlength=len(self.classes))
        self.errors += int(np.count_nonzero(~sure))
        texts = np.array(self.classes, dtype=object)[order].tolist()
        for name, known, named, values, rest in zip(
            block.names, sure, texts, best.tolist(), more, strict=True
        ):
            others = chain.from_iterable(zip(named[1:], values[1:], strict=True))
            why = None if known else f"below --min-confidence {self.least:g}"
            yield [name, named[0] if known else None, values[0], why, *others, *rest]

    def _sets(self, head: CalibratedHead, V: F64) -> list[list[Any]]:
        """The set of each row as JSON, its classes by their scores; alone in a list."""
        kept = head.prediction_sets(V, self.options.coverage or 0.0, self.options.class_conditional)
        order = np.argsort(-V, axis=1, kind="stable")
        named = ([self.classes[k] for k in by if of[k]] for by, of in zip(order, kept, strict=True))
        return [[json_text(one, ensure_ascii=False)] for one in named]


def features_source(path: Path, head: Path, header: Mapping[str, Any]) -> ItemSource:
    """The rows of a feature file of the head's space and classes, with labels or without."""
    with open_features(path) as rows:
        check_fits(head, header, rows)
        size = len(rows)

    def blocks() -> Iterator[RowBatch]:
        with open_features(path) as rows:
            for start, X in cut_blocks(rows.blocks(), len(header["classes"])):
                ids = rows.row_ids[start : start + len(X)].tolist()
                yield RowBatch([os.fsdecode(one) for one in ids], X)

    return ItemSource(size, blocks)


def make_network(
    head: Path, header: Mapping[str, Any], o: NetworkOptions, frozen: Path | None = None
) -> Network:
    """The network that makes features for a head; its whole feature space is compared.

    ``frozen``: a file of the network, which is then run without PyTorch. Raises `UsageError`: the
    head's features were imported; `MismatchError`: the network makes another space.
    """
    space = header["space"]
    if space is None:
        raise UsageError(f"the head {head} does not name its feature space")
    how = {f.name: getattr(o, f.name) for f in fields(NetworkOptions)}
    wanted = options_for(space, **how)
    graph = None if frozen is None else read_frozen(frozen)
    network = load_network(wanted, get_preprocessing(space), graph)
    where = difference(space, make_space(network, wanted), "in the head", "in this network")
    if where:
        raise MismatchError(
            f"the network that can be built here makes other features than those of the head "
            f"{head}: {where}; name the weights of these features (--weights FILE, or --weights "
            "random --seed N), or use the versions of Pillow and afltool that made them"
        )
    return network


def image_source(images: NamedImages, network: Network, space: Mapping[str, Any]) -> ItemSource:
    """Images through a network.

    The first that cannot be used, or whose features lie beyond the range of the head's number
    format, ends the blocks with `InvalidDataError`.
    """
    bits = space["fraction_bits"]

    def blocks() -> Iterator[RowBatch]:
        every = _iter_single_rows(images, network, bits)
        while part := list(islice(every, IMAGES)):
            X = np.concatenate([row for _, row in part])
            yield RowBatch([name for name, _ in part], X if bits is None else FixedPoint(X, bits))

    return ItemSource(len(images), blocks)


def _iter_single_rows(
    images: NamedImages, network: Network, bits: int | None
) -> Iterator[tuple[str, Array]]:
    """The name of each image with its row (1, d) as a feature file holds it."""
    every = network.features(partial(network.decode, images), range(len(images)), False)
    try:
        for batch, x in every:
            progress.stop_point()
            for index, row in zip(batch.indices, x[:, None], strict=True):
                name = os.fsdecode(images.names[index])
                try:
                    yield name, stored_as(row, bits)
                except InvalidDataError as error:
                    why = str(error).replace("row 0, ", "")
                    raise InvalidDataError(f"image {name}: {why}") from None
    except CorruptImageError as error:
        raise InvalidDataError(
            f"cannot use the image {error.where}: {error.reason}. Replace it, or leave it out"
        ) from error
