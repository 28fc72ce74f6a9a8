"""Embeddings that NumPy, safetensors or afltool wrote, and labels in a file of their own."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ... import inputs, memory
from ...errors import InvalidDataError, UsageError
from ...files.features import open_features
from ...math.gram import real
from ...values.arrays import Array
from ...values.names import WHOLE
from . import MOST_FILE_ROWS, Embeddings, Keys, check_label_bytes, readable, slices

LONGEST = 1000  # characters of a label
MOST_NAMES = 1_000_000  # different labels in a text


# ---------------------------------------------------------------- NumPy's files


def _mapped(path: Path) -> Array:
    """The array of a .npy file, of which only what is looked at is read."""
    try:
        x: Any = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError:  # an array without numbers cannot be mapped
        x = np.load(path, allow_pickle=False)
        if x.size:
            raise
        return np.asarray(x)
    if not isinstance(x, np.memmap):
        x.close()
        raise ValueError("it is an archive, and not one array")
    if x.offset + x.nbytes != (held := path.stat().st_size):
        raise ValueError(
            f"it claims the shape {x.shape}, {x.nbytes:,} bytes; it has {held - x.offset:,}"
        )
    return np.asarray(x)


def open_npy(path: Path, keys: Keys) -> Embeddings:
    """The array of a .npy file as features."""
    if keys != Keys():
        raise UsageError(f"{path} holds one array without a name: leave --x, --y and --row-ids out")
    shape, dtype, size = (x := _mapped(path)).shape, x.dtype, x.nbytes

    def blocks() -> Iterator[Array]:
        for part in slices(shape[0], size // shape[0]):
            yield np.array(_mapped(path)[part])  # pages of a mapping count as memory while it lasts

    return Embeddings(shape, dtype, blocks)


def open_npz(path: Path, keys: Keys) -> Embeddings:
    """The arrays of features, labels and perhaps row_ids of a .npz file, in memory."""
    with zipfile.ZipFile(path) as archive:
        held = {one.filename: one.file_size for one in archive.infolist()}
    sizes = {name.removesuffix(".npy"): n for name, n in held.items() if name.endswith(".npy")}
    key = keys.features(path, list(sizes))
    memory.need(sizes[key], f"the array {key} of {path}", "save it alone, as .npy with --labels")
    with np.load(path, allow_pickle=False) as arrays:

        def column(name: str) -> Array:
            check_label_bytes(path, name, sizes[name])
            return np.asarray(arrays[name])

        found, x = keys.columns(path, list(sizes), column, features=[key]), arrays[key]
        if not isinstance(x, np.ndarray):  # a file in it that is none of NumPy's
            raise ValueError(f"{key} is no array")

    def blocks() -> Iterator[Array]:
        yield from (x[part] for part in slices(len(x), x.nbytes // len(x)))

    return Embeddings(x.shape, x.dtype, blocks, **found)


# ---------------------------------------------------------------- other files


def open_safetensors(path: Path, keys: Keys) -> Embeddings:
    """The tensors of features (in blocks) and labels of a .safetensors file."""
    try:
        from safetensors import safe_open
    except ImportError as error:
        raise UsageError(f"{path} needs safetensors: pip install 'afltool[import]'") from error

    def column(name: str) -> Any:
        check_label_bytes(path, name, 8 * prod(file.get_slice(name).get_shape()))
        return file.get_tensor(name)

    with safe_open(path, framework="numpy") as file:
        names = list(file.keys())
        key = keys.features(path, names)
        x = file.get_slice(key)
        shape = tuple(x.get_shape())
        if x.get_dtype() == "BF16":
            raise InvalidDataError(f"{path}: {key} is in bf16; save it as float32 or float16")
        dtype = x[:1].dtype if len(shape) == 2 and shape[0] else np.dtype("f4")
        found = keys.columns(path, names, column, features=[key])

    def blocks() -> Iterator[Array]:
        with safe_open(path, framework="numpy") as file:
            rows = file.get_slice(key)
            for part in slices(shape[0], shape[1] * dtype.itemsize):
                yield rows[part]

    return Embeddings(shape, dtype, blocks, **found)


def open_feature_file(path: Path, keys: Keys) -> Embeddings:
    """A feature file of ours: its rows as reals, in its own space and classes."""
    if keys != Keys():
        raise UsageError(f"{path} is a feature file: leave --x, --y and --row-ids out")
    with open_features(path, labelled=False) as rows:
        shape, labels, ids = (len(rows), rows.dim), rows.given_labels, rows.row_ids
        made = {key: rows.header[key] for key in ("space", "classes")}

    def blocks() -> Iterator[Array]:
        with open_features(path, labelled=False) as rows:
            yield from (real(X) for _, X in rows.blocks())

    return Embeddings(shape, np.dtype("f8"), blocks, labels, ids, made)


def read_labels(path: Path) -> Array:
    """Labels from a .npy file, or a text file: line i, from 0, is the label of row i.

    Lines are numbers if all are, written as Python writes them: ``01`` is a name.

    Raises `InputError`, `CorruptFileError`, `InvalidDataError`: missing, unreadable, too large, or
    with an empty line.
    """
    if path.suffix == ".npy":
        with readable(path):
            x = _mapped(path)
            check_label_bytes(path, "labels", x.nbytes)
            return np.array(x)
    labels, known = list[str](), dict[str, str]()  # each text once in memory
    source = partial(io.TextIOWrapper, encoding="utf-8-sig", newline="\n")
    with readable(path), source(inputs.open_regular(path)) as file:
        while line := file.readline(LONGEST + 2):
            label = line.strip(inputs.AROUND)
            if not label:
                raise InvalidDataError(
                    f"{path}: line {len(labels) + 1} is empty; expected one label per line, line i "
                    "for row i. Fill it in, or leave that row out of the features and the labels"
                )
            if len(label) > LONGEST or len(labels) >= MOST_FILE_ROWS or len(known) > MOST_NAMES:
                raise InvalidDataError(
                    f"{path}: expected one label per line, of at most {LONGEST} characters, at "
                    f"most {MOST_FILE_ROWS:,} in all and {MOST_NAMES:,} different ones; found more "
                    f"in line {len(labels) + 1}: {label[:40]!r}"
                )
            labels.append(known.setdefault(label, label))
    whole = all(re.fullmatch(WHOLE, label, re.ASCII) and len(label) < 19 for label in known)
    width = 8 if whole else 4 * max(map(len, known), default=0)
    check_label_bytes(path, "labels", len(labels) * width)
    return np.fromiter(map(int, labels), np.int64) if whole else np.array(labels)
