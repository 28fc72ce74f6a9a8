"""`info`, `diff`, `verify` and `store`: what is in files and in the store, intact or not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from .. import parallel, progress
from ..errors import InputError
from ..files import schema
from ..files.arrays import (
    checked_dataset,
    damage_as_error,
    describe_additive,
    get_additive,
    get_array,
)
from ..files.differences import differences
from ..files.hdf5 import Header, read_header, reading, room, verify
from ..files.outputs import writer_errors
from ..files.partitions import load_partition
from ..files.statistics import clients_of, context_of, load_statistics
from ..heads import make_options
from ..options.common import FROZEN
from ..options.features import default_store
from ..options.look import Diff, Store
from ..partitions import mean_total_variation
from ..values.arrays import Digest, array_kind
from ..values.names import COUNTS, Phase
from ..values.statistics import Statistics
from ..values.text import PIXELS
from .runner import Files, StageFunction

Facts = dict[str, Any]


def info(path: str | Path) -> Facts:
    """What a file holds, as plain JSON values: kind, digest, bytes, sizes, where it comes from.

    The whole file is read and compared with its digest first. Of a feature file only the header
    is read; ``checked`` says so, and `verify` reads the rest.
    """
    path = Path(path)
    header = read_header(path)
    large = header["kind"] == "features"
    header = header if large else verify(path)
    with damage_as_error(path):
        more = _BY_KIND[header["kind"]](path, header)
    return {
        "path": str(path),
        "kind": header["kind"],
        "digest": header["digest"],
        "bytes": path.stat().st_size,
        "checked": "header only; afltool verify reads the rows" if large else "all",
        **more,
        "recipe": header["recipe"],
        "provenance": header["provenance"],
    }


@StageFunction
def diff(o: Diff, files: Files) -> Facts:
    """What differs in two files of one kind, see `files.differences`."""
    found = differences(o.first, o.second)
    return {"first": str(o.first), "second": str(o.second), "differences": found}


def check(path: str | Path) -> Facts:
    """`verify` one file: every checksum and the digest; returns path, kind and digest."""
    header = verify(Path(path))
    return {"path": str(path), "kind": header["kind"], "digest": header["digest"], "intact": True}


def check_all(paths: Sequence[Path], threads: int | None = None) -> list[Facts]:
    """`check` of every file."""
    results = []
    with parallel.using(threads), progress.task("verify", len(paths), "files") as task:
        for one in parallel.each(check, paths, room, "whole files"):
            results.append(one)
            task.advance()
            progress.stop_point()
    return results


# ---------------------------------------------------------------- what each kind holds


def _features(path: Path, header: Header) -> Facts:
    with reading(path, "features") as (file, _):
        rows, dim = checked_dataset(path, file, schema.FEATURES).shape
    images = {"images": PIXELS} if header["space"].get("preprocessing") else {}
    known = {name: header[name] for name in ("classes", "space", "source")}
    return {"rows": rows, "dim": dim, **known, **images}


def _partition(path: Path, header: Header) -> Facts:
    p = load_partition(path)
    counts = p.counts(len(p.classes))
    rows = counts.sum(axis=1)
    return {
        "rows": len(p.row_ids),
        "clients": len(p.names),
        "scheme": header["scheme"],
        "rows_per_client": rows.tolist(),
        "classes_per_client": (counts > 0).sum(axis=1).tolist(),
        "mean_total_variation": mean_total_variation(counts),
        "empty_clients": int((rows == 0).sum()),
        "held_out": header["held_out"],
        "names": list(p.names),
        "classes": list(p.classes),
        "rows_digest": header["rows_digest"],
        "relabelled_rows": int((p.labels != p.effective_labels).sum()),
    }


def _statistics(path: Path, header: Header) -> Facts:
    with reading(path, "statistics") as (file, _):
        counts = get_array(path, file, schema.CLASS_COUNTS)
    arrays = _arrays(path, "statistics")
    clients, context = clients_of(header), context_of(header)
    gammas = Statistics(Phase(), {}, counts, clients=clients).gammas
    facts = {
        "phase": header["phase"],
        "rows": int(counts.sum()),
        "class_counts": counts.tolist(),
        "arrays": arrays,
        "payload_bytes": sum(a["bytes"] for a in arrays.values()),
        "stored_bytes": sum(a["stored_bytes"] for a in arrays.values()),
        "float32_bytes": sum(4 * prod(a["shape"]) for a in arrays.values()),
        "clients": len(clients),
        "client_names": [who.name for who in sorted(clients)],
        "rows_per_client": [clients[who].rows for who in sorted(clients)],
        "gammas": {f"{g:g}": n for g, n in sorted(gammas.items())},
        "context": context.as_dict(),
    }
    if len(clients) == 1 and "options" in context.head:  # such as how many of its counts are 0
        options = make_options(context.head["name"], context.head["options"])
        facts |= options.figures(context.head["phase"], lambda: load_statistics(path).arrays)
    if header["phase"] == COUNTS and facts["rows"] > 0:
        from ..files.counts import evaluations, read_counts

        facts["evaluations"] = evaluations(read_counts(path))
    return facts


def _arrays(path: Path, kind: str) -> dict[str, Facts]:
    """What is said of each array, with a digest of its numbers; one at a time is in memory."""
    with reading(path, kind) as (file, _):
        found = describe_additive(path, file)
        for name, about in found.items():
            array = get_additive(path, file, name)
            about["digest"] = Digest().array("array", array, array_kind(array)).hex()
    return found


def _head(path: Path, header: Header) -> Facts:
    keys = ("name", "options", "phase", "dim", "classes", "space", "report")
    return {**{key: header[key] for key in keys}, "arrays": _arrays(path, "head")}


def _backbone(path: Path, header: Header) -> Facts:
    return {"backbone": header["backbone"]}


_BY_KIND = {
    "features": _features,
    "partition": _partition,
    "statistics": _statistics,
    "head": _head,
    "backbone": _backbone,
}


KEPT = (".h5", FROZEN, ".partial")  # how the names of files in a store end
DAY = 86_400


def store(o: Store) -> dict[str, Any]:
    """What lies in the store, and how large it is; with ``prune`` what was removed of it.

    ``files``: path below the folder, bytes, and days since it was read or written. A run that
    linked features keeps them, whatever is removed here.
    """
    folder = default_store() if o.folder is None else o.folder
    if o.folder is not None and not folder.is_dir():
        raise InputError(f"there is no folder {folder}: check the path")
    every = sorted(p for p in folder.rglob("*") if p.suffix in KEPT and p.is_file())
    found = [_entry(folder, path) for path in every]
    old = [one for one in found if o.prune is not None and one["days"] >= o.prune]
    for one in old:
        with writer_errors(folder / one["path"]):
            (folder / one["path"]).unlink(missing_ok=True)
    left = [one for one in found if one not in old]
    size = sum(one["bytes"] for one in left)
    return {"folder": str(folder), "bytes": size, "files": left, "removed": old}


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    """A file; a file system may not note when it was read."""
    status = path.stat()
    last = max(status.st_atime, status.st_mtime)
    days = round((time.time() - last) / DAY, 2)
    return {"path": str(path.relative_to(folder)), "bytes": status.st_size, "days": days}
