"""`store`: the features, imported tables and frozen networks that are kept, and their removal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files.outputs import writer_errors
from ..options.common import FROZEN
from ..options.features import default_store
from ..options.look import Store

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
