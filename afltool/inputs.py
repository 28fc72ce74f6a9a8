"""The one place where a file from outside is opened: a regular file, and read up to a limit."""

from __future__ import annotations

import json
import os
import stat
import sys
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import IO, Any
from unicodedata import normalize

from .errors import CorruptFileError, InputError, UsageError
from .renamed import instead_of

HDF5 = b"\x89HDF\r\n\x1a\n"  # the first bytes of such a file
MOST_TEXT = 64 << 20  # bytes of a text: a class list, labels, checksums, JSON, TOML
MOST_LINES = 1_000_000  # paths on stdin
AROUND = " \t\r\n"  # what is no part of a name that has a line of its own
LONGEST_LINE = 1 << 16  # characters of such a path
TIMEOUT = 20  # seconds without an answer after which a download counts as failed
KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


def check_given_path(text: str | Path) -> Path:
    """A path that somebody gave; `UsageError`: it is empty or holds a NUL byte."""
    if not str(text) or "\0" in str(text):
        raise UsageError(f"expected a path, not empty and without NUL bytes; found {str(text)!r}")
    return Path(text)


def spell_as_on_disk(base: str | Path, path: str) -> str:
    """``path`` below ``base`` as the disk spells it, where its accents are composed otherwise."""
    if os.path.lexists(os.path.join(base, path)):
        return path
    found = "/" if path.startswith("/") else ""
    for part in path.strip("/").split("/"):
        forms = (part, normalize("NFC", part), normalize("NFD", part))
        places = (os.path.join(found, form) for form in forms)
        found = next((p for p in places if os.path.lexists(os.path.join(base, p))), "")
        if not found:
            return path
    return found


def open_regular(path: str | Path) -> IO[bytes]:
    """A regular file, open for reading. Raises `InputError`: something else; `OSError`: missing."""
    # Opening a pipe that nobody writes into would take for ever.
    opener = lambda name, flags: os.open(name, flags | os.O_NONBLOCK)  # noqa: E731
    file = open(check_given_path(path), "rb", opener=opener)  # noqa: SIM115 - the caller's
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise InputError(f"{path}: expected a regular file, found {describe_kind(mode)}")
    return file


def is_hdf5(path: str | Path) -> bool:
    """Whether a regular file begins as HDF5 files do."""
    with open_regular(path) as file:
        return file.read(len(HDF5)) == HDF5


def describe_kind(mode: int) -> str:
    """What is there instead of a regular file, in words."""
    return KINDS.get(stat.S_IFMT(mode), "a device")


def read_bytes(path: str | Path, most: int) -> bytes:
    """All bytes of a regular file; `InputError` where it has more than ``most``, or grows."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size + 1) if size <= most else b""
    if size > most or len(data) > size:
        raise InputError(
            f"{path}: expected at most {most / 1e6:,.0f} MB, found {size / 1e6:,.0f} MB"
            f"{' and more' * (len(data) > size)}; is it the right file?"
        )
    return data


def read_text(path: str | Path, what: str, most: int = MOST_TEXT) -> str:
    """A small text in UTF-8; ``what`` it holds is for the message. Raises `InputError`."""
    try:
        text = read_bytes(path, most).decode("utf-8-sig")
    except OSError as error:
        why = "there is no such file" if error.errno == 2 else error.strerror or error
        raise InputError(f"cannot read {what} in {path}: {why}; check the path") from error
    except UnicodeDecodeError as error:
        raise CorruptFileError(
            f"{path}: expected {what}, which is UTF-8 text; found the byte "
            f"{error.object[error.start]:#04x} at place {error.start}; is it the right file?"
        ) from error
    return text.replace("\r\n", "\n") if "\r" in text else text  # looking is much faster


def read_json(path: str | Path, what: str, most: int = MOST_TEXT) -> Any:
    """The value in a JSON file; see `read_text` and `parse_json`."""
    return parse_json(read_text(path, what, most), path, nan_is_null=True)


def parse_json(
    text: str | bytes,
    where: str | Path,
    what: str = "valid JSON",
    nan_is_null: bool = False,
) -> Any:
    """The value of a JSON text that was found at ``where``; ``what`` it should be.

    ``nan_is_null``: earlier versions wrote NaN where a figure is not determined. Otherwise that is
    a `CorruptFileError`, as all that is not JSON, and a key that occurs twice in an object.
    """
    try:
        constant = (lambda _: None) if nan_is_null else _no_number
        return json.loads(text, object_pairs_hook=reject_repeated_keys, parse_constant=constant)
    # A number of 5,000 digits is a ValueError, a nesting of 100,000 brackets a RecursionError.
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{where} is not {what}: {error}") from None


def reject_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; `ValueError` where a key occurs twice: readers could disagree."""
    keys = dict(pairs)
    if len(keys) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice!r} occurs twice in an object")
    return keys


def _no_number(text: str) -> Any:
    raise ValueError(f"{text} is not a number that it may hold")


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """The tree of a TOML file; `UsageError` for a key that is there with dashes and underscores."""
    text = read_text(path, what)
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{path} is not valid TOML: {error}") from None
    _check_spellings(path, tree)
    return tree


def _check_spellings(path: str | Path, value: Any) -> None:
    keys: dict[str, str] = {}
    for key in value if isinstance(value, dict) else ():
        other = keys.setdefault(key.replace("-", "_"), key)
        if other != key:
            raise UsageError(f"{path} gives {other!r} and {key!r}: these are one option, twice")
    inner = value.values() if isinstance(value, dict) else value
    for one in inner if isinstance(value, (dict, list)) else ():
        _check_spellings(path, one)


def flat(path: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of all tables, with underscores; one that two tables have is refused."""
    values: dict[str, Any] = {}
    for key, value in tree.items():
        inner = flat(path, value) if isinstance(value, dict) else {key.replace("-", "_"): value}
        if twice := values.keys() & inner.keys():
            raise UsageError(f"{path} gives {min(twice)!r} more than once")
        values.update(inner)
    return values


def check_key(path: Path, key: str, names: Collection[str], what: str) -> str:
    """The option that a key means; `UsageError` where there is none."""
    name = key.replace("-", "_")
    if name not in names:
        written = name.replace("_", "-")
        raise UsageError(f"{path}: {written!r} is {instead_of(name) or f'no option of {what}'}")
    return name


def iter_lines(stream: IO[str], most: int = MOST_LINES) -> Iterator[str]:
    """The lines of a stream that may never end, stripped, without the empty ones.

    Raises `InputError`: there are too many, or one is too long for a path.
    """
    for number in range(most + 1):
        line = stream.readline(LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > LONGEST_LINE:
            raise InputError(f"line {number + 1} of stdin: expected a path, found {line[:60]!r}…")
        if path := line.strip(AROUND):
            yield path
    raise InputError(f"stdin: expected at most {most:,} lines, one path per line; found more")


@contextmanager
def downloading(what: str, advice: str) -> Iterator[None]:
    """Run a download that stops after `TIMEOUT` without an answer, and says nothing on stdout.

    Raises `InputError` for any failure, with the ``advice``.
    """
    import socket

    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(TIMEOUT)
    try:
        with redirect_stdout(sys.stderr):  # torchvision reports there, which is for results only
            yield
    # Network, disk and the checks of the libraries fail with unrelated classes.
    except Exception as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
        raise InputError(
            f"{what} could not be downloaded ({reason or type(error).__name__}). {advice}"
        ) from error
    finally:
        socket.setdefaulttimeout(before)
