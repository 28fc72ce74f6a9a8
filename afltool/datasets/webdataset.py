"""WebDataset: tar files of samples, read where they lie."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import inputs
from ..errors import CorruptFileError, InvalidDataError
from ..progress import log
from .base import DatasetRequest, ImageDataset, shorten
from .folders import DICOM, EXTENSIONS
from .packed import Row, from_files, list_packed_files
from .pixels import MOST_BYTES

MOST_LABEL = 1 << 20  # bytes of a .cls or .json member
_MEMBER = re.compile(r"(?:\./)?((?:.*/)?[^./][^/]*)(\.[^./]+)")  # KEY.ENDING
_FIELD = re.compile(r"\.[^/]*$")  # of the sample before it: WebDataset cuts names at the first dot
#: What tarfile raises on damaged headers.
_DAMAGE = (tarfile.TarError, OSError, EOFError, ValueError, ArithmeticError, RecursionError)


def open_rows(request: DatasetRequest) -> ImageDataset:
    """The samples of .tar files in their order; headers and labels alone are read.

    A sample is what members of one name are: ``KEY.jpg`` and ``KEY.cls``, a number or a name, or
    ``KEY.json`` with a label. KEY may have dots; of a sample KEY that has an image, ``KEY.seg.png``
    without a label is another field. Members that are no image and no label are left out, counted
    and named; samples that lack one, or have two, are refused. Row ids are SHARD/KEY.
    """
    others, shards = Counter[str](), list_packed_files(request, ".tar")
    dataset = from_files(request, shards, lambda shard: _rows(shard, request, others), _bytes)
    if others:
        kinds = shorten([f"{ending} ({n})" for ending, n in others.most_common()])
        log.warning(
            f"{request.spec}: left out {others.total()} members that are no image and no label: "
            f"{kinds}"
        )
    return dataset


def _bytes(shard: Path, offset: int, size: int, most: int = MOST_BYTES) -> bytes:
    if size > most:
        raise CorruptFileError(f"{shard}: {size:,} bytes at {offset}, expected at most {most:,}")
    with inputs.open_regular(shard) as file:
        file.seek(offset)
        return file.read(size)


def _rows(shard: Path, request: DatasetRequest, others: Counter[str]) -> Iterator[Row]:
    """The samples of a shard; ``others`` counts what is left out, by the endings of names."""
    samples: dict[str, dict[str, tarfile.TarInfo]] = {}
    lacking, left = list[str](), list[str]()
    for key, ending, member in _members(shard):
        kind = "images" if ending in EXTENSIONS + DICOM else ending
        if kind not in ("images", ".cls", ".json"):
            left.append(member.name)
        elif samples.setdefault(key, {}).setdefault(kind, member) is not member:
            raise InvalidDataError(f"{shard}: the sample {key} has two {kind}, expected one")
    for key, parts in sorted(samples.items(), key=lambda one: _place(one[1])):
        image, of = parts.get("images"), _FIELD.sub("", key)
        given = [parts[kind] for kind in (".cls", ".json") if kind in parts]
        texts = (_label(shard, one) for one in given if not request.unlabeled)
        text = next(filter(None, texts), "")
        is_field = of != key and "images" in samples.get(of, ())
        if image and (text or (request.unlabeled and (given or not is_field))):
            yield key, text, image.offset_data, image.size
        elif is_field or not (image or text):
            left += [member.name for member in parts.values()]
        else:
            lacking.append(f"{key} (no {'label in .cls or .json' if image else 'image'})")
    others.update((_FIELD.search(name) or [name])[0] for name in left)
    if lacking:
        raise InvalidDataError(f"{shard}: {len(lacking)} samples are not whole: {shorten(lacking)}")


def _place(parts: dict[str, tarfile.TarInfo]) -> int:
    return parts["images"].offset_data if "images" in parts else 0


def _members(shard: Path) -> Iterator[tuple[str, str, tarfile.TarInfo]]:
    """Key, ending and header of the files in a tar file up to its end, which damage would hide."""
    try:
        with inputs.open_regular(shard) as file, tarfile.open(fileobj=file, mode="r:") as tar:
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined] # else all headers are kept
                if member.size < 0:
                    raise tarfile.ReadError(f"{member.name} has {member.size} bytes")
                match = _MEMBER.fullmatch(member.name)
                if match is not None and member.isreg():
                    yield match[1], match[2].lower(), member
                elif not member.isdir():
                    yield member.name, "", member
            file.seek(tar.offset)
            if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
                raise tarfile.ReadError(f"expected a header at byte {tar.offset:,}")
    except _DAMAGE as error:
        raise CorruptFileError(
            f"{shard} is damaged, or no uncompressed tar file: {error}. Make or fetch it again."
        ) from error


def _label(shard: Path, member: tarfile.TarInfo) -> str:
    """What a .cls or .json member says; empty where it says nothing of the label."""
    where = f"{member.name} of {shard}"
    data = _bytes(shard, member.offset_data, member.size, MOST_LABEL)
    if member.name.lower().endswith(".cls"):
        try:
            return data.decode().strip()
        except UnicodeDecodeError as error:
            raise CorruptFileError(f"{where} is not UTF-8 text") from error
    label: Any = inputs.parse_json(data, where, "JSON")
    value = label.get("label", "") if isinstance(label, dict) else ""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidDataError(f"{where}: label is {value!r:.40}, expected a number or a text")
    return str(value)
