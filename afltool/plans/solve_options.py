"""The options that only `solve` and `evaluate` use: with others, what was gathered before is kept.

Which ones these are is declared elsewhere: by the stage that an option is of (`PARTS`), and by
``at_solve`` of the options of heads. A head file, and the statistics that were gathered for it,
stay as they were made; `solve` is told what is different now.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from ..cache.cache import NO_CACHE, Cache
from ..files.heads import load_head, new_head
from ..heads.base import Head
from ..heads.checks import with_options
from ..values.json_text import difference
from ..values.parsed import text_form
from .config import RunConfig, named_fields

SOLVE, EVALUATE = "solve", "evaluate"
#: The only stage that uses an option of a run, if it is `solve` or `evaluate`.
_STAGE = {name: part for part, name, _ in named_fields() if part in (SOLVE, EVALUATE)}
_STAGE["train_accuracy"] = EVALUATE


def at_solve(config: RunConfig, start: Path, cache: Cache = NO_CACHE) -> dict[str, Any]:
    """The options of the head file ``start`` that `solve` has to be told: they are others now."""
    head, _ = load_head(start, cache)
    wanted = _wanted(config, head)
    return {
        name: text_form(value)
        for name in sorted(head.options.changeable())
        if (value := getattr(wanted.options, name)) != getattr(head.options, name)
    }


def serves(config: RunConfig, start: Path) -> bool:
    """Whether statistics gathered for the head file ``start`` are those of this run.

    That is so if its head and the run's differ in nothing but what `solve` may change.
    """
    kept, header = load_head(start)
    if kept.phase() is None or header["name"] != config.own.head:
        return False
    made = _wanted(config, kept)
    moved = with_options(kept, **{k: getattr(made.options, k) for k in kept.options.changeable()})
    return moved.options.as_dict() == made.options.as_dict() and moved.digest() == made.digest()


def _wanted(config: RunConfig, head: Head) -> Head:
    """The head that the options of a run ask for; ``head`` is the one of its file."""
    if config.first_head is not None:
        return with_options(head, **config.head_options)
    return new_head(config.own.head, config.all_head_options())[0]


def difference_of(theirs: RunConfig, ours: RunConfig, start: Path, but: Collection[str]) -> str:
    """The first option in which two runs differ, with both values; '' if they are equal.

    ``but``: options that only these stages use may differ; ``start``: the head file of both.
    """
    may = load_head(start)[0].options.changeable() if start.exists() else set()
    stages = {**_STAGE, **dict.fromkeys(may, SOLVE)}

    def kept(config: RunConfig) -> dict[str, Any]:
        found = {k: v for k, v in config.given().items() if stages.get(k) not in but}
        return {k: str(v) if isinstance(v, Path) else v for k, v in found.items()}

    return difference(kept(theirs), kept(ours), "in the file", "now")
