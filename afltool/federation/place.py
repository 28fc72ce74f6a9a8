"""The place that all reach: write-once files by name, wherever fsspec can put them.

Nothing in it is trusted. One that does not answer, or is full, raises `UnreachableError`.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from secrets import token_hex
from threading import Thread
from typing import Any, TypeVar

from ..errors import UnreachableError, UsageError
from ..plugins import install
from ..progress import log

SILENT, SLOWEST = 20.0, 1 << 14  # seconds; bytes a second: a place that needs longer is away
PATIENT = 5.0  # seconds after which it is said, once, that a place is waited for
ADDRESS = re.compile(  # fsspec would go on behind a '::', to any server
    r"(?!.*::)((?!(file|sftp|ssh|s3|webdav|dav|https?):|[\w+.-]+://).+|file:///+[^/].*|"
    r"(sftp|ssh)://[^/\s]+/+[^/].*|(?!(file|sftp|ssh|https?):)[\w+.-]+://[^/\s]+(/.*)?)"
)
LIBRARIES = ("asyncio", "botocore", "httpx", "paramiko", "s3fs")  # what they log is in the error

T = TypeVar("T")


class Place:
    """Files by name below a URL. After a failure, an `UnreachableError`, a call connects anew."""

    def __init__(self, url: str) -> None:
        self.url = re.sub(r"(//[^/@:]*:)(?!\d+/).*@", r"\1…@", url)  # as it is shown
        self._url = url
        self._fs: tuple[Any, str] | None = None
        self._slow = False
        self.up = self.down = 0  # bytes
        if not ADDRESS.fullmatch(url):
            raise no_address(self.url)

    def size(self, name: str) -> int | None:
        """Bytes of a regular file, 0 of anything else; None where nothing is there."""
        return self._reach(0, _size, name)

    def read(self, name: str, most: int) -> bytes | None:
        """A whole file; None: nothing is there; b"": not regular, readable, or within ``most``."""
        found = self._reach(most, partial(_read_file, most=most), name)
        self.down += len(found or b"")
        return found

    def write(self, name: str, data: bytes) -> None:
        """Put a file there, whole or not at all, over what was there."""
        self._reach(len(data), partial(_write, data=data), name)
        self.up += len(data)

    def _reach(self, size: int, work: Callable[[Any, str], T], name: str) -> T:
        """What ``work`` makes of the file system and a path in it, in a thread that may hang."""
        result, seconds = Future[T](), SILENT + size / SLOWEST

        def reach() -> None:
            try:
                fs, root = self._fs or _open_connection(self._url, self.url)
                self._fs = None  # after a failure a new one
                found = work(fs, f"{root}/{name}")
                self._fs = fs, root
                result.set_result(found)
            except BaseException as error:
                result.set_exception(error)

        Thread(target=reach, daemon=True).start()
        try:
            if not self._slow and not wait([result], min(PATIENT, seconds)).done:
                self._slow = True
                log.info("session: waiting for %s to answer", self.url)
            return result.result(seconds)
        except UsageError:
            raise
        except TimeoutError:
            raise UnreachableError(f"{self.url} has not answered within {seconds:.0f} s") from None
        except Exception as error:  # each library below has errors of its own
            text = f"{type(error).__name__}: {error}".replace(self._url, self.url).splitlines()[0]
            why = f"{text.rstrip('.')}. Check the address and the login"
            raise UnreachableError(f"{self.url} cannot be reached: {why}") from None


def _size(fs: Any, path: str) -> int | None:
    fs.invalidate_cache()
    try:
        found = fs.info(path)
    except FileNotFoundError as error:
        if "bucket" in str(error):
            raise
        return None
    is_file = found["type"] == "file" and not found.get("islink")
    return max(0, int(found["size"] or 0)) if is_file else 0


def _read_file(fs: Any, path: str, most: int) -> bytes | None:
    size = _size(fs, path)
    if not size or size > most:
        return None if size is None else b""
    try:
        data: bytes = fs.cat_file(path, start=0, end=size)
    except (FileNotFoundError, PermissionError):  # this file alone
        return b""
    return data if len(data) == size else b""


def _write(fs: Any, path: str, data: bytes) -> None:
    kind = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    if kind not in ("file", "sftp", "webdav"):  # elsewhere objects are whole
        fs.pipe_file(path, data)
        return
    draft = f"{path}.{token_hex(4)}.partial"  # nobody can put a link in its way
    fs.makedirs(path.rpartition("/")[0], exist_ok=True)
    try:
        fs.pipe_file(draft, data)
        if kind == "webdav":
            fs.client.move(draft, path, overwrite=True)
        else:
            (os.replace if kind == "file" else fs.mv)(draft, path)
    except BaseException:
        with suppress(Exception):
            fs.rm_file(draft)
        raise


def no_address(shown: str, why: str = "") -> UsageError:
    return UsageError(
        f"Not the address of a place: {shown!r}{why and f' ({why})'}. Expected a folder, "
        "sftp://HOST/PATH, s3://BUCKET/PATH or webdav://PATH (docs/sessions.md)"
    )


def _open_connection(url: str, shown: str) -> tuple[Any, str]:
    """A new connection; nobody else's, since one that broke would be handed out again."""
    from fsspec.core import url_to_fs

    for name in LIBRARIES:
        logging.getLogger(name).addHandler(logging.NullHandler())
    webdav = {"timeout": SILENT, "event_hooks": {"response": [_stay]}}
    options = webdav if url.startswith(("webdav://", "dav://")) else {}
    try:
        fs, root = url_to_fs(url, skip_instance_cache=True, **options)
    except ImportError as error:
        raise UsageError(f"{shown}: {error}. Install it: {install('session')}") from None
    except (TypeError, ValueError) as error:
        unset = "base_url" in str(error)
        why = str(error) if shown == url else ""  # it may have a part of a password
        raise no_address(shown, "FSSPEC_WEBDAV_BASE_URL is not set" if unset else why) from None
    return fs, root.rstrip("/")


def _stay(response: Any) -> None:
    """Refuse to be sent to another server, which would get the login, too."""
    to, here = response.url.join(response.headers.get("location", "")), response.url
    if response.is_redirect and (to.scheme, to.netloc) != (here.scheme, here.netloc):
        raise OSError(f"it leads to another server, {to.host}")
