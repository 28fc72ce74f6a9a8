"""The place that all reach: write-once files by name, wherever fsspec can put them."""

from __future__ import annotations

from secrets import token_hex
from typing import Any

from ..errors import UnreachableError

RENAMES = {"file", "local", "sftp", "ssh"}


class Place:
    """Nothing here is trusted: names, sizes and bytes are checked by who reads."""

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        self.url = url
        self._fs, root = url_to_fs(url, skip_instance_cache=True)
        self._root = root.rstrip("/")

    def read(self, name: str, most: int, start: bool = False) -> bytes | None:
        """The bytes of a file; None where it is not there, or has more than it may have (of which
        only the ``start`` may be wanted)."""
        data: bytes | None = self._try(self._read, name, most + 1)
        too_much = data is not None and len(data) > most and not start
        return None if data is None or too_much else data[:most]

    def write(self, name: str, data: bytes) -> None:
        self._try(self._write, name, data)

    def _read(self, name: str, most: int) -> bytes | None:
        try:
            with self._fs.open(f"{self._root}/{name}", "rb", cache_type="none") as file:
                data: bytes = file.read(most)
                return data
        except FileNotFoundError:
            return None

    def _write(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        protocol = self._fs.protocol
        if not RENAMES.intersection((protocol,) if isinstance(protocol, str) else protocol):
            self._fs.pipe_file(path, data)  # objects appear whole
            return
        self._fs.makedirs(self._root, exist_ok=True)
        self._fs.pipe_file(draft := f"{path}.{token_hex(4)}.partial", data)
        self._fs.mv(draft, path)

    def _try(self, what: Any, *args: Any) -> Any:
        try:
            return what(*args)
        except Exception as error:  # each backend has errors of its own
            raise UnreachableError(f"{self.url}: {type(error).__name__}: {error}") from error
