"""Stage `import`: embeddings made by anyone → a feature file.

.npz with arrays x and y, or .npy beside a .npy or text file of labels. Arrays are read with
pickling switched off: nothing in such a file is executed.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import progress
from ..digest import file_sha256
from ..errors import CorruptFileError, InputError, InvalidDataError, UsageError
from ..files import recipe, up_to_date
from ..store.features import writing_features
from ..store.provenance import provenance
from ._options import check_format

BLOCK = 4096  # rows converted at a time
MOST_CLASSES = 100_000  # without a class list: a label beyond is a mistake, not a class
# What NumPy raises when the bytes of a file are not what its name says.
_UNREADABLE = (ValueError, OSError, EOFError, MemoryError, NotImplementedError,
               zipfile.BadZipFile, zlib.error)  # fmt: skip


def import_embeddings(
    embeddings: str | Path,
    out: str | Path,
    *,
    labels: str | Path | None = None,
    classes: Sequence[str] | None = None,
    dtype: str = "int16",
    fraction_bits: int = 9,
    backbone: str = "import",
    overwrite: bool = False,
) -> Path:
    """Write the rows of ``embeddings`` as a feature file.

    Labels are integers 0 … C−1 or names; ``classes`` fixes the names and their order, which a
    federation must share. ``backbone`` names what made the embeddings: only features of the same
    name, size and number format can be added up. Row ids are 'row/N', or the array ``row_ids`` of
    the .npz.
    """
    path, out = Path(embeddings), Path(out)
    check_format(dtype, fraction_bits)
    x, y, row_ids = _read(path, labels)
    _check_shapes(path, x, y, row_ids)
    names, y = _with_classes(path, y, classes)
    bits = fraction_bits if dtype == "int16" else None
    space = {
        "backbone": backbone,
        "weights": None,
        "node": None,
        "preprocessing": None,
        "precision": None,
        "dim": int(x.shape[1]),
        "dtype": dtype,
        "fraction_bits": bits,
    }
    digests = {"embeddings": file_sha256(path)}
    if labels is not None:
        digests["labels"] = file_sha256(Path(labels))
    made_by = recipe("import", {"space": space, "classes": list(names)}, digests)
    if up_to_date(out, made_by, overwrite):
        return out
    ids = _row_ids(path, row_ids, len(x))
    header = {
        "recipe": made_by,
        "provenance": provenance(),
        "space": space,
        "classes": list(names),
        "source": {"data": path.name, "input": digests["embeddings"]},
    }
    with writing_features(out, x.shape[1], dtype, bits, expect_rows=len(x)) as writer:
        with progress.task("import", len(x), "rows") as task:
            for start in range(0, len(x), BLOCK):
                rows = np.asarray(x[start : start + BLOCK], dtype=np.float64)
                try:
                    writer.append(rows)
                except InvalidDataError as error:
                    raise InvalidDataError(f"{path}: {error}") from None
                task.advance(len(rows))
                progress.stop_point()
        writer.finish(y, ids, header)
    return out


Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]


def _read(path: Path, labels: str | Path | None) -> Arrays:
    if path.suffix == ".npz":
        if labels is not None:
            raise UsageError("--labels goes with a .npy file; a .npz file holds its own array y")
        return _read_npz(path)
    if path.suffix == ".npy":
        if labels is None:
            raise UsageError(f"{path} has no labels: give --labels FILE (.npy, or a text file)")
        return _read_npy(path), _read_labels(Path(labels)), None
    raise UsageError(f"{path}: embeddings come as .npz (arrays x and y) or .npy with --labels")


def _read_npz(path: Path) -> Arrays:
    with _readable(path), path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("it is no archive of arrays")
        missing = {"x", "y"} - set(archive.files)
        if missing:
            raise InvalidDataError(
                f"{path} has the arrays {', '.join(archive.files) or 'none'}; expected x (n, d) "
                "and y (n,), and optionally row_ids (n,)"
            )
        ids = archive["row_ids"] if "row_ids" in archive.files else None
        return archive["x"], archive["y"], ids


def _read_npy(path: Path) -> NDArray[Any]:
    with _readable(path):
        found: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    return found


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """A file that is there, and what NumPy says when it cannot read it."""
    if not path.is_file():
        raise InputError(f"there is no file {path}: check the path")
    try:
        yield
    except _UNREADABLE as error:
        raise CorruptFileError(
            f"{path} cannot be read as {path.suffix}: {error}; make or fetch it again"
        ) from None


def _read_labels(path: Path) -> NDArray[Any]:
    if path.suffix == ".npy":
        return _read_npy(path)
    with _readable(path):
        lines = [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()]
    whole = all(re.fullmatch("-?[0-9]+", line) for line in lines)
    return np.array([int(line) for line in lines]) if whole else np.array(lines)


def _check_shapes(
    path: Path, x: NDArray[Any], y: NDArray[Any], row_ids: NDArray[Any] | None
) -> None:
    if x.ndim != 2 or x.dtype.kind not in "fiu" or 0 in x.shape:
        raise InvalidDataError(
            f"{path}: x must be a table of numbers (rows, features) with at least one of each; "
            f"found shape {x.shape}, type {x.dtype}"
        )
    if y.ndim != 1 or len(y) != len(x):
        raise InvalidDataError(f"{path}: {len(x)} rows need {len(x)} labels; found shape {y.shape}")
    if row_ids is not None and row_ids.shape != y.shape:
        raise InvalidDataError(f"{path}: {len(x)} rows need as many row_ids; found {row_ids.shape}")


def _with_classes(
    path: Path, y: NDArray[Any], classes: Sequence[str] | None
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Class names and labels as indices into them."""
    if y.dtype.kind in "iu":
        end = len(classes) if classes else min(int(y.max()) + 1, MOST_CLASSES)
        names = tuple(classes) if classes else tuple(map(str, range(end)))
        bad = np.flatnonzero((y < 0) | (y >= end))
        labels = y
    elif y.dtype.kind in "US":
        found = _texts(path, y, "labels")
        names = tuple(classes) if classes else tuple(sorted(set(found)))
        index = {name: i for i, name in enumerate(names)}
        labels = np.array([index.get(name, -1) for name in found])
        bad = np.flatnonzero(labels < 0)
    else:
        raise InvalidDataError(f"{path}: labels are integers or names; found type {y.dtype}")
    if len(bad):
        raise InvalidDataError(
            f"{path}: row {bad[0]} has the label {y[bad[0]]}; with {len(names)} classes labels run "
            f"from 0 to {len(names) - 1} or are their names ({len(bad)} rows are outside); give "
            "--classes FILE with every class, or mend the labels"
        )
    if len(names) < 2:
        raise InvalidDataError(
            f"{path}: expected at least two classes, found {len(names)} ({', '.join(names)}); a "
            "site that holds one class only names all of them with --classes FILE"
        )
    return names, labels.astype(np.int64)


def _row_ids(path: Path, given: NDArray[Any] | None, n: int) -> NDArray[np.bytes_]:
    if given is None:
        width = len(str(n - 1))
        return np.array([f"row/{i:0{width}d}".encode() for i in range(n)])
    ids = _texts(path, given, "row_ids")
    if len(set(ids)) < n:
        raise InvalidDataError(f"{path}: row_ids must differ; {n - len(set(ids))} repeat")
    if any("\n" in i or not i for i in ids):
        raise InvalidDataError(f"{path}: row_ids are one line each and not empty")
    return np.array([i.encode() for i in ids])


def _texts(path: Path, values: NDArray[Any], what: str) -> list[str]:
    try:
        return [v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist()]
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{path}: {what} are not UTF-8: {error}") from None
