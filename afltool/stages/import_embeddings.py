"""Stages `import`: embeddings → a feature file; and `scale`: sums of which scaling is made before.

`solve` makes the scaling of the total of all sites' sums, and `import --scale` takes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import embeddings
from ..embeddings import READERS, Embeddings, check_rows, make_space, open_embeddings
from ..embeddings.readers import read_labels
from ..errors import InvalidDataError, MismatchError, UsageError, naming
from ..files.features import Parts, RowStream, round_rows
from ..files.hdf5 import read_header, recipe
from ..files.heads import load_solved_head
from ..files.outputs import make_folder
from ..files.schema import provenance
from ..files.statistics import write_statistics
from ..files.tables import check_labels
from ..heads.base import Block, binding, statistics_of
from ..heads.scaling import ScalingHead, ScalingOptions
from ..math.rounding import Rounding
from ..options.features import Import, Scale
from ..values import names
from ..values.arrays import F64, file_sha256
from ..values.statistics import Client, ClientId, Context
from ..values.text import COLUMNS, IS, comma_list, difference
from .runner import Files, Job, StageFunction

MOST_CLASSES = 100_000  # without a class list: a label beyond is a mistake, not a class
BLOCK = 4096  # rows converted at a time
ROWS = ("rows",)  # of sums for a scaling labels are not looked at: all rows are of one class
#: Options that the recipe has as what follows from them.
RESOLVED = ("backbone", "classes", "dtype", "fraction_bits", "missing", "unlabeled")


@StageFunction
def import_embeddings(o: Import, files: Files) -> Job:
    """Write the rows of ``embeddings`` as a feature file.

    Features of tables come in the order of their names, which are in the space. A feature file
    keeps its space and its classes. Labels are integers 0 … C−1 or names; an integer that is the
    name of another class is refused. The space records a ``scale``, and what becomes of values that
    are ``missing``. Raises `InvalidDataError` where rounding makes a feature constant that varies,
    unless ``allow_constant`` or ``unlabeled``.
    """
    path = o.embeddings
    if o.like is not None:
        like = read_header(o.like, "features")
        if "scaling" in like["space"]:
            raise UsageError(f"{o.like} is scaled: give --scale FILE, its scaling, and no --like")
        o = replace(o, **options_as(o.changed_options(), like, o.unlabeled))
    x = open_embeddings(path, o)
    classes, y = _labeled(path, x, o)
    space = make_space(x, o.backbone, o.dtype, o.bits)
    source: dict[str, Any] = {"data": path.name}
    scaling = None if o.scale is None else _scaling(o.scale, x, o)
    constant: list[int] = []
    if scaling is not None:
        space |= _add_scaling(scaling, space.get(COLUMNS), o)
        known = scaling.state_dict()
        constant = known["constant"].nonzero()[0].tolist()
        # One step of the fixed point in the units of each feature.
        steps = None if o.bits is None else (known["spread"] * 2.0**-o.bits).tolist()
        source["scaling"] = {"resolution": steps, "constant": constant}
    made_by = _recipe(path, o, {"space": space, "classes": list(classes)})
    header = {
        "recipe": made_by,
        "provenance": provenance(),
        "space": space,
        "classes": list(classes),
        "source": {**source, "input": made_by["inputs"]["embeddings"]},
    }

    def scaled(first: int, rows: NDArray[Any]) -> F64:
        wide = np.asarray(rows, dtype=np.float64)
        return wide if scaling is None else scaling.transform(wide, o.missing, first)

    def write() -> None:
        allowed = o.allow_constant or o.unlabeled
        of = "import", path, space, lambda: _parts(x), scaled, constant, allowed
        ids = _row_ids(path, x.row_ids, len(x))
        RowStream("import", header, y, ids, partial(round_rows, *of)).write(o.out)

    return Job.for_file(o.out, made_by, write)


def _recipe(path: Path, o: Import, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of the file; what is not given is not in it."""
    named: dict[str, Any] = {"keys": [o.x, o.y]} if (o.x, o.y) != (None, None) else {}
    named |= {} if o.row_ids is None else {"row_ids": o.row_ids}
    inputs = {"embeddings": file_sha256(path), **READERS.version(path.suffix)}
    inputs |= {} if o.labels is None else {"labels": file_sha256(o.labels)}
    return recipe("import", {**facts, **named, **o.recipe_options(*RESOLVED)}, inputs)


def _parts(x: Embeddings) -> Parts:
    """The number of the first row, and a few rows as they are in the file."""
    first = 0
    for rows in x.blocks():
        for start in range(0, len(rows), BLOCK):
            yield first + start, rows[start : start + BLOCK]
        first += len(rows)


def _scaling(path: Path, x: Embeddings, o: Import) -> ScalingHead:
    """The scaling in a file; refused where it was made of other features."""
    head, header = load_solved_head(path, ScalingHead, "a scaling file")
    ours, theirs = header["space"], make_space(x, o.backbone)
    if wrong := difference(ours, theirs, f"in {path}", "in these rows"):
        raise MismatchError(f"the scaling {path} is of other features: {wrong}")
    assert isinstance(head, ScalingHead)
    return head


def _add_scaling(scaling: ScalingHead, columns: Sequence[str] | None, o: Import) -> dict[str, Any]:
    """What the feature space says of a scaling; ``columns``: of the rows that are scaled."""
    more = scaling.holes() if o.missing == "indicator" else []
    named: dict[str, Any] = {} if o.missing == "refuse" else {"missing": o.missing}
    if columns is not None:
        named[COLUMNS] = [*columns, *(f"{columns[j]} is missing" for j in more)]
    return {"dim": (scaling.dim or 0) + len(more), "scaling": scaling.digest(), **named}


def options_as(
    given: Mapping[str, Any], like: Mapping[str, Any] | None, unlabeled: bool
) -> dict[str, Any]:
    """The options of `import`: those that were given, else as the header ``like`` has them."""
    if like is None:
        return dict(given)
    space = like["space"]
    known: dict[str, Any] = {"dtype": space["dtype"], "backbone": space["backbone"]}
    if "fraction_bits" in given:
        del known["dtype"]
    elif space["fraction_bits"] is not None and "dtype" not in given:
        known["fraction_bits"] = space["fraction_bits"]
    labels = {"unlabeled": True} if unlabeled else {"classes": tuple(like["classes"])}
    theirs = _columns(space.get(COLUMNS) or ())
    if "categories" in given:  # without a list of values they have the one that is agreed on
        agreed = {one.partition("=")[0]: one for one in theirs.get("categories", ())}
        every = embeddings.names_apart(given["categories"], agreed)
        given = {**given, "categories": tuple(agreed.get(name, name) for name in every)}
    return {**known, **labels, **theirs, **given}


def _columns(columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The options that take these features of a table and no others."""
    coded: dict[str, list[str]] = {}
    for name in columns:
        column, between, value = name.partition(IS)
        if between:
            coded.setdefault(column, []).append(value)
    plain = tuple(name for name in columns if IS not in name)
    categories = tuple(f"{column}={comma_list(values)}" for column, values in coded.items())
    return {k: v for k, v in {"feature_columns": plain, "categories": categories}.items() if v}


# ---------------------------------------------------------------- labels and row ids


def _labeled(
    path: Path, x: Embeddings, o: Import
) -> tuple[tuple[str, ...], NDArray[np.int64] | None]:
    """Class names, and labels as indices into them; none of either without labels."""
    from ..datasets import read_classes

    y, n = x.labels, len(x)
    if o.labels is not None:
        if y is not None:
            raise UsageError(f"--labels is for a file without labels; {path} holds its own (y)")
        y = read_labels(o.labels)
    bare = o.unlabeled or (x.made is not None and y is None)  # a feature file without labels
    if y is None and not bare:
        raise UsageError(
            f"{path} has no labels: give --labels FILE (.npy, or a text file), --y NAME where they "
            "have another name, or --unlabeled for rows to predict"
        )
    check_rows(path, x)
    for what, column in (("labels", None if bare else y), ("row ids", x.row_ids)):
        if column is not None and column.shape != (n,):
            raise InvalidDataError(f"{path}: {n} rows need {n} {what}; found shape {column.shape}")
    if bare or y is None:
        return (), None
    known = read_classes(o.classes) if isinstance(o.classes, Path) else o.classes
    return _with_classes(path, y, x.made["classes"] if known is None and x.made else known)


def _with_classes(
    path: Path, y: NDArray[Any], classes: Sequence[str] | None
) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """Class names and labels as indices into them."""
    if y.dtype.kind in "iu":
        end = len(classes) if classes else min(int(y.max()) + 1, MOST_CLASSES)
        known = tuple(classes or map(str, range(end)))
        _refuse_number_names(path, y, known)
        labels = y.astype(np.int64)
        labels[(y < 0) | (y >= end)] = -1
    elif y.dtype.kind in "US":
        different, at, rows = np.unique(y, return_inverse=True, return_counts=True)
        texts = _texts(path, different, "labels")
        if not classes:
            check_labels(path, dict(zip(texts, rows.tolist(), strict=True)))
        known = tuple(classes or sorted(set(texts)))
        composed = names.compose
        index = {form: i for of in (composed, str) for i, form in enumerate(map(of, known))}
        labels = np.array([index.get(one, index.get(composed(one), -1)) for one in texts])[at]
    else:
        raise InvalidDataError(f"{path}: labels are integers or names; found type {y.dtype}")
    bad = np.flatnonzero(labels < 0)
    if len(bad):
        raise InvalidDataError(
            f"{path}: row {bad[0]} has the label {y[bad[0]]}; with {len(known)} classes labels run "
            f"from 0 to {len(known) - 1} or are their names ({len(bad)} rows are outside); give "
            "--classes FILE with every class, or correct the labels"
        )
    if len(known) < 2:
        raise InvalidDataError(
            f"{path}: expected at least two classes, found {len(known)} ({', '.join(known)}); a "
            "site with only one class names all classes with --classes FILE"
        )
    return known, labels.astype(np.int64, copy=False)


def _refuse_number_names(path: Path, y: NDArray[Any], classes: Sequence[str]) -> None:
    """Refuse a label that is the place of one class and the name of another."""
    called = names.places_of_numbers(classes)
    for label in map(int, np.unique(y)):
        if (place := called.get(label, label)) != label:
            raise InvalidDataError(
                f"{path}: the label {label} can be read in two ways: the class named "
                f"{classes[place]!r} is at place {place} (from 0). Give labels that are names as "
                "texts, and classes of which labels are places names that are no numbers"
            )


def _row_ids(path: Path, given: NDArray[Any] | None, n: int) -> NDArray[np.bytes_]:
    """Row ids as files hold them: those that were given, or row/0, row/1, …"""
    if given is None:
        width = len(str(n - 1))
        return np.fromiter((b"row/%0*d" % (width, i) for i in range(n)), f"S{4 + width}", n)
    texts = _texts(path, given, "row_ids")
    if len(set(texts)) < n:
        raise InvalidDataError(
            f"{path}: row ids must differ; {n - len(set(texts))} repeat another. Name the column "
            "that holds them by --row-ids"
        )
    if any("\n" in text or "\0" in text or not text for text in texts):
        raise InvalidDataError(f"{path}: row ids are one line each, without NUL and not empty")
    for text in texts:
        names.check_text("row id", text)
    return np.array([text.encode() for text in texts])


def _texts(path: Path, values: NDArray[Any], what: str) -> list[str]:
    try:
        return [v.decode() if isinstance(v, bytes) else str(v) for v in values.tolist()]
    except UnicodeDecodeError as error:
        raise InvalidDataError(f"{path}: {what} are not UTF-8: {error}") from None


# ---------------------------------------------------------------- sums for a scaling


@StageFunction
def scale(o: Scale, files: Files) -> Job:
    """Write the sums of one site's features into the folder ``out``; gives the file.

    ``rows``: a feature file, or embeddings as `import` takes them; NaN is a missing value."""
    rows, name = o.rows, o.rows.stem if o.client is None else o.client
    x = open_embeddings(rows, o)
    check_rows(rows, x)
    if len(x) < o.min_rows:
        raise InvalidDataError(f"{rows} has {len(x)} rows, fewer than --min-rows {o.min_rows}")
    names.check_name(name)
    source, space = file_sha256(rows), make_space(x, o.backbone)
    chosen = ScalingOptions(unit_bits=o.unit_bits)
    options = {"clients": [name], **chosen.as_dict(), "keys": [o.x, o.y, o.row_ids]}
    options |= o.recipe_options("backbone", "client", "unit_bits")
    made_by = recipe("scale", options, {"features": source, "space": space})
    place = o.out / names.file_of_name(name)
    head = ScalingHead(chosen).bind(space["dim"], len(ROWS))
    found, columns = Rounding(space["dim"]), space.get(COLUMNS)

    def blocks() -> Iterator[Block]:
        """The rows; what is lost is measured where they are summed as multiples of 2^-unit_bits."""
        for block in x.blocks():
            wide = np.asarray(block, dtype=np.float64)
            known = np.where(np.isfinite(wide), wide, 0.0)  # the others are missing, or refused
            found.add(known, np.rint(known * 2.0**o.unit_bits) * 2.0**-o.unit_bits)
            yield wide, np.zeros(len(block), dtype=np.int64)

    def compute() -> None:
        client = {ClientId(name): Client(len(x), source=source)}
        with naming(rows, columns=columns):
            context = Context(space, ROWS, binding(head))
            sums, _ = statistics_of(head, blocks(), client, context)
        if found.lost.any():
            raise InvalidDataError(
                f"{rows}: units of 2^-{o.unit_bits} make {int(found.lost.sum())} features constant "
                f"that vary, such as {found.describe(columns)}: let all sites take more --unit-bits"
            )
        make_folder(o.out)
        write_statistics(place, made_by, sums)

    return Job.for_file(place, made_by, compute)
