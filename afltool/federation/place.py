"""The place that all reach: write-once files by name, wherever fsspec can put them.

A carrier is any object with these methods. Nothing of it is trusted: names, sizes and bytes are
checked by who reads.

    read(name, most) -> bytes | None    a whole file; None where it is not there, b"" where it is
                                        no regular file, or has more bytes than ``most``
    size(name) -> int | None            its bytes; cheap
    write(name, data)                   whole or not at all, over what was there

They raise `UnreachableError` where the place does not answer; a session then tries again.
"""

from __future__ import annotations

import os
import stat
from secrets import token_hex
from typing import Any, Protocol

from ..errors import UnreachableError

RENAMES = {"file", "local", "sftp", "ssh"}
ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


class Carrier(Protocol):
    """See the module."""

    url: str

    def read(self, name: str, most: int) -> bytes | None: ...
    def size(self, name: str) -> int | None: ...
    def write(self, name: str, data: bytes) -> None: ...


class Place:
    """A carrier over fsspec."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.url = url
        self._fs, root = url_to_fs(url, skip_instance_cache=True)
        self._root = root.rstrip("/")
        protocol = self._fs.protocol
        self._kinds = {protocol} if isinstance(protocol, str) else set(protocol)
        self._local = bool(self._kinds & {"file", "local"})

    def read(self, name: str, most: int) -> bytes | None:
        data: bytes | None = self._try(self._read_local if self._local else self._read, name, most)
        return data

    def size(self, name: str) -> int | None:
        found: int | None = self._try(self._size, name)
        return found

    def write(self, name: str, data: bytes) -> None:
        self._try(self._write, name, data)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _size(self, name: str) -> int | None:
        if self._local:
            status = os.lstat(self._path(name))
            return status.st_size if stat.S_ISREG(status.st_mode) else None
        self._fs.invalidate_cache(self._root)
        about = self._fs.info(self._path(name))
        return int(about["size"]) if about["type"] == "file" else None

    def _read_local(self, name: str, most: int) -> bytes | None:
        """Never through a link, and never waiting for who writes into a pipe."""
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        try:
            descriptor = os.open(self._path(name), flags | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            return None
        except OSError:  # a link, or what may not be read
            return b""
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            whole = stat.S_ISREG(status.st_mode) and status.st_size <= most
            return file.read(most) if whole else b""

    def _read(self, name: str, most: int) -> bytes | None:
        size = self._size(name)
        if size is None or size > most:
            return b""
        with self._fs.open(self._path(name), "rb", cache_type="none") as file:
            data: bytes = file.read(size)
            return data if len(data) == size else b""

    def _write(self, name: str, data: bytes) -> None:
        path = self._path(name)
        if not self._kinds & RENAMES:
            self._fs.pipe_file(path, data)  # objects appear whole
            return
        self._fs.makedirs(self._root, exist_ok=True)
        self._fs.pipe_file(draft := f"{path}.{token_hex(4)}.partial", data)
        try:
            os.replace(draft, path) if self._local else self._fs.mv(draft, path)
        except Exception:
            self._fs.rm_file(draft)
            raise

    def _try(self, what: Any, *args: Any) -> Any:
        try:
            return what(*args)
        except Exception as error:  # each backend has errors of its own
            if isinstance(error, ABSENT) and what != self._write:
                return None
            raise UnreachableError(f"{self.url}: {type(error).__name__}: {error}") from error
