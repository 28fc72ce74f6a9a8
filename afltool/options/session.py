"""Options of the courier: who leads a session over a place, and who takes part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .fields import option
from .privacy import KeysOptions


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
    _approve = "digest of the session, which you have compared with the others; at least 16 digits"
    approve: str | None = option(None, _approve)
    again: bool = option(False, "mask rows that were masked in another session, too")


@dataclass(frozen=True, kw_only=True)
class ServeOptions(CourierOptions):
    """How long late members are waited for."""

    _deadline = "hours that a step waits for late members, once the threshold is met"
    deadline: float | None = option(None, _deadline, at_least=0, unset="no end")
