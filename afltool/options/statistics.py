"""Options of head, local-stats, aggregate and solve."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from .base import Absent, File, FileOut, Files, Flat, Holds, Name, Reads, Writes, grammar, tell_once
from .common import OWN_HEADS, SEED, Output, Threads
from .features import CLASSES, Classes, TableOptions
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
    client: str | None = Field(default=None, description="a real client, who owns all rows")
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
    held_out: FileOut = Field(default=None, description="with --sum: sum of the held-out clients")
    min_rows: int = Field(default=0, ge=0, description="refuse a client with fewer rows")

    def check(self) -> None:
        super().check()
        for name in ("partition", "only", "participation"):
            self.excludes(name, "client")
        idle = {"participation_kind", "participation_seed"} & self.changed().keys()
        for name in sorted(idle) if self.participation == 1.0 else ():  # a study has it for all
            option = f"--{name.replace('_', '-')}"
            tell_once(f"{option} is used only with --participation: it changes nothing here")
        self.needs("held_out", "sum")


@dataclass(frozen=True)
class LocalStats(LocalStatsOptions, TableOptions, Output):
    """Compute the statistics of each client: one file per client, or their sum."""

    STAGE: ClassVar = "stages.local_stats:local_stats"
    NAMED: ClassVar = ("head",)  # positional in Python alone

    _law = "what a client sends: sums, or AFL's (13): its weights beside XᵀX + γI (--gamma)"
    law: Annotated[Literal["sum", "pairwise"], Absent("sum")] = Field(
        default="sum", kw_only=True, description=_law
    )
    classes: Classes = Field(default=None, kw_only=True, description=CLASSES)
    _features = "a feature file, or a table or archive that is imported first"
    features: Annotated[File, Reads("features")] = Field(description=_features)
    head: Annotated[Name, Reads("head"), Holds()] = Field(
        description="a head file, or a head's name with its options", examples=list(OWN_HEADS)
    )
    out: Annotated[File, Writes("statistics")] = Field(description="folder; with --sum a file")
    head_options: Annotated[dict[str, Any], Flat("cli.flat:of_head")] = Field(
        default_factory=dict, kw_only=True
    )

    def check(self) -> None:
        super().check()
        if self.law != "sum":
            self.excludes("law", "sum", "cache")


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(Threads):
    """What is added up, and by which law."""

    REFUSES: ClassVar = frozenset({"complete", "allow_repeats"})

    _subtract = "statistics of clients that leave; may be repeated"
    subtract: Annotated[tuple[Path, ...], Reads("statistics")] = Field(
        default=(), description=_subtract
    )
    held_out: FileOut = Field(default=None, description="sum of the held-out clients")
    _law = "how statistics are added; pairwise is AFL's Theorem 1: slow, for checking"
    law: Literal["sum", "pairwise"] = Field(default="sum", description=_law)
    complete: bool = Field(default=False, description="refuse a sum without all clients")
    allow_repeats: bool = Field(default=False, description="add the same rows under another name")

    def check(self) -> None:
        super().check()
        self.only_where("subtract", "law", "sum")


@dataclass(frozen=True)
class Aggregate(AggregateOptions, Output):
    """Add statistics up, in any order and grouping; totals can be added, too."""

    STAGE: ClassVar = "stages.aggregate:aggregate"
    files: Annotated[Files, Reads("statistics")] = Field(description="files, folders, or -")
    out: Annotated[File, Writes("statistics")] = Field(description="file of the sum")


@dataclass(frozen=True, kw_only=True)
class SolveOptions(Threads):
    """How a total is solved."""

    _head = "head file that the total was gathered for; needed after its first phase"
    head: Annotated[Path | None, Reads("head")] = Field(default=None, description=_head)
    _validate = "sum over the held-out clients, which chooses the ridge and the layers"
    validate: Annotated[Path | None, Reads("statistics")] = Field(
        default=None, description=_validate
    )


@dataclass(frozen=True)
class Solve(SolveOptions, Output):
    """Solve the head that the total was gathered for."""

    STAGE: ClassVar = "stages.solve:solve"
    TELLS: ClassVar = "rendering.tables:say_solution"
    total: Annotated[File, Reads("statistics")] = Field(description="a total (or any statistics)")
    out: Annotated[File, Writes("head")] = Field(description="head file")
    head_options: Annotated[dict[str, Any], Flat("cli.flat:at_solve")] = Field(
        default_factory=dict, kw_only=True
    )


@dataclass(frozen=True)
class NewHead(Output):
    """Write a head file: a head and its options, on which a federation agrees first."""

    STAGE: ClassVar = "stages.solve:head"
    name: str = Field(description="name of the head")
    out: Annotated[File, Writes("head")] = Field(description="head file")
    head_options: Annotated[dict[str, Any], Flat("cli.flat:of_named")] = Field(
        default_factory=dict, kw_only=True
    )
