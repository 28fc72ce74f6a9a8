"""What `--thresholds` says: where the thresholds that cut features into buckets come from."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UsageError
from ...values.parsed import Written


@dataclass(frozen=True)
class Federated:
    """Quantiles of all clients' features, from a first small round."""

    def __str__(self) -> str:
        return "federated"


@dataclass(frozen=True)
class EvenSteps(Written):
    """Even steps from ``low`` to ``high``, which need no data."""

    low: float
    high: float


@dataclass(frozen=True)
class InFile(Written):
    """Quantiles of a feature file, or the thresholds of a head file."""


@dataclass(frozen=True)
class WasRead(Written):
    """What a file held that was read already, by its kind and digest."""


Cuts = Federated | EvenSteps | InFile | WasRead
FEDERATED = Federated()


def parse_cuts(text: str) -> Cuts:
    """'federated', 'range:LO:HI' or a file; in a head file also 'features:DIGEST', 'head:DIGEST'.

    >>> parse_cuts("range:0:2")
    EvenSteps(text='range:0:2', low=0.0, high=2.0)
    """
    if text in ("", str(FEDERATED)):
        return FEDERATED
    if text.startswith("range:"):
        return _even(text)
    return WasRead(text) if text.startswith(("features:", "head:")) else InFile(text)


def _even(text: str) -> EvenSteps:
    try:
        low, high = (float(part) for part in text.split(":")[1:])
    except ValueError:
        low = high = 0.0
    if not -float("inf") < low < high < float("inf"):
        raise UsageError(f"--thresholds range:LO:HI needs numbers LO < HI; found {text!r}")
    return EvenSteps(text, low, high)
