"""Signed letters, and the files that they name by digest: what is in a place is checked by these.

A letter is a small message: session, round, what it is, who sends it, and the SHA-256 of each file
that goes with it. Files lie in the place under their SHA-256. So a place that truncates, swaps,
repeats or reorders files is noticed, and a file that is there is never sent again. A head travels
as its header and its arrays: only those that are not there yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AflError, CorruptFileError, MismatchError
from ..files.arrays import damage_as_error
from ..files.atomic import replacing
from ..files.hdf5 import read_file, write_file
from ..files.heads import load_head
from ..files.schema import whole
from ..inputs import parsed_json
from ..privacy import messages as msg
from ..privacy.identity import Identity, Member
from ..progress import log
from ..values.arrays import Array, canonical_json, file_sha256
from ..values.names import file_stem
from .depot import Depot, bounded

LARGEST = 4 << 20  # bytes of a letter
HEADER = "header"  # of a head, beside its arrays
FILE = {
    "name": msg.name,
    "sha256": msg.SHA256,
    "bytes": whole,
    "dtype": str,  # of an array of a head, with its shape; of a whole file ''
    "shape": [whole],
}
PATTERN = {
    "session": msg.SHA256,
    "round": whole,
    "what": str,
    "sender": msg.name,
    "about": str,
    "time": whole,
    "text": str,
    "files": [FILE],
}


@dataclass(frozen=True)
class Parcel:
    """A file of a letter: its entry there, and its bytes or the file that has them."""

    entry: Mapping[str, Any]
    data: Path | bytes

    @classmethod
    def of_file(cls, path: Path) -> Parcel:
        size = path.stat().st_size
        about = {"name": path.name, "sha256": file_sha256(path), "bytes": size}
        return cls({**about, "dtype": "", "shape": []}, path)

    @classmethod
    def of_array(cls, name: str, array: Array) -> Parcel:
        about = {"name": name, "sha256": _sha(array), "bytes": array.nbytes}
        shape = {"dtype": array.dtype.str, "shape": list(array.shape)}
        return cls({**about, **shape}, array.tobytes())


def head_parcels(path: Path) -> list[Parcel]:
    """What a head file is sent as; its arrays are in memory meanwhile."""
    header, arrays = read_file(path, "head")
    del header["kind"]
    text = np.frombuffer(canonical_json(header).encode(), np.uint8)
    return [Parcel.of_array(name, one) for name, one in ((HEADER, text), *sorted(arrays.items()))]


def _sha(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


class Letters:
    """The letters of one session, as one of its people or a reader (``me`` is None) sees them.

    ``folder`` keeps what was sent and what was accepted: neither ever changes.
    """

    def __init__(
        self,
        depot: Depot,
        session: str,
        people: Mapping[str, Member],
        folder: Path,
        me: Identity | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.depot, self.session, self.people = depot, session, people
        self.folder, self.me, self.now = folder / "letters", me, now
        self._said: set[str] = set()

    # ------------------------------------------------------------ sending

    def post(
        self,
        what: str,
        number: int,
        parcels: Callable[[], list[Parcel]] = list,
        text: str = "",
        about: str = "",
    ) -> msg.Message:
        """Send a letter with its files, as far as they are not there; it is written only once.

        ``parcels``: asked for only where something has to be sent.
        """
        assert self.me is not None
        path = self.folder / _name(what, number, self.me.name, about)
        if not path.exists():
            body = {
                "kind": "letter", "session": self.session, "round": number, "what": what,
                "sender": self.me.name, "about": about, "time": int(self.now()), "text": text,
                "files": [dict(one.entry) for one in parcels()],
            }  # fmt: skip
            msg.write(path, self.me.sign(body))
        letter = msg.read(path, "letter", PATTERN)
        absent = [f for f in letter.body["files"] if self.depot.size(_blob(f)) != f["bytes"]]
        have = {one.entry["sha256"]: one for one in parcels()} if absent else {}
        for file in absent:
            if file["sha256"] not in have:
                raise MismatchError(
                    f"{file['name']} is not the file that {path} was signed for: put that one "
                    "back; a letter that was sent is never changed"
                )
            self.depot.send(have[file["sha256"]].data, _blob(file))
        data = path.read_bytes()
        if self.depot.read(f"letters/{path.name}", LARGEST) != data:
            self.depot.send(path, f"letters/{path.name}")
        return letter

    # ------------------------------------------------------------ receiving

    def find(self, what: str, number: int, sender: str) -> msg.Message | None:
        """The letter of somebody, if it has come and is whole; the first one counts."""
        kept = self.folder / _name(what, number, sender)
        if kept.exists():
            return msg.read(kept, "letter", PATTERN)
        return self.arrived(what, number, sender)

    def arrived(self, what: str, number: int, sender: str, about: str = "") -> msg.Message | None:
        """The letter that lies in the place now, whatever was accepted before."""
        name = _name(what, number, sender, about)
        data = self.depot.read(f"letters/{name}", LARGEST)
        if not data:
            return None
        try:
            return self._checked(
                f"{self.depot.url}: letters/{name}", data, what, number, sender, about
            )
        except AflError as error:
            self.say_once(f"{error}; it is left aside until the right one is there")
            return None

    def keep(self, letter: msg.Message) -> bool:
        """Accept a letter: another one in its place counts no more. Whether it is new."""
        b = letter.body
        path = self.folder / _name(b["what"], b["round"], b["sender"], b["about"])
        new = not path.exists()
        if new:
            msg.write(path, letter)
        return new

    def has(self, what: str, number: int, sender: str) -> bool:
        """Whether such a letter was sent or accepted."""
        return (self.folder / _name(what, number, sender)).exists()

    def _checked(
        self, where: str, data: bytes, what: str, number: int, sender: str, about: str
    ) -> msg.Message:
        letter = msg.message_of(where, parsed_json(data, where), "letter", PATTERN)
        body = self.people[sender].check(where, letter).body
        if body["session"] != self.session:
            raise MismatchError(
                f"{where} of {sender!r} is of the session {body['session'][:12]}, not of "
                f"{self.session[:12]}"
            )
        place = tuple(body[key] for key in ("what", "round", "sender", "about"))
        if place != (what, number, sender, about):
            raise MismatchError(
                f"{where} of {sender!r} lies in the place of another: it is {place}"
            )
        return letter

    def say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.warning("session: %s", text)

    def fetch(self, entry: Mapping[str, Any], path: Path, sender: str) -> bool:
        """Copy a file of a letter; False where it is not there, not whole, or damaged."""
        if path.exists() and file_sha256(path) == entry["sha256"]:
            return True
        try:
            with (
                replacing(path, None, entry["bytes"]) as place,
                os.fdopen(place, "wb", closefd=False) as copy,
            ):
                copy.writelines(self.data(entry, sender))
        except CorruptFileError as error:
            self.say_once(str(error))
            return False
        return True

    def fetch_head(
        self, entries: list[dict[str, Any]], path: Path, sender: str, earlier: Path | None
    ) -> bool:
        """Put a head file together; False where something of it has not come whole yet.

        ``earlier``: a head that is there; what it has is not fetched.
        """
        have = {} if earlier is None else read_file(earlier, "head")[1]
        known = {_sha(array): array for array in have.values()}

        def array(entry: Mapping[str, Any]) -> Array:
            if entry["sha256"] in known:
                return known[entry["sha256"]]
            data = b"".join(self.data(entry, sender))
            return np.frombuffer(data, entry["dtype"]).reshape(entry["shape"])

        try:
            with damage_as_error(path):
                by_name = {one["name"]: array(one) for one in entries}
                header = json.loads(by_name.pop(HEADER).tobytes())
        except CorruptFileError as error:
            self.say_once(str(error))
            return False
        write_file(path, "head", header, by_name)
        load_head(path)
        return True

    def data(self, entry: Mapping[str, Any], sender: str) -> Iterator[bytes]:
        """The bytes of a file of a letter; `CorruptFileError` at the end unless they are those.

        A file of the right size with other bytes is taken away: its sender sends it again.
        """
        where = f"{self.depot.url}: the file {entry['name']} of {sender!r}"
        size = self.depot.size(_blob(entry))
        if size != entry["bytes"]:
            state = "is not there" if size is None else f"has {size} of {entry['bytes']} bytes"
            raise CorruptFileError(f"{where} {state}; waiting until {sender!r} has sent it again")
        sha = hashlib.sha256()
        for data in bounded(self.depot.chunks(_blob(entry)), entry["bytes"]):
            sha.update(data)
            yield data
        if sha.hexdigest() != entry["sha256"]:
            self.depot.remove(_blob(entry))
            raise CorruptFileError(
                f"{where} was altered on its way: its SHA-256 is {sha.hexdigest()[:12]}…, expected "
                f"{entry['sha256'][:12]}…; it is removed, so that {sender!r} sends it again"
            )


def _blob(entry: Mapping[str, Any]) -> str:
    return f"files/{entry['sha256']}"


def _name(what: str, number: int, sender: str, about: str = "") -> str:
    """The file name of a letter: its place says all but what it holds."""
    whom = f"-{file_stem(about)}" if about else ""
    return f"{number:03d}-{what}-{file_stem(sender)}{whom}.json"
