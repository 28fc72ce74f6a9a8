"""The store: extracted features under a key of everything that can change them.

The key is a digest of the recipe, which takes seconds to make: PyTorch, torchvision and the data
set have to be imported for the digests in it. So the recipe is remembered (`remembered`). The store
still checks that the features exist, are intact and were made by that recipe.
"""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from ...options.features import ExtractOptions
from ...values.digest import Digest
from .remembered import recall, remember, store_folder
from .request import Asked


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


def _place(options: ExtractOptions, made_by: dict[str, Any]) -> Path:
    digest = Digest().json("recipe", made_by).hex()[:16]
    words = f"{options.backbone}-{Path(options.data).name}-{options.split}"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", words)
    return store_folder(options) / f"{name}-{digest}.h5"
