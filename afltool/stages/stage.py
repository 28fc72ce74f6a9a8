"""What a stage is: a value that says what it reads, what it writes and what it takes.

The command of a stage, a step of a plan, a job script and `status` are made of this value alone. It
is light: the module that does the work is loaded when the work is done. `STAGES` has them in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..options.base import Options, fields_of, positional
from ..options.common import SpaceOptions
from ..options.evaluation import Evaluate, EvaluateOptions
from ..options.features import ExtractOptions, Merge
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
from ..plugins import located

Input = Path | tuple[Path, ...] | str  # a file, several, or the name of a head


@dataclass(frozen=True)
class Parts:
    """How a stage is cut into parts: part i of n is made with ``option`` i/n.

    The stage ``joined_by`` puts the parts together: it reads them in its role ``role``.
    """

    option: str
    joined_by: str
    role: str


@dataclass(frozen=True)
class Stage:
    """A stage.

    Attributes:
        name: the command.
        options: the class of its options.
        call: the class of its options with its files, which its job takes.
        writes: the kind of its result; empty for a result that is no file of afltool.
        parts: how it is cut into parts, if it can be.
        stored: without ``out`` its result lies in a store, which keeps it for all runs.
    """

    name: str
    options: type[Options]
    call: type[Options]
    writes: str
    parts: Parts | None = None
    stored: bool = False

    @property
    def function(self) -> Any:
        """The stage itself, see `runner.StageFunction`; its module is loaded now."""
        return located(f"...{self.call.STAGE}", __name__)

    @property
    def plain(self) -> list[str]:
        """The roles of its inputs that have no name on the command line."""
        return positional(self.call)

    def call_of(
        self, inputs: Mapping[str, Input], options: Options, out: Path | None, **more: Any
    ) -> Any:
        """The options with the files, as the job of the stage takes them."""
        taken = {name: one for name, one in more.items() if one and name in fields_of(self.call)}
        taken |= {"out": out} if out is not None and "out" in fields_of(self.call) else {}
        return options.to(self.call, **inputs, **taken)


# ---------------------------------------------------------------- the table

FEATURES, PARTITION, STATISTICS, HEAD = "features", "partition", "statistics", "head"

_SHARDS = Parts("shard", "merge", "shards")
_CLIENTS = Parts("only", "aggregate", "files")
_IN_ORDER = (
    Stage("extract", ExtractOptions, ExtractOptions, FEATURES, _SHARDS, stored=True),
    Stage("merge", Options, Merge, FEATURES),
    Stage("partition", PartitionOptions, Partition, PARTITION),
    Stage("head", SpaceOptions, NewHead, HEAD),
    Stage("local-stats", LocalStatsOptions, LocalStats, STATISTICS, _CLIENTS),
    Stage("aggregate", AggregateOptions, Aggregate, STATISTICS),
    Stage("solve", SolveOptions, Solve, HEAD),
    Stage("evaluate", EvaluateOptions, Evaluate, ""),
)
STAGES = {stage.name: stage for stage in _IN_ORDER}
