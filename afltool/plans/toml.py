"""Options in TOML files: read with the keys of the command line, written so that they read back."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..values.escaping import shown
from ..values.json_text import json_text


def flat(path: Path, tree: Mapping[str, Any]) -> dict[str, Any]:
    """The keys of all tables, with underscores; one that two tables have is refused."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        inner = flat(path, value) if isinstance(value, dict) else {key.replace("-", "_"): value}
        twice = found.keys() & inner.keys()
        if twice:
            raise UsageError(f"{path} gives {min(twice)!r} more than once")
        found.update(inner)
    return found


def known_key(path: Path, key: str, names: Collection[str], what: str) -> str:
    """The option that a key means; `UsageError` names the nearest one."""
    name = key.replace("-", "_")
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, 1)
    hint = f"; did you mean {near[0].replace('_', '-')!r}?" if near else ""
    raise UsageError(f"{path}: {key!r} is no option of {what}{hint}")


def toml_line(name: str, value: Any) -> str:
    """``name = value`` as TOML, the name as the command line has it."""
    return f"{name.replace('_', '-')} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_toml, value))}]"
    text = json_text(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of a name that are not UTF-8
        raise UsageError(
            f"a TOML file cannot name {shown(value)}: expected UTF-8; choose another name or folder"
        ) from None
    return text
