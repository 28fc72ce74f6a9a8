"""Domain objects as files, and when a file need not be made again.

The store knows arrays and headers; the core knows objects. This module is the bridge, one pair
of functions per kind, and the rule of `up_to_date`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .digest import Digest, canonical_json, narrowest
from .errors import (
    AflError,
    CorruptFileError,
    InputError,
    OutputExistsError,
    UsageError,
)
from .heads import OPTIONS, make_head
from .heads.base import Head, Source
from .statistics import Client, ClientId, Context, Statistics, difference
from .store import hdf5, schema
from .store.arrays import damage_as_error
from .store.features import open_features
from .store.provenance import provenance

Array = NDArray[Any]


# ---------------------------------------------------------------- recipes


def recipe(stage: str, options: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a file: equal recipes make equal files. Inputs are given by digest."""
    return {"stage": stage, "options": dict(options), "inputs": dict(inputs)}


def up_to_date(path: Path, wanted: Mapping[str, Any], overwrite: bool = False) -> bool:
    """Whether ``path`` is there, intact and made by an equal recipe.

    Raises `OutputExistsError` when something else is there, unless ``overwrite``.
    """
    if not path.exists() or overwrite:
        return False
    try:
        header = verify(path)
    except (AflError, OSError) as error:
        raise OutputExistsError(
            f"{path} exists and is not usable ({error}); remove it or use --overwrite"
        ) from None
    if canonical_json(header["recipe"]) == canonical_json(wanted):
        return True
    raise OutputExistsError(
        f"{path} exists and was made differently: {_what_differs(header['recipe'], wanted)}; "
        "choose another -o, or use --overwrite"
    )


def _what_differs(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    where = difference(json.loads(canonical_json(theirs)), json.loads(canonical_json(ours)))
    return where.replace(" here and ", " now, ").replace(" there", " in the file")


# ---------------------------------------------------------------- partitions


@dataclass(frozen=True)
class Partition:
    """Which client owns which row. Rows are in byte order of their ids.

    ``client`` int32 (n,) indexes ``names``; ``labels`` are the labels as extracted,
    ``effective_labels`` those that clients train with (they differ under label noise).
    """

    row_ids: NDArray[np.bytes_]
    labels: NDArray[np.int64]
    effective_labels: NDArray[np.int64]
    client: NDArray[np.int32]
    names: tuple[str, ...]
    held_out: NDArray[np.bool_]
    classes: tuple[str, ...]
    scheme: Mapping[str, Any]

    def rows_digest(self) -> str:
        return rows_digest(self.row_ids, self.labels)

    def digest(self) -> str:
        digest = Digest().text("row_ids", b"\n".join(self.row_ids.tolist()))
        digest.array("labels", self.labels, "<i8")
        digest.array("effective_labels", self.effective_labels, "<i8")
        digest.array("client", self.client, "<i4").json("names", list(self.names))
        return digest.json("held_out", np.flatnonzero(self.held_out).tolist()).hex()


def rows_digest(sorted_ids: NDArray[np.bytes_], labels: NDArray[np.int64]) -> str:
    """SHA-256 of row ids in byte order and their labels: which rows, whatever the backbone."""
    ids = b"\n".join(sorted_ids.tolist())
    return Digest().text("row_ids", ids).array("labels", labels, "<i8").hex()


def save_partition(path: Path, p: Partition, made_by: Mapping[str, Any]) -> Path:
    """Write a partition file."""
    header = {
        "digest": p.digest(),
        "recipe": dict(made_by),
        "provenance": provenance(),
        "names": list(p.names),
        "held_out": np.flatnonzero(p.held_out).tolist(),
        "classes": list(p.classes),
        "scheme": dict(p.scheme),
        "rows_digest": p.rows_digest(),
    }
    arrays = {schema.ROW_IDS: p.row_ids, schema.LABELS: p.labels, schema.CLIENT: p.client}
    if not np.array_equal(p.labels, p.effective_labels):
        arrays[schema.EFFECTIVE_LABELS] = p.effective_labels
    return hdf5.write_file(path, "partition", header, arrays)


def load_partition(path: Path) -> Partition:
    """Read a partition file; its digest is checked."""
    header, arrays = hdf5.read_file(path, "partition")
    with damage_as_error(path):
        held_out = np.zeros(len(header["names"]), dtype=bool)
        held_out[header["held_out"]] = True
        p = Partition(
            arrays[schema.ROW_IDS],
            arrays[schema.LABELS],
            arrays.get(schema.EFFECTIVE_LABELS, arrays[schema.LABELS]),
            arrays[schema.CLIENT],
            tuple(header["names"]),
            held_out,
            tuple(header["classes"]),
            header["scheme"],
        )
    hdf5.check_digest(path, header, p.digest())
    _check_indices(path, "client", p.client, len(p.row_ids), len(p.names))
    for labels in (p.labels, p.effective_labels):
        _check_indices(path, "label", labels, len(p.row_ids), len(p.classes))
    return p


def _check_indices(path: Path, what: str, found: NDArray[Any], rows: int, end: int) -> None:
    if len(found) != rows or (rows and not 0 <= found.min() <= found.max() < end):
        raise CorruptFileError(
            f"{path} is damaged: expected a {what} from 0 to {end - 1} for each of {rows} rows"
        )


# ---------------------------------------------------------------- statistics


def save_statistics(
    path: Path,
    s: Statistics,
    made_by: Mapping[str, Any],
    head_file: str | None = None,
    seconds: float | None = None,
) -> Path:
    """Write the statistics of one client or of many; integers in their narrowest type.

    ``head_file``: where the head that they were gathered for lies, a hint for `solve`;
    ``seconds``: what gathering them took.
    """
    header = {
        "digest": s.digest(),
        "recipe": dict(made_by),
        "provenance": provenance(head_file=head_file, seconds=seconds),
        "phase": s.phase,
        "context": s.context.as_dict(),
        "clients": _clients_table(s.clients),
    }
    arrays = {f"{schema.ARRAYS}/{name}": a.astype(narrowest(a)) for name, a in s.arrays.items()}
    return hdf5.write_file(
        path, "statistics", header, {**arrays, schema.CLASS_COUNTS: s.class_counts}
    )


def load_statistics(path: Path) -> Statistics:
    """Read a statistics file; its digest is checked."""
    header, arrays = hdf5.read_file(path, "statistics")
    with damage_as_error(path):
        prefix = schema.ARRAYS + "/"
        s = Statistics(
            header["phase"],
            {k.removeprefix(prefix): _wide(a) for k, a in arrays.items() if k.startswith(prefix)},
            arrays[schema.CLASS_COUNTS],
            context_of(header),
            clients_of(header),
        )
    hdf5.check_digest(path, header, s.digest())
    _check_counts(path, s)
    return s


def _check_counts(path: Path, s: Statistics) -> None:
    """What no digest tells: rows per class and per client must agree."""
    counts, classes = s.class_counts, s.context.classes
    if len(counts) != len(classes) or (counts < 0).any():
        raise CorruptFileError(
            f"{path} is damaged: it counts the rows of {len(counts)} classes, the least "
            f"{counts.min(initial=0)}; expected {len(classes)} counts from 0 on"
        )
    listed = sum(client.rows for client in s.clients.values())
    if s.clients and s.rows != listed:
        raise CorruptFileError(
            f"{path} is damaged: its classes have {s.rows} rows, its {len(s.clients)} clients "
            f"{listed}; make it or fetch it again"
        )


def context_of(header: Mapping[str, Any]) -> Context:
    """The context in the header of a statistics file."""
    context = header["context"]
    return Context(context["space"], tuple(context["classes"]), context["head"])


def clients_of(header: Mapping[str, Any]) -> dict[ClientId, Client]:
    """The clients in the header of a statistics file."""
    table = header["clients"]
    columns = [table[c] for c in ("names", "rows", "gamma", "partition", "source", "held_out")]
    columns.append(table.get("dealt_to") or [0] * len(table["names"]))  # older files lack it
    clients = {}
    for name, rows, gamma, partition, source, held_out, dealt_to in zip(*columns, strict=True):
        digest, dealt = table["partitions"][partition]
        who = ClientId(name, digest)
        clients[who] = Client(
            rows, gamma, table["sources"][source], dealt, bool(held_out), dealt_to
        )
    if len(clients) < len(table["names"]):
        raise ValueError("a client is listed twice")
    return clients


def _clients_table(clients: Mapping[ClientId, Client]) -> dict[str, Any]:
    """Columns; long digests are listed once. Sorted, so equal sums make equal tables."""
    rows = sorted(clients.items(), key=lambda item: item[0])
    partitions = sorted({(who.partition, c.rows_digest) for who, c in rows})
    sources = sorted({c.source for _, c in rows})
    at_partition = {p: i for i, p in enumerate(partitions)}
    at_source = {s: i for i, s in enumerate(sources)}
    return {
        "names": [who.name for who, _ in rows],
        "rows": [c.rows for _, c in rows],
        "gamma": [c.gamma for _, c in rows],
        "partition": [at_partition[who.partition, c.rows_digest] for who, c in rows],
        "source": [at_source[c.source] for _, c in rows],
        "held_out": [int(c.held_out) for _, c in rows],
        "dealt_to": [c.dealt_to for _, c in rows],
        "partitions": [list(p) for p in partitions],
        "sources": sources,
    }


def _wide(a: Array) -> Array:
    return a.astype(np.int64) if np.issubdtype(a.dtype, np.integer) else a.astype(np.float64)


# ---------------------------------------------------------------- heads


def save_head(
    path: Path, head: Head, made_by: Mapping[str, Any], context: Context | None, **more: Any
) -> Path:
    """Write a head; ``context`` is that of the total it was solved from, if any."""
    header = {
        "digest": head.digest(),
        "recipe": dict(made_by),
        "provenance": provenance(**more),
        "name": head.name,
        "options": head.options.as_dict(),
        "phase": head.phase(),
        "dim": head.dim,
        "space": dict(context.space) if context else None,
        "classes": list(context.classes) if context else None,
        "report": head.report,
    }
    arrays = {f"{schema.ARRAYS}/{name}": a for name, a in head.arrays().items()}
    return hdf5.write_file(path, "head", header, arrays)


def load_head(path: Path) -> tuple[Head, dict[str, Any]]:
    """Read a head and its header; its digest is checked."""
    header, arrays = hdf5.read_file(path, "head")
    with damage_as_error(path):
        prefix = schema.ARRAYS + "/"
        named = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
        try:
            head = make_head(header["name"], header["options"]).restore(header["phase"], named)
            if header["dim"] is not None:
                head = head.bind(header["dim"], len(header["classes"]))
        except AflError as error:
            raise CorruptFileError(f"{path} is damaged: {error}") from None
        strange = sorted(named.keys() ^ head.arrays().keys())
        if strange:
            raise CorruptFileError(
                f"{path} is damaged: a {head.name} head of phase {head.phase()!r} does not hold "
                f"{strange[0]!r}"
                if strange[0] in named
                else f"{path} is damaged: the array {strange[0]!r} of its head is absent"
            )
        head.report = header["report"]
        hdf5.check_digest(path, header, head.digest())
    return head, header


def new_head(
    name: str, options: Mapping[str, Any] | None = None
) -> tuple[Head, Mapping[str, Any] | None]:
    """A head before its first phase; files that its options name are read into it.

    Also the feature space that it is bound to by such a file, if any.
    """
    head, space = make_head(name, options), None
    for option in head.options.files():
        path = Path(getattr(head.options, option))
        if hdf5.read_header(path)["kind"] == "head":
            found, header = load_head(path)
            space = header["space"]
            head = head.with_source(option, Source("head", header["digest"], (), found.arrays()))
            continue
        with open_features(path) as rows:
            space = rows.header["space"]
            blocks = (X for _, X in rows.blocks())
            source = Source("features", rows.header["digest"], blocks)
            head = head.with_source(option, source)
    return head, space


def head_from(
    spec: str | Path, options: Mapping[str, Any] | None = None
) -> tuple[Head, dict[str, Any] | None]:
    """A head and its header from a file, or one from a name with its options (None)."""
    path = Path(spec)
    if str(spec) in OPTIONS or (path.suffix != ".h5" and not path.exists()):
        head = make_head(str(spec), options)
        if head.options.files():
            raise UsageError(
                f"--{head.options.files()[0]} FILE ends up in the head: write it first (afltool "
                f"head {spec} … -o head0.h5) and give --head head0.h5 to everybody"
            )
        return head, None
    if options:
        raise UsageError(
            f"{path} is a head file and holds its options: --{min(options).replace('_', '-')} "
            "cannot be given beside it"
        )
    return load_head(path)


# ---------------------------------------------------------------- any kind


def verify(path: Path) -> dict[str, Any]:
    """Read everything in a file and compare its digest; returns the header.

    Raises `CorruptFileError` when anything does not hold.
    """
    kind = hdf5.read_header(path)["kind"]
    if kind == "features":
        with open_features(path) as features:
            for _ in features.stored_blocks():
                pass
            return features.header
    loaders: dict[str, Any] = {
        "partition": load_partition,
        "statistics": load_statistics,
        "head": load_head,
    }
    loaders[kind](path)
    return hdf5.read_header(path)


def expand(paths: Sequence[str | Path], stdin: Iterable[str] = ()) -> list[Path]:
    """Files from files, folders (their *.h5), quoted globs and '-' (a path a line on stdin).

    Where an unfinished file would belong to them they are refused: a sum would lack its client.
    """
    found: list[Path] = []
    for item in paths:
        if str(item) == "-":
            found += expand([line.strip() for line in stdin if line.strip()])
        else:
            found += _expand_one(Path(item))
    return found


def _expand_one(path: Path) -> list[Path]:
    if path.is_dir():
        folder, pattern = path, "*.h5"
    elif not path.exists() and any(c in str(path) for c in "*?["):
        folder, pattern = Path(path.anchor or "."), str(path.relative_to(path.anchor))
    else:
        return [path]
    found = _finished(folder, pattern)
    if not found:
        raise InputError(f"no file matches {folder / pattern}: check the path")
    return [file for match in found for file in _expand_one(match)]


def _finished(folder: Path, pattern: str) -> list[Path]:
    try:
        found, unfinished = (sorted(folder.glob(pattern + end)) for end in ("", schema.PARTIAL))
    except ValueError as error:
        raise UsageError(f"{folder / pattern} is not a pattern: {error}") from None
    if unfinished:
        raise InputError(
            f"{len(unfinished)} files are unfinished, such as {unfinished[0]}: run the command "
            "that was writing them again"
        )
    return found
