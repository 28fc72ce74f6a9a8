"""The store: extracted features under a key of everything that can change them.

The key is a digest of the recipe, which takes seconds to make: PyTorch, torchvision and the data
set have to be imported for the digests in it. The same recipe follows whenever the options, the
versions of the packages, this program's source files and the states of the input files
(`file_state`) are the same, so the store remembers the recipe under a digest of these, in
``index/KEY.json``. An entry that is lost, damaged or of another version costs seconds, but never
gives a wrong answer: the store still checks that the features exist, are intact and were made by
that recipe.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import AflError
from ...files.atomic import write_text
from ...options.features import ExtractOptions
from ...values.digest import Digest
from ...values.json_text import json_text

if TYPE_CHECKING:
    from .request import Asked

#: A file that changed just now could change again without a new time stamp.
SETTLED_NS = 2_000_000_000


def in_store(asked: Asked) -> tuple[Path, dict[str, Any]]:
    """The path of the features in the store, and their recipe."""
    folder, begun = store_folder(asked.given), time.time_ns()  # the clock of file systems
    states = asked.states()
    key = asked.key(states)
    made_by = recall(folder, key)
    if made_by is None:
        made_by = asked.recipe()
        remember(folder, key, made_by, states, begun)
    return _place(asked.given, made_by), made_by


def is_kept(asked: Asked) -> bool:
    """Whether the store has a file for these features; needs no images and no PyTorch."""
    made_by = recall(store_folder(asked.given), asked.key(asked.states()))
    return made_by is not None and _place(asked.given, made_by).exists()


def store_folder(options: ExtractOptions) -> Path:
    """The store that these options mean: the given one, $AFLTOOL_STORE, or ./afl-store."""
    return Path(options.store or os.environ.get("AFLTOOL_STORE") or "afl-store")


def _place(options: ExtractOptions, made_by: dict[str, Any]) -> Path:
    digest = Digest().json("recipe", made_by).hex()[:16]
    words = f"{options.backbone}-{Path(options.data).name}-{options.split}"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", words)
    return store_folder(options) / f"{name}-{digest}.h5"


# ---------------------------------------------------------------- remembered recipes


def recall(folder: Path, key: str) -> dict[str, Any] | None:
    """The recipe remembered under ``key``, or None."""
    try:
        found = json.loads((folder / "index" / f"{key}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"stage", "options"} <= found.keys() else None


def remember(folder: Path, key: str, recipe: Mapping[str, Any], states: Any, begun_ns: int) -> None:
    """Keep the recipe for the next call, unless a file changed just before the first was begun."""
    if any(begun_ns - changed < SETTLED_NS for changed in _changes(states)):
        return
    place = folder / "index" / f"{key}.json"
    with suppress(AflError, OSError):  # a read-only store still works, but slower
        place.unlink(missing_ok=True)  # a damaged entry looks like somebody else's file
        write_text(json_text(recipe, ensure_ascii=False), place, overwrite=True)


def _changes(states: Any) -> Iterator[int]:
    """The ctime (ns) in every `file_state` within nested lists."""
    if isinstance(states, list) and len(states) == 5 and all(type(n) is int for n in states):
        yield states[4]
    elif isinstance(states, list):
        for inner in states:
            yield from _changes(inner)
