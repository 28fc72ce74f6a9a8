"""Files of every kind: a header, checked against its checksum and its schema, and named arrays.

A read-only open without a lock works on network file systems (measured with HDF5 2.0).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..digest import canonical_json
from ..errors import CorruptFileError, InputError, UsageError
from . import headers, packing, schema
from .arrays import (
    Array,
    damage_as_error,
    get_additive,
    get_array,
    get_attribute,
    may_be_packed,
    put_array,
)
from .atomic import put_attribute, writing

Header = dict[str, Any]
LEAST_BYTES = 4096  # of a file beside its arrays: HDF5's own structures and the header


# ---------------------------------------------------------------- writing


def put_header(file: h5py.File, kind: str, header: Header) -> None:
    """Write the kind, the version and the header with its checksum."""
    data = canonical_json(header).encode()
    put_array(file, schema.HEADER, np.frombuffer(data, dtype=np.uint8))
    put_attribute(file, schema.FORMAT, kind)
    put_attribute(file, schema.FORMAT_VERSION, schema.VERSION)
    put_attribute(file, schema.HEADER_SHA256, hashlib.sha256(data).hexdigest())


def write_file(path: Path, kind: str, header: Header, arrays: Mapping[str, Array]) -> Path:
    """Write one whole file of named arrays; see `writing` for what a failure leaves (nothing)."""
    # At the least: what is compressed may become next to nothing.
    whole = (a for n, a in arrays.items() if not (may_be_packed(n, a.dtype) and packing.pays(a)))
    size = LEAST_BYTES + sum(a.nbytes for a in whole)
    with writing(path, size) as file:
        for name, value in arrays.items():
            put_array(file, name, value)
        put_header(file, kind, header)
    return path


# ---------------------------------------------------------------- reading


@contextmanager
def reading(path: Path, kind: str | None = None) -> Iterator[tuple[h5py.File, Header]]:
    """A complete file of ours, open for reading, with its header.

    Raises `InputError` when it is missing, `CorruptFileError` when it is incomplete, damaged or
    foreign, `UsageError` when it is of another kind than ``kind``.
    """
    _must_exist(path)
    with _opened(path) as file:
        with damage_as_error(path):
            header = _checked_header(path, file, kind)
        yield file, header


def _must_exist(path: Path) -> None:
    try:
        is_file, size = path.is_file(), path.stat().st_size
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: check the path") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if not is_file:
        raise InputError(f"{path} is not a file; expected one that afltool wrote")
    if size == 0:
        raise CorruptFileError(f"{path} is empty (0 bytes); make it again")


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    try:
        file = h5py.File(path, "r", locking=False)
    except PermissionError:
        raise InputError(f"cannot read {path}: permission denied") from None
    except OSError as error:
        with path.open("rb") as start:
            ours = start.read(8) == b"\x89HDF\r\n\x1a\n"
        if ours:
            raise CorruptFileError(
                f"{path} is damaged or cut short ({path.stat().st_size} bytes): {error}; "
                "make it or fetch it again"
            ) from None
        raise CorruptFileError(
            f"{path} is not an afltool file: expected HDF5, which it is not"
        ) from None
    with file:
        yield file


def _checked_header(path: Path, file: h5py.File, kind: str | None) -> Header:
    found = get_attribute(file, schema.FORMAT)
    if found is None and path.name.endswith(schema.PARTIAL):
        raise CorruptFileError(f"{path} is not finished: run the command that was writing it again")
    if found not in schema.KINDS:
        raise CorruptFileError(f"{path} is not an afltool file: its kind is {found!r}")
    version = get_attribute(file, schema.FORMAT_VERSION)
    if version != schema.VERSION:
        raise CorruptFileError(
            f"{path} has format version {version}; this afltool reads version {schema.VERSION}"
        )
    if get_attribute(file, schema.COMPLETE) != 1:
        raise CorruptFileError(f"{path} is not complete: run the command that was writing it again")
    if kind is not None and found != kind:
        raise UsageError(f"{path} is a {found} file; expected a {kind} file here")
    data = get_array(path, file, schema.HEADER, limit=schema.HEADER_LIMIT).tobytes()
    if hashlib.sha256(data).hexdigest() != get_attribute(file, schema.HEADER_SHA256):
        raise CorruptFileError(f"{path} is damaged: its header does not match its checksum")
    header = json.loads(data)
    headers.check(path, str(found), header)
    return {"kind": found, **header}


def read_file(path: Path, kind: str) -> tuple[Header, dict[str, Array]]:
    """The header and every array of a file but the header's bytes, by name."""
    with reading(path, kind) as (file, header), damage_as_error(path):
        groups = (schema.HEADER, schema.ARRAYS, schema.SPARSE)
        found = {name: get_array(path, file, name) for name in file if name not in groups}
        for name in file.get(schema.ARRAYS, ()):
            found[f"{schema.ARRAYS}/{name}"] = get_additive(path, file, name)
        return header, found


def check_digest(path: Path, header: Mapping[str, Any], found: str) -> None:
    """Refuse content whose digest is not the one in the header."""
    if header["digest"] != found:
        raise CorruptFileError(
            f"{path} is damaged: its content has the digest {found[:16]}…, its header says "
            f"{str(header['digest'])[:16]}…; make it or fetch it again"
        )


def read_header(path: Path, kind: str | None = None) -> Header:
    """The header alone, with the file's ``kind`` in it."""
    with reading(path, kind) as (_, header):
        return header
