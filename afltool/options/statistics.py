"""Options of local-stats, aggregate and solve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from .base import File, Files, Holds, Name, Reads, Writes, grammar
from .common import OWN_HEADS, SEED, Column, Output, SpaceOptions, Threads
from .grammars import parse_clients


@dataclass(frozen=True, kw_only=True)
class LocalStatsOptions(Threads):
    """Whose statistics are gathered, and how."""

    EXECUTION_ONLY: ClassVar = frozenset({"cache"})
    SELECTS: ClassVar = frozenset(
        {"only", "client", "sum", "participation", "participation_kind", "participation_seed"}
    )
    REFUSES: ClassVar = frozenset({"min_rows"})

    _partition = "partition file: which client owns which row (simulated clients)"
    partition: Annotated[Path | None, Reads("partition")] = Field(
        default=None, description=_partition
    )
    _client = "name of a real client: it owns all rows of the file"
    client: str | None = Field(default=None, description=_client)
    _only = "only these clients: 0-9, or 3,7-8, or I/N for part I (from 0) of N"
    only: Annotated[str | None, grammar(parse_clients)] = Field(default=None, description=_only)
    _participation = "share of the clients that take part, drawn again for each layer of a head"
    participation: float = Field(default=1.0, gt=0, le=1, description=_participation)
    _kind = "whether one draw sends all sums of a layer, or others the second (deepafl: W_t, Ω)"
    participation_kind: Literal["consistent", "inconsistent"] = Field(
        default="consistent", description=_kind
    )
    _seed = "seed of the draw of --participation (default: 0)"
    participation_seed: int | None = Field(default=None, ge=0, le=SEED, description=_seed)
    sum: bool = Field(default=False, description="write one file: the sum of these clients")
    _held_out = "with --sum: file for the sum of the held-out clients"
    held_out: Annotated[Path | None, Writes()] = Field(default=None, description=_held_out)
    _by = "TABLE:COLUMN: the group of each row, for a round of evaluation that counts groups"
    by: Column = Field(default=None, description=_by)
    _min_rows = "refuse statistics of a client with fewer rows"
    min_rows: int = Field(default=0, ge=0, description=_min_rows)
    _cache = "folder that keeps intermediate rows, so that later rounds are faster"
    cache: Path | None = Field(default=None, description=_cache)

    def check(self) -> None:
        super().check()
        for name in ("only", "participation"):
            self.excludes(name, "client")
        if self.participation == 1.0:
            self.tell_idle("participation_kind", "participation_seed", beside="participation")
        self.needs("held_out", "sum")


@dataclass(frozen=True)
class LocalStats(LocalStatsOptions, Output):
    """Compute the statistics of each client: one file per client, or their sum."""

    STAGE: ClassVar = "stages.local_stats:local_stats"
    NAMED: ClassVar = ("head",)  # positional in Python alone
    COMMON: ClassVar = frozenset(
        {"head", "out", "partition", "client", "only", "sum", "held_out", "participation"}
        | {"overwrite", "threads"}
    )

    features: Annotated[File, Reads("features")] = Field(description="a feature file")
    head: Annotated[Name, Reads("head"), Holds()] = Field(
        description="a head file, or a head's name with its options", examples=list(OWN_HEADS)
    )
    out: Annotated[File, Writes("statistics")] = Field(description="folder; with --sum a file")
    head_options: dict[str, Any] = Field(default_factory=dict, kw_only=True)


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(Threads):
    """What is added up, and by which law."""

    REFUSES: ClassVar = frozenset({"complete", "allow_repeats"})

    subtract: Annotated[tuple[Path, ...], Reads("statistics")] = Field(
        default=(), description="statistics of clients that leave; may be repeated"
    )
    _held_out = "file for the sum of the held-out clients"
    held_out: Annotated[Path | None, Writes()] = Field(default=None, description=_held_out)
    _law = "how statistics are added; pairwise is AFL's Theorem 1: slow, for checking"
    law: Literal["sum", "pairwise"] = Field(default="sum", description=_law)
    _complete = "refuse a sum without all clients of the partition, those of --subtract too"
    complete: bool = Field(default=False, description=_complete)
    _allow_repeats = "add clients even if their rows are in the sum under another name"
    allow_repeats: bool = Field(default=False, description=_allow_repeats)

    def check(self) -> None:
        super().check()
        self.only_where("subtract", "law", "sum")


@dataclass(frozen=True)
class Aggregate(AggregateOptions, Output):
    """Add statistics up, in any order and grouping; totals can be added, too."""

    STAGE: ClassVar = "stages.aggregate:aggregate"
    _files = "files, folders, quoted globs, - for stdin"
    files: Annotated[Files, Reads("statistics")] = Field(description=_files)
    out: Annotated[File, Writes("statistics")] = Field(description="file of the sum")


@dataclass(frozen=True, kw_only=True)
class SolveOptions(Threads):
    """How a total is solved."""

    _head = "head file that the total was gathered for; needed when solve does not find it"
    head: Annotated[Path | None, Reads("head")] = Field(default=None, description=_head)
    _validate = "sum over the held-out clients, which chooses the ridge and the layers"
    validate: Annotated[Path | None, Reads("statistics")] = Field(
        default=None, description=_validate
    )


@dataclass(frozen=True)
class Solve(SolveOptions, Output):
    """Solve the head that the total was gathered for."""

    STAGE: ClassVar = "stages.solve:solve"
    TELLS: ClassVar = "show.solution:say_solution"
    total: Annotated[File, Reads("statistics")] = Field(description="a total (or any statistics)")
    out: Annotated[File, Writes("head")] = Field(description="head file")
    head_options: dict[str, Any] = Field(default_factory=dict, kw_only=True)


@dataclass(frozen=True)
class NewHead(SpaceOptions, Output):
    """Write a head file: a head and its options, on which a federation agrees first."""

    STAGE: ClassVar = "stages.head:head"
    name: str = Field(description="name of the head")
    out: Annotated[File, Writes("head")] = Field(description="head file")
    head_options: dict[str, Any] = Field(default_factory=dict, kw_only=True)
