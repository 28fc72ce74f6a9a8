"""Options of the stages that gather statistics, count rows and add both up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..values.bins import Bins, parse_bins
from .features import SEED, EmbeddingsOptions
from .fields import Options, option
from .files import table_in
from .privacy import NO_LEAVING, ProtectionOptions, SummingOptions
from .shards import Numbers, Part, parse_clients
from .threads import ThreadOptions
from .used_with import ABSENT, GIVEN

LEAST = 10  # rows of a group, unless said otherwise
METHODS = ("standard", "robust", "minmax", "none")


@dataclass(frozen=True, kw_only=True)
class LocalStatsOptions(ThreadOptions, ProtectionOptions):
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

    def check(self) -> None:
        self.check_protection()
        if self.sign is not None and (self.sum or self.cache is not None):
            raise UsageError("--sign is for one file per client: leave --sum and --cache out")


@dataclass(frozen=True, kw_only=True)
class RoundOptions(Options):
    """What every site of a round of evaluation has alike, beside the heads."""

    _bins = "bins of the scores, LO:HI:COUNT, LO ≤ 0, HI ≥ 1; a unit has a multiple of 15 of them"
    bins: Bins | None = option(
        None, _bins, unset="0:1:240 for probabilities, else -0.5:1.5:240", parse=parse_bins
    )
    _groups = "group of rows that is counted apart; may be repeated, the same at every site"
    groups: tuple[str, ...] = option((), _groups)
    _least = "fewest rows of a group in a file that can be read; groups without rows are allowed"
    min_group: int = option(LEAST, _least, at_least=1)


@dataclass(frozen=True, kw_only=True)
class CountOptions(RoundOptions, LocalStatsOptions):
    """Whose rows are counted, for which heads, and what is done to the counts before they leave."""

    _beside = "another solved head that is counted in the same round; may be repeated"
    beside: tuple[Path, ...] = option((), _beside)


@dataclass(frozen=True, kw_only=True)
class AggregateOptions(ThreadOptions, SummingOptions):
    """What is added up, and by which law."""

    add: tuple[Path, ...] = option(
        (), "statistics of late clients; may be repeated", in_run=False, only={"offers": ABSENT}
    )
    _subtract = (
        "statistics of clients that leave, or the name of one whose file is in a folder given "
        "here; may be repeated"
    )
    subtract: tuple[Path, ...] = option((), _subtract, in_run=False, only={"law": "sum"})
    _held_out = "file for the sum of the held-out clients"
    held_out: Path | None = option(
        None, _held_out, in_run=False, writes=True, only={"offers": ABSENT}
    )
    _law = "how statistics are added; pairwise is AFL's Theorem 1: slow, for checking"
    law: str = option("sum", _law, choices=("sum", "pairwise"), only={"offers": ABSENT})
    complete: bool = option(
        False,
        "refuse a sum without all clients of the partition, those of --subtract too, or members of "
        "the roster",
        in_run=False,
    )
    _allow_repeats = "add clients even if their rows are in the sum under another name"
    allow_repeats: bool = option(False, _allow_repeats, in_run=False, only={"offers": ABSENT})

    def check(self) -> None:
        self.check_summing()
        if self.offers and self.subtract:
            raise UsageError(f"--subtract: {NO_LEAVING}")


@dataclass(frozen=True, kw_only=True)
class UnitsOptions(Options):
    """How features are summed before they are scaled; all sites do it alike."""

    _bits = "values are summed as multiples of 2^-N, exactly; with 24 the range is ±8,388,608"
    unit_bits: int = option(24, _bits, at_least=0, at_most=40)
    _bins = "bins of the histograms in an octave, a power of 2; 0: no histograms, and no robust"
    bins: int = option(32, _bins, at_least=0, at_most=1024)

    def check(self) -> None:
        if self.bins & (self.bins - 1):
            raise UsageError(f"--bins is a power of 2, or 0; found {self.bins}")


@dataclass(frozen=True, kw_only=True)
class MethodOptions(Options):
    """How features are scaled."""

    _method = (
        "by mean and standard deviation, by median and quartiles, by the least and the largest "
        "value; none: only the means that stand for missing values"
    )
    method: str = option("standard", _method, choices=METHODS, at_solve=True)


@dataclass(frozen=True, kw_only=True)
class ScaleOptions(ThreadOptions, UnitsOptions, EmbeddingsOptions, ProtectionOptions):
    """Options of `scale`: whose rows are summed, and what protects the sums."""

    client: str | None = option(None, "name of this site", unset="that of the file")
    min_rows: int = option(0, "refuse sums of fewer rows", at_least=0, in_result=False)

    def check(self) -> None:
        super().check()
        self.check_protection()
        if self.dp_epsilon is not None:
            raise UsageError("scale adds no noise: leave --dp-epsilon out, or use --mask")
