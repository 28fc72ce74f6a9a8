"""Small signed files: JSON that a person can read, written whole and fully checked when read.

A message is ``{"afltool": 1, "body": {"kind": …}, "signature": …}``. The signature (Ed25519) and
the digest are computed from the body as canonical JSON, which has integers and texts only. So the
layout of the file does not change them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import inputs
from ..errors import CorruptFileError, UsageError
from ..files.atomic import write_text
from ..files.schema import described, mismatch, whole
from ..values.arrays import Digest, canonical_json
from ..values.text import json_text

VERSION = 1
LARGEST_MESSAGE = 64 << 20  # bytes of one message
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Message:
    """A body and its signature ('' where the kind has none)."""

    body: Body
    signature: str = ""

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the body."""
        return digest_of(self.body)

    def signed(self) -> bytes:
        """The text that is signed; no other program signs texts with this beginning.

        The digest, which is of the same text, is computed with it.
        """
        text = canonical_json(self.body)
        vars(self)["digest"] = _digest_of(text)  # the cached property: offers are long
        return b"afltool message 1\n" + text.encode()

    def as_dict(self) -> dict[str, Any]:
        return {"afltool": VERSION, "body": dict(self.body), "signature": self.signature}


def digest_of(body: Body) -> str:
    """SHA-256 of a body, 64 hex digits."""
    return _digest_of(canonical_json(body))


def _digest_of(text: str) -> str:
    return Digest().text("message", text).hex()


# ---------------------------------------------------------------- patterns of bodies


name = described(
    "a name: 1 to 200 printable characters",
    lambda v: isinstance(v, str) and 0 < len(v) <= 200 and v.isprintable(),
)


def hexadecimal(size: int, most: int | None = None) -> Any:
    """A pattern for ``size`` bytes (up to ``most``) as lower-case hexadecimal digits."""
    digits = re.compile(rf"(?:[0-9a-f]{{2}}){{{size},{size if most is None else most}}}")
    words = f"{size} bytes as {2 * size} hexadecimal digits"
    if most is not None:
        words = f"{size} to {most} bytes as hexadecimal digits"
    return described(words, lambda v: isinstance(v, str) and digits.fullmatch(v) is not None)


def real(value: Any) -> bool:
    """a real number as a text, as short as it can be without losing digits"""
    try:
        return isinstance(value, str) and real_text(float(value)) == value
    except ValueError:
        return False


def real_text(value: float) -> str:
    """A finite real number as the shortest text that gives it back: bodies hold no real numbers.

    >>> real_text(1e-05), real_text(3)
    ('1e-05', '3.0')
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} is not finite")
    return repr(float(value))


def without_reals(value: Any) -> Any:
    """A JSON value with `real_text` in place of its real numbers."""
    if isinstance(value, Mapping):
        return {key: without_reals(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [without_reals(inner) for inner in value]
    return real_text(value) if isinstance(value, float) else value


unsigned = described("empty, because nobody signs it", lambda v: isinstance(v, str) and not v)
SHA256 = hexadecimal(32)
SIGNATURE = hexadecimal(64)
SEALED = {"afltool": whole, "body": dict, "signature": (SIGNATURE, unsigned)}
UNSIGNED = ("roster", "session")  # kinds; all others are signed


def message_of(where: str, value: Any, kind: str, pattern: Mapping[str, Any]) -> Message:
    """A message from parsed JSON whose body fits ``pattern``.

    With exactly its fields, at every depth: what is not in the digest changes nothing, and two
    files of one digest say the same.
    """
    signature = unsigned if kind in UNSIGNED else SIGNATURE
    wrong = mismatch(value, SEALED, exact=True) or _wrong_kind(value, kind)
    wrong = wrong or mismatch(value["body"], {"kind": str, **pattern}, exact=True)
    wrong = wrong or mismatch(value, {**SEALED, "signature": signature})
    if wrong:
        raise CorruptFileError(f"{where} is not a whole {kind} message: {wrong}")
    return Message(value["body"], value["signature"])


def _wrong_kind(value: Any, kind: str) -> str:
    if value["afltool"] != VERSION:
        return f"its version is {value['afltool']}; this afltool reads version {VERSION}"
    named = value["body"].get("kind")
    return "" if named == kind else f"its kind is {named!r}"


# ---------------------------------------------------------------- files


def read(path: Path, kind: str, pattern: Mapping[str, Any]) -> Message:
    """The message of this kind in a file; its signature is not checked."""
    return message_of(str(path), parse(path), kind, pattern)


def parse(path: Path) -> Any:
    """JSON of a file; refused if it is too large, ambiguous (a key twice) or not JSON."""
    text = inputs.read_text(path, "a message of afltool", LARGEST_MESSAGE)
    return inputs.parsed_json(text, path, "a message of afltool", whole=True)


def describe(path: Path) -> dict[str, Any]:
    """The body of a roster, a public key or another message; {} for any other file."""
    try:
        with path.open("rb") as file:
            if file.read(1) != b"{":
                return {}
    except OSError:
        return {}
    value = parse(path)
    wrong = mismatch(value, SEALED, exact=True)
    if wrong:
        raise CorruptFileError(f"{path} is not a message of afltool: {wrong}")
    body = value["body"]
    return {"path": str(path), "digest": digest_of(body), **body}


def write(path: Path, message: Message, overwrite: bool = False) -> Path:
    """Write a message whole. An equal file that exists is kept; a different one is refused."""
    text = json_text(message.as_dict(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    return write_text(text, path, overwrite)


def files(paths: Iterable[str | Path]) -> list[Path]:
    """Message files from files and folders (their *.json)."""
    places: list[Path] = []
    for path in map(Path, paths):
        places += sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not places:
        raise UsageError("there are no messages: give files, or a folder that holds *.json")
    return places
