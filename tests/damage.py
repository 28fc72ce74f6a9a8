"""Ways to damage and to forge files: cut, flip a byte, claim what is not there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from afltool.files import hdf5, outputs, schema
from afltool.files.hdf5 import put_array, writing


def cut(source: Path, target: Path, size: int) -> Path:
    """The first ``size`` bytes of a file; counted from the end if negative."""
    target.write_bytes(source.read_bytes()[:size])
    return target


def flip(source: Path, target: Path, at: int, mask: int = 0x10) -> Path:
    """A copy with some bits of one byte turned."""
    data = bytearray(source.read_bytes())
    data[at] ^= mask
    target.write_bytes(data)
    return target


def middle_of(path: Path, dataset: str) -> int:
    """Where in the file the middle byte of a dataset's first chunk lies."""
    with h5py.File(path, "r", locking=False) as file:
        chunk = file[dataset].id.get_chunk_info(0)
        used = min(chunk.size, file[dataset].size * file[dataset].dtype.itemsize)
    return int(chunk.byte_offset + used // 2)


def forge(
    source: Path,
    target: Path,
    header: dict[str, Any] | None = None,
    whole: dict[str, Any] | None = None,
    **arrays: Any,
) -> Path:
    """A file with other datasets and header fields, all checksums right; the digest is left.

    A tuple stands for an empty dataset of that shape (and dtype), of which nothing is written.
    ``whole`` replaces the header with all its fields.
    """
    found, old = hdf5.read_file(source, hdf5.read_header(source)["kind"])
    kind = found.pop("kind")
    named = {name.replace("__", "/"): value for name, value in arrays.items()}
    target.unlink(missing_ok=True)  # a file of another kind would not be replaced
    with writing(target, kind) as file:
        for name, value in {**old, **named}.items():
            if isinstance(value, tuple):
                shape, dtype = value
                chunks = tuple(min(256, n) for n in shape)
                file.create_dataset(name, shape, dtype, chunks=chunks, fletcher32=True)
            else:
                put_array(file, name, np.asarray(value))
        hdf5.put_header(file, kind, {**found, **(header or {})} if whole is None else whole)
    return target


def outward_ways(elsewhere: Path) -> dict[str, Callable[[h5py.File], None]]:
    """How a file of statistics is changed so that some of it lies elsewhere."""

    def link(name):
        def make(file):
            del file[name]
            file[name] = h5py.ExternalLink(str(elsewhere), "/" + name)

        return make

    def soft(file):
        del file["class_counts"]
        file["class_counts"] = h5py.SoftLink("/arrays/gram")

    def virtual(file):
        shape = file["arrays/gram"].shape
        del file["arrays/gram"]
        layout = h5py.VirtualLayout(shape=shape, dtype="<i4", maxshape=(None,))
        source = h5py.VirtualSource(str(elsewhere), "arrays/gram", shape=shape, maxshape=(None,))
        layout[: h5py.h5s.UNLIMITED : 1] = source[: h5py.h5s.UNLIMITED : 1]
        file.create_virtual_dataset("arrays/gram", layout)

    def raw(file):
        shape = file["arrays/gram"].shape
        del file["arrays/gram"]
        place = [(str(elsewhere), 0, 4 * shape[0])]
        file.create_dataset("arrays/gram", shape, "<i4", external=place)

    def reference(file):
        region = file["arrays/gram"].regionref[:3]
        del file["class_counts"]
        file.create_dataset("class_counts", data=[region], dtype=h5py.regionref_dtype)

    def more(file):
        file["more"] = h5py.ExternalLink(str(elsewhere), "/")

    linked = {f"linked {name}": link(name) for name in ("class_counts", "arrays")}
    return {**linked, "soft": soft, "virtual": virtual, "raw": raw, "reference": reference,
            "unused link": more}  # fmt: skip


def with_header(source: Path, target: Path, data: bytes) -> None:
    """A copy with other bytes in its header, whose checksum is right."""
    target.write_bytes(source.read_bytes())
    with h5py.File(target, "r+", locking=False, libver=schema.LIBVER) as file:
        put_array(file, schema.HEADER, np.frombuffer(data, np.uint8))
        file.attrs[schema.HEADER_SHA256] = np.bytes_(hashlib.sha256(data).hexdigest().encode())


def unfinished(path: Path) -> Path:
    """What a writer leaves that is killed before the end; returns its path."""
    try:
        with writing(path, "statistics", go_on=lambda _: False) as file:
            put_array(file, "class_counts", np.zeros(4))
            file.flush()
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        return outputs.partial_path(path)
