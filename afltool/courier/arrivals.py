"""Whether what a member has sent fits the session: refused by name before anything is added up."""

from __future__ import annotations

from pathlib import Path

from ..errors import MismatchError
from ..files.arrays import damage_as_error
from ..files.hdf5 import read_header
from ..files.heads import load_head
from ..files.session_folder import SessionFolder
from ..files.statistics import load_statistics
from ..heads.base import binding
from ..plans.sessions import OFFERED, STATISTICS, Leg
from ..privacy.identity import Identity
from ..privacy.offers import Offers, collected
from ..privacy.request import Request
from ..privacy.reveal import load_reveals
from ..privacy.roster import Roster
from ..privacy.sealing import check_file
from ..privacy.session import Session, roster_of


def check_arrival(
    session: Session, folder: SessionFolder, leg: Leg, name: str, path: Path, me: Identity
) -> None:
    """Refuse a file that is not what the member ``name`` sends in this step.

    Raises:
        MismatchError: of somebody else, of other rows, for another head or phase, or without the
            agreed protection.
        CorruptFileError: damaged, or not signed by the member.
    """
    if leg.what == OFFERED:
        found = [*collected(roster_of(folder.session), [path])]
    else:
        roster = session.round(binding(load_head(folder.head(leg.round)).head))
        if leg.what == STATISTICS:
            found = [check_statistics(roster, path)]
        else:
            request = Request.load(folder.request(leg.round), Offers.load(roster, [folder.offers]))
            found = [*load_reveals(request, [path], me)]
    if found != [name]:
        raise MismatchError(f"it is of {found[0]!r}, not of {name!r}")


def check_statistics(roster: Roster, path: Path) -> str:
    """Whose statistics they are; refused where they were not agreed on, or no rows have them."""
    terms = roster.terms
    header = read_header(path, "masked" if terms.masked else "statistics")
    with damage_as_error(path):
        member, _ = check_file(roster, path, header)
        terms.check_rows(path, roster.path, header["context"])
        terms.check_noise(path, roster.path, header["context"])
    if not terms.masked:
        load_statistics(path)
    return member
