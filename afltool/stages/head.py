"""Stage `head`: what a federation agrees on before it starts."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..errors import MismatchError
from ..files.hdf5 import recipe
from ..files.heads import new_head, rows_of, write_head
from ..heads import HEADS, refuse_shared_with
from ..options.statistics import NewHead
from ..values.statistics import Context
from ..values.text import difference
from .runner import Files, Job, StageFunction


@StageFunction
def head(o: NewHead, files: Files) -> Job:
    """Write a head before its first phase: its name, options and what files they name hold.

    ``space``: a feature file; the head is bound to its space and classes, so that features of
    another one are refused before anything is computed from them.
    """
    refuse_shared_with(o.name, o.head_options, o)
    opening = partial(files.features, labelled=False)
    new, thresholds = new_head(o.name, o.head_options, opening)
    bound = None if thresholds is None else Context(thresholds)
    inputs: dict[str, Any] = dict(HEADS.version(o.name))
    if o.space is not None:
        rows = rows_of(o.space)
        where = f"in {o.space}"
        if wrong := thresholds and difference(thresholds, rows.space, "in that file", where):
            raise MismatchError(
                f"--space {o.space} has other features than the file that the head's options "
                f"name: space.{wrong}"
            )
        bound, inputs["bound"] = rows, rows.as_dict()
    made_by = recipe("head", {"name": o.name, **new.options.as_dict()}, inputs)
    return Job.one(o.out, made_by, lambda: partial(write_head, head=new, context=bound))
