"""Where JSON and TOML are written, and where text from outside is made fit to be printed.

Names of clients, classes and backbones, digests, phases and paths come from files that others
wrote. An escape sequence in them would change the terminal, a newline would forge a second message,
a right-to-left mark would turn a line round, and half a character cannot be encoded.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from ..errors import NumericalError, UsageError

COLUMNS = "columns"  # where a feature space has the names of its features
IS = " = "  # between the column of a category and its value, in the name of a feature
CLASSES = "classes"  # and a header those of its classes
#: How files become pixels in every feature space, which has no entry for it.
PIXELS = "EXIF orientation and transparency are ignored, as in torchvision"
SHOWN = 5  # names that a message lists


def json_text(value: Any, **style: Any) -> str:
    """``value`` as JSON; ``style`` is that of `json.dumps`.

    Raises:
        NumericalError: a number in it is NaN or infinite, which no other reader takes.

    >>> json_text({"a": [1, 2.5]})
    '{"a": [1, 2.5]}'
    """
    try:
        return json.dumps(value, allow_nan=False, **style)
    except ValueError as error:
        raise NumericalError(
            f"{error}: a result that is not a finite number is not written; look at the features "
            "(are they very large, or all 0?)"
        ) from None


def comma_list(values: Iterable[str]) -> str:
    """Texts as a line of CSV.

    >>> comma_list(["a", "b, c"])
    'a,"b, c"'
    """
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(values)
    return line.getvalue()


def toml_line(name: str, value: Any) -> str:
    """``name = value`` as TOML, the name as the command line has it."""
    import tomli_w  # 20 ms, for a run alone

    plain = [str(one) for one in value] if isinstance(value, tuple) else value
    plain = str(plain) if isinstance(plain, PurePath) else plain
    line = tomli_w.dumps({name.replace("_", "-"): plain}).rstrip("\n")
    try:
        line.encode()
    except UnicodeEncodeError:  # bytes of a name that are not UTF-8
        raise UsageError(
            f"a TOML file cannot name {shown(value)}: expected UTF-8; choose another name or folder"
        ) from None
    return line


def difference(a: Any, b: Any, of_a: str, of_b: str, path: str = "") -> str:
    """The first field in which two JSON values differ, with both values; '' if they are equal.

    ``of_a``, ``of_b``: words that say where the values stand. Digests are looked at last, names of
    columns first. Of lists of names it says which ones are in one of them only.

    >>> difference({"space": {"dim": 3}}, {"space": {"dim": 4}}, "in a.h5", "in b.h5")
    'space.dim is 4 in b.h5, 3 in a.h5'
    """
    if a == b:  # nearly always so
        return ""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys(), key=telling_first):
            inner = f"{path}.{key}" if path else key
            if where := difference(a.get(key), b.get(key), of_a, of_b, inner):
                return where
        return ""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        only = [*_only(b, a, of_b), *_only(a, b, of_a)]
        if len(a) != len(b) or (only and path.endswith((COLUMNS, CLASSES))):
            lengths = f"{path} has {len(b)} entries {of_b}, {len(a)} {of_a}"
            return ": ".join([lengths, *filter(None, ["; ".join(only)])])
        how = " (the same in another order)" if path.endswith(CLASSES) else ""
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if where := difference(x, y, of_a, of_b, f"{path}[{i}]"):
                return where + how
        return ""
    if isinstance(a, str) and isinstance(b, str) and a[:2] == b[:2] == "[{":
        with suppress(ValueError, RecursionError):  # options of heads in a head are JSON
            if where := difference(json.loads(a), json.loads(b), of_a, of_b, path):
                return where
    return f"{path} is {b!r} {of_b}, {a!r} {of_a}"


def telling_first(key: str) -> tuple[bool, bool, str]:
    """A digest says that something differs, the fields beside it say what; names say it best."""
    return "digest" in key or "sha256" in key, key != COLUMNS, key


def _only(here: Sequence[Any], there: Sequence[Any], of_here: str) -> Iterator[str]:
    """Which texts are in one list and not in the other, as far as there are any."""
    if all(isinstance(one, str) for one in (*here, *there)):
        more = sorted(set(here) - set(there))
        if more:
            rest = f" and {len(more) - SHOWN} more" * (len(more) > SHOWN)
            yield f"{', '.join(map(repr, more[:SHOWN]))}{rest} only {of_here}"


def shown(text: object) -> str:
    r"""``str(text)`` on one line: what cannot be printed is written as Python writes it.

    >>> shown("a\x1b[31m\nerror: b")
    'a\\x1b[31m\\nerror: b'
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in str(text))


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8, as Python keeps it in a text
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def in_markdown(text: object) -> str:
    r"""`shown` as Markdown that says it and does nothing else: no tag, no cell, no link.

    >>> in_markdown("a|b <script>\n")
    'a\\|b \\<script\\>\\\\n'
    """
    return re.sub(r"([\\`*\[\]<>|&~])", r"\\\1", shown(text))


def shown_lines(text: str) -> str:
    """The same for a text of several lines that afltool itself has laid out, such as a script."""
    return "\n".join(shown(line) for line in text.split("\n"))


def shown_json(value: Any, indent: int | None = 2, ascii_only: bool = False) -> str:
    """``value`` as JSON for a terminal or a program; what cannot be printed is a JSON escape."""
    text = json_text(value, indent=indent, ensure_ascii=ascii_only)
    return "".join(c if c.isprintable() or c == "\n" else json_text(c)[1:-1] for c in text)


def byte_text(size: float) -> str:
    """A number of bytes for a person.

    >>> byte_text(512), byte_text(21_400), byte_text(4_280_000), byte_text(2.5e9)
    ('512 bytes', '21.4 kB', '4.28 MB', '2.50 GB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            digits = 0 if size >= 100 * unit else 1 if size >= 10 * unit else 2
            return f"{size / unit:.{digits}f} {name}"
    return f"{size:.0f} bytes"
