"""The file format (docs/format.md): names, types and limits, and the fields of each kind's header.

This is the only place that spells them. A pattern is a type or a predicate of a JSON value, a list
of one pattern for lists, a mapping for objects that have at least these keys (exactly these, if
asked for), or a tuple of alternatives; None stands for null, ABSENT for a key that is not there.
The versions, machine and time that made a file are in its header, never in a digest or recipe.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import CorruptFileError
from ..plugins import USED
from ..values.text import COLUMNS

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

KINDS = ("features", "partition", "statistics", "head", "checkpoint", "backbone")
MASKED = "masked"  # a member's sums in a session of 0.3 or older: nothing reads them any more
# What lies in a file of each kind beside the header.
MEMBERS = {
    "features": {FEATURES, LABELS, ROW_IDS},
    "partition": {ROW_IDS, LABELS, EFFECTIVE_LABELS, CLIENT},
    "statistics": {ARRAYS, SPARSE, CLASS_COUNTS},
    "head": {ARRAYS, SPARSE},
    "checkpoint": {ARRAYS},
    "backbone": {GRAPH, PROBE},
}
# Where the header of a file, or the JSON of an evaluation, has the digests of what it was made of.
EVALUATION = "evaluation"
ROWS = "rows_digest"  # of rows and labels alone
_OF_CLIENTS = {"features": "clients.sources", "partition": "clients.partitions"}
MADE_OF = {
    "partition": {"features": ROWS},
    "statistics": {**_OF_CLIENTS, "head": "context.head.digest"},
    "head": {"total": "recipe.inputs.total"},
    EVALUATION: {"head": "head.digest", "features": "features.digest"},
}
# What each stage makes, so that an output of another kind is refused before the work.
KIND_OF_STAGE = {
    "extract": "features",
    "import": "features",
    "convert": "features",
    "split": "features",
    "partition": "partition",
    "local-stats": "statistics",
    "scale": "statistics",
    "aggregate": "statistics",
    "head": "head",
    "solve": "head",
    "calibrate": "head",
    "baseline": "head",
    "backbone": "backbone",
}
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


@dataclass(frozen=True)
class Quick:
    """A pattern with a test that is quicker than to go through it.

    What passes the test fits the pattern; what does not is gone through, and may fit all the same.
    """

    test: Callable[[Any], bool]
    pattern: Any


@dataclass(frozen=True)
class Open:
    """A pattern of objects that may have other keys even where these are refused elsewhere."""

    pattern: Any


class _Absent:
    def __repr__(self) -> str:
        return "absent"


ABSENT = _Absent()


def described(words: str, test: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """A predicate as a pattern, with the ``words`` in which a message says what was expected."""
    test.__doc__ = words
    return test


def whole(value: Any) -> bool:
    """a whole number from 0 on"""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def size(value: Any) -> bool:
    """a finite number from 0 on"""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 <= value < math.inf


def different_texts(value: Any) -> bool:
    """a list of different texts"""
    texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return texts and len(set(value)) == len(value)


at_least_one = described("a whole number from 1 on", lambda v: whole(v) and v >= 1)
bits = described("a number of bits from 0 to 15", lambda v: whole(v) and v <= 15)
number_format = described("int16 or float32", lambda v: isinstance(v, str) and v in FEATURE_TYPES)

SPACE = {
    "dim": at_least_one,
    "dtype": number_format,
    "fraction_bits": (bits, None),
    COLUMNS: (different_texts, ABSENT),
}
ADDABLE_SPACE = {  # of statistics and heads, which may be made of other rows than feature files
    "dim": (at_least_one, ABSENT),
    "dtype": (number_format, ABSENT),
    "fraction_bits": (bits, None, ABSENT),
    COLUMNS: (different_texts, ABSENT),
}
COMMON = {
    "digest": str,
    "recipe": {"stage": str, "options": dict, "inputs": dict},
    "provenance": dict,
}
CLIENTS = {
    "names": [str],
    "rows": [(whole, None)],  # null: not told
    "gamma": [size],
    "partition": [whole],
    "source": [whole],
    "held_out": [whole],
    "partitions": [[str]],
    "sources": [str],
    "dealt_to": [whole],
}
BOUND_HEAD = {
    "name": (str, ABSENT),
    "options": (dict, ABSENT),
    "phase": (str, ABSENT),
    "digest": (str, ABSENT),
}
CONTEXT = {
    "space": ADDABLE_SPACE,
    "classes": different_texts,
    "head": BOUND_HEAD,
    "noise": ({"form": str, "sigma": dict}, ABSENT),
}
BY_KIND: dict[str, dict[str, Any]] = {
    "features": {"space": SPACE, "classes": different_texts, "source": dict},
    "partition": {
        "names": different_texts,
        "held_out": [whole],
        "classes": different_texts,
        "scheme": dict,
        "rows_digest": str,
    },
    "statistics": {"phase": str, "context": CONTEXT, "clients": CLIENTS},
    "head": {
        "name": str,
        "options": dict,
        "phase": (str, None),
        "dim": (at_least_one, None),
        "space": (ADDABLE_SPACE, None),
        "classes": (different_texts, None),
        "report": dict,
    },
    "checkpoint": {"rounds": [dict]},
    "backbone": {
        "backbone": {
            "name": str,
            "weights": str,
            "weights_digest": str,
            "node": str,
            "nodes": [str],
            "slices": [{"name": str, "node": str, "dim": at_least_one, "scale": size}],
            "dim": at_least_one,
            "preprocessing": dict,
            "licence": str,
        },
    },
}


def check(path: Path, kind: str, header: Any) -> None:
    """Raise `CorruptFileError` naming the first field that is not what the format says."""
    wrong = mismatch(header, {**COMMON, **BY_KIND[kind]})
    if wrong:
        raise CorruptFileError(f"{path} is damaged: in its header {wrong}")


def mismatch(value: Any, pattern: Any, exact: bool = False) -> str:
    """The first field of a JSON value that does not fit a pattern, in words; '' if all fit.

    ``exact``: objects have no other keys, at any depth that the pattern describes.
    """
    wrong = _wrong(value, pattern, exact)
    return "" if wrong is None else _said(*wrong)


def _wrong(value: Any, pattern: Any, exact: bool) -> tuple[str, str, Any] | None:
    """Name, what was expected there and what was found; None if all fits.

    Names are put together on the way back only: this runs over each header of a thousand files.
    """
    if isinstance(pattern, Quick):
        return None if pattern.test(value) else _wrong(value, pattern.pattern, exact)
    if isinstance(pattern, Open):
        return _wrong(value, pattern.pattern, False)
    if isinstance(pattern, tuple):
        difference = None
        for one in pattern:
            wrong = _wrong(value, one, exact)
            if wrong is None:
                return None
            difference = difference or wrong
        return difference
    if isinstance(pattern, dict):
        if not isinstance(value, dict):
            return "", "an object", value
        for key, inner in pattern.items():
            if wrong := _wrong(value.get(key, ABSENT), inner, exact):
                return f".{key}{wrong[0]}", *wrong[1:]
        if exact and (strange := sorted(value.keys() - pattern.keys())):
            return f".{strange[0]}", "absent: no such field is known", value[strange[0]]
        return None
    if isinstance(pattern, list):
        if not isinstance(value, list):
            return "", "a list", value
        for i, one in enumerate(value):
            if wrong := _wrong(one, pattern[0], exact):
                return f"[{i}]{wrong[0]}", *wrong[1:]
        return None
    return None if _is(value, pattern) else ("", _words(pattern), value)


def _is(value: Any, pattern: Any) -> bool:
    if pattern is None or pattern is ABSENT:
        return value is pattern
    return isinstance(value, pattern) if isinstance(pattern, type) else bool(pattern(value))


def _words(pattern: Any) -> str:
    if isinstance(pattern, type):
        return "a text" if pattern is str else "an object"
    return "null" if pattern is None else str(pattern.__doc__)


def _said(name: str, expected: str, found: Any) -> str:
    text = repr(found)
    return f"{name[1:] or 'all'} is {text[:40]}{'…' * (len(text) > 40)}, not {expected}"


def provenance(**more: Any) -> dict[str, Any]:
    """Versions, machine and time, and what else a stage gives."""
    return {**versions(), "time": datetime.now(UTC).isoformat(timespec="seconds"), **more}


def made_with(header: Mapping[str, Any]) -> str:
    """The engine and the device of a provenance, on which the last bits of its features depend."""
    engine, device = (
        header.get("engine", "torch"),
        str(header.get("device", "cpu")).partition(":")[0],
    )
    graph = f", graph {header['graph'][:8]}" if "graph" in header else ""
    return f"{engine} {header.get(engine, 'of an unknown version')} on {device}{graph}"


def versions(**more: Any) -> dict[str, Any]:
    """Versions alone, for files that leave a site and must not say when or where they were made.

    Put no path, host name or time into ``more``.
    """
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
