"""Files of every kind: a header, checked against its checksum and its schema, and named arrays."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from .. import errors
from ..errors import AflError, CorruptFileError, InputError, UsageError
from ..inputs import given_path, is_hdf5, parsed_json
from ..memory import check_backed
from ..values.arrays import Array, canonical_json
from . import schema
from .arrays import (
    damage_as_error,
    damaged,
    describe_additive,
    get_additive,
    get_array,
    get_attribute,
    own_objects_only,
    put_array,
    put_attribute,
    undisturbed,
    writing,
)
from .headers import KINDS, misfit

Header = dict[str, Any]
BLOCK = 128 << 20  # bytes, of a block of rows and what is made of it


# ---------------------------------------------------------------- writing


def put_header(file: h5py.File, kind: str, header: Header) -> Header:
    """Write the kind, the version and the header with its checksum; gives it as it is read."""
    data = canonical_json(header).encode()
    if len(data) > schema.HEADER_LIMIT:
        sizes = f"{len(data):,} bytes; expected at most {schema.HEADER_LIMIT:,}"
        text = f"the header of this {kind} file would have {sizes}: take fewer clients at a time"
        raise errors.InvalidDataError(text)
    put_array(file, schema.HEADER, np.frombuffer(data, dtype=np.uint8))
    put_attribute(file, schema.FORMAT, kind)
    put_attribute(file, schema.FORMAT_VERSION, schema.VERSION)
    put_attribute(file, schema.HEADER_SHA256, hashlib.sha256(data).hexdigest())
    return {"kind": kind, **json.loads(data)}


def write_file(path: Path, kind: str, header: Header, arrays: Mapping[str, Array]) -> Header:
    """Write one whole file of named arrays; gives the header as it is read."""
    with writing(path, kind) as file, undisturbed():
        for name, value in arrays.items():
            put_array(file, name, value)
        return put_header(file, kind, header)


def recipe(stage: str, options: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """What makes a file: equal recipes make equal files. Inputs are given by digest."""
    return {"stage": stage, "options": dict(options), "inputs": dict(inputs)}


def strict(made_by: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of the same file if nothing may be left out of it."""
    options = made_by["options"]
    tolerant = {"skip_corrupt": False} if "skip_corrupt" in options else {}
    return {**made_by, "options": {**options, **tolerant}}


def unusable(path: Path, why: object) -> AflError:
    """What is said of an output that is damaged, or no HDF5 file, and so perhaps somebody's."""
    text = f"{path} exists and is not usable ({why}); remove it or use --overwrite"
    with suppress(OSError, AflError):  # of a pipe nothing is read
        if is_hdf5(path):
            return CorruptFileError(text)
    return errors.OutputExistsError(text)


# ---------------------------------------------------------------- reading


@contextmanager
def reading(path: Path, kind: str | None = None) -> Iterator[tuple[h5py.File, Header]]:
    """A complete file of ours, open for reading without a lock, with its header.

    Raises `InputError`: it is missing; `CorruptFileError`: it is incomplete, damaged or foreign;
    `UsageError`: it is of another kind than ``kind``.
    """
    _check_start(path)
    with damage_as_error(path):
        file = h5py.File(path, "r", locking=False)
    with file:
        with damage_as_error(path):
            own_objects_only(path, file)
            header = _checked_header(path, file, kind)
        yield file, header


def _check_start(path: Path) -> None:
    """Refuse a path with nothing to read, and what does not begin as HDF5 does."""
    try:
        ours = is_hdf5(path)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: check the path") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if not ours:
        size = f"{os.path.getsize(path):,} bytes that are none"
        raise CorruptFileError(f"{path} is not an afltool file: expected HDF5, found {size}")


def _checked_header(path: Path, file: h5py.File, kind: str | None) -> Header:
    text, version = (get_attribute(file, name) for name in (schema.FORMAT, schema.FORMAT_VERSION))
    known = text in KINDS
    if get_attribute(file, schema.COMPLETE) != 1 and (known or path.suffix == schema.PARTIAL):
        raise CorruptFileError(f"{path} is not complete: run the command that was writing it again")
    if not known:
        raise CorruptFileError(f"{path} is not an afltool file: its kind is {text!r}")
    if version != schema.VERSION:
        reads = f"this afltool reads version {schema.VERSION}"
        raise CorruptFileError(f"{path} has format version {version}; {reads}")
    if kind not in (None, text):
        raise UsageError(f"{path} is a {text} file; expected a {kind} file here")
    data = get_array(path, file, schema.HEADER, limit=schema.HEADER_LIMIT).tobytes()
    if hashlib.sha256(data).hexdigest() != get_attribute(file, schema.HEADER_SHA256):
        raise damaged(path, "its header does not match its checksum")
    if (parts := data.count(b"[") + data.count(b"{")) > schema.HEADER_PARTS:
        raise damaged(path, f"its header has {parts} lists and objects")
    nan_is_null = KINDS[str(text)].REPORTS
    header = parsed_json(data, f"{path} is damaged: its header", nan_is_null=nan_is_null)
    if "seal" in header:
        raise InputError(f"{path} is signed: finish its session with the afltool that began it")
    if wrong := misfit(header, KINDS[str(text)]):
        raise CorruptFileError(f"{path} is damaged: in its header {wrong}")
    return {"kind": text, **header}


def check_unchanged(path: Path, header: Header, seen: Header | None) -> None:
    """Refuse a file whose header is not the one that was ``seen`` before."""
    if seen is not None and header != seen:
        raise errors.MismatchError(f"{path} has changed while this command worked; run it again")


def read_file(path: Path, kind: str, seen: Header | None = None) -> tuple[Header, dict[str, Array]]:
    """The header and every array of a file, by name; ``seen``: see `check_unchanged`."""
    with reading(path, kind) as (file, header), damage_as_error(path):
        check_unchanged(path, header, seen)
        if strange := sorted(set(file) - {schema.HEADER, *KINDS[kind].MEMBERS}):
            raise damaged(path, f"no {kind} file holds /{strange[0]}")
        additive = describe_additive(path, file)
        # Each number takes 8 bytes in memory, whatever its type in the file.
        claimed = sum(8 * prod(one["shape"]) for one in additive.values())
        check_backed(claimed, sum(one["stored_bytes"] for one in additive.values()), f"{path} is")
        groups = {schema.HEADER, schema.ARRAYS, schema.SPARSE}
        arrays = {name: get_array(path, file, name) for name in sorted(set(file) - groups)}
        summed = {f"{schema.ARRAYS}/{name}": get_additive(path, file, name) for name in additive}
        return header, {**arrays, **summed}


def additive(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Those of the arrays of a file that lie below /arrays, by their own names."""
    prefix = schema.ARRAYS + "/"
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def check_digest(path: Path, header: Mapping[str, Any], digest: str) -> None:
    """Refuse content whose digest is not the one in the header."""
    if header["digest"] != digest:
        said = f"its header says {str(header['digest'])[:16]}…"
        raise damaged(path, f"its content has the digest {digest[:16]}…, {said}")


def read_header(path: Path, kind: str | None = None) -> Header:
    """The header alone, with the file's ``kind`` in it."""
    with reading(path, kind) as (_, header):
        return header


def verify(path: Path) -> Header:
    """Read everything in a file and compare its digest (`CorruptFileError`); the header."""
    header = read_header(path)
    module, reader = KINDS[header["kind"]].READ_BY
    getattr(import_module(f".{module}", __package__), reader)(path)
    return header


def room(path: Path) -> int:
    """Bytes that reading and checking a file takes at most; 0 of one that cannot be read."""
    with suppress(OSError, AflError):
        size = 8 * os.path.getsize(path)
        return BLOCK if size > BLOCK and read_header(path)["kind"] == "features" else size
    return 0


def expand(paths: Sequence[str | Path]) -> list[Path]:
    """Files from files and folders (their *.h5).

    Raises `InputError` for an unfinished file in a folder: without it a sum would lack a client.
    """
    found: list[Path] = []
    for path in map(given_path, paths):
        inside = sorted(path.glob("*.h5")) if path.is_dir() else [path]
        if unfinished := sorted(path.glob(f"*.h5{schema.PARTIAL}")):
            some = f"{len(unfinished)} files are unfinished, such as {unfinished[0]}"
            raise InputError(f"{some}: run the command that was writing them again")
        if not inside:
            raise InputError(f"no file matches {path / '*.h5'}: check the path")
        found += inside
    return found
