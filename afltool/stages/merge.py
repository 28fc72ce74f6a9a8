"""Stage `merge`: the shards of one extraction → the file that an unsharded run would make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MismatchError, UsageError
from ..files.feature_writer import writing_features
from ..files.hdf5 import Header, check_unchanged, fingerprint, read_header, strict
from ..files.listing import expand
from ..files.schema import made_with
from ..options.features import Merge
from ..options.grammars import parse_part
from ..progress import log
from ..values.text import difference
from .runner import Files, Job, carry_out


def merge(o: Merge) -> Path:
    """Put the shards 0/N … N−1/N of one extraction together.

    Shards that different engines, versions or devices made differ in their last bits, as features
    of one space may: they are put together with a warning, and the provenance has which made which.

    Raises:
        UsageError: a file that is not a shard.
        MismatchError: a shard that is missing, given twice, or of another extraction.
    """
    return carry_out(job, o)[-1].path


def job(o: Merge, files: Files) -> Job:
    headers = _in_order(expand(o.shards))
    files.opened += headers
    first = next(iter(headers.values()))
    made_by = _whole(first["recipe"])
    tolerant = any(one["recipe"]["options"].get("skip_corrupt") for one in headers.values())
    made_by["options"] |= {"skip_corrupt": True} if tolerant else {}

    def write() -> None:
        parts = [files.features(path, labelled=False) for path in headers]
        for part in parts:
            check_unchanged(part.path, part.header, fingerprint(headers[part.path]))
        total = sum(len(p) for p in parts)
        was = {"merged": len(parts), "parts": first["provenance"], "engines": _engines(headers)}
        skipped = [one for p in parts for one in p.header["source"]["skipped"]]
        header = parts[0].derived(made_by, was, shard=None, skipped=skipped)
        with writing_features(o.out, first["space"], expect_rows=total) as writer:
            blocks = (values for part in parts for _, values in part.stored_blocks())
            writer.fill("merge", total, blocks)
            given = [p.given_labels for p in parts if p.given_labels is not None]
            labels = np.concatenate(given) if given else None
            writer.finish(labels, np.concatenate([p.row_ids for p in parts]), header)

    return Job.of_rows(o.out, made_by, write)


def _whole(made_by: dict[str, Any]) -> dict[str, Any]:
    """The recipe of the unsharded file."""
    return {**made_by, "options": {**made_by["options"], "shard": None}}


def _engines(headers: Mapping[Path, Header]) -> dict[str, list[str]]:
    """What made the shards, each with those that it made; a warning where it is not one."""
    engines: dict[str, list[str]] = {}
    for header in headers.values():
        made = engines.setdefault(made_with(header["provenance"]), [])
        made.append(header["recipe"]["options"]["shard"])
    if len(engines) > 1:
        log.warning(
            "merge: several engines, versions or devices made these shards (%s): their last bits "
            "may differ, as those of two sites do, and no single extract makes this file; for one "
            "that does, extract them again with --engine NAME and equal versions",
            "; ".join(f"{len(of)} by {by}" for by, of in engines.items()),
        )
    return engines


def _in_order(paths: Sequence[Path]) -> dict[Path, Header]:
    """The shards by number, with their headers; each must be there once, and all must be of one
    extraction."""
    by_number: dict[int, Path] = {}
    headers: dict[Path, Header] = {}
    reference: tuple[Path, dict[str, Any], int] | None = None
    for path in paths:
        headers[path] = read_header(path, "features")
        made_by = headers[path]["recipe"]
        shard = made_by["options"].get("shard")
        if made_by["stage"] != "extract" or shard is None:
            raise UsageError(f"{path} is not a shard: it was not made with extract --shard I/N")
        part = parse_part(shard, "--shard")
        whole = _whole(strict(made_by))
        first, wanted, count = reference = reference or (path, whole, part.count)
        where = difference(wanted, whole, f"in {first}", f"in {path}")
        if where or part.count != count:
            raise MismatchError(
                f"{path} (shard {shard}) is not of the same extraction as {first}: "
                f"{where or f'it is one of {part.count} shards, the other one of {count}'}"
            )
        if part.number in by_number:
            other = by_number[part.number]
            raise MismatchError(f"shard {shard} is given twice: {other} and {path}")
        by_number[part.number] = path
    if reference is None:
        raise UsageError("there are no shards to merge")
    if missing := [f"{i}/{count}" for i in range(count) if i not in by_number]:
        raise MismatchError(
            f"{len(missing)} of {count} shards are missing: {', '.join(missing[:8])}; extract them "
            "and merge again"
        )
    return {by_number[i]: headers[by_number[i]] for i in range(count)}
