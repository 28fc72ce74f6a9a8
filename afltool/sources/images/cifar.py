"""CIFAR-10 and CIFAR-100: the Python version's pickles, checked before they are read."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import CorruptFileError, InvalidDataError
from ...plugins import need_torch
from ...values.arrays import I64
from .base import DatasetRequest, ImageDataset, digest
from .files import RawFile, fetch, files_below
from .pixels import ArrayPictures, array_dataset

#: Where the files lie below the data root, and the key of the labels in them.
FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}
LABELS = {"cifar10": "labels", "cifar100": "fine_labels"}


def open_rows(request: DatasetRequest) -> ImageDataset:
    """``cifar10`` or ``cifar100`` in the Python version's pickles.

    The MD5 of a pickle is checked first, against the one that torchvision has. The unpickler can
    build only arrays and plain containers.
    """
    name, root = request.spec, request.root
    need_torch(f"{name}, whose checksums torchvision has,")
    from torchvision import datasets

    about: Any = getattr(datasets, name.upper())
    batches = dict(about.train_list if request.split == "train" else about.test_list)
    meta, key = about.meta["filename"], about.meta["key"]
    published = {**batches, meta: about.meta["md5"]}
    folder = root / FOLDERS[name]
    if missing := [file for file in published if not (folder / file).is_file()]:
        what = f"{name}: expected {', '.join(missing)} in {folder}"
        fetch(about.url, root, about.filename, about.tgz_md5, what)
    files = {file: RawFile.read(folder / file) for file in published}
    for file, raw in files.items():
        raw.check(published[file])
    names = _entries(files[meta], {key: list})[0]
    read = [_cifar_batch(files[file], LABELS[name]) for file in batches]
    parts = [(str(folder / file), len(y)) for file, (_, y) in zip(batches, read, strict=True)]
    return array_dataset(
        request,
        [_text(name) for name in names],
        ArrayPictures(np.concatenate([pixels for pixels, _ in read]), tuple(parts)),
        np.concatenate([labels for _, labels in read]),
        digest(name, *(raw.sha256 for raw in files.values())),
    )


def _cifar_batch(file: RawFile, labels_key: str) -> tuple[NDArray[np.uint8], I64]:
    """``(n, 32, 32, 3)`` pixels and ``(n,)`` labels of one batch file."""
    data, listed = _entries(file, {"data": np.ndarray, labels_key: list})
    labels = np.asarray(listed)
    if data.dtype != np.uint8 or data.shape != (len(labels), 3072) or labels.dtype.kind != "i":
        raise InvalidDataError(
            f"{file.path}: expected an (n, 3072) array of uint8 and n whole numbers as "
            f"{labels_key}, found {data.shape} of {data.dtype} and {len(labels)} {labels.dtype}."
        )
    pixels = np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
    return pixels, labels.astype(np.int64)


def _entries(file: RawFile, kinds: Mapping[str, type]) -> list[Any]:
    """The values of a pickled dict, whose keys may be text or bytes, in the order of ``kinds``."""
    content = load_pickle(file)
    values = {_text(k): v for k, v in content.items()} if isinstance(content, dict) else {}
    for key, kind in kinds.items():
        if not isinstance(values.get(key), kind):
            raise InvalidDataError(f"{file.path}: expected a dict with {key!r} as {kind.__name__}.")
    return [values[key] for key in kinds]


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


# --- a safe unpickler -----------------------------------------------------------------------------


def load_pickle(file: RawFile) -> Any:
    """Unpickle built-in containers and NumPy arrays; anything else is refused.

    Raises `CorruptFileError`: not such a pickle.
    """
    try:
        return _ArrayUnpickler(io.BytesIO(file.data), encoding="latin1").load()
    # A damaged pickle raises nearly every built-in exception.
    except Exception as error:
        raise CorruptFileError(
            f"{file.path} is not a pickle of arrays and lists ({error or type(error).__name__}). "
            "Fetch it again from its publisher."
        ) from error


class _ArrayUnpickler(pickle.Unpickler):
    """Knows four names, each bound to what only builds a plain array."""

    def find_class(self, module: str, name: str) -> Any:
        known: dict[tuple[str, str], Any] = {
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): _plain_dtype,
            ("_codecs", "encode"): _latin1_bytes,
            # numpy.core was renamed, and importing it by its old name warns.
            ("numpy.core.multiarray", "_reconstruct"): _ARRAY_FACTORY,
            ("numpy._core.multiarray", "_reconstruct"): _ARRAY_FACTORY,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}")
        return known[module, name]


#: NumPy's own function that rebuilds a pickled array, found by its public interface.
# `__reduce__` gives a text or a tuple; of an array it is a tuple that begins with this function.
_ARRAY_FACTORY: Callable[..., Any] = np.empty(0).__reduce__()[0]  # type: ignore[assignment]


def _plain_dtype(code: str, *_: object) -> np.dtype[Any]:
    """A numeric dtype; Python 2's pickles give ``align`` as 0, which NumPy now warns about.

    A copy, because a pickle goes on to set the byte order of what it gets.
    """
    dtype = np.dtype(code, copy=True)
    if dtype.kind not in "biuf":
        raise pickle.UnpicklingError(f"it holds an array of {dtype}")
    return dtype


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into a pickle of protocol 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it encodes text as {encoding}")
    return text.encode("latin1")


def files(name: str, root: Path) -> list[Path]:
    """All files that the images may come from."""
    return files_below(root / FOLDERS[name])
