"""A feature file of ours as embeddings: its rows as reals, in its own space and classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...errors import UsageError
from ...files.features import open_features
from ...math.fixedpoint import real
from ...values.arrays import Array
from .base import Embeddings, Keys


def open_feature_file(path: Path, keys: Keys) -> Embeddings:
    if keys != Keys():
        raise UsageError(f"{path} is a feature file: leave --x, --y and --row-ids out")
    with open_features(path, labelled=False) as rows:
        shape, labels, ids = (len(rows), rows.dim), rows.given_labels, rows.row_ids
        made = {key: rows.header[key] for key in ("space", "classes")}

    def blocks() -> Iterator[Array]:
        with open_features(path, labelled=False) as rows:
            yield from (real(X) for _, X in rows.blocks())

    return Embeddings(shape, np.dtype("f8"), blocks, labels, ids, made)
