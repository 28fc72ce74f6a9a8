"""Files of a place as records of Flower, and the command that works on them.

A name is written once, so what a side has under a name is never sent again. An empty file is one
that its reader has found to be rubbish: it counts as not there, and is sent again.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

#: The names that a place of a session has.
NAMES = re.compile(r"session\.json|\d{3,}-[a-z]+-[A-Za-z0-9][A-Za-z0-9._-]*")


def names_in(place: Path) -> set[str]:
    """What lies in a place."""
    files = (path for path in place.glob("*") if NAMES.fullmatch(path.name) and path.is_file())
    return {path.name for path in files if path.stat().st_size}


def packed(place: Path, names: Iterable[str], code: int = 0) -> RecordDict:
    """Files as arrays of bytes, which Flower sends in pieces, beside all names of the place.

    Bytes in a ConfigRecord would have to fit into one message.
    """
    files = {name: Array(np.fromfile(place / name, np.uint8)) for name in sorted(names)}
    about = ConfigRecord({"have": sorted(names_in(place)), "code": code})
    return RecordDict({"files": ArrayRecord(files), "place": about})


def unpacked(content: RecordDict, place: Path) -> set[str]:
    """Write the files of a message that are not there yet; returns the names its sender has."""
    files = content.array_records["files"]
    if wrong := [name for name in files if not NAMES.fullmatch(name)]:
        raise ValueError(f"a message has the file {wrong[0]!r}: no file of a session")
    place.mkdir(parents=True, exist_ok=True)
    for name in files.keys() - names_in(place):
        draft = place / f".{name}.partial"  # half a file would be there, and never sent again
        files[name].numpy().tofile(draft)
        draft.replace(place / name)
    return set(content.config_records["place"]["have"])


def session(afltool: str, verb: str, place: Path, words: Mapping[str, object]) -> tuple[int, str]:
    """One turn of `afltool session serve` or `join`; its exit code, and what it said."""
    asked = [word for name, value in words.items() if value for word in (f"--{name}", str(value))]
    command = [afltool, "session", verb, str(place), "--once", *asked]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stderr.strip()
