"""The store: extracted features, under a key of everything that can change them."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

from ...options.features import ExtractOptions
from ...values.digest import Digest
from .answers import recall, remember
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


def store_folder(options: ExtractOptions) -> Path:
    """The store that these options mean: the given one, $AFLTOOL_STORE, or ./afl-store."""
    return Path(options.store or os.environ.get("AFLTOOL_STORE") or "afl-store")


def _place(options: ExtractOptions, made_by: dict[str, Any]) -> Path:
    digest = Digest().json("recipe", made_by).hex()[:16]
    words = f"{options.backbone}-{Path(options.data).name}-{options.split}"
    name = re.sub(r"[^A-Za-z0-9_.-]+", "_", words)
    return store_folder(options) / f"{name}-{digest}.h5"
