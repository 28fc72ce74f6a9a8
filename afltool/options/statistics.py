"""Options of local-stats, aggregate and solve, and of what protects statistics and sums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from . import ABSENT, GIVEN, Options, option
from .grammars import Numbers, Part, parse_clients
from .shared import SEED, ThreadOptions, table_in

NO_LEAVING = (
    "nobody can leave a sum under masks: the masks cancel only in the whole sum. Make a new round "
    "without the member that leaves, with a new roster; and mind that whoever knows both totals "
    "knows the statistics of that one, so change two members or more at a time, or add noise "
    "(docs/privacy.md)"
)

PASSPHRASE = "file whose first line is the passphrase of the private key"


@dataclass(frozen=True, kw_only=True)
class NoiseOptions(Options):
    """Differential privacy of a client's statistics."""

    dp_epsilon: float | None = option(
        None, "differential privacy: add noise for this ε to the statistics", above=0, in_run=False
    )
    dp_delta: float | None = option(
        None, "differential privacy: its δ", above=0, below=1, in_run=False
    )
    _clip = "differential privacy: the largest norm of a row; longer rows are scaled down"
    clip: float | None = option(None, _clip, above=0, in_run=False)

    def check_noise(self) -> None:
        """Refuse one of the three without the others."""
        budget = [self.dp_epsilon, self.dp_delta, self.clip]
        if any(x is not None for x in budget) and None in budget:
            raise UsageError("differential privacy takes --dp-epsilon, --dp-delta and --clip")


@dataclass(frozen=True, kw_only=True)
class ProtectionOptions(NoiseOptions):
    """Signatures, masks and noise on statistics before they leave a client."""

    sign: Path | None = option(
        None, "sign with this private key NAME.key, or with those of a folder", in_run=False
    )
    roster: Path | None = option(
        None, "roster of the round, or session", in_run=False, only={"sign": GIVEN}
    )
    _mask = "hide the numbers under masks made with these offers (a folder); may be repeated"
    mask: tuple[Path, ...] = option((), _mask, in_run=False)
    _again = (
        "mask rows that were masked in another round, too: whoever learns two sums "
        "whose members differ by one knows the statistics of that one"
    )
    again: bool = option(False, _again, in_run=False, in_result=False, only={"mask": GIVEN})
    passphrase_file: Path | None = option(
        None, PASSPHRASE, in_run=False, in_result=False, only={"sign": GIVEN}
    )

    def check_protection(self) -> None:
        """Refuse options that need others."""
        self.check_noise()
        if self.dp_epsilon is not None and self.sign is None:
            raise UsageError(
                "--dp-epsilon needs --sign KEY: the noise is kept beside the key, so that the same "
                "step again gives the same noise, not a second release that costs ε again"
            )
        if self.mask and (self.sign is None or self.roster is None):
            raise UsageError("--mask OFFERS needs --sign KEY and --roster FILE")


@dataclass(frozen=True, kw_only=True)
class SummingOptions(Options):
    """Whose statistics may be in a sum."""

    roster: Path | None = option(
        None,
        "accept only files that members of this roster, or session, signed for this round",
        in_run=False,
    )
    _offers = "for masked files: the round's offers (a folder); may be repeated"
    offers: tuple[Path, ...] = option((), _offers, in_run=False, only={"roster": GIVEN})
    _key = (
        "private key NAME.key of the roster's server, which signs requests and totals; with "
        "--check that of a member"
    )
    key: Path | None = option(None, _key, in_run=False, only={"roster": GIVEN})
    passphrase_file: Path | None = option(
        None, PASSPHRASE, in_run=False, in_result=False, only={"key": GIVEN}
    )
    _reveal = "for masked files: the answers of the members that stayed (a folder); may be repeated"
    reveal: tuple[Path, ...] = option((), _reveal, in_run=False, only={"offers": GIVEN})

    def check_summing(self) -> None:
        """Refuse options that need others."""
        if self.offers and self.key is None:
            raise UsageError(
                "--offers needs --key SERVER.key, the private key of the roster's server: it signs "
                "what members are asked, and opens their answers"
            )


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
