"""The place that all reach: write-once files by name, wherever fsspec can put them.

A folder, ``sftp://``, ``s3://``, ``webdav://``. Nothing in a place is trusted: names, sizes and
bytes are checked by who reads. A place that does not answer, or is full, raises
`UnreachableError`; a session then tries again.
"""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from secrets import token_hex
from threading import Thread
from typing import Any, Protocol, TypeVar

from ..errors import UnreachableError, UsageError
from ..progress import log

RENAMES: dict[str, Callable[[Any], Callable[[str, str], object]]] = {  # elsewhere objects are whole
    "file": lambda fs: os.replace,
    "sftp": lambda fs: fs.mv,
    "webdav": lambda fs: partial(fs.client.move, overwrite=True),
}
SILENT, SLOWEST = 20.0, 1 << 14  # seconds; bytes a second: a place that needs longer is away
PATIENT = 5.0  # seconds after which it is said, once, that a place is waited for
FOLDER = re.compile(r"(?!.*::)(?!(file|sftp|ssh|s3|webdav|dav|https?):).+")
ADDRESS = re.compile(  # fsspec would go on behind a '::', to any server
    r"(?!.*::)(file:///+[^/].*|(sftp|ssh)://[^/\s]+/+[^/].*|"
    r"(?!(file|sftp|ssh|https?):)[\w+.-]+://[^/\s]+(/.*)?)"
)

LIBRARIES = ("asyncio", "botocore", "httpx", "paramiko", "s3fs")  # what they log is in the error

T = TypeVar("T")


class Carrier(Protocol):
    """What a session needs of a place; see `Place`."""

    url: str

    def read(self, name: str, most: int) -> bytes | None: ...
    def size(self, name: str) -> int | None: ...
    def write(self, name: str, data: bytes) -> None: ...


class Place:
    """Files by name below a URL. Every failure is an `UnreachableError` that names the URL, within
    the time that so many bytes may take; the next call connects anew."""

    def __init__(self, url: str) -> None:
        self.url = re.sub(r"(//[^/@]*:)[^/@]*@", r"\1…@", url)  # as it is shown
        self._url = url
        self._fs: tuple[Any, str] | None = None
        self._slow = False
        self.up, self.down = Counter[int](), Counter[int]()  # bytes of each round
        check_address(url, self.url)

    def size(self, name: str) -> int | None:
        """Bytes of a regular file; None where it is not there."""
        return self._reach(0, lambda fs, root: _size(_info(fs, f"{root}/{name}")))

    def read(self, name: str, most: int) -> bytes | None:
        """A whole file; None where nothing is there, b"" where it is no regular file, cannot be
        read, or has more than ``most`` bytes."""

        def read(fs: Any, root: str) -> bytes | None:
            if (found := _info(fs, path := f"{root}/{name}")) is None:
                return None
            size = _size(found)
            if not size or size > most:
                return b""
            try:
                data: bytes = fs.cat_file(path, start=0, end=size)
            except (FileNotFoundError, PermissionError):  # this file alone
                return b""
            return data if len(data) == size else b""

        found = self._reach(most, read)
        self.down[round_of(name)] += len(found or b"")
        return found

    def write(self, name: str, data: bytes) -> None:
        """Put a file there, whole or not at all, over what was there."""

        def write(fs: Any, root: str) -> None:
            kind = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
            path = draft = f"{root}/{name}"
            if kind in RENAMES:
                draft = f"{path}.{token_hex(4)}.partial"  # nobody can put a link in its way
                fs.makedirs(root, exist_ok=True)
            try:
                fs.pipe_file(draft, data)
                if draft != path:
                    RENAMES[kind](fs)(draft, path)
            except BaseException:
                if draft != path:
                    with suppress(Exception):
                        fs.rm_file(draft)
                raise

        self._reach(len(data), write)
        self.up[round_of(name)] += len(data)

    def _reach(self, size: int, work: Callable[[Any, str], T]) -> T:
        """What ``work`` makes of the file system and the path in it, in a thread that may hang."""

        def reach() -> T:
            fs, root = self._fs or _opened(self._url, self.url)
            self._fs = None  # after a failure a new one
            made = work(fs, root)
            self._fs = fs, root
            return made

        seconds = SILENT + size / SLOWEST
        result = _started(reach)
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
            text = f"{type(error).__name__}: {error}".splitlines()[0].replace(self._url, self.url)
            raise UnreachableError(
                f"{self.url} cannot be reached: {text}. Check the address and the login"
            ) from None


def round_of(name: str) -> int:
    """The round that a message belongs to; 0 is the roll-call."""
    number, kind, *_ = *name.split("-"), ""
    if not number.isdecimal() or kind == "key":
        return 0
    return int(number) - (kind == "head")


def _started(work: Callable[[], T]) -> Future[T]:
    """What ``work`` will return or raise, in a thread that nobody has to wait for."""
    result = Future[T]()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    Thread(target=run, daemon=True).start()
    return result


def check_address(url: str, shown: str, why: object = "") -> None:
    """`UsageError` for what can be no place, whatever fsspec makes of it."""
    if why or not (ADDRESS if "://" in url else FOLDER).fullmatch(url):
        raise UsageError(
            f"Not the address of a place: {shown!r}{why and f' ({why})'}. Expected a folder, "
            "sftp://HOST/PATH, s3://BUCKET/PATH or webdav://PATH (docs/sessions.md)"
        )


def _opened(url: str, shown: str) -> tuple[Any, str]:
    """A new connection; nobody else's, since one that broke would be handed out again."""
    from fsspec.config import conf
    from fsspec.core import url_to_fs

    for name in LIBRARIES:
        logging.getLogger(name).addHandler(logging.NullHandler())
    options: dict[str, Any] = {}
    if url.startswith(("s3://", "s3a://")):  # a session's next look is the next try
        config = conf.get("s3", {}).get("config_kwargs", {})
        options = {"config_kwargs": {"retries": {"max_attempts": 1}, **config}}
    if url.startswith(("webdav://", "dav://")):
        options = {"timeout": SILENT, "event_hooks": {"response": [_stay]}}
    try:
        fs, root = url_to_fs(url, skip_instance_cache=True, **options)
    except ImportError as error:
        raise UsageError(f"{shown}: {error}. Install it: pip install 'afltool[session]'") from None
    except (TypeError, ValueError) as error:
        unset = "base_url" in str(error)
        check_address(url, shown, "FSSPEC_WEBDAV_BASE_URL is not set" if unset else error)
        raise
    return fs, root.rstrip("/")


def _stay(response: Any) -> None:
    """Refuse to be sent to another server, which would get the login, too."""
    to = response.url.join(response.headers.get("location", ""))
    here = response.url
    if response.is_redirect and (to.scheme, to.netloc) != (here.scheme, here.netloc):
        raise OSError(f"it leads to another server, {to.host}")


def _info(fs: Any, path: str) -> Any:
    """What fsspec says of a file; None where nothing is there."""
    fs.invalidate_cache()
    try:
        return fs.info(path)
    except FileNotFoundError as error:
        if "bucket" in str(error):
            raise
        return None


def _size(found: Any) -> int | None:
    """Bytes of a regular file; None of anything else."""
    if found is None or found["type"] != "file" or found.get("islink"):
        return None
    return int(found["size"] or 0)
