"""A certificate of unlearning: what was taken out of a total, signed by server and leaver."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import MismatchError
from ..files import headers
from ..values.digest import canonical_json
from . import messages as msg
from .identity import Identity
from .sealing import check_file
from .session import Session

TAKEN, AGREED = "unlearning", "unlearning-agreed"
SAYS = (
    "The total after is the total before less the numbers of the member, and the head after is "
    "its solution. Nothing here proves that copies of the numbers, the total or the head before "
    "were deleted; whoever has both totals knows what was taken out."
)
CERTIFICATE = {
    "session": msg.SHA256,
    "member": msg.name,
    "members": {"before": headers.different_texts, "after": headers.different_texts},
    "total": {"before": msg.SHA256, "after": msg.SHA256},
    "head": {"before": msg.SHA256, "after": msg.SHA256},
    "removed": {"numbers": msg.SHA256, "header": str},
    "solve": {"options": headers.Open({}), "versions": headers.Open({})},
    "says": str,
    "nonce": msg.hexadecimal(16),
}
COUNTERSIGNED = {"member": msg.name, "certificate": dict}


def new(
    session: Session, server: Identity, header: Mapping[str, Any], found: Mapping[str, Any]
) -> msg.Message:
    """The certificate as the server signs it; ``header``: of the member's file; ``found``: members,
    totals, heads, solve."""
    session.agreed.check_server(server.member, f"the private key {server.path}")
    removed = {"numbers": header["digest"], "header": canonical_json(header)}
    own = {"kind": TAKEN, "session": session.digest, "member": header["clients"]["names"][0]}
    rest = {"removed": removed, "says": SAYS, "nonce": secrets.token_hex(16)}
    return server.sign({**own, **msg.without_reals(found), **rest})


def countersigned(path: Path, session: Session, me: Identity) -> msg.Message:
    """A certificate with the signature of the member that leaves."""
    taken, agreed = read(path, session)
    if taken.body["member"] != me.name or agreed:
        who = "has been countersigned" if agreed else f"is for {taken.body['member']!r}"
        raise MismatchError(f"{path} {who}: {me.name!r} cannot sign it")
    session.agreed.check_key(me)
    return me.sign({"kind": AGREED, "member": me.name, "certificate": taken.as_dict()})


def is_certificate(path: Path) -> bool:
    return msg.describe(path).get("kind") in (TAKEN, AGREED)


def read(path: Path, session: Session) -> tuple[msg.Message, bool]:
    """A certificate, and whether it is countersigned; refused unless each signature holds.

    So does the seal of the file that was taken out, if it had one.
    """
    found, where = msg.parse(path), str(path)
    agreed = found["body"].get("kind") == AGREED
    if agreed:
        both = msg.message_of(where, found, AGREED, COUNTERSIGNED)
        found = both.body["certificate"]
    taken = msg.message_of(where, found, TAKEN, CERTIFICATE)
    body, roster = taken.body, session.agreed
    if body["session"] != session.digest:
        raise MismatchError(f"{path} is of the session {body['session'][:12]}, not of this one")
    roster.check_signed_by_server(where, taken)
    if agreed:
        roster.member(body["member"], where).check(where, both)
    header = json.loads(body["removed"]["header"])
    name, _ = check_file(session.round(header["context"]["head"]), path, header)
    if name != body["member"] or header["digest"] != body["removed"]["numbers"]:
        raise MismatchError(f"{path}: what was taken out is not what {name!r} has sealed")
    return taken, agreed
