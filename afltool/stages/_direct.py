"""Tables and archives where a feature file is expected: imported into the store, once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from ..embeddings import READERS
from ..errors import UsageError
from ..files.hdf5 import read_header
from ..options.base import flag
from ..options.evaluation import Counts, Evaluate
from ..options.features import ColumnOptions, Import, NamedRows, default_store
from ..options.statistics import LocalStats
from ..progress import log
from ..values.arrays import Digest, file_sha256
from .import_embeddings import import_embeddings, options_as

OURS = ".h5"
RowsT = TypeVar("RowsT", Evaluate, Counts, LocalStats)


def is_foreign(path: Path) -> bool:
    """Whether a path is that of embeddings or a table, and not of a feature file."""
    return path.suffix in READERS and path.suffix != OURS


def feature_file(
    path: Path, o: ColumnOptions, like: Mapping[str, Any] | None = None, unlabeled: bool = False
) -> Path:
    """The feature file of ``path``: itself, or what `import` makes of an archive or a table.

    The file lies in the store under a key of the content and of what was asked for. ``like``: the
    header of a head or of features with the number format and the classes that it gets. Raises
    `UsageError`: options of tables beside a feature file; others as `import`.
    """
    own = {f.name for f in fields(NamedRows)} | {"dtype", "fraction_bits", "classes"}
    given = {name: value for name, value in o.changed_options().items() if name in own}
    if not is_foreign(path):
        if given:
            raise UsageError(
                f"{flag(min(given))} is for a table or an archive; {path} is a feature file: leave "
                "it out"
            )
        return path
    options = options_as(given, like, unlabeled)
    content = file_sha256(path) if path.is_file() else str(path)
    asked = {name: str(value) for name, value in options.items()}
    key = Digest().json("table", [content, asked]).hex()[:16]
    out = default_store() / "tables" / f"{path.stem}-{key}{OURS}"
    made: Path = import_embeddings(Import(path, out, **options))
    log.info("%s: imported as %s", path, made)
    return made


def as_features(o: RowsT, head: Path | None) -> RowsT:
    """The options with a feature file in the place of a table or an archive.

    ``head``: its file, if it has one; it may be bound to a space and to classes, which the rows
    then get. Raises `InputError` where it is missing, before anything is imported.
    """
    like = None
    if head is not None and is_foreign(o.features):
        header = read_header(head, "head")
        like = header if header["space"] and header["classes"] else None
    return replace(o, features=feature_file(o.features, o, like))
