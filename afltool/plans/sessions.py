"""The plan of a round of a session: steps in order, where each runs, and what travels after it.

Whoever carries it out does the steps of its own place, sends what they make, and waits for what the
other place makes. Nothing here depends on the head: its phase says whether there is another round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..files.session_folder import SessionFolder
from ..options import Options
from ..options.evaluation import RoundOptions
from ..options.privacy import MemberOptions, RevealOptions
from ..options.statistics import AggregateOptions, LocalStatsOptions, SolveOptions
from ..stages.stage import STAGES, Place, Stage
from .plan import Step

_MASKS = "afltool.stages.masks"
OFFER, REVEAL, FORGET = (
    Stage(f"mask {name}", options, {role: ""}, "", Place.SITE, code=f"{_MASKS}:mask_{name}")
    for name, options, role in (
        ("offer", MemberOptions, "roster"),
        ("reveal", RevealOptions, "request"),
        ("forget", MemberOptions, "roster"),
    )
)
GIVEN = Stage("offers", Options, {}, "", Place.SERVER)  # nothing is made: what came is given to all
_COUNTS = "afltool.stages.counts:evaluation"
EVALUATION = Stage("evaluation", RoundOptions, {"heads": ""}, "", Place.SERVER, code=_COUNTS)
# What travels.
OFFERED, OFFERS, STATISTICS, HEAD = "offer", "offers", "statistics", "head"
REQUEST, REVEALED, SIGNED, TOTAL = "request", "reveal", "sum", "total"


@dataclass(frozen=True)
class Leg:
    """A step, and what travels when it is made: ``what`` ('' for nothing), in which round.

    ``file``: the file of a sender by its name, where it is made and where it arrives.
    """

    step: Step
    what: str = ""
    round: int = 0
    file: Callable[[str], Path] = Path

    @property
    def place(self) -> Place:
        return self.step.stage.place


@dataclass(frozen=True)
class Part:
    """What a reader of the plan knows of itself: its key, and at a site its name and features.

    ``test``: features of the round of evaluation, by default the same.
    """

    key: Path
    passphrase_file: Path | None = None
    name: str = ""
    features: Path = Path()
    again: bool = False
    test: Path | None = None

    @property
    def unlocks(self) -> dict[str, Any]:
        return {"key": self.key, "passphrase_file": self.passphrase_file}


def opening(folder: SessionFolder, me: Part) -> list[Leg]:
    """Before the first round of a session under masks: each site's offer, then all offers."""
    step = Step(OFFER, MemberOptions(**me.unlocks), {"roster": folder.session}, folder.offers)
    return [Leg(step, OFFERED, 0, folder.offer), Leg(Step(GIVEN), OFFERS, 0, folder.offer)]


def legs_of(
    folder: SessionFolder, number: int, me: Part, *, masked: bool, asks: bool, solved: bool = True
) -> Iterator[Leg]:
    """The steps of round ``number``, from its head to the next one; or, not ``solved``, its total.

    ``masked``: statistics travel under masks; ``asks``: and the server asks for what does not
    cancel.
    """
    session, head, total = folder.session, folder.head(number), folder.total(number)
    sent = folder.statistics(number, "x").parent
    offers = (folder.offers,) if masked else ()
    signing: dict[str, Any] = {"sign": me.key, "passphrase_file": me.passphrase_file}
    masking: dict[str, Any] = {"mask": offers, "again": me.again} if masked else {}
    gathering = LocalStatsOptions(client=me.name, roster=session, **signing, **masking)
    rows = {"features": me.features if solved else me.test or me.features, "head": head}
    gather = Step(STAGES["local-stats"], gathering, rows, sent)
    yield Leg(gather, STATISTICS, number, partial(folder.statistics, number))
    adding: dict[str, Any] = {**me.unlocks, "roster": session, "offers": offers}
    add = Step(STAGES["aggregate"], AggregateOptions(**adding), {"files": (sent,)}, total)
    if asks:
        request, answers = folder.request(number), folder.reveal(number, "x").parent
        yield Leg(add, REQUEST, number, lambda _: request)
        options = RevealOptions(**me.unlocks, roster=session, offers=offers)
        answer = Step(REVEAL, options, {"request": request}, answers)
        yield Leg(answer, REVEALED, number, partial(folder.reveal, number))
        add = replace(add, options=AggregateOptions(**adding, reveal=(answers,)))
    yield Leg(add, SIGNED, number, lambda _: folder.signed(number))
    if not solved:
        yield Leg(add, TOTAL, number, lambda _: total)
        return
    after = folder.head(number + 1)
    solve = Step(STAGES["solve"], SolveOptions(), {"total": total, "head": head}, after)
    yield Leg(solve, HEAD, number + 1, lambda _: after)


def checking(folder: SessionFolder, number: int, files: Path, me: Part, *, masked: bool) -> Step:
    """What a member does with ``files``, a folder with what all in a sum have sent: compare."""
    offers = (folder.offers,) if masked else ()
    options = AggregateOptions(**me.unlocks, roster=folder.session, offers=offers)
    return Step(STAGES["aggregate"], options, {"files": (files,)}, folder.total(number))


def evaluating(folder: SessionFolder, number: int) -> Step:
    """The round of evaluation of the solved head ``number``: everybody makes the same."""
    solved, after = folder.head(number), folder.head(number + 1)
    return Step(EVALUATION, RoundOptions(), {"heads": (solved,)}, after)


def counting(folder: SessionFolder, number: int, me: Part) -> Step:
    """A site's own counts in the round of evaluation ``number``, which stay there."""
    rows = {"features": me.test or me.features, "head": folder.head(number)}
    kept = folder.kept(me.name)
    return Step(STAGES["local-stats"], LocalStatsOptions(client=me.name), rows, kept.parent)
