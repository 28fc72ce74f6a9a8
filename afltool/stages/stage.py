"""What a stage is: a value that says what it reads, what it writes and what it takes.

The module that does the work is loaded when the work is done. `STAGES` has them in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..options import evaluation, features, statistics
from ..options import partition as partitions
from ..options.base import Options, get_fields, positional
from ..plugins import import_object

Input = Path | tuple[Path, ...] | str  # a file, several, or the name of a head


@dataclass(frozen=True)
class Parts:
    """How a stage is cut into parts: part i of n is made with ``option`` i/n, and the stage
    ``joined_by`` reads them in its role ``role``."""

    option: str
    joined_by: str
    role: str


@dataclass(frozen=True)
class Stage:
    """A stage by the name of its command.

    ``options``: their class; ``call``: the class of them with the files, which its job takes.
    ``writes``: the kind of its result; empty for one that is no file of afltool. ``parts``: how it
    is cut into parts. ``stored``: without ``out`` its result lies in a store, for all runs.
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
        return import_object(f"...{self.call.STAGE}", __name__)

    @property
    def plain(self) -> list[str]:
        """The roles of its inputs that have no name on the command line."""
        return positional(self.call)

    def make_call(
        self, inputs: Mapping[str, Input], options: Options, out: Path | None, **more: Any
    ) -> Any:
        """The options with the files, as the job of the stage takes them."""
        taken = {name: one for name, one in more.items() if one and name in get_fields(self.call)}
        taken |= {"out": out} if out is not None and "out" in get_fields(self.call) else {}
        return options.to(self.call, **inputs, **taken)


FEATURES, PARTITION, STATISTICS, HEAD = "features", "partition", "statistics", "head"

_SHARDS = Parts("shard", "merge", "shards")
_CLIENTS = Parts("only", "aggregate", "files")
EXTRACT = features.ExtractOptions
_IN_ORDER = (
    Stage("extract", EXTRACT, EXTRACT, FEATURES, _SHARDS, stored=True),
    Stage("merge", Options, features.Merge, FEATURES),
    Stage("partition", partitions.PartitionOptions, partitions.Partition, PARTITION),
    Stage("head", Options, statistics.NewHead, HEAD),
    Stage("local-stats", statistics.LocalStatsOptions, statistics.LocalStats, STATISTICS, _CLIENTS),
    Stage("aggregate", statistics.AggregateOptions, statistics.Aggregate, STATISTICS),
    Stage("solve", statistics.SolveOptions, statistics.Solve, HEAD),
    Stage("evaluate", evaluation.EvaluateOptions, evaluation.Evaluate, ""),
)
STAGES = {stage.name: stage for stage in _IN_ORDER}
