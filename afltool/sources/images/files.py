"""Raw data files: found, downloaded by torchvision's own tools, checked before they are read."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ... import inputs
from ...errors import CorruptFileError, InputError, UsageError

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


def read_checksums(path: Path) -> dict[str, str]:
    """``{name: MD5}`` from lines as ``md5sum`` prints them.

    Raises `InputError`: the file cannot be read, or a line is something else.
    """
    sums = {}
    for number, line in enumerate(inputs.read_text(path, "the checksums").splitlines(), start=1):
        match = re.fullmatch(r"([0-9a-fA-F]{32}) [ *](.+)", line)
        if match:
            sums[match[2]] = match[1].lower()
        elif line.strip():
            raise InputError(
                f"line {number} of {path}: expected an MD5, two spaces and a file name, as md5sum "
                f"prints them; found {line[:60]!r}."
            )
    return sums


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

    def check(self, expected: str, origin: str) -> None:
        """Refuse the file unless its MD5 is ``expected``, which ``origin`` states."""
        digest = hashlib.md5(self.data, usedforsecurity=False).hexdigest()
        if digest != expected:
            raise CorruptFileError(
                f"{self.path}: expected the MD5 {expected} ({origin}), found {digest} "
                f"({len(self.data):,} bytes). Delete the file and fetch it again; if the data are "
                "meant to be others, state their MD5s with --checksums FILE."
            )

    def check_stated(self, checksums: Mapping[str, str]) -> None:
        """`check` against the caller's MD5: that of the longest name that ends the path."""
        parts = self.path.parts
        stated = {name.removeprefix("./"): md5 for name, md5 in checksums.items()}
        names = ("/".join(parts[-n:]) for n in range(len(parts), 0, -1))
        name = next((name for name in names if name in stated), None)
        if name is None:
            raise UsageError(
                f"the given checksums have no line for {self.path.name}; they name "
                f"{len(checksums)} file(s). Write them with md5sum in {self.path.parent}."
            )
        self.check(stated[name], "stated by --checksums")


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
