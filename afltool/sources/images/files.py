"""Raw data files: found, downloaded by torchvision's own tools, checked before they are read."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
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


def files_below(folder: Path) -> list[Path]:
    """The files in a folder; none if there is no such folder."""
    return list(folder.iterdir()) if folder.is_dir() else []


@dataclass(frozen=True)
class RawFile:
    """A file's bytes as they lie on the disk, with the path for messages."""

    path: Path
    data: bytes

    @classmethod
    def read(cls, path: Path) -> RawFile:
        try:
            return cls(path, inputs.read_bytes(path, MOST_BYTES))
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror or error}.") from error

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def unpacked(self) -> RawFile:
        """The same file without gzip around it, if there is any."""
        if not self.data.startswith(b"\x1f\x8b"):
            return self
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(self.data)) as packed:
                data = packed.read(MOST_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise CorruptFileError(
                f"{self.path} is damaged or incomplete ({error}). Delete it and fetch it again."
            ) from error
        if len(data) > MOST_BYTES:
            raise CorruptFileError(
                f"{self.path}: expected at most {MOST_BYTES:,} bytes without gzip, found more. "
                "Delete it and fetch it again."
            )
        return RawFile(self.path, data)

    def check(self, expected: str) -> None:
        """Refuse the file unless its MD5 is ``expected``, the published one."""
        digest = hashlib.md5(self.data, usedforsecurity=False).hexdigest()
        if digest != expected:
            raise CorruptFileError(
                f"{self.path}: expected the published MD5 {expected}, found {digest} "
                f"({len(self.data):,} bytes). Delete the file and fetch it again."
            )


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
