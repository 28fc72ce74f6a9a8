"""Writes and reads statistics files: of one client, of several, of all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptFileError, InvalidDataError, naming
from ..values.arrays import Array, canonical_json, narrowest
from ..values.names import Phase
from ..values.statistics import MOST_ROWS, ArraySpec, Client, ClientId, Context, Statistics
from . import hdf5, schema
from .arrays import damage_as_error
from .schema import versions


class StatisticsFile(NamedTuple):
    """Statistics and the header of their file."""

    statistics: Statistics
    header: hdf5.Header

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.statistics.arrays.values())

    def as_read(self) -> StatisticsFile:
        """The same as a reader of the file has it; nobody can write into its arrays."""
        header, s = json.loads(canonical_json(self.header)), self.statistics
        named = {name: np.ascontiguousarray(_wide(a)) for name, a in s.arrays.items()}
        known = _of_file(header, named, s.class_counts)
        return StatisticsFile(known.unchanging(header["digest"]), header)


def save_statistics(
    path: Path, s: Statistics, made_by: Mapping[str, Any], head_file: str | None = None
) -> Path:
    """Write the statistics of one client or of many; see `write_statistics`."""
    write_statistics(path, made_by, s, head_file)
    return path


def write_statistics(
    path: Path,
    made_by: Mapping[str, Any],
    s: Statistics,
    head_file: str | None = None,
    seconds: float | None = None,
    weighed: Sequence[int] = (),
) -> StatisticsFile:
    """Write statistics, integers in their narrowest type; returns what is in the file.

    ``head_file``: the name of the head file that they were gathered for, a hint for `solve`;
    ``seconds``: what gathering them took; ``weighed``: bytes of files that some of its clients
    would have.
    """
    header, arrays = _contents(s, made_by, head_file, seconds)
    header["provenance"] |= {"client_files": list(weighed)} if weighed else {}
    hdf5.write_file(path, "statistics", header, arrays)
    return StatisticsFile(s, {"kind": "statistics", **header})


def weigh_statistics(
    s: Statistics, made_by: Mapping[str, Any], head_file: str | None = None
) -> int:
    """Bytes of the file that `save_statistics` would write."""
    return hdf5.weigh_file("statistics", *_contents(s, made_by, head_file))


def _contents(
    s: Statistics,
    made_by: Mapping[str, Any],
    head_file: str | None,
    seconds: float | None = None,
) -> tuple[dict[str, Any], dict[str, Array]]:
    header = {
        "digest": s.digest(),
        "recipe": dict(made_by),
        "phase": s.phase,
        "context": s.context.as_dict(),
        "clients": _clients_table(s.clients),
        **(
            {schema.ARRAYS: {name: one.entry() for name, one in s.specs.items()}} if s.specs else {}
        ),
        "provenance": versions(head_file=head_file, seconds=seconds),
    }
    arrays = {f"{schema.ARRAYS}/{name}": a.astype(narrowest(a)) for name, a in s.arrays.items()}
    return header, {**arrays, schema.CLASS_COUNTS: s.class_counts}


def load_statistics(path: Path, seen: str | None = None) -> Statistics:
    """Read a statistics file: its digest is checked, and whether any rows can have such sums.

    ``seen``: what its header was when it was checked, see `hdf5.check_unchanged`.
    """
    return read_statistics(path, seen).statistics


def read_statistics(path: Path, seen: str | None = None) -> StatisticsFile:
    """`load_statistics`, with the header."""
    from ..heads import conditions  # of every head; who only writes needs none

    found = _read(path, seen)
    _check_counts(path, found.statistics)
    with naming(path):
        conditions.check(found.statistics)
    return found


def _read(path: Path, seen: str | None) -> StatisticsFile:
    header, arrays = hdf5.read_file(path, "statistics", seen)
    with damage_as_error(path):
        prefix = schema.ARRAYS + "/"
        named = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
        wide = {name: _wide(a) for name, a in named.items()}
        s = _of_file(header, wide, arrays[schema.CLASS_COUNTS])
    hdf5.check_digest(path, header, s.digest())
    return StatisticsFile(s, header)


def _of_file(
    header: Mapping[str, Any], arrays: Mapping[str, Array], counts: NDArray[np.int64]
) -> Statistics:
    said = header.get(schema.ARRAYS, {})
    specs = {name: ArraySpec.of(a.shape, said[name]) for name, a in arrays.items() if name in said}
    phase, context = Phase(header["phase"]), context_of(header)
    return Statistics(phase, arrays, counts, context, clients_of(header), specs)


def _check_counts(path: Path, s: Statistics) -> None:
    """Check what the digest does not cover: rows per class and per client must agree."""
    counts, classes = s.class_counts, s.context.classes
    if len(counts) != len(classes) or ((counts < 0).any() and not s.context.noise):
        raise CorruptFileError(
            f"{path} is damaged: it counts the rows of {len(counts)} classes, the least "
            f"{counts.min(initial=0)}; expected {len(classes)} counts from 0 on"
        )
    if float(counts.sum(dtype=np.float64)) > MOST_ROWS:
        raise InvalidDataError(
            f"{path} counts {counts.sum(dtype=np.float64):.4g} rows; expected at most 2^53"
        )
    rows = [client.rows for client in s.clients.values() if client.rows is not None]
    listed = sum(rows)
    if s.clients and len(rows) == len(s.clients) and s.rows != listed:
        raise CorruptFileError(
            f"{path} is damaged: its classes have {s.rows} rows, its {len(s.clients)} clients "
            f"{listed}; make it or fetch it again"
        )


def described(path: Path, header: Mapping[str, Any]) -> Statistics:
    """What the header of a statistics file says of its sums: all but the arrays."""
    with damage_as_error(path):
        none, phase = np.zeros(0, dtype=np.int64), Phase(header["phase"])
        return Statistics(phase, {}, none, context=context_of(header), clients=clients_of(header))


def context_of(header: Mapping[str, Any]) -> Context:
    """The context in the header of a statistics file."""
    context = header["context"]
    return Context(
        context["space"], tuple(context["classes"]), context["head"], context.get("noise", {})
    )


def clients_of(header: Mapping[str, Any]) -> dict[ClientId, Client]:
    """The clients in the header of a statistics file."""
    table = header["clients"]
    names = ("names", "rows", "gamma", "partition", "source", "held_out", "dealt_to")
    columns = [table[name] for name in names]
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
    """The clients as columns, sorted, so that equal sums make equal tables; digests stand once."""
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
    kind = np.int64 if np.issubdtype(a.dtype, np.integer) else np.float64
    return a.astype(kind, copy=False)
