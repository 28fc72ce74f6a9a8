"""Embeddings that NumPy, safetensors or afltool wrote, and labels in a file of their own."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .. import inputs, memory
from ..errors import InvalidDataError
from ..files.features import open_features
from ..math.gram import real
from ..options.features import NamedRows
from ..plugins import need
from ..values.arrays import Array
from ..values.names import WHOLE
from . import LABELS, USUAL, Embeddings, lacking, name_fields, readable, slices


def _map_npy(path: Path) -> Array:
    """The array of a .npy file, of which only what is looked at is read."""
    how: Any = None if path.stat().st_size <= 128 else "r"  # nothing cannot be mapped
    x: Any = np.load(path, mmap_mode=how, allow_pickle=False)
    if not isinstance(x, np.ndarray):
        x.close()
        raise ValueError("it is an archive, and not one array")
    return np.asarray(x)


def open_npy(path: Path, o: NamedRows) -> Embeddings:
    """The array of a .npy file as features."""
    shape, dtype, size = (x := _map_npy(path)).shape, x.dtype, x.nbytes

    def blocks() -> Iterator[Array]:
        for part in slices(shape[0], size // shape[0]):
            yield np.array(
                _map_npy(path)[part]
            )  # pages of a mapping count as memory while it lasts

    return Embeddings(shape, dtype, blocks)


def open_npz(path: Path, o: NamedRows) -> Embeddings:
    """The arrays of features, labels and perhaps row_ids of a .npz file, in memory."""
    with zipfile.ZipFile(path) as archive:
        held = {one.filename: one.file_size for one in archive.infolist()}
    sizes = {name.removesuffix(".npy"): n for name, n in held.items() if name.endswith(".npy")}
    with np.load(path, allow_pickle=False) as arrays:
        return _archive(path, o, sizes, lambda name: arrays[name])


def open_safetensors(path: Path, o: NamedRows) -> Embeddings:
    """The tensors of features and labels of a .safetensors file, in memory."""
    need(str(path), "import", "safetensors")
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        sizes = {name: 8 * prod(part.get_shape()) for name, part in parts.items()}
        if odd := [name for name, part in parts.items() if part.get_dtype() == "BF16"]:
            raise InvalidDataError(f"{path}: {odd[0]} is in bf16; save it as float32 or float16")
        return _archive(path, o, sizes, file.get_tensor)


def _archive(
    path: Path, o: NamedRows, sizes: Mapping[str, int], read: Callable[[str], Any]
) -> Embeddings:
    """What is in arrays with names; ``sizes``: their bytes, before they are read."""
    key = o.x or next((one for one in USUAL if one in sizes), "x")
    if key not in sizes:
        raise lacking(path, list(sizes), o)

    def array(name: str) -> Array:
        advice = "save the features alone, as .npy with --labels"
        memory.require_memory(sizes[name], f"the array {name} of {path}", advice)
        return np.asarray(read(name))

    labels = [USUAL.get(key, "y"), *LABELS]
    found, x = name_fields(path, list(sizes), o, array, labels, [key]), array(key)

    def blocks() -> Iterator[Array]:
        yield from (x[part] for part in slices(len(x), x.nbytes // len(x)))

    return Embeddings(x.shape, x.dtype, blocks, **found)


def open_feature_file(path: Path, o: NamedRows) -> Embeddings:
    """A feature file of ours: its rows as reals, in its own space and classes."""
    with open_features(path) as rows:
        shape, labels, ids = (len(rows), rows.dim), rows.given_labels, rows.row_ids
        made = {key: rows.header[key] for key in ("space", "classes")}

    def blocks() -> Iterator[Array]:
        with open_features(path) as rows:
            yield from (real(X) for _, X in rows.blocks())

    return Embeddings(shape, np.dtype("f8"), blocks, labels, ids, made)


def read_labels(path: Path) -> Array:
    """Labels from a .npy file, or a text file: line i, from 0, is the label of row i.

    Lines are numbers if all are, written as Python writes them: ``01`` is a name.
    """
    if path.suffix == ".npy":
        with readable(path):
            x = _map_npy(path)
            memory.require_memory(x.nbytes, f"the labels in {path}", "number the classes")
            return np.array(x)
    text = inputs.read_text(path, "labels")
    labels = [line.strip(inputs.AROUND) for line in text.removesuffix("\n").split("\n")]
    if "" in labels:
        raise InvalidDataError(
            f"{path}: line {labels.index('') + 1} is empty; expected one label per line, line i "
            "for row i. Fill it in, or leave that row out of the features and the labels"
        )
    if all(re.fullmatch(WHOLE, label, re.ASCII) and len(label) < 19 for label in {*labels}):
        return np.array(labels).astype(np.int64)
    size = 4 * max(map(len, labels)) * len(labels)
    memory.require_memory(size, f"the labels in {path}", "give shorter ones")
    return np.array(labels)
