"""Stage `merge`: the shards of one extraction → the file that an unsharded run would make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MismatchError, UsageError
from ..files.hdf5 import Header, check_unchanged, fingerprint, read_header, strict
from ..files.listing import expand
from ..files.rows import RowStream
from ..files.schema import made_with
from ..options.features import Merge
from ..options.grammars import parse_part
from ..progress import log
from ..values.text import difference
from .runner import Files, Job, StageFunction


@StageFunction
def merge(o: Merge, files: Files) -> Job:
    """Put the shards 0/N … N−1/N of one extraction together.

    Shards that different engines, versions or devices made differ in their last bits, as features
    of one space may: they are put together with a warning, and the provenance has which made which.

    Raises:
        UsageError: a file that is not a shard.
        MismatchError: a shard that is missing, given twice, or of another extraction.
    """
    headers = _in_order(expand(o.shards))
    files.opened += headers
    first = next(iter(headers.values()))
    made_by = _whole(first["recipe"])
    if any(one["recipe"]["options"].get("skip_corrupt") for one in headers.values()):
        made_by["options"]["skip_corrupt"] = True

    def write() -> None:
        parts = [files.features(path, labelled=False) for path in headers]
        for part in parts:
            check_unchanged(part.path, part.header, fingerprint(headers[part.path]))
        engines: dict[str, list[str]] = {}  # which shards each of them made
        for one in headers.values():
            made = engines.setdefault(made_with(one["provenance"]), [])
            made.append(one["recipe"]["options"]["shard"])
        if len(engines) > 1:
            log.warning(
                "merge: several engines, versions or devices made these shards, whose last "
                "bits may differ: %s",
                "; ".join(engines),
            )
        was = {"merged": len(parts), "parts": first["provenance"], "engines": engines}
        skipped = [one for p in parts for one in p.header["source"]["skipped"]]
        header = parts[0].derived(made_by, was, shard=None, skipped=skipped)
        given = [p.given_labels for p in parts if p.given_labels is not None]
        labels = np.concatenate(given) if given else None
        ids = np.concatenate([p.row_ids for p in parts])
        blocks = (values for part in parts for _, values in part.stored_blocks())
        RowStream("merge", header, labels, ids, lambda: blocks).write(o.out)

    return Job.of_rows(o.out, made_by, write)


def _whole(made_by: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of the unsharded file."""
    return {**made_by, "options": {**made_by["options"], "shard": None}}


def _in_order(paths: Sequence[Path]) -> dict[Path, Header]:
    """The shards by number, with their headers; each must be there once, and all must be of one
    extraction."""
    by_number: dict[int, Path] = {}
    headers: dict[Path, Header] = {}
    wholes: dict[Path, dict[str, Any]] = {}
    for path in paths:
        made_by = (header := read_header(path, "features"))["recipe"]
        shard = made_by["options"].get("shard")
        if made_by["stage"] != "extract" or shard is None:
            raise UsageError(f"{path} is not a shard: it was not made with extract --shard I/N")
        part = parse_part(shard, "--shard")
        headers[path], wholes[path] = header, {**_whole(strict(made_by)), "shards": part.count}
        first, wanted = next(iter(wholes.items()))
        if where := difference(wanted, wholes[path], f"in {first}", f"in {path}"):
            raise MismatchError(
                f"{path} (shard {shard}) is not of the same extraction as {first}: {where}"
            )
        if (other := by_number.setdefault(part.number, path)) is not path:
            raise MismatchError(f"shard {shard} is given twice: {other} and {path}")
    if not headers:
        raise UsageError("there are no shards to merge")
    count = wanted["shards"]
    if missing := [f"{i}/{count}" for i in range(count) if i not in by_number]:
        raise MismatchError(
            f"{len(missing)} of {count} shards are missing: {', '.join(missing[:8])}; extract them "
            "and merge again"
        )
    return {by_number[i]: headers[by_number[i]] for i in range(count)}
