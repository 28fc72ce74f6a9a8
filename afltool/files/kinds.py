"""Which kind of file a path holds, by its first bytes: a file never replaces another kind."""

from __future__ import annotations

import os
import re
import time
from functools import cache, lru_cache
from pathlib import Path

import h5py
import numpy as np
from h5py import h5a, h5f, h5p

from .. import machine
from ..inputs import HDF5
from . import schema

DAMAGED = "damaged HDF5"  # any file of ours may replace it
START = 4096  # bytes that tell the kind
SETTLED_NS = 2_000_000_000  # two changes of a file within it may leave it the same times
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"%PDF-": "PDF",
    b"PAR1": "parquet",
    b"<?xml": "SVG",
    b"<svg": "SVG",
    b"{": "JSON",
    b"[{": "JSON",
}


KEYS = ("private key", "public key")  # kinds that nothing replaces
_KEY = re.compile(rb'"kind" ?: ?"(private|public)-key"')


def open_to_read(path: Path) -> h5py.File:
    """An HDF5 file open for reading, without a lock; the library's errors are passed on."""
    return h5py.File(h5f.open(os.fsencode(path), h5f.ACC_RDONLY, fapl=_without_lock()))


@cache
def _without_lock() -> h5p.PropFAID:
    """What `h5py.File` with ``locking=False`` makes anew for each file."""
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(h5f.LIBVER_EARLIEST, h5f.LIBVER_LATEST)
    access.set_file_locking(False, False)
    return access


def get_attribute(file: h5py.File, name: str) -> str | int | None:
    """An attribute of the root group: a text of fixed length or a whole number, else None."""
    if not h5a.exists(file.id, name.encode()):
        return None
    found = h5a.open(file.id, name.encode())
    dtype = found.dtype
    if found.shape != () or dtype.kind not in "iuS":
        return None
    value = np.empty((), dtype)
    found.read(value)
    return bytes(value[()]).decode() if dtype.kind == "S" else int(value[()])


def kind_of_bytes(start: bytes) -> str:
    """The kind of a file that is not HDF5: PNG, PDF, SVG, parquet, JSON, text, other; '' if empty.

    A member's key is JSON, too, and a kind of its own.

    >>> kind_of_bytes(b"true,a,b"), kind_of_bytes(b"{}"), kind_of_bytes(b"")
    ('text', 'JSON', '')
    """
    if not start:
        return ""
    if start.startswith(b"{") and (key := _KEY.search(start)):
        return f"{key[1].decode()} key"
    for signature, kind in _SIGNATURES.items():
        if start.startswith(signature):
            return kind
    return "other" if b"\0" in start else "text"


def kind_of_file(path: Path) -> str:
    """The kind of a regular file; of HDF5 files that of `schema.KINDS`, or what else they are.

    It is asked before the work, before a file is written and before it gets its name: a file that
    nobody has touched since then, nor in the last seconds, is not opened again.
    """
    state = path.lstat()
    if time.time_ns() - state.st_ctime_ns < SETTLED_NS:
        return _kind(path)
    return _kind_as_of(path, state.st_dev, state.st_ino, state.st_size, state.st_ctime_ns)


@lru_cache(maxsize=1 << 14)
def _kind_as_of(path: Path, *state: int) -> str:
    return _kind(path)


def _kind(path: Path) -> str:
    descriptor = os.open(path, machine.flags("RDONLY", "NONBLOCK"))
    try:
        start = os.read(descriptor, START)
    finally:
        os.close(descriptor)
    if not start.startswith(HDF5):
        return kind_of_bytes(start)
    try:
        with open_to_read(path) as file:
            found = get_attribute(file, schema.FORMAT)
    except (OSError, RuntimeError, LookupError, ValueError, TypeError):
        return DAMAGED
    return str(found) if found in schema.KINDS else "HDF5 of another program"
