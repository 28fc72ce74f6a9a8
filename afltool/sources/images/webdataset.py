"""WebDataset: tar files of samples, read where they lie."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ... import inputs
from ...errors import CorruptFileError, InvalidDataError
from .base import DatasetRequest, ImageDataset, shorten
from .folders import DICOM, EXTENSIONS
from .packed import Row, from_files, packed_files
from .pixels import MOST_BYTES

MOST_LABEL = 1 << 20  # bytes of a .cls or .json member
_MEMBER = re.compile(r"(?:\./)?((?:.*/)?[^./]+)(\.[^/]+)")  # KEY.ENDING, as WebDataset cuts names
#: What tarfile raises on damaged headers.
_DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, ArithmeticError, RecursionError)


def open_rows(request: DatasetRequest) -> ImageDataset:
    """The samples of .tar files in their order; headers and labels alone are read.

    A sample is what members of one name before the first dot are: ``KEY.jpg`` and ``KEY.cls``, a
    number or a name, or ``KEY.json`` with a label. Row ids are SHARD/KEY.

    Raises `CorruptFileError`: a damaged tar file; `InvalidDataError`: samples without label, with a
    label and no image, or with two images.
    """
    shards = packed_files(request, ".tar")
    return from_files(request, shards, lambda shard: _rows(shard, request), _bytes)


def _bytes(shard: Path, offset: int, size: int) -> bytes:
    if size > MOST_BYTES:
        raise CorruptFileError(f"{size:,} bytes, expected at most {MOST_BYTES:,}")
    with inputs.open_regular(shard) as file:
        file.seek(offset)
        return file.read(size)


def _rows(shard: Path, request: DatasetRequest) -> Iterator[Row]:
    images: dict[str, tuple[int, int]] = {}
    labels: dict[str, str] = {}
    for key, ending, member in _members(shard):
        if ending in EXTENSIONS + DICOM:
            if key in images:
                raise InvalidDataError(f"{shard}: the sample {key} has two images, expected one")
            images[key] = member.offset_data, member.size
        elif ending not in (".cls", ".json") or request.unlabelled:
            continue
        elif text := _label(shard, member, request.label_column):
            labels[key] = text if ending == ".cls" else labels.get(key, text)
    lacking = [f"{key} (no image)" for key in labels if key not in images]
    if not request.unlabelled:
        lacking += [f"{key} (no label in .cls or .json)" for key in images if key not in labels]
    if lacking:
        raise InvalidDataError(f"{shard}: {len(lacking)} samples are not whole: {shorten(lacking)}")
    for key, place in images.items():
        yield key, labels.get(key, ""), *place


def _members(shard: Path) -> Iterator[tuple[str, str, tarfile.TarInfo]]:
    """Key, ending and header of the files in a tar file up to its end, which damage would hide."""
    try:
        with inputs.open_regular(shard) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined] # else all headers are kept
                if member.size < 0:
                    raise tarfile.ReadError(f"{member.name} has {member.size} bytes")
                if member.isreg() and (match := _MEMBER.fullmatch(member.name)):
                    yield match[1], match[2].lower(), member
            file.seek(tar.offset)
            if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
                raise tarfile.ReadError(f"expected a header at byte {tar.offset:,}")
    except _DAMAGE as error:
        raise CorruptFileError(
            f"{shard} is damaged, or no uncompressed tar file: {error}. Make or fetch it again."
        ) from error


def _label(shard: Path, member: tarfile.TarInfo, key: str) -> str:
    """What a .cls or .json member says; empty where it says nothing of the label."""
    where = f"{member.name} of {shard}"
    if member.size > MOST_LABEL:
        raise CorruptFileError(f"{where}: {member.size:,} bytes, expected at most {MOST_LABEL:,}")
    data = _bytes(shard, member.offset_data, member.size)
    if member.name.lower().endswith(".cls"):
        try:
            return data.decode().strip() if key == "label" else ""
        except UnicodeDecodeError as error:
            raise CorruptFileError(f"{where} is not UTF-8 text") from error
    label: Any = inputs.parsed_json(data, where, "JSON")
    value = label.get(key, "") if isinstance(label, dict) else ""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidDataError(f"{where}: {key} is {value!r:.40}, expected a number or a text")
    return str(value)
