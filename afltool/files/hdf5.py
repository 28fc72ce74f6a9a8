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

from ..errors import (
    AflError,
    CorruptFileError,
    InputError,
    InvalidDataError,
    MismatchError,
    OutputExistsError,
    UsageError,
)
from ..inputs import HDF5, given_path, is_hdf5, open_regular, parsed_json
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
from .headers import KINDS, check

Header = dict[str, Any]
BLOCK = 128 << 20  # bytes, of a block of rows and what is made of it


# ---------------------------------------------------------------- writing


def put_header(file: h5py.File, kind: str, header: Header) -> Header:
    """Write the kind, the version and the header with its checksum; gives it as it is read."""
    data = canonical_json(header).encode()
    if len(data) > schema.HEADER_LIMIT:
        raise InvalidDataError(
            f"the header of this {kind} file would have {len(data) / 1e6:.1f} MB; expected at most "
            f"{schema.HEADER_LIMIT / 1e6:.1f} MB: take fewer clients at a time, or shorter names"
        )
    put_array(file, schema.HEADER, np.frombuffer(data, dtype=np.uint8))
    put_attribute(file, schema.FORMAT, kind)
    put_attribute(file, schema.FORMAT_VERSION, schema.VERSION)
    put_attribute(file, schema.HEADER_SHA256, hashlib.sha256(data).hexdigest())
    return {"kind": kind, **json.loads(data)}


def write_file(path: Path, kind: str, header: Header, arrays: Mapping[str, Array]) -> Header:
    """Write one whole file of named arrays; gives the header as it is read.

    See `writing` for what a failure leaves (nothing).
    """
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
    kind: type[AflError] = OutputExistsError
    with suppress(OSError, AflError):  # of a pipe nothing is read
        kind = CorruptFileError if is_hdf5(path) else kind
    return kind(f"{path} exists and is not usable ({why}); remove it or use --overwrite")


# ---------------------------------------------------------------- reading


@contextmanager
def reading(path: Path, kind: str | None = None) -> Iterator[tuple[h5py.File, Header]]:
    """A complete file of ours, open for reading without a lock, with its header.

    Raises `InputError` when it is missing, `CorruptFileError` when it is incomplete, damaged or
    foreign, `UsageError` when it is of another kind than ``kind``.
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
        with open_regular(path) as file:
            start = file.read(len(HDF5))
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: check the path") from None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if not start:
        raise CorruptFileError(f"{path} is empty (0 bytes); make it again")
    if start != HDF5:
        raise CorruptFileError(
            f"{path} is not an afltool file: expected HDF5; of embeddings (.npz, .parquet …) "
            "afltool import makes one"
        )


def _checked_header(path: Path, file: h5py.File, kind: str | None) -> Header:
    text, version = (get_attribute(file, name) for name in (schema.FORMAT, schema.FORMAT_VERSION))
    known = text in KINDS
    if get_attribute(file, schema.COMPLETE) != 1 and (known or path.suffix == schema.PARTIAL):
        raise CorruptFileError(f"{path} is not complete: run the command that was writing it again")
    if not known:
        raise CorruptFileError(f"{path} is not an afltool file: its kind is {text!r}")
    if version != schema.VERSION:
        raise CorruptFileError(
            f"{path} has format version {version}; this afltool reads version {schema.VERSION}"
        )
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
    check(path, str(text), header)
    return {"kind": text, **header}


def check_unchanged(path: Path, header: Header, seen: Header | None) -> None:
    """Refuse a file whose header is not the one that was ``seen`` before."""
    if seen is not None and header != seen:
        raise MismatchError(f"{path} has changed while this command worked; run it again")


def read_file(path: Path, kind: str, seen: Header | None = None) -> tuple[Header, dict[str, Array]]:
    """The header and every array of a file but the header's bytes, by name.

    ``seen``: see `check_unchanged`.
    """
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
    """Read everything in a file and compare its digest; the header.

    Raises `CorruptFileError` when anything does not hold.
    """
    header = read_header(path)
    module, reader = KINDS[header["kind"]].READ_BY
    getattr(import_module(f".{module}", __package__), reader)(path)
    return header


def room(path: Path) -> int:
    """Bytes that reading and checking a file takes at most: eight for each of it, of rows a block.

    Of a file that cannot be read 0: whoever reads it says why.
    """
    with suppress(OSError, AflError):
        size = 8 * os.path.getsize(path)
        return BLOCK if size > BLOCK and read_header(path)["kind"] == "features" else size
    return 0


# ---------------------------------------------------------------- files that a command line names


def expand(paths: Sequence[str | Path]) -> list[Path]:
    """Files from files, folders (their *.h5) and quoted globs.

    Raises `InputError` when an unfinished file matches: without it a sum would lack a client.
    """
    return [file for item in paths for file in _matches(given_path(item))]


def _matches(path: Path) -> list[Path]:
    if path.is_dir():
        folder, pattern = path, "*.h5"
    elif not path.exists() and any(c in str(path) for c in "*?["):
        folder, pattern = Path(path.anchor or "."), str(path.relative_to(path.anchor))
    else:
        return [path]
    try:
        whole, unfinished = (sorted(folder.glob(pattern + end)) for end in ("", schema.PARTIAL))
    except ValueError as error:
        raise UsageError(f"{folder / pattern} is not a pattern: {error}") from None
    if unfinished:
        raise InputError(
            f"{len(unfinished)} files are unfinished, such as {unfinished[0]}: run the command "
            "that was writing them again"
        )
    if not whole:
        raise InputError(f"no file matches {folder / pattern}: check the path")
    if path.is_dir():  # a folder in it is named by whoever reads it as a file
        return whole
    return [file for match in whole for file in _matches(match)]
