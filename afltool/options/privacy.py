"""Options of keys, rosters and masks, and of what protects statistics and sums."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..values.parsed import Parsed
from .features import SpaceOptions
from .fields import Options, option
from .used_with import GIVEN

PLAIN, SIGNED, MASKED = "plain", "signed", "masked"
MODES = (SIGNED, MASKED)  # how statistics leave the members of a roster
ALL = "all"  # of --threshold
NO_LEAVING = (
    "nobody can leave a sum under masks: the masks cancel only in the whole sum. Make a new round "
    "without the member that leaves, with a new roster; and mind that whoever knows both totals "
    "knows the statistics of that one, so change two members or more at a time, or add noise "
    "(docs/privacy.md)"
)
_PASSPHRASE = "file whose first line is the passphrase of the private key"


@dataclass(frozen=True)
class Threshold(Parsed):
    """How many members must stay until the end; None: all, whose masks need no shares."""

    count: int | None

    def __str__(self) -> str:
        return ALL if self.count is None else str(self.count)


def parse_threshold(given: int | str) -> Threshold:
    """A number from 2 on, or `ALL`.

    >>> str(parse_threshold("3")), parse_threshold("all").count
    ('3', None)
    """
    text = str(given)
    if text == ALL:
        return Threshold(None)
    if not text.isascii() or not text.isdigit() or int(text) < 2:
        raise UsageError(f"--threshold is a number of members from 2 on, or {ALL}; found {text!r}")
    return Threshold(int(text))


@dataclass(frozen=True, kw_only=True)
class KeysOptions(Options):
    """How a private key is kept."""

    passphrase_file: Path | None = option(None, _PASSPHRASE)


@dataclass(frozen=True, kw_only=True)
class LockOptions(KeysOptions):
    """How a private key was kept, and how it is kept from now on."""

    new_passphrase_file: Path = option(help="file whose first line is the new passphrase")


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
class RosterOptions(NoiseOptions, SpaceOptions):
    """What a federation agrees on before a round."""

    head: str = option(help="head file of the round, or a head's name", names_file=True)
    server: Path | None = option(
        None, "public file NAME.pub of the server; rounds under masks need it"
    )
    _protection = "how every member's statistics leave it"
    protection: str | None = option(
        None, _protection, choices=MODES, unset="masked with --server, else signed"
    )
    colluding: int = option(
        0, "members who may work with the server or with each other", at_least=0
    )
    _threshold = (
        "members that must stay until the end for a sum under masks, the others may drop out; all: "
        "without shares, request and answers, and a missing member stops the round"
    )
    threshold: Threshold | None = option(
        None, _threshold, unset="two thirds of them and one more", parse=parse_threshold
    )
    max_rows: int | None = option(
        None, "most rows that a member may have", at_least=1, unset="what int64 allows"
    )

    def check(self) -> None:
        self.check_noise()
        if self.protection == MASKED and self.server is None:
            raise UsageError(
                "--protection masked needs --server NAME.pub (afltool keys new): members answer "
                "only what the server has signed, and only the server can read the answers"
            )


@dataclass(frozen=True, kw_only=True)
class SessionOptions(RosterOptions):
    """What a federation agrees on once, for all phases of a head."""

    members: tuple[Path, ...] = option((), "public files NAME.pub, or their folder")
    protection: str = option(
        MASKED, "how every member's statistics leave it", choices=(PLAIN, *MODES)
    )
    min_rows: int = option(0, "least rows that a member may have", at_least=0)
    _evaluate = "a last round, in which sites count what the solved head gets right on rows of test"
    evaluate: bool = option(False, _evaluate)

    def check(self) -> None:
        super().check()
        if self.server is None:
            raise UsageError(
                "a session needs --server NAME.pub (afltool keys new): the server signs what "
                "members are told"
            )


@dataclass(frozen=True, kw_only=True)
class MemberOptions(KeysOptions):
    """Whose step of a round it is."""

    key: Path = option(help="private key NAME.key, or a folder of them (simulations)")


@dataclass(frozen=True, kw_only=True)
class LeaveOptions(MemberOptions):
    """Who leaves which total; ``key`` is the server's."""

    total: Path = option(help="the total that the member leaves")
    statistics: Path = option(help="the file that the member has sent")
    head: Path = option(help="the head that was solved from the total")


@dataclass(frozen=True, kw_only=True)
class CountersignOptions(MemberOptions):
    """Which session a certificate is of."""

    session: Path = option(help="file of the session")


@dataclass(frozen=True, kw_only=True)
class RevealOptions(MemberOptions):
    """What a survivor opens."""

    roster: Path = option(help="roster of the round, or session")
    offers: tuple[Path, ...] = option((), "offers of the round, a folder or files; may be repeated")


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
        None, _PASSPHRASE, in_run=False, in_result=False, only={"sign": GIVEN}
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
        None, _PASSPHRASE, in_run=False, in_result=False, only={"key": GIVEN}
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


# ---------------------------------------------------------------- sites that are apart


@dataclass(frozen=True, kw_only=True)
class CourierOptions(KeysOptions):
    """Whose step of a session it is, and how it waits."""

    key: Path = option(help="your private key NAME.key")
    once: bool = option(False, "do what can be done now and end, as for cron or Slurm")
    poll: float = option(5.0, "time between two looks at the place", above=0, unit="seconds")


@dataclass(frozen=True, kw_only=True)
class JoinOptions(CourierOptions):
    """What a site takes part with."""

    features: Path = option(help="feature file: all its rows are this site's")
    _test = "feature file that the solved head is evaluated on, if the session says so"
    test: Path | None = option(None, _test)
    _approve = "digest of the session, which you have compared with the others; at least 16 digits"
    approve: str | None = option(None, _approve)
    again: bool = option(False, "mask rows that were masked in another session, too")


@dataclass(frozen=True, kw_only=True)
class ServeOptions(CourierOptions):
    """How long late members are waited for."""

    _deadline = "hours that a step waits for late members, once the threshold is met"
    deadline: float | None = option(None, _deadline, at_least=0, unset="no end")
