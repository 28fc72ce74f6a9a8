"""`info`, `diff`, `verify` and `store`: what is in files and in the store, intact or not."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import parallel, progress
from ..errors import InputError
from ..files import hdf5, schema
from ..files.differences import differences
from ..files.hdf5 import Header
from ..files.outputs import writer_errors
from ..files.partitions import load_partition
from ..files.statistics import get_clients, get_context
from ..options.common import FROZEN
from ..options.features import default_store
from ..options.look import Diff, Store
from ..values.arrays import Array, Digest, array_kind
from ..values.names import COUNTS
from ..values.text import PIXELS
from .runner import Files, StageFunction

Facts = dict[str, Any]
KEPT = (".h5", FROZEN, ".partial")  # how the names of files in a store end
DAY = 86_400


def info(path: str | Path) -> Facts:
    """What a file holds, as plain JSON values: kind, digest, bytes, sizes, where it comes from.

    The whole file is read and compared with its digest first. Of a feature file only the header
    is read; ``checked`` says so, and `verify` reads the rest.
    """
    path = Path(path)
    header = hdf5.verify(path, rows=False)
    large = header["kind"] == "features"
    with hdf5.damage_as_error(path):
        more = _BY_KIND[header["kind"]](path, header)
    return {
        "path": str(path),
        **{key: header[key] for key in ("kind", "digest")},
        "bytes": path.stat().st_size,
        "checked": "header only; afltool verify reads the rows" if large else "all",
        **more,
        **{key: header[key] for key in ("recipe", "provenance")},
    }


@StageFunction
def diff(o: Diff, files: Files) -> Facts:
    """What differs in two files of one kind, see `files.differences`."""
    found = differences(o.first, o.second)
    return {"first": str(o.first), "second": str(o.second), "differences": found}


def verify(path: str | Path) -> Facts:
    """Compare every checksum and the digest of a file; returns path, kind and digest."""
    header = hdf5.verify(Path(path))
    return {"path": str(path), "kind": header["kind"], "digest": header["digest"], "intact": True}


def verify_all(paths: Sequence[Path], threads: int | None = None) -> list[Facts]:
    """`verify` every file; the first damaged one ends it with its error."""
    results = []
    with parallel.thread_limit(threads), progress.task("verify", len(paths), "files") as task:
        for one in parallel.map_threads(verify, paths, hdf5.room):
            results.append(one)
            task.advance()
            progress.stop_point()
    return results


def store(o: Store) -> Facts:
    """What lies in the store, and how large it is; with ``prune`` what was removed of it.

    ``files``: path below the folder, bytes, and days since it was read or written. A run that
    linked features keeps them, whatever is removed here.
    """
    folder = default_store() if o.folder is None else o.folder
    if o.folder is not None and not folder.is_dir():
        raise InputError(f"there is no folder {folder}: check the path")
    found: list[Facts] = []
    for path in sorted(p for p in folder.rglob("*") if p.suffix in KEPT and p.is_file()):
        status = path.stat()  # a file system may not note when a file was read
        days = round((time.time() - max(status.st_atime, status.st_mtime)) / DAY, 2)
        place = str(path.relative_to(folder))
        found.append({"path": place, "bytes": status.st_size, "days": days})
    old = [one for one in found if o.prune is not None and one["days"] >= o.prune]
    for one in old:
        with writer_errors(folder / one["path"]):
            (folder / one["path"]).unlink(missing_ok=True)
    left = [one for one in found if one not in old]
    size = sum(one["bytes"] for one in left)
    return {"folder": str(folder), "bytes": size, "files": left, "removed": old}


# ---------------------------------------------------------------- what each kind holds


def _features(path: Path, header: Header) -> Facts:
    with hdf5.reading(path, "features") as (file, _):
        rows, dim = hdf5.check_dataset(path, file, schema.FEATURES).shape
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
        "rows_per_client": rows.tolist(),
        "classes_per_client": (counts > 0).sum(axis=1).tolist(),
        "empty_clients": int((rows == 0).sum()),
        "relabelled_rows": int((p.labels != p.effective_labels).sum()),
        **{key: header[key] for key in ("scheme", "held_out", "names", "classes", "rows_digest")},
    }


def _statistics(path: Path, header: Header) -> Facts:
    content = hdf5.read_file(path, "statistics")[1]
    counts, arrays = content[schema.CLASS_COUNTS], _arrays(content)
    clients = sorted(get_clients(header).items())
    gammas = [one.gamma for _, one in clients]
    facts = {
        "phase": header["phase"],
        "rows": int(counts.sum()),
        "class_counts": counts.tolist(),
        "arrays": arrays,
        "payload_bytes": sum(a["bytes"] for a in arrays.values()),
        "clients": len(clients),
        "client_names": [who.name for who, _ in clients],
        "rows_per_client": [one.rows for _, one in clients],
        "gammas": {f"{g:g}": gammas.count(g) for g in sorted({*gammas})},
        "context": get_context(header).as_dict(),
    }
    if header["phase"] == COUNTS and facts["rows"] > 0:
        from ..files.counts import evaluations, read_counts

        facts["evaluations"] = evaluations(read_counts(path))
    return facts


def _arrays(content: Mapping[str, Array]) -> dict[str, Facts]:
    """What is said of each array, with a digest of its numbers."""
    return {
        name: {
            "shape": list(array.shape),
            "type": array.dtype.str,
            "bytes": array.nbytes,
            "digest": Digest().array("array", array, array_kind(array)).hex(),
        }
        for name, array in hdf5.additive(content).items()
    }


def _head(path: Path, header: Header) -> Facts:
    keys = ("name", "options", "phase", "dim", "classes", "space", "report")
    return {
        **{key: header[key] for key in keys},
        "arrays": _arrays(hdf5.read_file(path, "head")[1]),
    }


def _backbone(path: Path, header: Header) -> Facts:
    return {"backbone": header["backbone"]}


_BY_KIND = {
    "features": _features,
    "partition": _partition,
    "statistics": _statistics,
    "head": _head,
    "backbone": _backbone,
}
