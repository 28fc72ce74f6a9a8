"""What a stage is: a value that says what it reads, what it writes and what it takes.

The command of a stage, a step of a plan, a job script and `status` are made of this value alone. It
is light: the module that does the work is loaded when the work is done. `STAGES` has them in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict, Unpack

from ..memory import Cache
from ..options.base import Options, fields_of
from ..options.common import SpaceOptions
from ..options.evaluation import Evaluate, EvaluateOptions
from ..options.features import Extract, ExtractOptions, Merge
from ..options.partition import Partition, PartitionOptions
from ..options.statistics import (
    Aggregate,
    AggregateOptions,
    LocalStats,
    LocalStatsOptions,
    NewHead,
    Solve,
    SolveOptions,
)

Input = Path | tuple[Path, ...] | str  # a file, several, or the name of a head
Result = Path | dict[str, Any]  # what a stage returns: the path of its result, or figures


@dataclass(frozen=True)
class Parts:
    """How a stage is cut into parts: part i of n is made with ``option`` i/n.

    The stage ``joined_by`` puts the parts together: it reads them in its role ``role``.
    """

    option: str
    joined_by: str
    role: str


class How(TypedDict, total=False):
    """How a stage is carried out, where it takes this.

    ``head_options``: options of a head, beside those of the stage; ``task``: see `Stage`.
    """

    overwrite: bool
    head_options: Mapping[str, Any] | None
    cache: Cache
    task: object


@dataclass(frozen=True)
class Stage:
    """A stage.

    Attributes:
        name: the command.
        options: the class of its options.
        call: the class of its options with its files, which its function takes.
        reads: its inputs, each with the kind of file that it is. A role that is an option, too, is
            given as this option; the others come first, in this order.
        writes: the kind of its result; empty for a result that is no file of afltool.
        cached: it uses the ``cache`` of a run.
        stored: without ``out`` its result lies in a store, which keeps it for all runs.
        named: inputs that are no options, and are given by name on the command line all the same.
        parts: how it is cut into parts, if it can be.
        code: MODULE:FUNCTION, called as ``function(*inputs, out=…, options=…, overwrite=…)``; of
            afltool's own stages the module and the function of their name. ``recipe_of(
            inputs, options, head_options, cache)`` of the module, if it is there, is what makes it;
            instead ``task_of`` of these arguments gives a task with this recipe, ``made_by``, which
            the function gets as ``task``.
    """

    name: str
    options: type[Options]
    call: type[Options]
    reads: Mapping[str, str]
    writes: str
    cached: bool = False
    named: tuple[str, ...] = ()
    parts: Parts | None = None
    stored: bool = False
    code: str = ""

    @property
    def module(self) -> ModuleType:
        """Where the work is done; it is loaded now."""
        own = f"{__package__}.{self.name.replace('-', '_')}"
        return import_module(self.code.partition(":")[0] or own)

    @property
    def positional(self) -> tuple[str, ...]:
        """The roles of its inputs that are no options."""
        known = fields_of(self.options)
        return tuple(role for role in self.reads if role not in known)

    @property
    def plain(self) -> tuple[str, ...]:
        """The roles of its inputs that have no name on the command line."""
        return tuple(role for role in self.positional if role not in self.named)

    def make(
        self,
        inputs: Mapping[str, Input],
        options: Options,
        out: Path | None,
        **how: Unpack[How],
    ) -> Result:
        """Carry it out; returns what its function returns."""
        function = getattr(self.module, self.code.partition(":")[2] or self.name.replace("-", "_"))
        more = {name: one for name, one in how.items() if one}
        taken = fields_of(self.call).keys() - {"cache"}  # that of a run is another one
        given = {k: v for k, v in more.items() if k in taken}
        given |= {"out": out} if out is not None and "out" in fields_of(self.call) else {}
        rest = {k: v for k, v in more.items() if k == "task" or (k == "cache" and self.cached)}
        made: Result = function(options.to(self.call, **inputs, **given), **rest)
        return made

    def given(self, inputs: Mapping[str, Input], options: Options) -> Options:
        """The options, with the inputs that are options."""
        known = fields_of(self.options)
        named = {role: one for role, one in inputs.items() if role in known}
        return replace(options, **named) if named else options


# ---------------------------------------------------------------- the table

FEATURES, PARTITION, STATISTICS, HEAD = "features", "partition", "statistics", "head"

_SHARDS = Parts("shard", "merge", "shards")
_CLIENTS = Parts("only", "aggregate", "files")
_OF_ROWS = {"features": FEATURES, "partition": PARTITION, "head": HEAD}
_OF_SUMS = {"total": STATISTICS, "head": HEAD, "validate": STATISTICS}
_MEASURED = {"head": HEAD, "features": FEATURES}
_IN_ORDER = (
    Stage("extract", ExtractOptions, Extract, {}, FEATURES, parts=_SHARDS, stored=True),
    Stage("merge", Options, Merge, {"shards": FEATURES}, FEATURES),
    Stage("partition", PartitionOptions, Partition, {"features": FEATURES}, PARTITION),
    Stage("head", SpaceOptions, NewHead, {"name": ""}, HEAD, cached=True),
    Stage(
        "local-stats",
        LocalStatsOptions,
        LocalStats,
        _OF_ROWS,
        STATISTICS,
        True,
        ("head",),
        _CLIENTS,
    ),
    Stage("aggregate", AggregateOptions, Aggregate, {"files": STATISTICS}, STATISTICS, cached=True),
    Stage("solve", SolveOptions, Solve, _OF_SUMS, HEAD, cached=True),
    Stage("evaluate", EvaluateOptions, Evaluate, _MEASURED, "", cached=True),
)
STAGES = {stage.name: stage for stage in _IN_ORDER}
