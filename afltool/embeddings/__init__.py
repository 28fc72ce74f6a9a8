"""Files of embeddings and of labels: NumPy's, safetensors, tables, text, feature files.

Features of .npy and feature files are read in blocks, so memory does not grow with their number;
other files are in memory, labels and row ids up to a limit. Nothing in such a file is executed:
arrays are read with pickling switched off. A format is one module and one line of ``READERS``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any

import numpy as np

from .. import inputs
from ..errors import AflError, CorruptFileError, InputError, InvalidDataError, UsageError, naming
from ..options.features import IMPORTED, ColumnOptions
from ..plugins import Registry, located
from ..progress import log
from ..values.arrays import Array
from ..values.names import ROW_IDS, ordered_columns
from ..values.text import COLUMNS, comma_list

BLOCK_BYTES = 8 << 20  # of the file's own type
MOST_LABELS = 256 << 20  # bytes of all labels, or of all row ids
MOST_FEATURES = 1 << 20  # of a row
SHOWN = 40  # of the columns that are left out
MOST_FILE_ROWS = 20_000_000  # of one file: their labels and ids are held in memory

#: What features are called in archives, and the labels beside them.
USUAL = {"x": "y", "X": "y", "data": "target", "features": "labels", "embeddings": "labels"}
LABELS = ("y", "labels", "label", "target")  # where that name is not there
TABLES = (".parquet", ".feather", ".csv", ".tsv")


@dataclass(frozen=True)
class Keys:
    """What features, labels and row ids are called in a file; None stands for the usual names.

    Those are the pairs of `USUAL` (in tables x, y or label), and `ROW_IDS`; labels and ids may then
    be absent. ``take``: columns of a table that are features; ``categories``: COLUMN=VALUE,VALUE of
    columns that become a feature of 0 and 1 for each value. Both may be lists with commas.
    """

    x: str | None = None
    y: str | None = None
    row_ids: str | None = None
    take: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @classmethod
    def of(cls, o: ColumnOptions) -> Keys:
        """What the options of a command say."""
        return cls(o.x, getattr(o, "y", None), o.row_ids, o.feature_columns, o.categories)

    def features(self, path: Path, names: Sequence[str]) -> str:
        """The name of the features among the ``names`` in a file.

        Raises `InvalidDataError` where it, or a name that was given to labels, is not there.
        """
        x = self.x or next((one for one in USUAL if one in names), "x")
        if x not in names or (self.y is not None and self.y not in names):
            raise self.lacking(path, names)
        return x

    def lacking(self, path: Path, names: Sequence[str]) -> InvalidDataError:
        """The error for a file without what it is asked for, by the names that it has."""
        more = ", …" * (len(names) > 9)
        return InvalidDataError(
            f"{path} has the arrays {', '.join(names[:9]) or 'none'}{more}; expected "
            f"{self.x or 'x'} (n, d) and {self.y or 'y'} (n,), and optionally "
            f"{self.row_ids or 'row_ids'} (n,); --x, --y and --row-ids name them"
        )

    def columns(
        self,
        path: Path,
        names: Sequence[str],
        read: Callable[[str], Array],
        labels: Sequence[str] = (),
        features: Sequence[str] = (),
        why: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """The fields of `Embeddings` that say what the ``names`` in a file are.

        ``read`` gives labels and row ids by name. ``labels``: their usual names, by default the one
        that goes with the name of the ``features``; ``why`` others are none.
        """
        labels = labels or [USUAL.get(features[0], "y"), *LABELS]
        y = self.y or next((o for o in labels if o in names), None)
        if self.row_ids is not None and self.row_ids not in names:
            raise self.lacking(path, names)
        usual = (name for name in ROW_IDS if name in names and name not in (self.x, self.y))
        ids = self.row_ids or next(usual, None)
        found, row_ids = (None if one is None else read(one) for one in (y, ids))
        left = {one: why.get(one, "") for one in names if one not in {y, ids, *features}}
        return {"labels": found, "row_ids": row_ids, "ids_of": ids, "left": left}


def names_apart(texts: Sequence[str], names: Collection[str]) -> list[str]:
    """Names of columns that were listed with commas; what names a column itself stays whole."""
    each = ([one] if "=" in one or one in names else one.split(",") for one in texts)
    return [name for several in each for name in several]


@dataclass(frozen=True)
class Embeddings:
    """What is in a file: ``blocks()`` gives ``x`` (n, d) in consecutive blocks of rows.

    ``made``: space and classes, which only a feature file has. ``ids_of``: what the row ids are
    called; ``left``: what is not read, and why. ``columns``: the names of the features (d,), where
    the file has them; `open_embeddings` brings them into one order.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Array]]
    labels: Array | None = None
    row_ids: Array | None = None
    made: Mapping[str, Any] | None = None
    ids_of: str | None = None
    left: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[str] | None = None

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Inside, what a reader raises over a damaged file becomes a `CorruptFileError`.

    Raises `InputError`: no regular file is there.
    """
    inputs.given_path(path)
    if not path.exists():
        raise InputError(f"there is no file {path}: check the path")
    try:
        inputs.open_regular(path).close()
        yield
    except AflError:
        raise
    # Readers of damaged files raise nearly every built-in exception, and classes of their own.
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        raise CorruptFileError(
            f"{path} cannot be read as {path.suffix}: {text}; make or fetch it again"
        ) from None


def rows_of_block(row_bytes: int) -> int:
    return max(1, BLOCK_BYTES // max(1, row_bytes))


def slices(rows: int, row_bytes: int) -> Iterator[slice]:
    """Consecutive parts of ``rows`` rows, of about `BLOCK_BYTES` each."""
    step = rows_of_block(row_bytes)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def check_label_bytes(path: Path, what: str, size: int) -> None:
    """Refuse labels or row ids of too many bytes before they are read."""
    if size > MOST_LABELS:
        raise InvalidDataError(
            f"{path}: {what} take {size / 1e6:,.0f} MB; the most is {MOST_LABELS / 1e6:,.0f} MB"
        )


#: Suffix → the module and function that open such a file; a module is imported when it is needed.
READERS: Registry[str] = Registry(
    "afltool.embeddings",
    {
        ".npz": ".readers:open_npz",
        ".npy": ".readers:open_npy",
        ".safetensors": ".readers:open_safetensors",
        ".h5": ".readers:open_feature_file",
        **dict.fromkeys(TABLES, ".tables:open_table"),
    },
)


def imported_space(
    backbone: str, dim: int, dtype: str, bits: int | None, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """The feature space of embeddings made elsewhere: their maker's name is known of it, and the
    names of their ``columns``, in `ordered_columns`, where they come from a table."""
    unknown = dict.fromkeys(("weights", "node", "preprocessing", "precision"))
    known = {"backbone": backbone, **unknown, "dim": dim, "dtype": dtype, "fraction_bits": bits}
    return known if columns is None else {**known, COLUMNS: list(columns)}


def space_of(
    x: Embeddings, backbone: str, dtype: str = "float32", bits: int | None = None
) -> dict[str, Any]:
    """The feature space of embeddings: of a feature file its own, in this number format."""
    if x.made is None:
        return imported_space(backbone, x.shape[1], dtype, bits, x.columns)
    if backbone not in (IMPORTED, x.made["space"]["backbone"]):
        raise UsageError(
            f"--backbone {backbone} is for features made elsewhere; those of a feature file keep "
            f"theirs, {x.made['space']['backbone']}: leave it out"
        )
    return {**x.made["space"], "dtype": dtype, "fraction_bits": bits}


def check_rows(path: Path, x: Embeddings) -> None:
    """Refuse with `InvalidDataError` what is no table of numbers, or too large a one."""
    if len(x.shape) != 2 or x.dtype.kind not in "fiu" or 0 in x.shape:
        raise InvalidDataError(
            f"{path}: x must be a table of numbers (rows, features) with at least one of each; "
            f"found shape {x.shape}, type {x.dtype}"
        )
    if len(x) > MOST_FILE_ROWS or x.shape[1] > MOST_FEATURES:
        raise InvalidDataError(
            f"{path}: expected at most {MOST_FILE_ROWS:,} rows of {MOST_FEATURES:,} features; "
            f"found {x.shape[0]:,} of {x.shape[1]:,}"
        )


def open_embeddings(path: Path, keys: Keys = Keys()) -> Embeddings:
    """The embeddings in ``path``, whatever its format; features are not read yet.

    ``keys``: what its features and labels are called. Features that have names come in the order of
    these, `ordered_columns`, whatever it is in the file.

    Raises `UsageError`: another suffix, or a package that is missing; `InputError`,
    `CorruptFileError`, `InvalidDataError`: missing, unreadable, or without x.
    """
    if path.suffix not in READERS:
        raise UsageError(
            f"{path}: embeddings come as .npz or .safetensors (with x and y), as .npy with "
            f"--labels, as a table ({' '.join(TABLES)}), or as a feature file .h5"
        )
    if path.suffix not in TABLES and (keys.take or keys.categories):
        raise UsageError(
            f"{path} has no columns with names: leave --feature-columns and --categories out"
        )
    reader: Callable[[Path, Keys], Embeddings] = located(READERS[path.suffix], __name__)
    with readable(path):
        embeddings = reader(path, keys)
    left = [f"{name} ({why})" if why else name for name, why in embeddings.left.items()]
    if left or embeddings.ids_of or path.suffix in TABLES:
        more = f", … ({len(left)} in all)" * (len(left) > SHOWN)
        out = f"; left out: {', '.join(left[:SHOWN])}{more}" if left else ""
        ids = embeddings.ids_of or "row/N"
        texts = [name for name, why in embeddings.left.items() if why in ("text", "bool")]
        fix = quote(comma_list(texts[:SHOWN]))
        more = f"; --categories {fix} makes features of 0 and 1" if texts and not keys.take else ""
        log.info(f"{path}: {embeddings.shape[-1]} features{out}; row ids: {ids}{more}")
    columns = embeddings.columns
    if columns is not None:
        with naming(path):
            order, columns = ordered_columns(columns)

    def blocks() -> Iterator[Array]:
        rows, wide = 0, embeddings.shape[-1]
        with readable(path):  # an error between two of them names the file
            for block in embeddings.blocks():
                rows += len(block) if block.shape[1:] == (wide,) else 0
                yield block if columns is None else block[:, order]
        if rows != len(embeddings):  # a reader of a plug-in
            raise InvalidDataError(
                f"{path}: its reader tells {len(embeddings)} rows of {wide} features; found {rows}"
            )

    return replace(embeddings, blocks=blocks, columns=columns)
