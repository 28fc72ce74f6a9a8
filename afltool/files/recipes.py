"""Is a file done? Whether it was made by the recipe that is wanted now, or why not."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ..errors import AflError, OutputExistsError
from ..values.arrays import canonical_json
from ..values.text import differing
from .hdf5 import read_header, strict, unusable, verify
from .outputs import check_output

Recipe = Mapping[str, Any]  # see `hdf5.recipe`
FOR_PEOPLE: Recipe = {}  # of a file that is no file of ours, and written whenever it is asked for
RULE = "ridge_rule"  # what chose a ridge, in the recipe of a solved head
LONGEST = 60  # characters of a value that a reason has


@dataclass(frozen=True)
class Target:
    """A file that a job makes. ``of``: what it is of, in the words of the job's ``compute``."""

    path: Path
    recipe: Recipe
    of: Any = None


@dataclass(frozen=True)
class State:
    """The answer to "is it done?"; ``reason``: why a file is stale or damaged, on one line."""

    word: Literal["done", "missing", "stale", "damaged"]
    reason: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.word}: {self.reason}" if self.reason else self.word


def state(target: Target, every_byte: bool = False) -> State:
    """Whether a file is there and was made by its recipe: by its header, or by ``every_byte``."""
    path, wanted = target.path, target.recipe
    if not os.path.lexists(path):
        return State("missing")
    try:
        header = verify(path) if every_byte else read_header(path)
    except (AflError, OSError) as error:
        return State("damaged", str(error))
    made_by = _fill_recipe(header, wanted)
    if not (header.get("source") or {}).get("skipped"):  # nothing had to be tolerated
        made_by, wanted = strict(made_by), strict(wanted)
    then, now = (json.loads(canonical_json(one)) for one in (made_by, wanted))
    reason = change(then, now)
    return State("stale" if reason else "done", reason, header["kind"])


def change(then: Any, now: Any) -> str:
    """The first field in which two recipes differ, with both values; '' if they are equal.

    >>> change({"options": {"ridge": 1.0}}, {"options": {"ridge": 2.0}})
    'ridge 1.0 → 2.0'
    """
    found = next(differing(then, now), None)
    if found is None:
        return ""
    path, old, new = found
    if isinstance(old, list) and isinstance(new, list) and len(old) != len(new):
        return f"{path.removeprefix('options.')} {len(old)} → {len(new)} entries"
    return f"{path.removeprefix('options.')} {_short(old)} → {_short(new)}"


def _short(value: Any) -> str:
    """A value on a part of a line; of a digest its beginning."""
    if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value):
        return f"{value[:8]}…"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _fill_recipe(header: Mapping[str, Any], wanted: Recipe) -> dict[str, Any]:
    """The recipe of a file; what older versions left out of it is read from its other fields.

    They did not name the space and the classes of the features, which are those of the file itself
    (of a converted one before that), nor the clients that a head remembers (taken for equal), nor
    the rule that chose a ridge (the first version of it).
    """
    made_by = header["recipe"]
    own = header.get("context", header)
    before = header["source"]["converted_from"] if made_by["stage"] == "convert" else {}
    space = {k: before.get(k, v) for k, v in (own.get("space") or {}).items()}
    clients = wanted["inputs"].get("clients")
    known = {"space": space, "classes": own.get("classes"), "clients": clients}
    absent = {k: v for k, v in known.items() if k in wanted["inputs"] and v is not None}
    rule = str(wanted["options"].get(RULE, ""))
    options = {**({RULE: rule} if rule.endswith(" 1") else {}), **made_by["options"]}
    return {**made_by, "options": options, "inputs": {**absent, **made_by["inputs"]}}


def is_done(target: Target, overwrite: bool = False) -> State:
    """The state of a target, after it was read whole.

    Raises, unless ``overwrite``, `OutputExistsError` for a file that is stale, `CorruptFileError`
    for one that is damaged.
    """
    path = target.path
    if overwrite or not os.path.lexists(path) or path.is_dir():
        check_output(path)
    if target.recipe == FOR_PEOPLE:
        return State("missing")  # its writer refuses one that is there
    found = state(target, not overwrite)
    if found.word == "stale" and not overwrite:
        text = f"{path} exists and was made differently: {found.reason}"
        raise OutputExistsError(f"{text}; choose another -o, or use --overwrite")
    if found.word == "damaged" and not overwrite:
        raise unusable(path, found.reason)
    return found
