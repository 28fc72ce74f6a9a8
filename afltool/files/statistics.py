"""Writes and reads statistics files: of one client, of several, of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import InvalidDataError, naming
from ..values.arrays import Array, freeze, narrowest
from ..values.names import Phase
from ..values.statistics import MOST_ROWS, ArraySpec, Client, ClientId, Context, Statistics
from . import hdf5, schema
from .schema import versions

#: Columns of the table of clients beside ``partitions`` and ``sources``, where digests stand once.
COLUMNS = ("names", "rows", "gamma", "partition", "source", "held_out", "dealt_to")


class StatisticsFile(NamedTuple):
    """Statistics and the header of their file."""

    statistics: Statistics
    header: hdf5.Header

    @property
    def nbytes(self) -> int:
        return self.statistics.nbytes


def save_statistics(path: Path, s: Statistics, made_by: Mapping[str, Any]) -> Path:
    """`write_statistics`, which gives the path."""
    write_statistics(path, made_by, s)
    return path


def write_statistics(
    path: Path, made_by: Mapping[str, Any], s: Statistics, seconds: float | None = None
) -> StatisticsFile:
    """Write statistics, integers in their narrowest type; gives them as a reader has them."""
    specs = {name: one.entry() for name, one in s.specs.items()}
    header = {
        "digest": s.digest(),
        "recipe": dict(made_by),
        "phase": s.phase,
        "context": s.context.as_dict(),
        "clients": _clients_table(s.clients),
        **({schema.ARRAYS: specs} if specs else {}),
        "provenance": versions(seconds=seconds),
    }
    arrays = {f"{schema.ARRAYS}/{name}": a.astype(narrowest(a)) for name, a in s.arrays.items()}
    arrays[schema.CLASS_COUNTS] = s.class_counts
    header = hdf5.write_file(path, "statistics", header, arrays)
    wide = {name: np.ascontiguousarray(_wide(a)) for name, a in s.arrays.items()}
    freeze((*wide.values(), s.class_counts))
    return StatisticsFile(replace(s, arrays=wide, context=get_context(header)), header)


def load_statistics(path: Path, seen: hdf5.Header | None = None) -> Statistics:
    """Read a statistics file: its digest is checked, and whether any rows can have such sums."""
    return read_statistics(path, seen).statistics


def read_statistics(path: Path, seen: hdf5.Header | None = None) -> StatisticsFile:
    """`load_statistics`, with the header; ``seen``: that when it was checked."""
    from ..heads import invariants  # of every head; who only writes needs none

    header, arrays = hdf5.read_file(path, "statistics", seen)
    with hdf5.damage_as_error(path):
        named = {name: _wide(a) for name, a in hdf5.additive(arrays).items()}
        said = header.get(schema.ARRAYS, {})
        specs = {k: ArraySpec.of(a.shape, said[k]) for k, a in named.items() if k in said}
        counts = arrays[schema.CLASS_COUNTS]
        s = replace(
            describe_statistics(path, header), arrays=named, class_counts=counts, specs=specs
        )
    hdf5.check_digest(path, header, s.digest())
    _check_counts(path, s)
    with naming(path):
        invariants.check(s)
    return StatisticsFile(s, header)


def _check_counts(path: Path, s: Statistics) -> None:
    """Check what the digest does not cover: rows per class and per client must agree."""
    counts, classes = s.class_counts, s.context.classes
    if len(counts) != len(classes) or ((counts < 0).any() and not s.context.noise):
        least = f"it counts the rows of {len(counts)} classes, the least {counts.min(initial=0)}"
        raise hdf5.damage_message(path, f"{least}; expected {len(classes)} counts from 0 on")
    if (total := float(counts.sum(dtype=np.float64))) > MOST_ROWS:
        raise InvalidDataError(f"{path} counts {total:.4g} rows; expected at most 2^53")
    rows = [client.rows for client in s.clients.values() if client.rows is not None]
    if s.clients and len(rows) == len(s.clients) and s.rows != sum(rows):
        listed = f"its {len(rows)} clients {sum(rows)}"
        raise hdf5.damage_message(path, f"its classes have {s.rows} rows, {listed}")


def describe_statistics(path: Path, header: Mapping[str, Any]) -> Statistics:
    """What the header of a statistics file says of its sums: all but the arrays."""
    with hdf5.damage_as_error(path):
        none, phase = np.zeros(0, dtype=np.int64), Phase(header["phase"])
        return Statistics(phase, {}, none, context=get_context(header), clients=get_clients(header))


def get_context(header: Mapping[str, Any]) -> Context:
    """The context in the header of a statistics file."""
    c = header["context"]
    return Context(c["space"], tuple(c["classes"]), c["head"], c.get("noise", {}))


def get_clients(header: Mapping[str, Any]) -> dict[ClientId, Client]:
    """The clients in the header of a statistics file."""
    table, clients = header["clients"], {}
    columns = zip(*(table[column] for column in COLUMNS), strict=True)
    for name, rows, gamma, partition, source, held_out, dealt_to in columns:
        digest, dealt = table["partitions"][partition]
        origin = table["sources"][source]
        client = Client(rows, gamma, origin, dealt, bool(held_out), dealt_to)
        clients[ClientId(name, digest)] = client
    if len(clients) < len(table["names"]):
        raise ValueError("a client is listed twice")
    return clients


def _clients_table(clients: Mapping[ClientId, Client]) -> dict[str, Any]:
    """The clients as columns, sorted, so that equal sums make equal tables; digests stand once."""
    rows = sorted(clients.items(), key=lambda item: item[0])
    partitions = sorted({(who.partition, c.rows_digest) for who, c in rows})
    sources = sorted({c.source for _, c in rows})
    of_partition = {p: i for i, p in enumerate(partitions)}
    of_source = {s: i for i, s in enumerate(sources)}
    return {
        "names": [who.name for who, _ in rows],
        "rows": [c.rows for _, c in rows],
        "gamma": [c.gamma for _, c in rows],
        "partition": [of_partition[who.partition, c.rows_digest] for who, c in rows],
        "source": [of_source[c.source] for _, c in rows],
        "held_out": [int(c.held_out) for _, c in rows],
        "dealt_to": [c.dealt_to for _, c in rows],
        "partitions": [list(p) for p in partitions],
        "sources": sources,
    }


def _wide(a: Array) -> Array:
    kind = np.int64 if np.issubdtype(a.dtype, np.integer) else np.float64
    return a.astype(kind, copy=False)
