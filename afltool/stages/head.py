"""Stage `head`: what a federation agrees on before it starts."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ..errors import MismatchError
from ..files.hdf5 import recipe
from ..files.heads import new_head, rows_of, write_head
from ..heads import HEADS, refuse_shared_with
from ..options.statistics import NewHead
from ..values.statistics import Context
from ..values.text import difference
from .runner import Files, Job, carry_out


def head(o: NewHead) -> Path:
    """Write a head before its first phase: its name, options and what files they name hold.

    ``space``: a feature file; the head is bound to its space and classes, so that features of
    another one are refused before anything is computed from them.
    """
    return carry_out(job, o)[-1].path


def job(o: NewHead, files: Files) -> Job:
    refuse_shared_with(o.name, o.head_options, o)
    opening = partial(files.features, labelled=False)
    new, space = new_head(o.name, o.head_options, opening)
    bound = None if space is None else Context(space)
    if o.space is not None:
        bound = _bound(rows_of(o.space), bound, o.space)
    inputs: dict[str, Any] = dict(HEADS.version(o.name))
    if o.space is not None and bound is not None:
        inputs["bound"] = bound.as_dict()
    made_by = recipe("head", {"name": o.name, **new.options.as_dict()}, inputs)
    return Job.one(o.out, made_by, lambda: partial(write_head, head=new, context=bound))


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
