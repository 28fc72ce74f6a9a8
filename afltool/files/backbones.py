"""Writes and reads frozen backbones: a graph as ONNX, and what it makes of known pictures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..values.arrays import F32, U8, Digest
from . import hdf5, schema


def save_frozen(
    path: Path, about: Mapping[str, Any], graph: U8, probe: F32, made_by: Mapping[str, Any]
) -> Path:
    """Write a frozen backbone; ``about``: what its header says of it."""
    made = {"recipe": dict(made_by), "provenance": schema.provenance()}
    header = {"digest": _digest(about, graph, probe), **made, "backbone": dict(about)}
    hdf5.write_file(path, "backbone", header, {schema.GRAPH: graph, schema.PROBE: probe})
    return path


def load_frozen(path: Path) -> tuple[hdf5.Header, U8, F32]:
    """Read the header, the graph's bytes and the features (n, d) of the probe; all is checked."""
    header, arrays = hdf5.read_file(path, "backbone")
    with hdf5.damage_as_error(path):
        graph, probe = arrays[schema.GRAPH], arrays[schema.PROBE]
    hdf5.check_digest(path, header, _digest(header["backbone"], graph, probe))
    return header, graph, probe


def _digest(about: Mapping[str, Any], graph: U8, probe: F32) -> str:
    named = Digest().json("backbone", about).array(schema.GRAPH, graph, "|u1")
    return named.array(schema.PROBE, probe, "<f4").hex()
