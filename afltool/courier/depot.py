"""The place that all sites of a session reach: a folder, SFTP, S3, WebDAV, whatever fsspec opens.

It needs no trust: whoever reads checks signatures and digests (`letters`). A file there is whole or
not there where the place can rename or writes objects whole; elsewhere its digest tells.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..errors import UnreachableError, UsageError
from ..files.schema import PARTIAL

CHUNK = 1 << 22  # bytes that are in memory while a file is copied
RENAMING = {"file", "local", "sftp", "ssh"}  # places where a rename replaces a file at once
#: What the libraries behind fsspec raise that is no OSError; looked up only where they are loaded.
TROUBLES = {
    "aiohttp": "ClientError",
    "botocore.exceptions": "BotoCoreError",
    "http.client": "HTTPException",
    "httpx": "HTTPError",
    "paramiko": "SSHException",
    "webdav4.client": "ClientError",
}


class Depot:
    """Files by name below one URL; every failure is an `UnreachableError` that names the URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs: Any = None

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a small file; b'' where it is not there, or is larger than it may be."""
        there = (self.size(name) or most + 1) <= most
        data = b"".join(bounded(self.chunks(name), most)) if there else b""
        return data if len(data) <= most else b""

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a file, some at a time; the caller checks them."""
        with self.reached() as (fs, root), fs.open(f"{root}/{name}", "rb") as file:
            while data := file.read(CHUNK):
                yield data

    def size(self, name: str) -> int | None:
        """Bytes of a file; None where it is not there."""
        with self.reached() as (fs, root), suppress(FileNotFoundError):
            fs.invalidate_cache()
            return int(fs.info(f"{root}/{name}")["size"])
        return None

    def send(self, data: Path | bytes, name: str) -> None:
        """Copy a file, or bytes, to the place, under its name only when it is whole."""
        with self.reached() as (fs, root):
            place = draft = f"{root}/{name}"
            if RENAMING.intersection(
                (fs.protocol,) if isinstance(fs.protocol, str) else fs.protocol
            ):
                draft = f"{place}.{token_hex(4)}{PARTIAL}"  # nobody can put a link in its place
                fs.makedirs(place.rpartition("/")[0], exist_ok=True)
            fs.pipe_file(draft, data) if isinstance(data, bytes) else fs.put_file(str(data), draft)
            if draft != place:
                fs.mv(draft, place)

    def remove(self, name: str) -> None:
        """Take a damaged file away, so that its sender sends it again."""
        with self.reached() as (fs, root), suppress(FileNotFoundError):
            fs.rm_file(f"{root}/{name}")

    @contextmanager
    def reached(self) -> Iterator[tuple[Any, str]]:
        """The file system and the path in it; after a failure the connection is made anew."""
        try:
            if self._fs is None:
                self._fs, self._root = self._open()
            yield self._fs, self._root
        except _troubles() as error:
            self._fs = None
            raise UnreachableError(
                f"{self.url} cannot be reached: {type(error).__name__}: {error}; look at the "
                "address, the connection and what fsspec needs to log in (docs/sessions.md)"
            ) from None

    def _open(self) -> tuple[Any, str]:
        return _opened(self.url)


def bounded(chunks: Iterable[bytes], most: int) -> Iterator[bytes]:
    """The chunks until they have more than ``most`` bytes: a place may give more than it lists."""
    for data in chunks:
        yield data
        most -= len(data)
        if most < 0:
            return


def _opened(url: str) -> tuple[Any, str]:
    """A new connection; nobody else's, since one that broke would be handed out again."""
    try:
        from fsspec.core import url_to_fs

        fs, root = url_to_fs(url, skip_instance_cache=True)
    except ImportError as error:
        raise UsageError(f"{url}: {error}; pip install 'afltool[session]' has it") from None
    except ValueError as error:
        raise UsageError(
            f"{url} is no place that fsspec knows: {error}; give a folder, file://, sftp://, s3:// "
            "or webdav://"
        ) from None
    return fs, root.rstrip("/")


def _troubles() -> tuple[type[BaseException], ...]:
    kinds = [
        getattr(sys.modules[name], kind) for name, kind in TROUBLES.items() if name in sys.modules
    ]
    return OSError, EOFError, *kinds
