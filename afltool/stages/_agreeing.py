"""What is agreed on is written once, and it is said what that means for members."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import AflError, OutputExistsError
from ..privacy import messages as msg
from ..privacy import roster, session
from ..privacy.roster import Roster
from ..privacy.session import Session
from ..progress import log
from ..values.text import difference


def agree(
    new: Roster | Session,
    path: Path,
    overwrite: bool = False,
    place_head: Callable[[], object] = lambda: None,
) -> Path:
    """Write a roster or a session, and before it by ``place_head`` its first head; returns it.

    Another run of the same command: what was agreed stays, with its random number.
    """
    of = session if isinstance(new, Session) else roster
    if path.exists() and not overwrite:
        _check_same(new, path, of.load)
        return path
    new.check()
    place_head()
    msg.write(path, msg.Message(new.as_dict()), overwrite)
    _tell(session.roster_of(path))
    return path


def _tell(agreed: Roster) -> None:
    """What is agreed, and what that means for members."""
    n, t, terms = len(agreed.members), agreed.threshold, agreed.terms
    what = "roster" if agreed.series is None else "session"
    log.info(f"{what}: {agreed.compared}; every member compares this digest over another channel")
    noise = f" with noise, {terms.noise}" if terms.noise else ", without noise"
    rows = "all have features of one space"
    if not terms.space:
        rows = "it names no feature space (--space)"
        rows += "; session serve binds that of the first who sends" if agreed.series else ""
    log.info(f"{what}: statistics leave their members {terms.mode}{noise}; {rows}")
    if agreed.series is not None:
        log.info("session: it takes %d rounds at most", agreed.series.rounds)
    if not terms.masked:
        return
    log.info(
        f"{what}: {t} of {n} members must stay until the end, so {n - t or 'nobody'} may drop out; "
        "whoever has masked cannot leave the sum later"
    )
    if t == 2:
        log.warning(
            f"{what}: with a threshold of 2 the sum may be of two members, each of whom then knows "
            "the other's statistics: total less its own"
        )
    offer = f"afltool mask offer {agreed.path.name} --key NAME.key -o offers/"
    by_hand = "" if agreed.series is None else "afltool session serve, docs/sessions.md; by hand: "
    log.info("%s: next, %seach member: %s", what, by_hand, offer)


def _check_same(
    new: Roster | Session, path: Path, load: Callable[[Path], Roster | Session]
) -> None:
    """Refuse a file of another agreement than ``new``, whose random number may differ."""
    what = new.as_dict()["kind"]
    try:
        there = load(path).as_dict()
    except AflError as error:
        raise OutputExistsError(f"{path} exists and is not a {what} ({error})") from None
    ours, theirs = ({**roster, "round": ""} for roster in (new.as_dict(), there))
    if where := difference(theirs, ours, "in the file", "now"):
        raise OutputExistsError(
            f"{path} exists and is another {what}: {where}; choose another -o, or use --overwrite"
        )
