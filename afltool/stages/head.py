"""Stage `head`: what a federation agrees on before it starts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..statistics import Context
from ..store.heads import new_head, save_head
from ..store.recipes import recipe, up_to_date


def head(
    name: str,
    out: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write a head before its first phase: its name, options and what files they name hold."""
    out = Path(out)
    made, space = new_head(name, options)
    made_by = recipe("head", {"name": name, **made.options.as_dict()}, {})
    if not up_to_date(out, made_by, overwrite):
        save_head(out, made, made_by, None if space is None else Context(space))
    return out
