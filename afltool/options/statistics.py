"""Options of head, local-stats, aggregate and solve."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from . import base
from .base import Absent, FileIn, FileOut, Flat, HeadIn, Input, Inputs, Reads, Result, option
from .common import OWN_HEADS, SEED, Output, Threads
from .features import CLASSES, Classes, TableOptions

LocalLaw = Annotated[Literal["sum", "pairwise"], Absent("sum")]
Draw = Literal["consistent", "inconsistent"]


@dataclass(frozen=True, kw_only=True)
class LocalStatsOptions(Threads):
    """Whose statistics are gathered, and how."""

    EXECUTION_ONLY: ClassVar = frozenset({"cache"})
    SELECTS: ClassVar = frozenset(
        {"only", "client", "sum", "participation", "participation_kind", "participation_seed"}
    )
    REFUSES: ClassVar = frozenset({"min_rows"})

    partition: FileIn = option(None, "partition file")
    client: str | None = option(None, "name of a real client, which owns all rows")
    only: str | None = option(None, "only clients 0-9, or 3,7-8, or part I/N (I from 0)")
    participation: float = option(1.0, "participating fraction, redrawn per layer", gt=0, le=1)
    participation_kind: Draw = option("consistent", "whether one draw serves a whole layer")
    participation_seed: int | None = option(None, "seed of the draw (default: 0)", ge=0, le=SEED)
    sum: bool = option(False, "write a single file, the sum over these clients")
    held_out: FileOut = option(None, "with --sum: output file for the held-out clients' sum")
    min_rows: int = option(0, "refuse clients with fewer rows", ge=0)

    def check(self) -> None:
        for name in ("partition", "only", "participation"):
            self.excludes(name, "client")
        idle = {"participation_kind", "participation_seed"} & self.changed_options().keys()
        for name in sorted(idle) if self.participation == 1.0 else ():  # a study has it for all
            base.log_unused(name, "participation")
        self.needs("held_out", "sum")


@dataclass(frozen=True)
class LocalStats(LocalStatsOptions, TableOptions, Output):
    """Compute the statistics of each client: one file per client, or their sum."""

    STAGE: ClassVar = "stages.local_stats:local_stats"
    NAMED: ClassVar = ("head",)  # positional in Python alone

    features: Input = Field(description="feature file or table")
    head: HeadIn = Field(
        description="head file, or head name with its options", examples=list(OWN_HEADS)
    )
    out: Result = Field(description="output directory; with --sum a file")
    _: KW_ONLY
    law: LocalLaw = option("sum", "pairwise: a client sends AFL's (13), weights beside XᵀX + γI")
    classes: Classes = option(None, CLASSES)
    head_options: Annotated[dict[str, Any], Flat("cli.flat:head_parameters")] = Field(
        default_factory=dict
    )

    def check(self) -> None:
        if self.law != "sum":
            self.excludes("law", "sum", "cache")


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(Threads):
    """What is added up, and by which law."""

    REFUSES: ClassVar = frozenset({"complete", "allow_repeats"})

    subtract: Annotated[tuple[Path, ...], Reads()] = option((), "statistics of clients to remove")
    held_out: FileOut = option(None, "output file for the held-out clients' sum")
    law: Literal["sum", "pairwise"] = option("sum", "pairwise: AFL's Theorem 1, to check the sum")
    complete: bool = option(False, "require statistics of all clients")
    allow_repeats: bool = option(False, "allow the same rows under two names")

    def check(self) -> None:
        self.only_where("subtract", "law", "sum")


@dataclass(frozen=True)
class Aggregate(AggregateOptions, Output):
    """Add statistics up, in any order and grouping; totals can be added, too."""

    STAGE: ClassVar = "stages.aggregate:aggregate"
    files: Inputs = Field(description="files, folders, or -")
    out: Result = Field(description="output file")


@dataclass(frozen=True, kw_only=True)
class SolveOptions(Threads):
    """How a total is solved."""

    head: FileIn = option(None, "head file that the total belongs to; needed after the first phase")
    validate: FileIn = option(None, "statistics of held-out clients, which choose ridge and layers")


@dataclass(frozen=True)
class Solve(SolveOptions, Output):
    """Solve the head that the total was gathered for."""

    STAGE: ClassVar = "stages.solve:solve"
    TELLS: ClassVar = "rendering.tables:print_solution"
    total: Input = Field(description="a total (or any statistics)")
    out: Result = Field(description="head file")
    _: KW_ONLY
    head_options: Annotated[dict[str, Any], Flat("cli.flat:at_solve")] = Field(default_factory=dict)


@dataclass(frozen=True)
class NewHead(Output):
    """Write a head file: a head and its options, on which a federation agrees first."""

    STAGE: ClassVar = "stages.solve:head"
    name: str = Field(description="name of the head")
    out: Result = Field(description="head file")
    _: KW_ONLY
    head_options: Annotated[dict[str, Any], Flat("cli.flat:head_parameters")] = Field(
        default_factory=dict
    )
