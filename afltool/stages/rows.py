"""Feature files of feature files: `convert`, `split`, and `merge` of an extraction's shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, MismatchError, UsageError
from ..files import hdf5
from ..files.features import Features, RowStream, round_rows
from ..files.recipes import Target
from ..files.schema import get_engine_facts
from ..files.tables import column_by_row
from ..math.gram import real
from ..options.common import refuse_files
from ..options.features import Convert, Merge, Split
from ..options.grammars import parse_part
from ..partitions import groups_for_testing, rows_for_testing
from ..progress import log
from ..values.arrays import Digest
from ..values.text import difference
from .runner import Files, Job, StageFunction

PARTS = ("train", "test")


@StageFunction
def convert(o: Convert, files: Files) -> Job:
    """Write the rows of a feature file as round(x · 2^fraction_bits), int16, or as float32.

    Labels, row ids and classes stay the same. A conversion from float32 equals an extraction in the
    new format; one from int16 rounds a second time. Raises `InvalidDataError` for a value that does
    not fit, and where rounding makes a feature constant that varies, unless ``allow_constant`` or
    of images, whose features stand for each other.
    """
    rows = files.features(o.features)
    given = rows.header["space"]
    space = {**given, "dtype": o.dtype, "fraction_bits": o.bits}
    before = {"digest": rows.header["digest"]}
    before |= {name: given[name] for name in ("dtype", "fraction_bits")}
    options = {"space": space, **o.recipe_options("dtype", "fraction_bits")}
    made_by = hdf5.recipe("convert", options, rows.meaning)
    was = {"converted": rows.header["provenance"]}
    header = rows.derived_header(made_by, was, space, converted_from=before)
    allowed = o.allow_constant or space.get("preprocessing") is not None
    of = "convert", o.features, space, rows.blocks, lambda _, X: real(X)
    blocks = partial(round_rows, *of, allowed=allowed)
    stream = RowStream("convert", header, rows.given_labels, rows.row_ids, blocks)
    return Job.for_file(o.out, made_by, lambda: stream.write(o.out))


@StageFunction
def split(o: Split, files: Files) -> Job:
    """Write the rows of a feature file into NAME-train.h5 and NAME-test.h5; gives both.

    Each row goes into exactly one of them, in the order of the file. The share ``test_size`` of
    each class is for testing, drawn with ``seed`` by row ids and labels alone. With ``group``
    (TABLE:COLUMN) all rows of a group go to one side, and the shares are as near as groups allow.
    Raises `InvalidDataError`: a part would have no rows.
    """
    path = o.features
    folder = path.parent if o.out is None else o.out
    rows = files.features(path)
    for_test, groups = _draw_test_rows(rows, o)
    n, test = len(rows), int(for_test.sum())
    if not 0 < test < n:
        among = "" if groups is None else f" in {len(set(groups))} groups"
        raise InvalidDataError(
            f"{path}: the part for {'training' if test else 'testing'} would have none of the {n} "
            f"rows{among}; choose another --test-size, or more and smaller groups"
        )
    log.info("split: %d of %d rows (%.2f %%) are for testing", test, n, 100 * test / n)
    mine = {"train": ~for_test, "test": for_test}
    inputs = dict(rows.meaning)
    if groups is not None:
        inputs["groups"] = Digest().json("groups", groups).hex()
    places = {part: folder / f"{path.stem}-{part}.h5" for part in PARTS}
    options = {part: {"part": part, **o.recipe_options("group")} for part in PARTS}
    targets = [Target(places[p], hdf5.recipe("split", options[p], inputs), p) for p in PARTS]

    def compute(todo: Sequence[Target]) -> None:
        for target in todo:
            _stream(rows, target, mine[target.of]).write(target.path)

    return Job(targets, compute, tuple(places.values()))


def _draw_test_rows(rows: Features, o: Split) -> tuple[NDArray[np.bool_], list[str] | None]:
    """Which rows are for testing, and the group of each row in canonical order."""
    order = rows.by_id  # the same for any order of the file
    labels, for_test = rows.labels[order], np.empty(len(rows), bool)
    if o.group is None:
        for_test[order] = rows_for_testing(labels, o.test_size, o.seed)
        return for_test, None
    of_rows = column_by_row("--group", o.group, rows.row_ids)
    groups = [of_rows[i] for i in order]
    numbers = np.unique(np.array(groups, dtype=object), return_inverse=True)[1]
    for_test[order] = groups_for_testing(labels, numbers, o.test_size, o.seed)
    return for_test, groups


def _stream(rows: Features, target: Target, mine: NDArray[np.bool_]) -> RowStream:
    """The rows of a part, as they are stored; each pass compares the digest of the whole."""
    was: dict[str, Any] = {"split": rows.header["provenance"]}
    cut = {"digest": rows.header["digest"], **target.recipe["options"]}
    header = rows.derived_header(target.recipe, was, split=target.of, split_from=cut)

    def blocks() -> Iterator[NDArray[Any]]:
        for start, values in rows.iter_stored():
            yield values[mine[start : start + len(values)]]

    return RowStream("split", header, rows.labels[mine], rows.row_ids[mine], blocks)


@StageFunction
def merge(o: Merge, files: Files) -> Job:
    """Put the shards 0/N … N−1/N of one extraction together.

    Those of different engines, versions or devices differ in their last bits: that is warned of,
    and the provenance has which made which. Raises `UsageError`: a file that is not a shard;
    `MismatchError`: a shard that is missing, given twice, or of another extraction.
    """
    headers = _sort_shards(hdf5.expand(o.shards))
    refuse_files([*(("SHARDS", path, False) for path in headers), ("-o", o.out, True)])
    made_by = _whole(next(iter(headers.values())))
    if any(one["recipe"]["options"].get("skip_corrupt") for one in headers.values()):
        made_by["options"]["skip_corrupt"] = True

    def write() -> None:
        parts = [files.features(path) for path in headers]
        for part in parts:
            hdf5.check_unchanged(part.path, part.header, headers[part.path])
        engines: dict[str, list[str]] = {}  # which shards each of them made
        for one in headers.values():
            made = engines.setdefault(get_engine_facts(one["provenance"]), [])
            made.append(one["recipe"]["options"]["shard"])
        if len(engines) > 1:
            log.warning("merge: the last bits of these shards may differ: %s", "; ".join(engines))
        was = {"merged": len(parts), "parts": parts[0].header["provenance"], "engines": engines}
        skipped = [one for p in parts for one in p.header["source"]["skipped"]]
        header = parts[0].derived_header(made_by, was, shard=None, skipped=skipped)
        given = [p.given_labels for p in parts if p.given_labels is not None]
        labels = np.concatenate(given) if given else None
        ids = np.concatenate([p.row_ids for p in parts])
        blocks = (values for part in parts for _, values in part.iter_stored())
        RowStream("merge", header, labels, ids, lambda: blocks).write(o.out)

    return Job.for_file(o.out, made_by, write)


def _whole(header: hdf5.Header) -> dict[str, Any]:
    """The recipe of the unsharded file."""
    made_by = header["recipe"]
    return {**made_by, "options": {**made_by["options"], "shard": None}}


def _sort_shards(paths: Sequence[Path]) -> dict[Path, hdf5.Header]:
    """The shards by number, with their headers; each must be there once, and all must be of one
    extraction."""
    found: dict[int, tuple[Path, hdf5.Header]] = {}
    first: tuple[Path, dict[str, Any]] | None = None
    for path in paths:
        header = hdf5.read_header(path, "features")
        shard = header["recipe"]["options"].get("shard")
        if header["recipe"]["stage"] != "extract" or shard is None:
            raise UsageError(f"{path} is not a shard: it was not made with extract --shard I/N")
        part = parse_part(shard, "--shard")
        whole = {**hdf5.strict(_whole(header)), "shards": part.count}
        first = first or (path, whole)
        if where := difference(first[1], whole, f"in {first[0]}", f"in {path}"):
            raise MismatchError(
                f"{path} (shard {shard}) is not of the same extraction as {first[0]}: {where}"
            )
        if (other := found.setdefault(part.number, (path, header))[0]) is not path:
            raise MismatchError(f"shard {shard} is given twice: {other} and {path}")
    if first is None:
        raise UsageError("there are no shards to merge")
    count = first[1]["shards"]
    if missing := [f"{i}/{count}" for i in range(count) if i not in found]:
        raise MismatchError(
            f"{len(missing)} of {count} shards are missing: {', '.join(missing[:8])}; extract them "
            "and merge again"
        )
    return dict(found[i] for i in range(count))
