"""Where JSON and TOML are written, and where text from outside is made fit to be printed.

An escape sequence in a name from a stranger's file would change the terminal, a newline would forge
a second message, and half a character cannot be encoded.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

from ..errors import NumericalError, UsageError

COLUMNS = "columns"  # where a feature space has the names of its features
IS = " = "  # between the column of a category and its value, in the name of a feature
LISTED = (COLUMNS, "classes", "names")  # lists of names, which differ as wholes
#: How files become pixels in every feature space, which has no entry for it.
PIXELS = "EXIF orientation and transparency are ignored, as in torchvision"
SHOWN = 5  # names that a message lists


def json_text(value: Any, **style: Any) -> str:
    """``value`` as JSON, ``style`` as of `json.dumps`; `NumericalError` for NaN and infinity."""
    try:
        return json.dumps(value, allow_nan=False, **style)
    except ValueError as error:
        text = f"{error}: a result that is not a finite number is not written"
        raise NumericalError(f"{text}; look at the features") from None


def comma_list(values: Iterable[str]) -> str:
    """Texts as a line of CSV."""
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
        what = f"a TOML file cannot name {escape_line(value)}"
        raise UsageError(f"{what}: expected UTF-8; choose another name") from None
    return line


def differing(a: Any, b: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """The fields in which two JSON values differ, each with both values.

    Names of columns are looked at first and digests last: what stands beside one says more.
    """
    if a == b:  # nearly always so
        return
    if isinstance(a, str) and isinstance(b, str) and a[:2] == b[:2] == "[{":
        with suppress(ValueError, RecursionError):  # options of heads in a head are JSON
            a, b = json.loads(a), json.loads(b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        for key in sorted(a.keys() | b.keys(), key=_telling_first):
            yield from differing(a.get(key), b.get(key), f"{path}.{key}" if path else key)
    elif _are_lists(a, b) and len(a) == len(b) and not path.endswith(LISTED):
        for i, both in enumerate(zip(a, b, strict=True)):
            yield from differing(*both, f"{path}[{i}]")
    elif not (_are_lists(a, b) and list(a) == list(b)):
        yield path, a, b


def _are_lists(*values: Any) -> bool:
    return all(isinstance(one, (list, tuple)) for one in values)


def _telling_first(key: str) -> tuple[bool, bool, str]:
    return "digest" in key or "sha256" in key, key != COLUMNS, key


def difference(a: Any, b: Any, of_a: str, of_b: str) -> str:
    """`differing` in words; '' for equal values. Of lists of names it has those of one of them.

    ``of_a``, ``of_b``: words that say where the values stand.

    >>> difference({"space": {"dim": 3}}, {"space": {"dim": 4}}, "in a.h5", "in b.h5")
    'space.dim is 4 in b.h5, 3 in a.h5'
    """
    found = next(differing(a, b), None)
    if found is None:
        return ""
    path, x, y = found
    if not _are_lists(x, y):
        return f"{path} is {y!r} {of_b}, {x!r} {of_a}"
    text = f"{path} has {len(y)} entries {of_b}, {len(x)} {of_a}"
    if not all(isinstance(one, str) for one in (*x, *y)):
        return text
    only = [_format_list(set(y) - set(x), of_b), _format_list(set(x) - set(y), of_a)]
    return f"{text}: {'; '.join(filter(None, only)) or 'the same in another order'}"


def _format_list(names: set[str], where: str) -> str:
    rest = f" and {len(names) - SHOWN} more" * (len(names) > SHOWN)
    return f"{', '.join(map(repr, sorted(names)[:SHOWN]))}{rest} only {where}" if names else ""


def escape_line(text: object) -> str:
    r"""``str(text)`` on one line: what cannot be printed is written as Python writes it.

    >>> escape_line("a\x1b[31m\nerror: b")
    'a\\x1b[31m\\nerror: b'
    """
    return "".join(c if c.isprintable() else _escape(c) for c in str(text))


def _escape(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8, as Python keeps it in a text
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def escape_markdown(text: object) -> str:
    r"""`escape_line` as Markdown that says it and does nothing else: no tag, no cell, no link.

    >>> escape_markdown("a|b <script>\n")
    'a\\|b \\<script\\>\\\\n'
    """
    return re.sub(r"([\\`*\[\]<>|&~])", r"\\\1", escape_line(text))


def escape_json(value: Any, indent: int | None = 2, ascii_only: bool = False) -> str:
    """``value`` as JSON for a terminal or a program; what cannot be printed is a JSON escape."""
    text = json_text(value, indent=indent, ensure_ascii=ascii_only)
    return "".join(c if c.isprintable() or c == "\n" else json_text(c)[1:-1] for c in text)


def byte_text(size: float) -> str:
    """A number of bytes for a person.

    >>> byte_text(512), byte_text(21_400), byte_text(2.5e9)
    ('512 bytes', '21.4 kB', '2.50 GB')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            digits = 0 if size >= 100 * unit else 1 if size >= 10 * unit else 2
            return f"{size / unit:.{digits}f} {name}"
    return f"{size:.0f} bytes"
