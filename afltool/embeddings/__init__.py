"""Files of embeddings and of labels: NumPy's, safetensors, tables, text, feature files.

Features of .npy and feature files are read in blocks, other files are in memory. Nothing in them is
executed: pickling is switched off. A format is one module and one line of ``READERS``.

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
from ..options.base import flag
from ..options.features import IMPORTED, NamedRows
from ..plugins import Registry, import_object
from ..progress import log
from ..values.arrays import Array
from ..values.names import ROW_IDS, order_columns
from ..values.text import COLUMNS, comma_list

BLOCK_BYTES = 8 << 20  # of the file's own type
MOST_FEATURES = 1 << 20  # of a row
SHOWN = 40  # of the columns that are left out
MOST_FILE_ROWS = 20_000_000  # of one file: their labels and ids are held in memory

#: What features are called in archives, and the labels beside them.
USUAL = {"x": "y", "X": "y", "data": "target", "features": "labels", "embeddings": "labels"}
LABELS = ("y", "labels", "label", "target")  # where that name is not there
TABLES = (".parquet", ".feather", ".csv", ".tsv")


def lacking(path: Path, names: Sequence[str], o: NamedRows) -> InvalidDataError:
    """The error for a file without what ``o`` asks for, by the names that it has."""
    found = f"{', '.join(names[:9]) or 'none'}{', …' * (len(names) > 9)}"
    strange = [one for one in (o.x, o.y, o.row_ids) if one not in (None, *names)]
    if path.suffix in TABLES and strange:
        return InvalidDataError(
            f"{path} has no column {strange[0]!r}: its columns are {found}; --x, --y and --row-ids "
            "name some of them"
        )
    return InvalidDataError(
        f"{path} has the arrays {found}; expected "
        f"{o.x or 'x'} (n, d) and {o.y or 'y'} (n,), and optionally "
        f"{o.row_ids or 'row_ids'} (n,); --x, --y and --row-ids name them"
    )


def name_fields(
    path: Path,
    names: Sequence[str],
    o: NamedRows,
    read: Callable[[str], Array],
    labels: Sequence[str],
    features: Sequence[str],
    why: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, Any]:
    """The fields of `Embeddings` that say what the ``names`` in a file are, beside ``features``.

    ``labels``: their usual names, of which the first one counts; ``why`` others are left out.
    """
    if {o.y, o.row_ids} - {None, *names}:
        raise lacking(path, names, o)
    y = o.y or next((one for one in labels if one in names), None)
    usual = (name for name in ROW_IDS if name in names and name not in (o.x, o.y))
    ids = o.row_ids or next(usual, None)
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
    called; ``left``: what is not read, and why; ``columns``: the names of the features (d,).
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
    """Inside, what a reader raises over a damaged file becomes a `CorruptFileError`."""
    inputs.check_given_path(path)
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


def slices(rows: int, row_bytes: int) -> Iterator[slice]:
    """Consecutive parts of ``rows`` rows, of about `BLOCK_BYTES` each."""
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


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


def make_imported_space(
    backbone: str, dim: int, dtype: str, bits: int | None, columns: Sequence[str] | None = None
) -> dict[str, Any]:
    """The feature space of embeddings made elsewhere: their maker's name is known of it, and the
    names of their ``columns``, in `order_columns`, where they come from a table."""
    unknown = dict.fromkeys(("weights", "node", "preprocessing", "precision"))
    known = {"backbone": backbone, **unknown, "dim": dim, "dtype": dtype, "fraction_bits": bits}
    return known if columns is None else {**known, COLUMNS: list(columns)}


def make_space(
    x: Embeddings, backbone: str, dtype: str = "float32", bits: int | None = None
) -> dict[str, Any]:
    """The feature space of embeddings: of a feature file its own, in this number format."""
    if x.made is None:
        return make_imported_space(backbone, x.shape[1], dtype, bits, x.columns)
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


def open_embeddings(path: Path, o: NamedRows) -> Embeddings:
    """The embeddings in ``path``, whatever its format; features are not read yet.

    Features that have names come in the order of these, `order_columns`, whatever it is in the
    file. It says what of a table is left out. Raises `UsageError`: another suffix, or a package
    that is missing; `InputError`: missing, unreadable, or without x.
    """
    if path.suffix not in READERS:
        raise UsageError(
            f"{path}: embeddings come as .npz or .safetensors (with x and y), as .npy with "
            f"--labels, as a table ({' '.join(TABLES)}), or as a feature file .h5"
        )
    unused = [] if path.suffix in TABLES else ["feature_columns", "categories"]
    unused += ["x", "y", "row_ids"] if path.suffix in (".npy", ".h5") else []
    if given := [flag(name) for name in unused if getattr(o, name)]:
        raise UsageError(f"{path}: what is in it has no such names, leave {given[0]} out")
    reader: Callable[[Path, NamedRows], Embeddings] = import_object(READERS[path.suffix], __name__)
    with readable(path):
        embeddings = reader(path, o)
    left = [f"{name} ({why})" if why else name for name, why in embeddings.left.items()]
    if left or embeddings.ids_of or path.suffix in TABLES:
        more = f", … ({len(left)} in all)" * (len(left) > SHOWN)
        out = f"; left out: {', '.join(left[:SHOWN])}{more}" if left else ""
        ids = embeddings.ids_of or "row/N"
        texts = [name for name, why in embeddings.left.items() if why in ("text", "bool")]
        fix = ""
        if texts and not o.categories:
            fix = f"; --categories {quote(comma_list(texts[:SHOWN]))} makes features of 0 and 1"
        log.info(f"{path}: {embeddings.shape[-1]} features{out}; row ids: {ids}{fix}")
    columns = embeddings.columns
    if columns is not None:
        with naming(path):
            order, columns = order_columns(columns)

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
