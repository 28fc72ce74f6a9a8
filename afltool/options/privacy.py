"""Options of keys, rosters, sessions and leaving."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..values.parsed import Parsed
from . import ABSENT, GIVEN, Options, option
from .shared import SpaceOptions
from .statistics import PASSPHRASE, NoiseOptions

PLAIN, SIGNED, MASKED = "plain", "signed", "masked"
MODES = (SIGNED, MASKED)  # how statistics leave the members of a roster
ALL = "all"  # of --threshold
_TAKING_OUT = {"without": ABSENT}


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

    passphrase_file: Path | None = option(None, PASSPHRASE)


@dataclass(frozen=True, kw_only=True)
class LockOptions(KeysOptions):
    """How a private key was kept, and how it is kept from now on."""

    new_passphrase_file: Path = option(help="file whose first line is the new passphrase")


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
class LeaveOptions(KeysOptions):
    """Who leaves which total; or ``without`` whom another session begins."""

    key: Path | None = option(None, "private key NAME.key of the server, which signs")
    total: Path | None = option(None, "the total that the member leaves", only=_TAKING_OUT)
    statistics: Path | None = option(None, "the file that the member has sent", only=_TAKING_OUT)
    head: Path | None = option(None, "the head that was solved from the total", only=_TAKING_OUT)
    _without = (
        "begin another session, of the other members, in which all phases are gathered again; may "
        "be repeated; with --key, once that has ended: certify it"
    )
    without: tuple[str, ...] = option((), _without)
    _again = "also where two sums tell the statistics of a member that leaves masks"
    again: bool = option(False, _again, only={"without": GIVEN})


@dataclass(frozen=True, kw_only=True)
class CountersignOptions(MemberOptions):
    """Which session a certificate is of."""

    session: Path = option(help="file of the session")


@dataclass(frozen=True, kw_only=True)
class RevealOptions(MemberOptions):
    """What a survivor opens."""

    roster: Path = option(help="roster of the round, or session")
    offers: tuple[Path, ...] = option((), "offers of the round, a folder or files; may be repeated")


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
    _check = "fetch what all have sent, and add it up as the server says that it has"
    check_sums: bool = option(False, _check)


@dataclass(frozen=True, kw_only=True)
class ServeOptions(CourierOptions):
    """How long late members are waited for."""

    _deadline = "hours that a step waits for late members, once the threshold is met"
    deadline: float | None = option(None, _deadline, at_least=0, unset="no end")
