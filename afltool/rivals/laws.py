"""What every rival must hold, tried on made-up rows: `check-plugin` of a plug-in's method."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..files.feature_writer import writing_features
from ..files.hdf5 import read_header, recipe
from ..files.schema import provenance
from ..options.partition import PartitionOptions
from ..progress import log, quiet
from ..sources.embeddings import imported_space
from ..stages.partition import partition
from ..values.arrays import I64, Array
from . import method_class
from .settings import BaselineFolder, BaselineOptions
from .stage import baseline

ROWS, DIM, CLASSES, ROUNDS = 60, 5, 3, 2


def laws(name: str) -> Iterator[tuple[str, bool]]:
    """Each law, and whether the method called ``name`` holds it, in two rounds."""
    yield "its name in files is that of the plug-in", method_class(name).name == name
    y = np.arange(ROWS) % CLASSES
    x = np.random.default_rng(0).normal(size=(ROWS, DIM)) + 3 * np.eye(CLASSES, DIM)[y]
    with tempfile.TemporaryDirectory() as folder, quiet(log):
        at = Path(folder)
        rows = _features(at / "rows.h5", x, y)
        clients = partition(rows, at / "p.h5", PartitionOptions(scheme="iid", clients=4))
        digests = set()
        for threads in (1, 2):
            how = BaselineOptions(test=rows, partition=clients, threads=threads)
            out = at / f"{threads}"
            baseline(name, rows, out, how, settings={"rounds": ROUNDS})
            digests.add(read_header(out / BaselineFolder.HEAD, "head")["digest"])
        yield "the head does not depend on --threads", len(digests) == 1


def _features(path: Path, x: Array, y: I64) -> Path:
    space = imported_space("made-up", DIM, "float32", None)
    header = {
        "recipe": recipe("import", {}, {"embeddings": "made-up"}),
        "provenance": provenance(),
        "space": space,
        "classes": [str(c) for c in range(CLASSES)],
        "source": {"data": "made-up", "input": "made-up"},
    }
    with writing_features(path, space, expect_rows=ROWS) as writer:
        writer.append(x)
        writer.finish(y, np.array([b"%02d" % i for i in range(ROWS)]), header)
    return path
