"""Options of the stages that gather statistics and add them up: local-stats, aggregate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .features import SEED
from .fields import option
from .privacy import NO_LEAVING, ProtectionOptions, SummingOptions
from .shards import Numbers, Part, parse_clients
from .used_with import ABSENT, GIVEN


@dataclass(frozen=True, kw_only=True)
class LocalStatsOptions(ProtectionOptions):
    """Whose statistics are gathered, and how."""

    partition: Path | None = option(
        None, "partition file: which client owns which row (simulated clients)", in_run=False
    )
    client: str | None = option(
        None, "name of a real client: it owns all rows of the file", in_run=False
    )
    only: Part | Numbers | None = option(
        None,
        "only these clients: 0-9, or 3,7-8, or I/N for part I (from 0) of N",
        in_run=False,
        only={"client": ABSENT},
        parse=parse_clients,
    )
    participation: float = option(
        1.0, "share of the clients that take part, drawn again for each layer of a head",
        above=0, at_most=1, only={"client": ABSENT},
    )  # fmt: skip
    participation_kind: str = option(
        "consistent", "whether the clients drawn for a layer send all sums of it, or others are "
        "drawn for the second one (deepafl: W_t, then Ω)", choices=("consistent", "inconsistent"),
        only={"participation": GIVEN}, of_axes=True,
    )  # fmt: skip
    participation_seed: int | None = option(
        None, "seed of the draw of --participation", at_least=0, at_most=SEED, unset="0",
        only={"participation": GIVEN}, of_axes=True,
    )  # fmt: skip
    sum: bool = option(False, "write one file: the sum of these clients", in_run=False)
    held_out: Path | None = option(
        None, "with --sum: file for the sum of the held-out clients", in_run=False, writes=True,
        only={"sum": True},
    )  # fmt: skip
    min_rows: int = option(
        0, "refuse statistics of a client with fewer rows", at_least=0, in_result=False
    )
    cache: Path | None = option(
        None, "folder that keeps intermediate rows, so that later rounds are faster",
        in_result=False, only={"rounds": True}, of_axes=True,
    )  # fmt: skip

    def check(self) -> None:
        self.check_protection()
        if self.sign is not None and (self.sum or self.cache is not None):
            raise UsageError("--sign is for one file per client: leave --sum and --cache out")


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(SummingOptions):
    """What is added up, and by which law."""

    add: tuple[Path, ...] = option(
        (), "statistics of late clients; may be repeated", in_run=False, only={"offers": ABSENT}
    )
    subtract: tuple[Path, ...] = option(
        (), "statistics of clients that leave, or the name of one whose file is in a folder given "
        "here; may be repeated", in_run=False, only={"law": "sum"},
    )  # fmt: skip
    held_out: Path | None = option(
        None, "file for the sum of the held-out clients", in_run=False, writes=True,
        only={"offers": ABSENT},
    )  # fmt: skip
    law: str = option(
        "sum", "how statistics are added; pairwise is AFL's Theorem 1: slow, for checking",
        choices=("sum", "pairwise"), only={"offers": ABSENT},
    )  # fmt: skip
    complete: bool = option(
        False,
        "refuse a sum without all clients of the partition, those of --subtract too, or members of "
        "the roster",
        in_run=False,
    )
    allow_repeats: bool = option(
        False, "add clients even if their rows are in the sum under another name", in_run=False,
        only={"offers": ABSENT},
    )  # fmt: skip

    def check(self) -> None:
        self.check_summing()
        if self.offers and self.subtract:
            raise UsageError(f"--subtract: {NO_LEAVING}")
