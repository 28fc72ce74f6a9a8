"""Stage `head`: what a federation agrees on before it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import MismatchError
from ..files.hdf5 import recipe, up_to_date
from ..files.heads import new_head, rows_of, save_head
from ..heads import HEADS, refuse_shared_with
from ..memory import NO_CACHE, Cache
from ..options.statistics import NewHead
from ..values.statistics import Context
from ..values.text import difference


def head(o: NewHead, *, cache: Cache = NO_CACHE) -> Path:
    """Write a head before its first phase: its name, options and what files they name hold.

    ``space``: a feature file; the head is bound to its space and classes, so that features of
    another one are refused before anything is computed from them.
    """
    name, out, head_options, overwrite = o.name, o.out, o.head_options, o.overwrite
    refuse_shared_with(name, head_options, o)
    new, space = new_head(name, head_options, cache)
    bound = None if space is None else Context(space)
    if o.space is not None:
        bound = _bound(rows_of(o.space), bound, o.space)
    inputs: dict[str, Any] = dict(HEADS.version(name))
    if o.space is not None and bound is not None:
        inputs["bound"] = bound.as_dict()
    made_by = recipe("head", {"name": name, **new.options.as_dict()}, inputs)
    if not up_to_date(out, made_by, overwrite):
        save_head(out, new, made_by, bound, cache)
    return out


def _bound(rows: Context, thresholds: Context | None, path: Path) -> Context:
    """What the head is bound to; refused where its thresholds are of another space."""
    if thresholds is None:
        return rows
    own, bound = {"space": thresholds.space}, {"space": rows.space}
    if where := difference(own, bound, "in that file", f"in {path}"):
        raise MismatchError(
            f"--space {path} has other features than the file that the head's options name: {where}"
        )
    return rows
