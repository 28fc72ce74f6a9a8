"""The file format (docs/format.md): names, types and limits; `headers` has fields of headers."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from .. import __version__
from ..plugins import USED
from ..progress import utc_now

VERSION = 1
# HDF5 1.8: its object headers have checksums (those of 1.6 have none). Readers can open a file
# whose writer was killed; a file of 1.10 would carry a mark that forbids it.
LIBVER = ("v108", "v108")

# attributes of the root group
FORMAT = "afltool_format"
FORMAT_VERSION = "afltool_version"
HEADER_SHA256 = "header_sha256"
COMPLETE = "complete"
RESUME_KEY = "resume_key"  # partial feature files only, as the next one
PROGRESS = "progress"  # JSON, [rows committed, state]: one attribute, so they cannot disagree

# datasets
HEADER = "header"
FEATURES = "features"
LABELS = "labels"
ROW_IDS = "row_ids"
ARRAYS = "arrays"
SPARSE = "sparse"  # of an array below /arrays: its bitmap and its shape, where it is thin
KEPT, SHAPE = "kept", "shape"
EFFECTIVE_LABELS = "effective_labels"
CLIENT = "client"
CLASS_COUNTS = "class_counts"
GRAPH, PROBE = "graph", "probe"  # of a frozen backbone: ONNX, and features of known pictures

PARTIAL = ".partial"
SUMMARY = "summary.json"  # of a run and of a baseline: options, figures, digests, seconds, bytes
FINAL_HEAD = "head-final.h5"  # of a run: a second name of the head after the last round
FEATURE_TYPES = {"int16": "<i2", "float32": "<f4"}
# Type and number of dimensions where the format fixes them; "S" stands for any fixed length.
TYPES = {
    HEADER: ("|u1", 1),
    LABELS: ("<i8", 1),
    ROW_IDS: ("S", 1),
    EFFECTIVE_LABELS: ("<i8", 1),
    CLIENT: ("<i4", 1),
    CLASS_COUNTS: ("<i8", 1),
    GRAPH: ("|u1", 1),
    PROBE: ("<f4", 2),
}
CHUNK_ROWS = 256  # rows of one chunk of /features: 0.25–1 MB, what a kill can cost
CHUNK_BYTES = 1 << 20  # other datasets
DEFLATE_RATIO = 1032  # of the deflate format: 258 bytes for two bits
HEADER_LIMIT = 64 << 20  # bytes: names and row counts of about 1,700,000 clients
HEADER_PARTS = 200_000  # lists and objects in it; empty ones take 20 times their bytes in memory


def provenance(**more: Any) -> dict[str, Any]:
    """Versions, machine and time, and what else a stage gives."""
    return {**versions(), "time": utc_now(), **more}


def get_engine_facts(header: Mapping[str, Any]) -> str:
    """The engine and the device of a provenance, on which the last bits of its features depend."""
    engine, device = header.get("engine", "torch"), str(header.get("device", "cpu"))
    graph = f", graph {header['graph'][:8]}" if "graph" in header else ""
    version = header.get(engine, "of an unknown version")
    return f"{engine} {version} on {device.partition(':')[0]}{graph}"


def versions(**more: Any) -> dict[str, Any]:
    """Versions alone, for files that leave a site; put no path, host name or time into ``more``."""
    import h5py  # here, since the names of this module are asked for help, too
    import numpy as np

    return {
        "afltool": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "h5py": h5py.__version__,
        "machine": platform.machine(),
        **({"plugins": dict(sorted(USED))} if USED else {}),
        **more,
    }
