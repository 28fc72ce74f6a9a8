"""Options of local-stats, aggregate and solve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import ABSENT, GIVEN, option
from .grammars import Numbers, Part, parse_clients
from .shared import SEED, ThreadOptions, table_in


@dataclass(frozen=True, kw_only=True)
class LocalStatsOptions(ThreadOptions):
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
    _participation = "share of the clients that take part, drawn again for each layer of a head"
    participation: float = option(1.0, _participation, above=0, at_most=1, only={"client": ABSENT})
    _participation_kind = (
        "whether the clients drawn for a layer send all sums of it, or others are "
        "drawn for the second one (deepafl: W_t, then Ω)"
    )
    participation_kind: str = option(
        "consistent",
        _participation_kind,
        choices=("consistent", "inconsistent"),
        only={"participation": GIVEN},
        of_axes=True,
    )
    _participation_seed = "seed of the draw of --participation"
    participation_seed: int | None = option(
        None,
        _participation_seed,
        at_least=0,
        at_most=SEED,
        unset="0",
        only={"participation": GIVEN},
        of_axes=True,
    )
    sum: bool = option(False, "write one file: the sum of these clients", in_run=False)
    _held_out = "with --sum: file for the sum of the held-out clients"
    held_out: Path | None = option(None, _held_out, in_run=False, writes=True, only={"sum": True})
    _by = "TABLE:COLUMN: the group of each row, for a round of evaluation that counts groups"
    by: str | None = option(None, _by, in_run=False, path_in=table_in)
    min_rows: int = option(
        0, "refuse statistics of a client with fewer rows", at_least=0, in_result=False
    )
    _cache = "folder that keeps intermediate rows, so that later rounds are faster"
    cache: Path | None = option(None, _cache, in_result=False, only={"rounds": True}, of_axes=True)


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(ThreadOptions):
    """What is added up, and by which law."""

    _subtract = "statistics of clients that leave; may be repeated"
    subtract: tuple[Path, ...] = option((), _subtract, in_run=False, only={"law": "sum"})
    _held_out = "file for the sum of the held-out clients"
    held_out: Path | None = option(None, _held_out, in_run=False, writes=True)
    _law = "how statistics are added; pairwise is AFL's Theorem 1: slow, for checking"
    law: str = option("sum", _law, choices=("sum", "pairwise"))
    complete: bool = option(
        False,
        "refuse a sum without all clients of the partition, those of --subtract too",
        in_run=False,
    )
    _allow_repeats = "add clients even if their rows are in the sum under another name"
    allow_repeats: bool = option(False, _allow_repeats, in_run=False)


@dataclass(frozen=True, kw_only=True)
class SolveOptions(ThreadOptions):
    """How a total is solved."""

    head: Path | None = option(
        None,
        "head file that the total was gathered for; needed when solve does not find it",
        in_run=False,
    )
    validate: Path | None = option(
        None, "sum over the held-out clients, which chooses the ridge and the layers", in_run=False
    )
