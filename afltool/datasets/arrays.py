"""Data sets that are arrays in a few files: digits, Fashion-MNIST, CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptFileError, InputError, InvalidDataError, UsageError
from .base import ImageDataset, digest, make_dataset, numbered_ids, rank_within_class
from .files import DEBIAN_FASHION_MNIST, RawFile, fetch, stated_md5
from .pictures import ArrayPictures

#: MD5 of Fashion-MNIST's files without gzip: Debian packs the same bytes anew, so the published
#: checksums of the packed files do not hold there.
FASHION_MNIST_MD5 = {
    "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
    "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
    "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
    "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
}

Checksums = Mapping[str, str] | None


# --- digits ---------------------------------------------------------------------------------------


def open_digits(split: str, wanted: Sequence[str] | None = None) -> ImageDataset:
    """scikit-learn's 1,797 digits of 8 × 8 pixels.

    Within each class every fifth image, in the order of the file, belongs to the test split.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise UsageError("digits needs scikit-learn: pip install 'afltool[demo]'.") from error
    bunch = load_digits()
    labels = np.asarray(bunch.target, dtype=np.int64)
    is_test = rank_within_class(labels) % 5 == 4
    rows = np.flatnonzero(is_test if split == "test" else ~is_test)
    pixels = np.rint(bunch.images[rows] * (255 / 16)).astype(np.uint8)
    return make_dataset(
        "digits",
        split,
        [str(digit) for digit in range(10)],
        numbered_ids(split, len(rows)),
        labels[rows],
        digest("digits", bunch.images.tobytes(), labels.tobytes()),
        ArrayPictures(pixels, ((f"scikit-learn's digits, {split} split", len(rows)),)),
        wanted,
    )


# --- Fashion-MNIST --------------------------------------------------------------------------------


def open_fashion_mnist(
    split: str, root: Path, wanted: Sequence[str] | None = None, checksums: Checksums = None
) -> ImageDataset:
    """Fashion-MNIST in idx files, packed with gzip or not.

    Looked for in ``root/FashionMNIST/raw`` (torchvision's layout), in Debian's folder, and then
    downloaded to the former. ``checksums`` are MD5s of the files as they lie on the disk.
    """
    from torchvision.datasets import FashionMNIST

    part = "train" if split == "train" else "t10k"
    names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
    raw = root / "FashionMNIST" / "raw"
    folders = [raw, DEBIAN_FASHION_MNIST]
    paths = _find_idx(folders, names)
    if paths is None and checksums is None:
        what = f"fashion-mnist: expected {names[0]}[.gz] and {names[1]}[.gz] in {raw}"
        for archive, md5 in FashionMNIST.resources:
            fetch(FashionMNIST.mirrors[0] + archive, raw, archive, md5, what)
        paths = _find_idx(folders, names)
    if paths is None:
        raise InputError(f"fashion-mnist: expected {names[0]} and {names[1]} (or .gz) in {raw}.")
    contents = [_checked_idx(path, checksums) for path in paths]
    pixels, labels = _parse_idx(contents[0], 3), _parse_idx(contents[1], 1)
    if len(pixels) != len(labels):
        raise InvalidDataError(
            f"{paths[0]} holds {len(pixels)} images and {paths[1]} {len(labels)} labels: "
            "expected equally many. Fetch both files again."
        )
    return make_dataset(
        "fashion-mnist",
        split,
        list(FashionMNIST.classes),
        numbered_ids(split, len(labels)),
        labels,
        digest("fashion-mnist", *(content.sha256 for content in contents)),
        ArrayPictures(pixels, ((str(paths[0]), len(pixels)),)),
        wanted,
    )


def _find_idx(folders: Sequence[Path], names: Sequence[str]) -> list[Path] | None:
    """Both files from one folder, the first folder that has them; None where no folder does."""
    for folder in folders:
        found = [path for name in names if (path := _plain_or_packed(folder / name))]
        if len(found) == len(names):
            return found
    return None


def _plain_or_packed(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return path if path.is_file() else packed if packed.is_file() else None


def _checked_idx(path: Path, checksums: Checksums) -> RawFile:
    raw = RawFile.read(path)
    if checksums is not None:
        raw.check(stated_md5(checksums, path), "stated by --checksums")
        return raw.unpacked()
    content = raw.unpacked()
    content.check(FASHION_MNIST_MD5[path.name.removesuffix(".gz")], "published, unpacked")
    return content


def _parse_idx(file: RawFile, dimensions: int) -> NDArray[np.uint8]:
    """An idx array of bytes: magic 0x0000080D with D dimensions, D big-endian sizes, the bytes."""
    head = 4 + 4 * dimensions
    if file.data[:4] != bytes((0, 0, 8, dimensions)) or len(file.data) < head:
        raise CorruptFileError(
            f"{file.path}: expected an idx file of bytes in {dimensions} dimension(s), which "
            f"starts with 00 00 08 {dimensions:02x}; found {file.data[:4].hex(' ')}."
        )
    shape = np.frombuffer(file.data, ">u4", dimensions, offset=4).astype(np.int64)
    if len(file.data) - head != shape.prod():
        raise CorruptFileError(
            f"{file.path}: its header announces {shape.prod():,} bytes of data, it holds "
            f"{len(file.data) - head:,}. Fetch it again."
        )
    return np.frombuffer(file.data, np.uint8, offset=head).reshape(shape)


# --- CIFAR-10 and CIFAR-100 -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Cifar:
    """What torchvision publishes about a CIFAR archive: its files, their MD5s, their keys."""

    name: str
    folder: str
    archive: str
    archive_md5: str
    url: str
    md5: dict[str, str]
    batches: tuple[str, ...]
    meta: str
    classes_key: str
    labels_key: str

    @classmethod
    def of(cls, name: str, split: str) -> _Cifar:
        from torchvision.datasets import CIFAR10, CIFAR100

        tv: Any = CIFAR10 if name == "cifar10" else CIFAR100
        batches = tv.train_list if split == "train" else tv.test_list
        meta = tv.meta["filename"]
        return cls(
            name=name,
            folder=tv.base_folder,
            archive=tv.filename,
            archive_md5=tv.tgz_md5,
            url=tv.url,
            md5={**dict(batches), meta: tv.meta["md5"]},
            batches=tuple(file for file, _ in batches),
            meta=meta,
            classes_key=tv.meta["key"],
            labels_key="labels" if name == "cifar10" else "fine_labels",
        )


def open_cifar(
    name: str,
    split: str,
    root: Path,
    wanted: Sequence[str] | None = None,
    checksums: Checksums = None,
) -> ImageDataset:
    """``cifar10`` or ``cifar100`` in the Python version's pickles.

    A pickle is read after its MD5 was found right, published or stated in ``checksums``, and by
    an unpickler that can build arrays and plain containers only.
    """
    about = _Cifar.of(name, split)
    folder = root / about.folder
    missing = [file for file in about.md5 if not (folder / file).is_file()]
    if missing and checksums is None:
        what = f"{name}: expected {', '.join(missing)} in {folder}"
        fetch(about.url, root, about.archive, about.archive_md5, what)
        missing = [file for file in about.md5 if not (folder / file).is_file()]
    if missing:
        raise InputError(
            f"{name}: expected {', '.join(about.md5)} in {folder}, found no {missing[0]}."
        )
    files = {file: _checked_pickle(folder / file, about.md5[file], checksums) for file in about.md5}
    names = _entries(files[about.meta], {about.classes_key: list})[0]
    classes = [_text(name) for name in names]
    batches = [_cifar_batch(files[file], about.labels_key) for file in about.batches]
    labels = np.concatenate([batch[1] for batch in batches])
    return make_dataset(
        name,
        split,
        classes,
        numbered_ids(split, len(labels)),
        labels,
        digest(name, *(file.sha256 for file in files.values())),
        ArrayPictures(
            np.concatenate([batch[0] for batch in batches]),
            tuple(
                (str(folder / file), len(batch[1]))
                for file, batch in zip(about.batches, batches, strict=True)
            ),
        ),
        wanted,
    )


def _checked_pickle(path: Path, published: str, checksums: Checksums) -> RawFile:
    raw = RawFile.read(path)
    if checksums is None:
        raw.check(published, "published")
    else:
        raw.check(stated_md5(checksums, path), "stated by --checksums")
    return raw


def _cifar_batch(file: RawFile, labels_key: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
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

    Raises:
        CorruptFileError: not such a pickle.
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
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return known[module, name]


#: NumPy's own function for rebuilding a pickled array, by its public door.
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
