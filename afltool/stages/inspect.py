"""`info`, `diff` and `verify`: what is in files, in what two differ, whether they are intact."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .. import cores, progress
from ..errors import InputError, UsageError
from ..files import schema
from ..files.arrays import (
    checked_dataset,
    damage_as_error,
    describe_additive,
    get_additive,
    get_array,
)
from ..files.differences import differences
from ..files.hdf5 import read_header, reading, room, verify
from ..files.partitions import load_partition
from ..files.statistics import clients_of, context_of, load_statistics
from ..heads import make_options
from ..options.common import Threads, on_cores
from ..options.look import Diff
from ..partitions import summary
from ..values.arrays import Digest, array_kind
from ..values.names import COUNTS, Phase
from ..values.statistics import Context, Statistics
from ..values.text import PIXELS


def info(path: str | Path) -> dict[str, Any]:
    """What a file holds, as plain JSON values: kind, digest, bytes, sizes, where it comes from.

    The whole file is read and compared with its digest first. Of a feature file only the header
    is read; ``checked`` says so, and `verify` reads the rest.
    """
    path = Path(path)
    header = read_header(path)
    large = header["kind"] == "features"
    checked = "header only; afltool verify reads the rows" if large else "all"
    header = header if large else verify(path)
    common = {"path": str(path), "kind": header["kind"], "digest": header["digest"]}
    with damage_as_error(path):
        more = _BY_KIND[header["kind"]](path, header)
    ends = {k: header[k] for k in ("recipe", "provenance")}
    return {**common, "bytes": path.stat().st_size, "checked": checked, **more, **ends}


def diff(o: Diff) -> dict[str, Any]:
    """What differs in two files of one kind, see `files.differences`."""
    found = differences(o.first, o.second)
    return {"first": str(o.first), "second": str(o.second), "differences": found}


def field(facts: dict[str, Any], name: str, source: Path) -> Any:
    """One entry of what a command found of ``source``; dots lead into nested ones."""
    value: Any = facts
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            have = ", ".join(value) if isinstance(value, dict) else "no names"
            raise UsageError(f"{source} has no field {name!r}: there are {have}")
        value = value[part]
    return value


def check(path: str | Path) -> dict[str, Any]:
    """`verify` one file: every checksum and the digest; returns path, kind and digest."""
    header = verify(Path(path))
    return {"path": str(path), "kind": header["kind"], "digest": header["digest"], "intact": True}


@on_cores
def check_all(
    paths: Sequence[Path], keep_going: bool = False, _: Threads | None = None
) -> list[dict[str, Any]]:
    """`check` of every file; with ``keep_going`` a damaged one is listed with its error."""
    results: list[dict[str, Any]] = []
    with progress.task("verify", len(paths), "files") as task:
        for one in cores.each(partial(_checked, keep_going=keep_going), paths, room, "whole files"):
            results.append(one)
            task.advance()
            progress.stop_point()
    return results


def _checked(path: Path, keep_going: bool) -> dict[str, Any]:
    try:
        return check(path)
    except InputError as error:
        if not keep_going:
            raise
        return {"path": str(path), "intact": False, "error": str(error)}


def _features(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    with reading(path, "features") as (file, _):
        rows, dim = checked_dataset(path, file, schema.FEATURES).shape
    return {
        "rows": rows,
        "dim": dim,
        "classes": header["classes"],
        "space": header["space"],
        **({"images": PIXELS} if header["space"].get("preprocessing") else {}),
        "source": header["source"],
    }


def _partition(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    p = load_partition(path)
    s = summary(p.client, p.effective_labels, len(p.names), len(p.classes))
    return {
        "rows": len(p.row_ids),
        "clients": len(p.names),
        "scheme": header["scheme"],
        "rows_per_client": s.counts.sum(axis=1).tolist(),
        "classes_per_client": s.classes_per_client.tolist(),
        "empty_clients": s.empty_clients,
        "held_out": header["held_out"],
        "names": list(p.names),
        "classes": list(p.classes),
        "rows_digest": header["rows_digest"],
        "relabelled_rows": int((p.labels != p.effective_labels).sum()),
    }


def _statistics(path: Path, header: dict[str, Any]) -> dict[str, Any]:
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
    facts |= _of_head(context, path) if len(clients) == 1 else {}
    if header["phase"] == COUNTS and facts["rows"] > 0:
        facts["evaluations"] = _evaluations(path)
    if not context.noise and len(clients) == 1:
        dim = context.space["dim"] if "gram" in arrays else None
        facts["reveals"] = what_it_reveals(facts["rows"], counts, dim)
    return facts


def _arrays(path: Path, kind: str) -> dict[str, dict[str, Any]]:
    """What is said of each array, with a digest of its numbers; one at a time is in memory."""
    with reading(path, kind) as (file, _):
        found = describe_additive(path, file)
        for name, about in found.items():
            array = get_additive(path, file, name)
            about["digest"] = Digest().array("array", array, array_kind(array)).hex()
    return found


def _evaluations(path: Path) -> list[dict[str, Any]]:
    from ..files.counts import read_counts
    from ._counted import evaluations

    return evaluations(read_counts(path))


def _of_head(context: Context, path: Path) -> dict[str, Any]:
    """Figures of the sums of one client, such as how many of its counts are 0."""
    binding = context.head
    if "options" not in binding:
        return {}
    options = make_options(binding["name"], binding["options"])
    return options.figures(binding["phase"], lambda: load_statistics(path).arrays)


def what_it_reveals(rows: int, counts: Any, dim: int | None) -> str:
    """What a receiver can read from one client's statistics, in words.

    ``dim``: number of features whose gram is among them; None without one.
    """
    present, alone = (
        int(chosen.sum()) for chosen in (np.asarray(counts) > 0, np.asarray(counts) == 1)
    )
    text = (
        f"A receiver learns the exact number of rows ({rows}) and of rows per class "
        f"({present} classes present), "
    )
    if rows == 0:
        return "Nothing but that this client has no rows."
    if dim is None:
        text += f"and the sums over rows that the arrays hold. {alone} classes have a single row. "
        return text + "Statistics are not private: --min-rows keeps small clients back."
    text += "the mean feature vector of each of these classes, and all second moments. "
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
    return {**{key: header[key] for key in keys}, "arrays": _arrays(path, "head")}


def _checkpoint(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    return {"rounds_done": len(header["rounds"]), "arrays": _arrays(path, "checkpoint")}


def _backbone(path: Path, header: dict[str, Any]) -> dict[str, Any]:
    return {"backbone": header["backbone"]}


_BY_KIND = {
    "features": _features,
    "partition": _partition,
    "statistics": _statistics,
    "head": _head,
    "checkpoint": _checkpoint,
    "backbone": _backbone,
}
