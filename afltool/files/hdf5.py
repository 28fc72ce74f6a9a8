"""HDF5 files: whole or not there, a header under its checksum and schema, and named arrays.

HDF5 checks chunks under fletcher32 and object headers, zlib what it unpacks; the digest of each
file covers the rest. A stranger's file could point to any path, or to a pipe: only a file's own
objects are opened, and their claimed sizes are checked before memory is taken. Nothing of variable
length is read: the library follows such pointers without a check and crashes.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5l, h5z

from .. import errors
from ..errors import AflError, CorruptFileError, InputError, UsageError
from ..inputs import check_given_path, is_hdf5, parse_json
from ..memory import check_claimed_size
from ..values.arrays import Array, canonical_json
from . import schema
from .atomic import replacing
from .headers import KINDS, misfit

Header = dict[str, Any]
BLOCK = 128 << 20  # bytes, of a block of rows and what is made of it
# What h5py raises when the bytes of a file make no sense to the HDF5 library.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, MemoryError)
MOST_OBJECTS = 10_000  # in one file; a head of 1,000 layers has 3,000
SAMPLE = 1 << 16  # bytes of an array of wide integers that are tried
_PLAIN = {h5z.FILTER_FLETCHER32}
_PACKED = {h5z.FILTER_SHUFFLE, h5z.FILTER_DEFLATE, h5z.FILTER_FLETCHER32}


# ---------------------------------------------------------------- files


@contextmanager
def writing(
    path: Path, kind: str, go_on: Callable[[Path], bool] | None = None
) -> Iterator[h5py.File]:
    """An HDF5 file open for writing that takes its name if the block succeeds, as `replacing`."""
    with replacing(path, kind, go_on) as place:
        mode = "r+" if os.fstat(place).st_size else "w"
        disk, file = _Disk(place, "r+b", closefd=False), None
        try:
            with defer_interrupts():
                file = _File(disk, mode)
            yield file
            put_attribute(file, schema.COMPLETE, 1)
        finally:
            with defer_interrupts():
                if file is not None:
                    file.close()
            disk.check()  # before any other error: that one would only follow from it


@contextmanager
def defer_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block: in `_Disk.write` it would be a failed write."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[Any] = []
    before = signal.signal(signal.SIGINT, lambda *signal_and_frame: came.append(signal_and_frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(*came[0])


class _Disk(io.FileIO):
    """A file whose first failed write is kept for `check`; later ones are dropped.

    To the HDF5 library every write succeeds. (HDF5 2.0: "No space left" in a flush makes the file
    impossible to close, prints a traceback at exit or ends in a segmentation fault.)
    """

    _failure: OSError | None = None

    def write(self, data: Any) -> int:
        left = memoryview(data)
        try:
            while left and not self._failure:
                left = left[super().write(left) :]
        except OSError as failure:
            self._failure = failure
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size) if not self._failure else 0
        except OSError as failure:
            self._failure = failure
            return 0

    def check(self) -> None:
        if self._failure:
            raise self._failure


class _File(h5py.File):  # type: ignore[misc]  # h5py has no types: to mypy its File is Any
    """An HDF5 file on a `_Disk`, whose flush tells whether the disk has taken all."""

    def __init__(self, disk: _Disk, mode: str) -> None:
        self._disk = disk
        super().__init__(disk, mode, libver=schema.LIBVER)

    def flush(self) -> None:
        with defer_interrupts():
            super().flush()
        self._disk.check()


# ---------------------------------------------------------------- arrays, written


@defer_interrupts()
def put_attribute(file: h5py.File, name: str, value: str | int) -> None:
    """Write an attribute of the root group; texts get a fixed length."""
    file.attrs[name] = np.bytes_(value.encode()) if isinstance(value, str) else value


@defer_interrupts()
def put_array(file: h5py.File, name: str, value: Array) -> None:
    """Write or replace an array, in chunks along its first axis: deflated where that pays."""
    if name in file:
        del file[name]
    if value.size == 0:
        file.create_dataset(name, data=value)
        return
    count = min(-(-value.nbytes // schema.CHUNK_BYTES), len(value))
    how = {"chunks": (-(-len(value) // count), *value.shape[1:]), "track_times": False}
    if not _pays(name, value):
        file.create_dataset(name, data=value, fletcher32=True, **how)
        return
    packed = {"shuffle": True, "compression": "gzip", "compression_opts": 1}
    data = file.create_dataset(name, value.shape, value.dtype, **packed, **how)
    for start in range(0, len(value), data.chunks[0]):
        part = np.zeros(data.chunks, value.dtype)
        part[: len(value) - start] = value[start : start + len(part)]
        data.id.write_direct_chunk((start, *(0,) * (value.ndim - 1)), deflate_chunk(part))


def _pays(name: str, value: Array) -> bool:
    """Whether an array is compressed: narrow integers always, wide ones where a sample halves."""
    if not _may_be_packed(name, value.dtype) or value.dtype.itemsize <= 2:
        return _may_be_packed(name, value.dtype)
    flat, count = value.reshape(-1), SAMPLE // value.dtype.itemsize
    sample = flat[max(0, len(flat) - count) // 2 :][:count]
    return 2 * len(deflate_chunk(sample)) <= sample.nbytes


def _may_be_packed(name: str, dtype: np.dtype[Any]) -> bool:
    return name.split("/")[0] in (schema.ARRAYS, schema.SPARSE) and dtype.kind in "iu"


def deflate_chunk(part: Array) -> bytes:
    """An array's bytes as HDF5's filters shuffle and gzip read them.

    Counts have runs of zeros, or hardly any: Z_RLE or Z_HUFFMAN_ONLY takes a fifth to a third fewer
    bytes than the gzip filter, in less time (docs/decisions/safle.md).
    """
    shuffled = np.ascontiguousarray(part).view(np.uint8).reshape(-1, part.itemsize).T
    data, found = np.ascontiguousarray(shuffled).data, []
    for strategy in (zlib.Z_RLE, zlib.Z_HUFFMAN_ONLY):
        packer = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, 9, strategy)
        found.append(packer.compress(data) + packer.flush())
    return min(found, key=len)


# ---------------------------------------------------------------- whole files, written


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
    with writing(path, kind) as file, defer_interrupts():
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


# ---------------------------------------------------------------- arrays, read


def get_attribute(file: h5py.File, name: str) -> str | int | None:
    """An attribute of the root group: a text of fixed length or a whole number, else None."""
    if name not in file.attrs:
        return None
    attribute = file.attrs.get_id(name)
    if attribute.shape != () or attribute.dtype.kind not in "iuS":
        return None
    value = np.empty((), attribute.dtype)
    attribute.read(value)
    return bytes(value[()]).decode() if value.dtype.kind == "S" else int(value[()])


@contextmanager
def damage_as_error(path: Path) -> Iterator[None]:
    """Turn the errors that HDF5 raises for damaged bytes into one `CorruptFileError`."""
    try:
        yield
    except AflError:
        raise
    except _DAMAGE as error:
        raise damage_message(path, " ".join(str(error).split())) from error


def damage_message(path: Path, what: str) -> CorruptFileError:
    """What is said of a file that is not what its writer wrote."""
    return CorruptFileError(f"{path} is damaged: {what}; make it or fetch it again")


def reject_external_links(path: Path, file: h5py.File) -> None:
    """Raise `CorruptFileError` for a link to elsewhere, anywhere in the file; none is followed."""
    left = iter(range(MOST_OBJECTS))

    def look(name: bytes, link: Any) -> str | None:
        """What is wrong, which ends the visit; the library lets no exception through."""
        if link.type != h5l.TYPE_HARD:
            return f"/{name.decode('utf-8', 'backslashreplace')} is a link, and none is followed"
        return f"it has more than {MOST_OBJECTS} objects" if next(left, None) is None else None

    if wrong := file.id.links.visit(look, info=True):
        raise damage_message(path, wrong)


def check_dataset(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    """A dataset that is what it claims: plain numbers of its type, as many bytes as its shape."""
    data = file.get(name)
    if not (isinstance(data, h5py.Dataset) and _is_plain(name, data)):
        raise damage_message(path, f"/{name} is missing, or not a plain dataset")
    kind, dimensions = schema.TYPES.get(name, (data.dtype.str, data.ndim))
    if kind not in (data.dtype.str, data.dtype.kind) or data.ndim != dimensions:
        has = f"has the type {data.dtype.str} and {data.ndim} dimensions"
        raise damage_message(path, f"/{name} {has}, not {kind} and {dimensions}")
    size, stored, whole = data.nbytes, data.id.get_storage_size(), os.path.getsize(path)
    if not size // (schema.DEFLATE_RATIO if data.compression else 1) <= stored <= whole:
        claim = f"/{name} claims the shape {data.shape}, {size} bytes"
        raise damage_message(path, f"{claim}; it holds {stored} of the file's {whole}")
    return data


def _is_plain(name: str, data: h5py.Dataset) -> bool:
    """Whether all of a dataset's bytes lie in this file, behind the filters that we write.

    A chunk is unpacked whole, so it must be no larger than the data or a writer's block.
    """
    if data.is_virtual or data.external or data.dtype.kind not in "iufS" or not data.shape:
        return False
    made = data.id.get_create_plist()
    filters = {made.get_filter(i)[0] for i in range(made.get_nfilters())}
    most = (max(len(data), schema.CHUNK_ROWS), *data.shape[1:])
    fits = data.chunks is None or data.size == 0 or all(np.less_equal(data.chunks, most))
    return fits and filters <= (_PACKED if _may_be_packed(name, data.dtype) else _PLAIN)


def get_array(path: Path, file: h5py.File, name: str, limit: int | None = None) -> Array:
    """Read a whole dataset, at most ``limit`` bytes."""
    data = check_dataset(path, file, name)
    if limit is not None and data.nbytes > limit:
        raise damage_message(path, f"/{name} has more than {limit} bytes")
    values: Array = data[()]
    return values


def _additive(path: Path, file: h5py.File, name: str) -> tuple[tuple[int, ...], list[h5py.Dataset]]:
    """The shape of an array below /arrays, and the datasets of its numbers.

    Of thin ones 0.3 wrote what is not 0, and beside it the shape and a bitmap of where it is.
    """
    values, thin = check_dataset(path, file, f"{schema.ARRAYS}/{name}"), f"{schema.SPARSE}/{name}"
    if thin not in file:
        return values.shape, [values]
    shape = get_array(path, file, f"{thin}/{schema.SHAPE}", limit=1024)
    if shape.dtype.str != "<i8" or shape.ndim != 1 or shape.min(initial=0) < 0:
        raise damage_message(path, f"/{thin}/{schema.SHAPE} is not a shape")
    return tuple(shape.tolist()), [values, check_dataset(path, file, f"{thin}/{schema.KEPT}")]


def _whole(path: Path, shape: tuple[int, ...], parts: Sequence[h5py.Dataset]) -> Array:
    values: Array = parts[0][()]
    for kept in parts[1:]:
        if kept.dtype != np.uint8 or kept.shape != (-(-prod(shape) // 8),):
            raise damage_message(path, f"{kept.name} is not a bitmap of {prod(shape)} places")
        found, values = values, np.zeros(prod(shape), dtype=values.dtype)
        values[np.unpackbits(kept[()], count=len(values)).view(bool)] = found
    return values.reshape(shape)


# ---------------------------------------------------------------- whole files, read


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
            reject_external_links(path, file)
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
        raise CorruptFileError(
            f"{path} is not an afltool file: expected HDF5, found {size}; afltool import makes "
            "features of embeddings or a table"
        )


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
        raise damage_message(path, "its header does not match its checksum")
    if (parts := data.count(b"[") + data.count(b"{")) > schema.HEADER_PARTS:
        raise damage_message(path, f"its header has {parts} lists and objects")
    nan_is_null = KINDS[str(text)].REPORTS
    header = parse_json(data, f"{path} is damaged: its header", nan_is_null=nan_is_null)
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
            raise damage_message(path, f"no {kind} file holds /{strange[0]}")
        group = file.get(schema.ARRAYS)
        names = [*group] if isinstance(group, h5py.Group) else []
        summed = {name: _additive(path, file, name) for name in names}
        # Each number takes 8 bytes in memory, whatever its type in the file.
        claimed = sum(8 * prod(shape) for shape, _ in summed.values())
        held = sum(part.id.get_storage_size() for _, parts in summed.values() for part in parts)
        check_claimed_size(claimed, held, f"{path} is")
        groups = {schema.HEADER, schema.ARRAYS, schema.SPARSE}
        arrays = {name: get_array(path, file, name) for name in sorted(set(file) - groups)}
        whole = {f"{schema.ARRAYS}/{name}": _whole(path, *one) for name, one in summed.items()}
        return header, {**arrays, **whole}


def additive(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Those of the arrays of a file that lie below /arrays, by their own names."""
    prefix = schema.ARRAYS + "/"
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def check_digest(path: Path, header: Mapping[str, Any], digest: str) -> None:
    """Refuse content whose digest is not the one in the header."""
    if header["digest"] != digest:
        said = f"its header says {str(header['digest'])[:16]}…"
        raise damage_message(path, f"its content has the digest {digest[:16]}…, {said}")


def read_header(path: Path, kind: str | None = None) -> Header:
    """The header alone, with the file's ``kind`` in it."""
    with reading(path, kind) as (_, header):
        return header


def verify(path: Path, rows: bool = True) -> Header:
    """Read everything in a file and compare its digest (`CorruptFileError`); the header.

    Without ``rows`` of a feature file the header alone is read.
    """
    header = read_header(path)
    if header["kind"] == "features" and not rows:
        return header
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
    for path in map(check_given_path, paths):
        inside = sorted(path.glob("*.h5")) if path.is_dir() else [path]
        if unfinished := sorted(path.glob(f"*.h5{schema.PARTIAL}")):
            some = f"{len(unfinished)} files are unfinished, such as {unfinished[0]}"
            raise InputError(f"{some}: run the command that was writing them again")
        if not inside:
            raise InputError(f"no file matches {path / '*.h5'}: check the path")
        found += inside
    return found
