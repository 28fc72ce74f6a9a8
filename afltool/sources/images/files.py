"""Raw data files: found, downloaded by torchvision's own tools, checked before they are read."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Callable
from pathlib import Path

from ... import inputs
from ...errors import CorruptFileError, InputError

#: Of one raw file, packed or not; the largest of those known here has 47 MB.
MOST_BYTES = 300_000_000

#: Where Debian's package dataset-fashion-mnist puts its files.
DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")


def default_data_root() -> Path:
    """``$AFLTOOL_DATA``, else ``./afl-data``."""
    return Path(os.environ.get("AFLTOOL_DATA") or "afl-data")


def published_bytes(path: Path, md5: str) -> bytes:
    """The bytes of a file, without gzip around them, whose MD5 is the published one.

    Raises `InputError`: it cannot be read; `CorruptFileError`: other bytes.
    """
    try:
        data = inputs.read_bytes(path, MOST_BYTES)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}.") from error
    if data.startswith(b"\x1f\x8b"):
        try:
            data = zlib.decompressobj(wbits=31).decompress(data, MOST_BYTES)
        except zlib.error as error:
            raise CorruptFileError(
                f"{path} is damaged or incomplete ({error}). Delete it and fetch it again."
            ) from error
    found = hashlib.md5(data, usedforsecurity=False).hexdigest()
    if found != md5:
        raise CorruptFileError(
            f"{path}: expected the published MD5 {md5}, found {found} "
            f"({len(data):,} bytes). Delete the file and fetch it again."
        )
    return data


def md5_of_file(path: Path) -> str:
    """MD5 (hex) of a file's bytes, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def fetch(url: str, root: Path, archive: str, md5: str, what: str, unpack: bool = True) -> None:
    """Download ``archive`` into ``root`` (unless it is there), check its MD5 and unpack it."""
    from torchvision.datasets import utils

    advice = (
        f"Fetch {archive} (MD5 {md5}) on a machine with internet and put it into {root}; it is "
        "unpacked from there. Another folder is named with --data-root or $AFLTOOL_DATA."
    )
    get: Callable[..., None] = utils.download_and_extract_archive if unpack else utils.download_url
    with inputs.downloading(f"{what}, and {archive}", advice):
        get(url, str(root), filename=archive, md5=md5)
