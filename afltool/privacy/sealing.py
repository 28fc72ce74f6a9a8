"""A member's signature of a file with arrays: of the whole header, which has their digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, MismatchError
from ..options.privacy import PLAIN
from ..values.arrays import canonical_json
from . import messages as msg
from .identity import Identity
from .roster import Roster

Header = dict[str, Any]
SEAL = {
    "member": msg.name,
    "roster": (msg.SHA256, None),
    "offers": (msg.SHA256, None),
    "header": msg.SHA256,
}


def header_digest(header: Mapping[str, Any]) -> str:
    """SHA-256 of a header without its seal, as any reader finds it in the file."""
    rest = {k: v for k, v in header.items() if k not in ("seal", "kind")}
    text = canonical_json(json.loads(canonical_json(rest)))
    return hashlib.sha256(text.encode()).hexdigest()


def sealing(
    me: Identity, roster: Roster | None, offers: str | None = None
) -> Callable[[Header], Header]:
    """A function that adds a member's seal to a header."""

    def seal(header: Header) -> Header:
        body = {
            "kind": "seal",
            "member": me.name,
            "roster": None if roster is None else roster.digest,
            "offers": offers,
            "header": header_digest(header),
        }
        return {**header, "seal": me.sign(body).as_dict()}

    return seal


def check_file(
    roster: Roster, path: Path, header: Mapping[str, Any]
) -> tuple[str, msg.Message | None]:
    """Whose file it is, and its seal: None where nobody agreed on one and there is none."""
    if roster.terms.mode != PLAIN or "seal" in header:
        seal = check_seal(roster, path, header)
        return seal.body["member"], seal
    name = member_of(roster, path, header)
    roster.check_head(f"{path} of {name!r}", header["context"]["head"])
    return name, None


def member_of(roster: Roster, path: Path, header: Mapping[str, Any]) -> str:
    """The name of the member whose file it is."""
    names = header["clients"]["names"]
    if len(names) != 1:
        raise MismatchError(
            f"{path} is of {len(names)} clients: with --roster each file is of one member"
        )
    return roster.member(names[0], str(path)).name


def check_seal(roster: Roster, path: Path, header: Mapping[str, Any]) -> msg.Message:
    """The seal of one member's file; refused, with the name, unless it is valid for this round."""
    name = member_of(roster, path, header)
    where = f"{path} of {name!r}"
    if "seal" not in header:
        raise MismatchError(
            f"{where} is not signed: expected a seal for the roster {roster.digest[:12]}; make "
            "it again with local-stats --sign KEY --roster FILE"
        )
    seal = msg.message_of(f"the seal of {where}", header["seal"], "seal", SEAL)
    if seal.body["member"] != name:
        raise MismatchError(f"{where} is of {name!r}, but signed by {seal.body['member']!r}")
    if seal.body["roster"] is None:
        raise MismatchError(f"{where} is signed for no roster: give local-stats --roster, too")
    roster.check_message(where, seal)
    if seal.body["header"] != header_digest(header):
        raise CorruptFileError(f"{where} was altered: its header is not the one that was signed")
    roster.check_head(where, header["context"]["head"])
    return seal
