"""Files of a place as records of Flower, and the command that works on them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from secrets import token_hex

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

#: The names that a place of a session has (docs/sessions.md, "What lies there").
NAMES = re.compile(r"session\.json|letters/[\w.~%+@=-]+\.json|files/[0-9a-f]{64}")
#: What stands for a file's contents in a listing: files/ have their digest as their name.
Listing = dict[str, str]


def listing(place: Path) -> Listing:
    """What lies in a place: name → SHA-256 of a letter, size of a file."""
    paths = [place / "session.json", *place.glob("letters/*.json"), *place.glob("files/*")]
    found = {path.relative_to(place).as_posix(): path for path in paths if path.is_file()}
    return {name: _mark(name, path) for name, path in found.items() if NAMES.fullmatch(name)}


def _mark(name: str, path: Path) -> str:
    if name.startswith("files/"):
        return str(path.stat().st_size)
    return sha256(path.read_bytes()).hexdigest()


def of_sender(place: Path, sender: str) -> Listing:
    """What a member needs: the session, the letters of one sender, and the files they name."""
    wanted = {"session.json"}
    for path in place.glob("letters/*.json"):
        body = json.loads(path.read_text())["body"]
        if body["sender"] == sender:
            wanted |= {f"letters/{path.name}", *(f"files/{one['sha256']}" for one in body["files"])}
    return {name: mark for name, mark in listing(place).items() if name in wanted}


def packed(place: Path, names: Iterable[str]) -> RecordDict:
    """Files as arrays of bytes, which Flower sends in pieces, beside the listing of the place.

    Bytes in a ConfigRecord would have to fit into one message.
    """
    files = {name: Array(np.fromfile(place / name, np.uint8)) for name in sorted(names)}
    have = [f"{mark} {name}" for name, mark in sorted(listing(place).items())]
    return RecordDict({"files": ArrayRecord(files), "place": ConfigRecord({"have": have})})


def unpacked(content: RecordDict, place: Path) -> int:
    """Write the files of a message into a place, each whole or not at all; their bytes."""
    files = content.array_records["files"]
    for name in files:
        if not NAMES.fullmatch(name):
            raise ValueError(f"a message has the file {name!r}: no file of a session")
    return sum(_written(place / name, array.numpy()) for name, array in files.items())


def _written(path: Path, data: np.ndarray) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{token_hex(4)}.partial")
    data.tofile(draft)
    os.replace(draft, path)
    return data.nbytes


def has(content: RecordDict) -> Listing:
    """The listing that came with a message."""
    lines = content.config_records["place"]["have"]
    assert isinstance(lines, list)
    return {name: mark for mark, _, name in (str(line).partition(" ") for line in lines)}


def lacks(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """The names that are here, and not there, or with other contents."""
    return [name for name, mark in here.items() if there.get(name) != mark]


def session(afltool: str, verb: str, place: Path, words: Mapping[str, object]) -> tuple[int, str]:
    """One turn of `afltool session serve` or `join`; its exit code, and what it said."""
    asked = [word for name, value in words.items() if value for word in (f"--{name}", str(value))]
    command = [afltool, "session", verb, str(place), "--once", *asked]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr.strip()
