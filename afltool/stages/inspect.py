"""`info` and `verify`: what is in a file, where it comes from, and is it intact."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..files import clients_of, context_of, load_partition, verify
from ..statistics import Statistics
from ..store import schema
from ..store.hdf5 import checked_dataset, damage_as_error, get_array, read_header, reading


def info(path: str | Path) -> dict[str, Any]:
    """What a file holds, as plain JSON values: kind, digest, bytes, sizes, where it comes from."""
    path = Path(path)
    header = read_header(path)
    common = {"path": str(path), "kind": header["kind"], "digest": header["digest"]}
    with damage_as_error(path):
        more = _BY_KIND[header["kind"]](path, header)
    ends = {k: header[k] for k in ("recipe", "provenance")}
    return {**common, "bytes": path.stat().st_size, **more, **ends}


def check(path: str | Path) -> dict[str, Any]:
    """`verify` one file: every checksum and the digest; returns path, kind and digest."""
    header = verify(Path(path))
    return {"path": str(path), "kind": header["kind"], "digest": header["digest"], "intact": True}


def _features(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    with reading(path, "features") as (file, _):
        rows, dim = checked_dataset(path, file, schema.FEATURES).shape
    return {
        "rows": rows,
        "dim": dim,
        "classes": header["classes"],
        "space": header["space"],
        "source": header["source"],
    }


def _partition(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    p = load_partition(path)
    clients, classes = len(p.names), len(p.classes)
    counts = np.zeros((clients, classes), dtype=np.int64)
    np.add.at(counts, (p.client, p.effective_labels), 1)
    return {
        "rows": len(p.row_ids),
        "clients": clients,
        "scheme": header["scheme"],
        "rows_per_client": counts.sum(axis=1).tolist(),
        "classes_per_client": (counts > 0).sum(axis=1).tolist(),
        "empty_clients": int((counts.sum(axis=1) == 0).sum()),
        "held_out": header["held_out"],
        "names": list(p.names),
        "classes": list(p.classes),
        "rows_digest": header["rows_digest"],
        "relabelled_rows": int((p.labels != p.effective_labels).sum()),
    }


def _statistics(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    with reading(path, "statistics") as (file, _):
        counts = get_array(path, file, schema.CLASS_COUNTS)
        arrays = {name: _array(path, file, name) for name in file[schema.ARRAYS]}
    clients = clients_of(header)
    gammas = Statistics("", {}, counts, clients=clients).gammas
    found = {
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
        "context": context_of(header).as_dict(),
    }
    if len(clients) == 1:
        dim = context_of(header).space["dim"] if "gram" in arrays else None
        found["reveals"] = what_it_reveals(found["rows"], counts, dim)
    return found


def _array(path: Path, file: Any, name: str) -> dict[str, Any]:
    a = checked_dataset(path, file, f"{schema.ARRAYS}/{name}")
    return {
        "shape": list(a.shape),
        "type": a.dtype.str,
        "bytes": a.size * a.dtype.itemsize,
        "stored_bytes": a.id.get_storage_size(),  # fewer where they are compressed
    }


def what_it_reveals(rows: int, counts: Any, dim: int | None) -> str:
    """What a receiver can read from one client's statistics, in words.

    ``dim``: number of features whose gram is among them; None without one.
    """
    present = int((np.asarray(counts) > 0).sum())
    text = (
        f"A receiver learns the exact number of rows ({rows}) and of rows per class "
        f"({present} classes present), "
    )
    if rows == 0:
        return "Nothing but that this client has no rows."
    if dim is None:
        alone = int((np.asarray(counts) == 1).sum())
        text += f"and the sums over rows that the arrays hold. {alone} classes have a single row. "
        return text + "Statistics are not private: --min-rows keeps small clients back."
    text += "the mean feature vector of each of these classes, and all second moments. "
    alone = int((np.asarray(counts) == 1).sum())
    if alone:
        have = "has" if alone == 1 else "have"
        text += f"{alone} of the classes {have} a single row: its features can be read off. "
    if rows < dim:
        text += (
            f"With {rows} rows and {dim} features the rows span a space that the gram shows "
            "exactly; together with integer features the rows themselves can often be recovered. "
        )
    return text + "Statistics are not private: --min-rows keeps small clients back."


def _head(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    keys = ("name", "options", "phase", "dim", "classes", "space", "report")
    return {key: header[key] for key in keys}


_BY_KIND = {
    "features": _features,
    "partition": _partition,
    "statistics": _statistics,
    "head": _head,
}
