"""Stage `import`: embeddings of another program → a feature file; `embeddings` has the formats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, MismatchError, UsageError
from ..files.feature_writer import writing_features
from ..files.hdf5 import recipe
from ..files.heads import load_solved_head
from ..files.schema import provenance
from ..files.tables import check_labels
from ..heads.scaling import ScalingHead
from ..options.features import Import
from ..progress import log
from ..sources.embeddings import READERS, Embeddings, Keys, check_rows, open_embeddings, space_of
from ..sources.embeddings.readers import read_labels
from ..values.arrays import F64, file_sha256
from ..values.names import check_text, composed, places_of_numbers
from ..values.text import COLUMNS, difference
from ._rounded import write_rounded
from .runner import Files, Job, carry_out

MOST_CLASSES = 100_000  # without a class list: a label beyond is a mistake, not a class
BLOCK = 4096  # rows converted at a time
SHOWN = 40  # features of which the resolution is said one by one


def import_embeddings(o: Import) -> Path:
    """Write the rows of ``embeddings`` as a feature file.

    .npz and .safetensors files have the arrays x and y. .parquet files have a column y, and a
    column x of lists or one column for each feature, which the index of pandas and columns named
    like ids are not. The options ``x`` and ``y`` give other names. Columns have names, which are in
    the space: features come in the order of these, at every site.
    A feature file keeps its space and its classes. ``scale``: a file of `scaling`, by which rows
    are scaled; the space records it, and what becomes of values that are ``missing``. ``labels``
    names a file of labels for files without y; .npy files never have one. Features are read in
    blocks. Labels are integers 0 … C−1 or names. ``classes`` gives the names and their
    order, which a federation must share; an integer that is the name of another class is refused.
    ``backbone`` is the name of the program that made the embeddings: only features of the same
    name, size and number format can be added up. Row ids are the array or column that the option
    ``row_ids`` names, else the first of `ROW_IDS` that is there, else 'row/N'. With ``unlabelled``
    labels need not be there and are not read into the feature file, whose rows can be predicted.

    It says from which feature rounding takes most. Raises `InvalidDataError` where it makes a
    feature constant that varies, unless ``allow_constant`` or ``unlabelled``: of few rows to
    predict a feature may vary by less than a head sees.
    """
    return carry_out(job, o)[-1].path


def job(o: Import, files: Files) -> Job:
    path = o.embeddings
    x = open_embeddings(path, Keys(o.x, o.y, o.row_ids))
    names, y = _labelled(path, x, o)
    scaling = None if o.scale is None else _scaling(o.scale, x, o)
    space = space_of(x, o.backbone, o.dtype, o.bits)
    space |= _scaled_space(scaling, space.get(COLUMNS), o)
    made_by = _recipe(path, o, {"space": space, "classes": list(names)})
    left = {} if scaling is None else {"scaling": _what_is_left(scaling, o.bits)}
    header = {
        "recipe": made_by,
        "provenance": provenance(),
        "space": space,
        "classes": list(names),
        "source": {"data": path.name, "input": made_by["inputs"]["embeddings"], **left},
    }

    def scaled(first: int, rows: NDArray[Any]) -> F64:
        wide = np.asarray(rows, dtype=np.float64)
        return wide if scaling is None else scaling.scaled(wide, o.missing, first)

    def write() -> None:
        ids = _row_ids(path, x.row_ids, len(x))
        constant = left["scaling"]["constant"] if left else ()
        with writing_features(o.out, space, expect_rows=len(x)) as writer:
            of = "import", path, writer, space, len(x)
            allowed = o.allow_constant or o.unlabelled
            write_rounded(*of, lambda: _parts(x), scaled, constant, allowed)
            writer.finish(y, ids, header)
        for rows in left.values():
            _say(rows, space.get(COLUMNS))

    return Job.of_rows(o.out, made_by, write)


def _scaling(path: Path, x: Embeddings, o: Import) -> ScalingHead:
    """The scaling in a file; refused where it was made of other features."""
    head, header = load_solved_head(path)
    if not isinstance(head, ScalingHead):
        raise UsageError(f"--scale {path} is a {head.name} head; expected a scaling file")
    ours, theirs = header["space"], space_of(x, o.backbone)
    if wrong := difference(ours, theirs, f"in {path}", "in these rows"):
        raise MismatchError(f"the scaling {path} is of other features: {wrong}")
    return head


def _scaled_space(
    scaling: ScalingHead | None, columns: list[str] | None, o: Import
) -> dict[str, Any]:
    """What the feature space says of a scaling; ``columns``: of the rows that are scaled."""
    if scaling is None:
        return {}
    more = scaling.holes() if o.missing == "indicator" else []
    named: dict[str, Any] = {} if o.missing == "refuse" else {"missing": o.missing}
    if columns is not None:
        named[COLUMNS] = [*columns, *(f"{columns[j]} is missing" for j in more)]
    return {"dim": (scaling.dim or 0) + len(more), "scaling": scaling.digest(), **named}


def _what_is_left(scaling: ScalingHead, bits: int | None) -> dict[str, Any]:
    """``resolution`` is one step of the fixed point in the units of each feature."""
    known = scaling.arrays()
    steps = None if bits is None else (known["spread"] * 2.0**-bits).tolist()
    return {"resolution": steps, "constant": known["constant"].nonzero()[0].tolist()}


def _say(facts: dict[str, Any], columns: list[str] | None) -> None:
    """The same in words."""
    if same := facts["constant"]:
        log.warning(
            "import: features that are constant: %s",
            _listed([columns[j] if columns else j for j in same]),
        )
    steps = enumerate(facts["resolution"] or ())
    if each := [f"{columns[j] if columns else j}: {one:.3g}" for j, one in steps]:
        log.info("import: the smallest step that is left of each feature: %s", _listed(each))


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values[:SHOWN])) + ", … (afltool info)" * (len(values) > SHOWN)


#: Options that the recipe has as what follows from them.
RESOLVED = (
    "x", "y", "row_ids", "backbone", "classes", "dtype", "fraction_bits", "missing", "unlabelled"
)  # fmt: skip


def _recipe(path: Path, o: Import, facts: dict[str, Any]) -> dict[str, Any]:
    """The recipe of the file; what is not given is not in it."""
    named: dict[str, Any] = {"keys": [o.x, o.y]} if (o.x, o.y) != (None, None) else {}
    named |= {} if o.row_ids is None else {"row_ids": o.row_ids}
    digests = {"embeddings": file_sha256(path)}
    if o.labels is not None:
        digests["labels"] = file_sha256(o.labels)
    digests |= READERS.version(path.suffix)
    return recipe("import", {**facts, **named, **o.stored(*RESOLVED)}, digests)


def _parts(x: Embeddings) -> Iterator[tuple[int, NDArray[Any]]]:
    """The number of the first row, and a few rows as they are in the file."""
    first = 0
    for rows in x.blocks():
        for start in range(0, len(rows), BLOCK):
            yield first + start, rows[start : start + BLOCK]
        first += len(rows)


def _labelled(
    path: Path, x: Embeddings, o: Import
) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    """Class names, and labels as indices into them; none of either without labels."""
    from ..sources.images import read_classes

    bare = x.made is not None and x.labels is None  # a feature file without labels
    given = None if o.unlabelled or bare else _labels(path, x, o.labels)
    _check_shapes(path, x, given)
    if given is None:
        return (), None
    known = read_classes(o.classes) if isinstance(o.classes, Path) else o.classes
    known = x.made["classes"] if known is None and x.made is not None else known
    return _with_classes(path, given, known)


def _labels(path: Path, x: Embeddings, labels: str | Path | None) -> NDArray[Any]:
    if labels is not None and x.labels is not None:
        raise UsageError(f"--labels is for a file without labels; {path} holds its own (y)")
    if x.labels is not None:
        return x.labels
    if labels is None:
        raise UsageError(
            f"{path} has no labels: give --labels FILE (.npy, or a text file), --y NAME where they "
            "have another name, or --unlabelled for rows to predict"
        )
    return read_labels(Path(labels))


def _check_shapes(path: Path, x: Embeddings, y: NDArray[Any] | None) -> None:
    check_rows(path, x)
    if y is not None and (y.ndim != 1 or len(y) != len(x)):
        raise InvalidDataError(f"{path}: {len(x)} rows need {len(x)} labels; found shape {y.shape}")
    if x.row_ids is not None and x.row_ids.shape != (len(x),):
        raise InvalidDataError(
            f"{path}: {len(x)} rows need as many row ids; found {x.row_ids.shape}"
        )


def _with_classes(
    path: Path, y: NDArray[Any], classes: Sequence[str] | None
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Class names and labels as indices into them."""
    if y.dtype.kind in "iu":
        end = len(classes) if classes else min(int(y.max()) + 1, MOST_CLASSES)
        names = tuple(classes) if classes else tuple(map(str, range(end)))
        _refuse_number_names(path, y, names)
        bad = np.flatnonzero((y < 0) | (y >= end))
        labels = y
    elif y.dtype.kind in "US":
        different, at, rows = np.unique(y, return_inverse=True, return_counts=True)
        texts = _texts(path, different, "labels")
        if not classes:
            check_labels(path, dict(zip(texts, rows.tolist(), strict=True)))
        names = tuple(classes) if classes else tuple(sorted(set(texts)))
        index = {form: i for of in (composed, str) for i, form in enumerate(map(of, names))}
        labels = np.array([index.get(one, index.get(composed(one), -1)) for one in texts])[at]
        bad = np.flatnonzero(labels < 0)
    else:
        raise InvalidDataError(f"{path}: labels are integers or names; found type {y.dtype}")
    if len(bad):
        raise InvalidDataError(
            f"{path}: row {bad[0]} has the label {y[bad[0]]}; with {len(names)} classes labels run "
            f"from 0 to {len(names) - 1} or are their names ({len(bad)} rows are outside); give "
            "--classes FILE with every class, or correct the labels"
        )
    if len(names) < 2:
        raise InvalidDataError(
            f"{path}: expected at least two classes, found {len(names)} ({', '.join(names)}); a "
            "site with only one class names all classes with --classes FILE"
        )
    return names, labels.astype(np.int64)


def _refuse_number_names(path: Path, y: NDArray[Any], names: Sequence[str]) -> None:
    """Refuse a label that is the place of one class and the name of another."""
    called = places_of_numbers(names)
    for label in map(int, np.unique(y)):
        place = called.get(label, label)
        if place != label:
            other = repr(names[label]) if 0 <= label < len(names) else "no class"
            raise InvalidDataError(
                f"{path}: the label {label} can be read in two ways: the class named "
                f"{names[place]!r} is at place {place} (from 0), and at place {label} is {other}. "
                "If labels are names, give them as texts in .npy, .npz or .parquet "
                "(y.astype(str)); if they are places, give --classes names that are not numbers, "
                "or numbers in order from 0"
            )


def _row_ids(path: Path, given: NDArray[Any] | None, n: int) -> NDArray[np.bytes_]:
    if given is None:
        width = len(str(n - 1))
        ids = np.empty(n, f"S{4 + width}")
        for start in range(0, n, BLOCK):  # in pieces: a text a row would take five times as much
            rows = range(start, min(start + BLOCK, n))
            ids[start : rows.stop] = [f"row/{i:0{width}d}".encode() for i in rows]
        return ids
    texts = _texts(path, given, "row_ids")
    if len(set(texts)) < n:
        raise InvalidDataError(
            f"{path}: row ids must differ; {n - len(set(texts))} repeat another. Name the column "
            "that holds them by --row-ids"
        )
    if any("\n" in text or "\0" in text or not text for text in texts):
        raise InvalidDataError(f"{path}: row ids are one line each, without NUL and not empty")
    for text in texts:
        check_text("row id", text)
    return np.array([text.encode() for text in texts])


def _texts(path: Path, values: NDArray[Any], what: str) -> list[str]:
    try:
        return [v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist()]
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{path}: {what} are not UTF-8: {error}") from None
