"""HDF5 files that are whole or refused: writing under a partial name, reading with suspicion.

Measured with h5py 3.16 and HDF5 2.0: a file that is killed while it is written keeps what was
flushed (libver below 1.10), a read-only open without a lock works on network file systems, and of
the bytes of a file only three kinds are checked by the library: chunks under fletcher32, and the
superblock and object headers from libver 1.8 on. The rest (the index of chunks) is left to the
digest of each file, which every reader compares. Nothing of variable length is written or read:
the library follows its pointers unchecked and crashes. It crashes, too, when a disk is full, so it
writes through `_Disk`, which does not tell it.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Any, cast

import h5py
import numpy as np
from numpy.typing import NDArray

from ..digest import canonical_json
from ..errors import AflError, CorruptFileError, InputError, UsageError
from ..memory import physical
from . import headers, packing, schema, sparse

Header = dict[str, Any]
Array = NDArray[Any]
LEAST_BYTES = 4096  # of a file beside its arrays: HDF5's own structures and the header
# What h5py raises when the bytes of a file make no sense to the HDF5 library.
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, MemoryError)


# ---------------------------------------------------------------- writing


def partial_path(path: Path) -> Path:
    """Where the file that will be called ``path`` is written."""
    return path.with_name(path.name + schema.PARTIAL)


def free_space(folder: Path) -> int:
    """Bytes free on the disk of a folder that is there or will be made."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def need_space(folder: Path, size: int, what: str) -> None:
    """Refuse to start writing ``size`` bytes into a folder whose disk has fewer."""
    free = free_space(folder)
    if size > free:
        raise InputError(
            f"no space left for {what}: it takes {size / 1e6:.1f} MB and the disk of {folder} has "
            f"{free / 1e6:.1f} MB free; free some space or choose another folder"
        )


@contextmanager
def writing(
    path: Path, size: int = 0, go_on: Callable[[Path], bool] | None = None
) -> Iterator[h5py.File]:
    """An HDF5 file open for writing that takes its final name only if the block succeeds.

    ``size``: about how many bytes it will have. One writer per file: a second one is refused.
    ``go_on`` says, once the partial file is locked, whether what an earlier run left in it is
    gone on with. With it the partial file stays behind when the block fails; otherwise it is
    removed then.
    """
    partial = partial_path(path)
    with _writer_errors(path):
        have = partial.stat().st_size if go_on and partial.exists() else 0
        need_space(path.parent, size - have, str(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = _locked(partial)
    try:
        with _writer_errors(path):
            mode = "r+" if go_on is not None and go_on(partial) else "w"
            if mode == "w":
                os.ftruncate(lock, 0)
            disk = _Disk(lock, "r+b", closefd=False)
            file = None
            try:
                with undisturbed():
                    file = _File(disk, mode, libver=schema.LIBVER)
                yield file
                put_attribute(file, schema.COMPLETE, 1)
            finally:
                with undisturbed():
                    if file is not None:
                        file.close()
                disk.check()  # before any other error: that one would only follow from it
            os.fsync(lock)
            os.replace(partial, path)
        _sync_folder(path.parent)
    except BaseException:
        if go_on is None or os.fstat(lock).st_size == 0:
            with suppress(OSError):
                partial.unlink()
        raise
    finally:
        os.close(lock)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, which calls the HDF5 library to write.

    Raised in the middle of `_Disk.write` it would be a failed write to the library.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda *signal_and_frame: came.append(signal_and_frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came:
            before(*came[0])


class _Disk(io.FileIO):
    """A file whose first failed write is kept for `check`; later ones are dropped.

    To the HDF5 library every write succeeds, and the file is left as a kill at the failed write
    would leave it. (Measured with HDF5 2.0: "No space left" in a flush makes the file impossible to
    close, prints a traceback at exit or ends in a segmentation fault.)
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
        """Raise what made the first write fail, if any did."""
        if self._failure:
            raise self._failure


class _File(h5py.File):  # type: ignore[misc]
    """An HDF5 file on a `_Disk`, whose flush tells whether the disk has taken all."""

    def __init__(self, disk: _Disk, mode: str, **options: Any) -> None:
        self._disk = disk
        super().__init__(disk, mode, **options)

    def flush(self) -> None:
        with undisturbed():
            super().flush()
        self._disk.check()


def _locked(partial: Path) -> int:
    """Create or open the partial file and lock it; the lock is the open descriptor."""
    while True:
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise
        except OSError as error:  # a file system without locks (some NFS mounts)
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                os.close(descriptor)
                raise
        # The previous writer may have renamed the file between our open and our lock.
        with suppress(FileNotFoundError):
            if os.stat(partial).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    with suppress(OSError):  # some network file systems have no fsync of folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _writer_errors(path: Path) -> Iterator[None]:
    """Turn the system's refusals into messages."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {_reason(error)}") from error


def _reason(error: OSError) -> str:
    number = error.errno
    if number == errno.EAGAIN:
        return "another process is writing it; wait for it to end"
    if number in (errno.ENOSPC, errno.EDQUOT):
        return "no space left on the disk; free some space and run the command again"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "the folder does not allow it (read-only?); choose another one with -o"
    if number in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        return f"{os.strerror(number)}: a folder and a file are mixed up in this path"
    return error.strerror or str(error)


def put_header(file: h5py.File, kind: str, header: Header) -> None:
    """Write the kind, the version and the header with its checksum."""
    data = canonical_json(header).encode()
    put_array(file, schema.HEADER, np.frombuffer(data, dtype=np.uint8))
    put_attribute(file, schema.FORMAT, kind)
    put_attribute(file, schema.FORMAT_VERSION, schema.VERSION)
    put_attribute(file, schema.HEADER_SHA256, hashlib.sha256(data).hexdigest())


@undisturbed()
def put_attribute(file: h5py.File, name: str, value: str | int) -> None:
    """Write an attribute of the root group; texts get a fixed length."""
    file.attrs[name] = np.bytes_(value.encode()) if isinstance(value, str) else value


@undisturbed()
def put_array(file: h5py.File, name: str, value: Array) -> None:
    """Write or replace an array; additive integers packed, in one of two ways where it pays.

    See `packing` and `sparse`.
    """
    thin = f"{schema.SPARSE}/{name.removeprefix(schema.ARRAYS + '/')}"
    for old in (name, thin):
        if old in file:
            del file[old]
    packed = name.startswith(schema.ARRAYS + "/") and value.size > 0 and packing.pays(value)
    parts = sparse.split(value) if packed else None
    if parts is None:
        _put(file, name, value, packed)
        return
    _put(file, name, parts[1], packed)
    _put(file, f"{thin}/{schema.KEPT}", parts[0], packed)
    _put(file, f"{thin}/{schema.SHAPE}", np.array(value.shape, "<i8"), False)


def _put(file: h5py.File, name: str, value: Array, packed: bool) -> None:
    """One dataset: checksummed, chunked (an empty one without)."""
    if value.size == 0:
        file.create_dataset(name, data=value)
        return
    # Chunks of one size, as even as can be: HDF5 fills the last one up.
    count = -(-value.nbytes // schema.CHUNK_BYTES)
    chunks = (-(-value.shape[0] // min(count, value.shape[0])), *value.shape[1:])
    if not packed:
        file.create_dataset(name, data=value, chunks=chunks, fletcher32=True)
        return
    filters = {"shuffle": True, "compression": "gzip", "compression_opts": 1, "fletcher32": True}
    data = file.create_dataset(name, value.shape, value.dtype, chunks=chunks, **filters)
    packing.write_chunks(data, value)


def _may_be_packed(name: str, dtype: np.dtype[Any]) -> bool:
    """Whether a dataset may be compressed: integers of additive arrays."""
    return name.split("/")[0] in (schema.ARRAYS, schema.SPARSE) and dtype.kind in "iu"


def write_file(path: Path, kind: str, header: Header, arrays: Mapping[str, Array]) -> Path:
    """Write one whole file of named arrays; see `writing` for what a failure leaves (nothing)."""
    # At the least: what is compressed may become next to nothing.
    whole = (a for n, a in arrays.items() if not (_may_be_packed(n, a.dtype) and packing.pays(a)))
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


@contextmanager
def damage_as_error(path: Path) -> Iterator[None]:
    """What HDF5 says of damaged bytes, as one `CorruptFileError` with the path."""
    try:
        yield
    except AflError:
        raise
    except _DAMAGE as error:
        text = " ".join(str(error).split())
        raise CorruptFileError(f"{path} is damaged ({text}); make it or fetch it again") from error


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


def get_attribute(file: h5py.File, name: str) -> str | int | None:
    """An attribute of the root group: a text of fixed length or a whole number, else None."""
    attributes = file.attrs
    if name not in attributes:
        return None
    found = attributes.get_id(name)
    if found.shape != () or found.dtype.kind not in "iuS":
        return None
    value = attributes[name]
    return value.decode() if isinstance(value, bytes) else int(value)


def checked_dataset(path: Path, file: h5py.File, name: str) -> h5py.Dataset:
    """A dataset that is what it claims: plain numbers of its type, as many bytes as its shape.

    Nothing is allocated before this check, so a shape of 10^12 rows costs nothing.
    """
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        raise CorruptFileError(f"{path} is damaged: it lacks the dataset /{name}")
    data = file[name]
    plain = (
        isinstance(data, h5py.Dataset)
        and data.dtype.kind in "iufS"
        and not data.is_virtual
        and data.external is None
        and data.compression in ((None, "gzip") if _may_be_packed(name, data.dtype) else (None,))
        and (data.fletcher32 or data.size == 0)
    )
    if not plain:
        raise CorruptFileError(f"{path} is damaged: /{name} is not a plain, checksummed dataset")
    kind, dimensions = schema.TYPES.get(name, (data.dtype.str, data.ndim))
    if kind not in (data.dtype.str, data.dtype.kind) or data.ndim != dimensions:
        raise CorruptFileError(
            f"{path} is damaged: /{name} has the type {data.dtype.str} and {data.ndim} dimensions, "
            f"not {kind} and {dimensions}"
        )
    claimed, held = data.size * data.dtype.itemsize, data.id.get_storage_size()
    least = claimed // schema.DEFLATE_RATIO if data.compression else claimed
    if held < least or held > path.stat().st_size:
        raise CorruptFileError(
            f"{path} is damaged: /{name} claims the shape {data.shape}, "
            f"{claimed} bytes; it holds {held} of the file's "
            f"{path.stat().st_size}"
        )
    if data.compression and claimed > physical():
        raise CorruptFileError(f"{path}: /{name} claims {claimed} bytes, more than the memory")
    return cast(h5py.Dataset, data)


def get_array(path: Path, file: h5py.File, name: str, limit: int | None = None) -> Array:
    """Read a whole dataset, at most ``limit`` bytes."""
    data = checked_dataset(path, file, name)
    if limit is not None and data.size * data.dtype.itemsize > limit:
        raise CorruptFileError(f"{path} is damaged: /{name} has more than {limit} bytes")
    return cast(Array, data[()])


def get_additive(path: Path, file: h5py.File, name: str) -> Array:
    """Read the array ``name`` below /arrays, sparse or not."""
    values, thin = get_array(path, file, f"{schema.ARRAYS}/{name}"), _thin(file, name)
    if thin is None:
        return values
    shape = _shape(path, file, thin)
    kept = get_array(path, file, f"{thin}/{schema.KEPT}")
    if kept.dtype != np.uint8 or values.ndim != 1 or kept.ndim != 1:
        raise CorruptFileError(f"{path} is damaged: /{thin} is not a bitmap of flat values")
    return sparse.joined(kept, values, shape)


def describe_additive(path: Path, file: h5py.File, name: str) -> dict[str, Any]:
    """Shape, type, bytes as a plain array and bytes in the file of an array below /arrays."""
    data, thin = checked_dataset(path, file, f"{schema.ARRAYS}/{name}"), _thin(file, name)
    shape, held = tuple(data.shape), data.id.get_storage_size()
    if thin is not None:
        shape = _shape(path, file, thin)
        held += checked_dataset(path, file, f"{thin}/{schema.KEPT}").id.get_storage_size()
    return {
        "shape": list(shape),
        "type": data.dtype.str,
        "bytes": prod(shape) * data.dtype.itemsize,
        "stored_bytes": held,  # fewer where they are compressed
    }


def _thin(file: h5py.File, name: str) -> str | None:
    """Where the bitmap of a sparse array lies; None for others."""
    where = f"{schema.SPARSE}/{name}"
    return where if where in file else None


def _shape(path: Path, file: h5py.File, thin: str) -> tuple[int, ...]:
    """The shape of a sparse array; refused where memory would not hold it."""
    found = get_array(path, file, f"{thin}/{schema.SHAPE}", limit=1024)
    if found.dtype.str != "<i8" or found.ndim != 1 or found.min(initial=0) < 0:
        raise CorruptFileError(f"{path} is damaged: /{thin}/{schema.SHAPE} is not a shape")
    shape = tuple(found.tolist())
    if 8 * prod(shape) > physical():
        raise CorruptFileError(f"{path}: /{thin} claims the shape {shape}, more than the memory")
    return shape


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
