"""Files of every kind: a header, checked against its checksum and its schema, and named arrays.

A read-only open without a lock works on network file systems (measured with HDF5 2.0).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from ..cache.cache import NO_CACHE, Cache
from ..cache.memory import check_backed
from ..errors import CorruptFileError, InputError, InvalidDataError, MismatchError, UsageError
from ..inputs import HDF5, meant, no_number, null, open_regular, parsed_json
from ..values.arrays import Array
from ..values.digest import canonical_json
from . import headers, schema
from .arrays import (
    Additive,
    add_array,
    damage_as_error,
    find_additive,
    get_array,
    pays,
    put_array,
    put_attribute,
    undisturbed,
    writing,
)
from .members import own_objects_only
from .outputs import get_attribute, open_to_read

Header = dict[str, Any]
REPORTING = ("head", "checkpoint")  # kinds whose headers report figures, once with NaN
LEAST_BYTES = 4096  # of a file beside its arrays: HDF5's own structures and the header


# ---------------------------------------------------------------- writing


def put_header(file: h5py.File, kind: str, header: Header, new: bool = False) -> None:
    """Write the kind, the version and the header with its checksum; ``new``: none is there."""
    data = canonical_json(header).encode()
    if len(data) > schema.HEADER_LIMIT:
        raise InvalidDataError(
            f"the header of this {kind} file would have {len(data) / 1e6:.1f} MB; expected at most "
            f"{schema.HEADER_LIMIT / 1e6:.1f} MB, which name about 1,700,000 clients: take fewer "
            "clients at a time, or shorter names"
        )
    (add_array if new else put_array)(file, schema.HEADER, np.frombuffer(data, dtype=np.uint8))
    put_attribute(file, schema.FORMAT, kind)
    put_attribute(file, schema.FORMAT_VERSION, schema.VERSION)
    put_attribute(file, schema.HEADER_SHA256, hashlib.sha256(data).hexdigest())


def write_file(path: Path, kind: str, header: Header, arrays: Mapping[str, Array]) -> Path:
    """Write one whole file of named arrays; see `writing` for what a failure leaves (nothing)."""
    packed = {name: pays(name, value) for name, value in arrays.items()}
    # At the least: what is compressed may become next to nothing.
    size = LEAST_BYTES + sum(a.nbytes for n, a in arrays.items() if not packed[n])
    with writing(path, kind, size) as file, undisturbed():
        for name, value in arrays.items():
            add_array(file, name, value, packed[name])
        put_header(file, kind, header, new=True)
    return path


# ---------------------------------------------------------------- reading


@contextmanager
def reading(path: Path, kind: str | None = None) -> Iterator[tuple[h5py.File, Header]]:
    """A complete file of ours, open for reading, with its header.

    Raises `InputError` when it is missing, `CorruptFileError` when it is incomplete, damaged or
    foreign, `UsageError` when it is of another kind than ``kind``.
    """
    if _size(path) == 0:
        raise CorruptFileError(f"{path} is empty (0 bytes); make it again")
    with _opened(path) as file:
        with damage_as_error(path):
            own_objects_only(path, file)
            header = _checked_header(path, file, kind)
        yield file, header


def _size(path: Path) -> int:
    """Bytes of a regular file; it is noted as read, and a pipe is never waited for."""
    try:
        with open_regular(path) as file:
            return os.fstat(file.fileno()).st_size
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: {meant(path)}") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    try:
        file = open_to_read(path)
    except PermissionError:
        raise InputError(f"cannot read {path}: permission denied") from None
    except OSError as error:
        with path.open("rb") as start:
            ours = start.read(len(HDF5)) == HDF5
        if ours:
            raise CorruptFileError(
                f"{path} is damaged or cut short ({path.stat().st_size} bytes): {error}; "
                "make it or fetch it again"
            ) from None
        raise CorruptFileError(
            f"{path} is not an afltool file: expected HDF5, which it is not; "
            "of embeddings (.npz, .parquet …) afltool import makes one"
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
    header = _parsed(path, data, str(found))
    headers.check(path, str(found), header)
    return {"kind": found, **header}


def _parsed(path: Path, data: bytes, kind: str) -> Any:
    parts = data.count(b"[") + data.count(b"{")
    if parts > schema.HEADER_PARTS:
        raise CorruptFileError(
            f"{path} is damaged: its header has {parts} lists and objects, more than "
            f"{schema.HEADER_PARTS}"
        )
    constant = null if kind in REPORTING else no_number
    return parsed_json(data, f"{path} is damaged: its header", constant=constant)


def fingerprint(header: Mapping[str, Any]) -> str:
    """SHA-256 of a whole header; it stands for the arrays, too, whose digest is in the header."""
    return hashlib.sha256(canonical_json(header).encode()).hexdigest()


def check_unchanged(path: Path, header: Mapping[str, Any], seen: str | None) -> None:
    """Refuse a file whose header is not the one that was checked before (its `fingerprint`)."""
    if seen is not None and fingerprint(header) != seen:
        raise MismatchError(
            f"{path} has changed since its header was checked: another file took its place; give "
            "the command files that nobody writes, and run it again"
        )


def read_file(path: Path, kind: str, seen: str | None = None) -> tuple[Header, dict[str, Array]]:
    """The header and every array of a file but the header's bytes, by name; ``seen``: see
    `check_unchanged`."""
    with reading(path, kind) as (file, header), damage_as_error(path):
        check_unchanged(path, header, seen)
        members = [name.decode("utf-8", "backslashreplace") for name in file.id]
        known = schema.MEMBERS[kind]
        if strange := sorted(set(members) - {schema.HEADER, *known}):
            raise CorruptFileError(f"{path} is damaged: no {kind} file holds /{strange[0]}")
        additive = find_additive(path, file)
        _check_memory(path, additive.values())
        groups = (schema.HEADER, schema.ARRAYS, schema.SPARSE)
        found = {name: get_array(path, file, name) for name in members if name not in groups}
        return header, {
            **found,
            **{f"{schema.ARRAYS}/{name}": one.read() for name, one in additive.items()},
        }


def _check_memory(path: Path, arrays: Collection[Additive]) -> None:
    """Refuse packed arrays that would take far more memory than their file has bytes.

    Each number takes 8 bytes there, whatever its type in the file.
    """
    claimed = sum(8 * prod(one.shape) for one in arrays)
    check_backed(claimed, sum(one.stored_bytes for one in arrays), f"{path} is")


def check_digest(path: Path, header: Mapping[str, Any], found: str) -> None:
    """Refuse content whose digest is not the one in the header."""
    if header["digest"] != found:
        raise CorruptFileError(
            f"{path} is damaged: its content has the digest {found[:16]}…, its header says "
            f"{str(header['digest'])[:16]}…; make it or fetch it again"
        )


def read_header(path: Path, kind: str | None = None, cache: Cache = NO_CACHE) -> Header:
    """The header alone, with the file's ``kind`` in it; with a cache it is checked once."""
    known = cache.known(path, _Header)
    if known is not None and kind in (None, known.kind):
        found: Header = json.loads(known.text)
        return found
    with reading(path, kind) as (_, header):
        if cache.keeps:
            keep_header(path, header["kind"], canonical_json(header), cache)
        return header


def keep_header(path: Path, kind: str, text: str, cache: Cache) -> None:
    """Keep a header that was checked or written, as JSON with its kind."""
    cache.keep(path, _Header(kind, text), len(text))


@dataclass(frozen=True)
class _Header:
    """A header that was checked, as JSON: whoever asks for it may change what he gets."""

    kind: str
    text: str
