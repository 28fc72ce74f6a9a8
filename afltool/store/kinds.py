"""Which kind of file a path holds, by its first bytes: a file never replaces another kind."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np

from . import schema

HDF5 = b"\x89HDF\r\n\x1a\n"
DAMAGED = "damaged HDF5"  # any file of ours may replace it
START = 4096  # bytes that tell the kind
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"%PDF-": "PDF",
    b"PAR1": "parquet",
    b"<?xml": "SVG",
    b"<svg": "SVG",
    b"{": "JSON",
    b"[{": "JSON",
}


def get_attribute(file: h5py.File, name: str) -> str | int | None:
    """An attribute of the root group: a text of fixed length or a whole number, else None."""
    attributes = file.attrs
    if name not in attributes:
        return None
    found = attributes.get_id(name)
    if found.shape != () or found.dtype.kind not in "iuS":
        return None
    value = attributes[name]
    return value.decode() if isinstance(value, (bytes, np.bytes_)) else int(value)


def kind_of_bytes(start: bytes) -> str:
    """The kind of a file that is not HDF5: PNG, PDF, SVG, parquet, JSON, text, other; '' if empty.

    >>> kind_of_bytes(b"true,a,b"), kind_of_bytes(b"{}"), kind_of_bytes(b"")
    ('text', 'JSON', '')
    """
    if not start:
        return ""
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            return kind
    return "other" if b"\0" in start else "text"


def kind_of_file(path: Path) -> str:
    """The kind of a regular file; of HDF5 files that of `schema.KINDS`, or what else they are."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        start = os.read(descriptor, START)
    finally:
        os.close(descriptor)
    if not start.startswith(HDF5):
        return kind_of_bytes(start)
    try:
        with h5py.File(path, "r", locking=False) as file:
            found = get_attribute(file, schema.FORMAT)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError):
        return DAMAGED
    return str(found) if found in schema.KINDS else "HDF5 of another program"
