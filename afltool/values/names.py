"""Names: of clients and classes, of phases, and of the arrays of one linear system."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Self
from unicodedata import normalize
from urllib.parse import quote

from ..errors import InvalidDataError

UPLOADED = "pairwise"  # the phase of what AFL's pairwise law adds up, which no sum does
KEY, PUBLIC = ".key", ".pub"  # a member's keys
#: What a column or an array with the ids of rows is called; the first of these that is there.
ROW_IDS = ("row_ids", "row_id", "row", "path")
LIKE_IDS = r"(?i:(.*[\W_])?ids?)|.*[a-z]I[dD]s?"  # how other columns of ids are called
WHOLE = "0|-?[1-9][0-9]*"  # a whole number as Python writes it; 01 is a name
LONGEST = 200  # characters of a file name before its ending; file systems allow 255 bytes


def check_text(what: str, text: str) -> None:
    """Refuse with `InvalidDataError` a text that is not Unicode: no header can hold it."""
    if text.encode("utf-8", "ignore").decode() != text:
        raise InvalidDataError(f"the {what} {text!r} is not Unicode text: rename it")


def compose(text: str) -> str:
    """A text with composed letters (NFC), as most systems write names; a Mac decomposes them."""
    return normalize("NFC", text)


def order_columns(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """The places of named features in the order that all sites have, and the names in that order.

    By their text in Unicode's composed form, in which numbers count by their value.

    >>> order_columns(["f10", "f9", "age"])
    ([2, 1, 0], ['age', 'f9', 'f10'])
    """

    def key(place: int) -> tuple[list[Any], str]:
        parts: list[Any] = re.split("([0-9]+)", known[place])
        parts[1::2] = [(len(digits), digits) for digits in (p.lstrip("0") for p in parts[1::2])]
        return parts, known[place]

    known = [compose(name) for name in names]
    order = sorted(range(len(known)), key=key)
    for name in known:
        check_text("column", name)
        if known.count(name) > 1:
            raise InvalidDataError(f"two columns are called {name!r}: rename one of them")
    return order, [known[place] for place in order]


def check_name(name: str) -> None:
    """Refuse with `InvalidDataError` a client name that no file can hold, or an empty one."""
    check_text("client name", name)
    if not name:
        raise InvalidDataError("a client name is empty: expected at least one character")


def check_apart(names: Iterable[str], where: str) -> None:
    """Refuse with `InvalidDataError` names that differ by capitals or composed letters alone."""
    known: dict[str, str] = {}
    for name in sorted(names):
        other = known.setdefault(compose(name).casefold(), name)
        if other != name:
            text = f"{where}: the clients {other!r} and {name!r} would have one file on this disk"
            raise InvalidDataError(f"{text}; rename one of them")


def are_numbered(names: tuple[str, ...]) -> bool:
    """Whether the clients are 0, 1, …, K−1, as simulated ones are."""
    return all(name == str(k) for k, name in enumerate(names))


def places_of_numbers(names: Sequence[str]) -> dict[int, int]:
    """The places, from 0, of names that are whole numbers.

    >>> places_of_numbers(["2", "cat", "07"])
    {2: 0, 7: 2}
    """
    return {int(name): k for k, name in enumerate(names) if re.fullmatch("-?[0-9]{1,18}", name)}


def file_of_number(k: int, clients: int) -> str:
    """The file of client ``k`` of 0 … clients−1: padded, so that files sort as numbers do."""
    return f"client-{k:0{len(str(clients - 1))}d}.h5"


def file_stem(name: str) -> str:
    """A name, percent-encoded, as the beginning of a file name; no two names have the same.

    Of a long name the beginning stays, and a digest follows behind ``+``, which no encoding has.
    """
    check_name(name)
    safe = quote(name, safe=" ")
    if len(safe) > LONGEST:
        safe = f"{safe[:100]}+{hashlib.sha256(name.encode()).hexdigest()[:40]}"
    return safe


def file_of_name(name: str) -> str:
    """The file of a client with a name, such as client-S%C3%BCd.h5; see `file_stem`."""
    return f"client-{file_stem(name)}.h5"


class Phase(str):
    """A kind, and for phases that come again their number: ``gram``, ``weights-3``.

    >>> phase = Phase.of("weights", 3)
    >>> phase, phase.kind, phase.number, Phase("class-sums").kind, Phase("gram").number
    ('weights-3', 'weights', 3, 'class-sums', None)
    """

    __slots__ = ()

    @classmethod
    def of(cls, kind: str, number: int) -> Self:
        return cls(f"{kind}-{number}")

    @property
    def kind(self) -> str:
        """What is summed up, without the number."""
        return str(self) if self.number is None else self.rpartition("-")[0]

    @property
    def number(self) -> int | None:
        """Which time this kind is summed up; None where it is summed up once."""
        _, dash, last = self.rpartition("-")
        return int(last) if dash and last.isdecimal() else None


PHASE = Phase("gram")  # the only phase of a head that is one linear system
COUNTS = Phase("counts")  # of solved heads that are evaluated
GRAM, CROSS = "gram", "cross"  # the arrays of its statistics
MEASURES = ("csr", "ifs", "dm")  # of how far classes lie apart, see `heads.scoring`
