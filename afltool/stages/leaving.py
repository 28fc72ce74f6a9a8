"""Stages `session_leave` and `session_countersign`: a member leaves, and a certificate of that."""

from __future__ import annotations

import json
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, MismatchError, UsageError
from ..files import headers
from ..files.hdf5 import read_header
from ..files.headers import versions
from ..files.heads import load_head
from ..files.statistics import load_statistics
from ..heads import make_options
from ..options.privacy import NO_LEAVING, CountersignOptions, LeaveOptions
from ..options.solving import SolveOptions
from ..options.statistics import AggregateOptions
from ..privacy import messages as msg
from ..privacy.identity import Identity
from ..privacy.protection import key_of, keys_in, passphrase
from ..privacy.sealing import check_file
from ..privacy.session import Session, is_session
from ..privacy.session import load as load_session
from ..progress import log
from ..values.digest import canonical_json
from ..values.statistics import Statistics, Sum
from .stage import STAGES

ROUNDING = 1e-9  # largest difference of weights, by the largest one, that other machines make
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


def session_leave(
    session: Path, out: Path, options: LeaveOptions, *, overwrite: bool = False
) -> Path:
    """Take a member's statistics out of a total of a session and solve the head again.

    Writes total, head and certificate into the folder ``out``; returns the certificate, which the
    server has signed. Exact, for a head of one round whose sums can be read.
    """
    o, agreed = options, load_session(session)
    if agreed.agreed.terms.masked:
        raise UsageError(f"{session} is under masks: {NO_LEAVING}")
    if (rounds := len(agreed.phases) - agreed.evaluated) > 1:
        raise UsageError(
            f"the head of {session} has {rounds} rounds, and the later ones depend on "
            "the member that leaves: make a new session without it (afltool session new)"
        )
    server = key_of(o.key, agreed.server.name, passphrase(o.passphrase_file))
    total = out / "total.h5"
    taking, more = AggregateOptions(subtract=(o.statistics,)), {"overwrite": overwrite}
    STAGES["aggregate"].make({"files": (o.total,)}, taking, total, **more)
    head = _solved_again(total, o.head, out / "head.h5", overwrite)
    both = {"before": (o.total, o.head), "after": (total, head)}
    found = {
        "members": {when: _names(load_statistics(one)) for when, (one, _) in both.items()},
        "total": {when: read_header(one)["digest"] for when, (one, _) in both.items()},
        "head": {when: read_header(one)["digest"] for when, (_, one) in both.items()},
        "solve": {"options": read_header(o.head)["recipe"]["options"], "versions": versions()},
    }
    path = out / "certificate.json"
    if not path.exists() or overwrite:
        made = _certificate(agreed, server, read_header(o.statistics), found)
        msg.write(path, made, overwrite)
    log.info("session leave: next, the member that leaves: afltool session countersign %s", path)
    return path


def session_countersign(
    paper: Path, out: Path, options: CountersignOptions, *, overwrite: bool = False
) -> Path:
    """Sign a certificate as the member that leaves; returns the file with both signatures."""
    o = options
    (me,) = keys_in(o.key, passphrase(o.passphrase_file))
    found = _countersigned(paper, load_session(o.session), me)
    return msg.write(out, found, overwrite)


def check_certificate(papers: Sequence[Path], files: Sequence[Path]) -> dict[str, Any]:
    """Repeat what a certificate says: its signatures, the subtraction and the solve.

    ``papers``: the certificate and the session's file; ``files``: both totals and both heads.
    """
    certificates = [p for p in papers if _is_certificate(p)]
    sessions = [p for p in papers if is_session(p)]
    if not sessions or not certificates:
        raise InputError("a certificate is checked with the file of its session: give session.json")
    path = certificates[-1]
    taken, agreed = _read(path, load_session(sessions[0]))
    body = taken.body
    totals, heads = _by_digest(body, files)
    before, after = load_statistics(totals["before"]), load_statistics(totals["after"])
    found = {"before": _names(before), "after": _names(after)}
    gone = [*set(found["before"]) - set(found["after"])]
    if found != body["members"] or gone != [body["member"]]:
        raise MismatchError(f"{path} names other members than the totals: {body['members']}")
    if Sum(before).subtract(after).result().digest() != body["removed"]["numbers"]:
        raise MismatchError(f"{path}: the totals differ by other numbers than those it names")
    with tempfile.TemporaryDirectory() as folder:
        again = _solved_again(totals["after"], heads["before"], Path(folder) / "head.h5")
        apart = _apart(heads["after"], again)
    log.info(
        "verify: %r is out of the total, the head solves the rest%s; signed by the server%s. %s",
        body["member"], f" up to {apart:.1e}" if apart else ", bit by bit",
        " and the member" if agreed else " alone", body["says"],
    )  # fmt: skip
    return {
        "path": str(path),
        "kind": "certificate",
        "digest": taken.digest,
        "intact": True,
        "member": body["member"],
        "countersigned": agreed,
        "head_differs_by": apart,
        "says": body["says"],
    }


def _solved_again(total: Path, before: Path, out: Path, overwrite: bool = False) -> Path:
    """The head of a total with the options and threads that the head ``before`` was solved with."""
    head = load_head(before)
    context = load_statistics(total).context.head
    agreed, used = make_options(context["name"], context["options"]), head.head.options
    both = {name: (getattr(used, name), getattr(agreed, name)) for name in agreed.changeable()}
    changed = {name: now for name, (now, then) in both.items() if now != then}
    if head.report.get("ridge_by") == "AdaSSP":  # it follows from the noise of the total
        changed.pop("ridge", None)
    options = SolveOptions(threads=head.header["recipe"]["options"]["threads"])
    how = {"head_options": changed, "overwrite": overwrite}
    STAGES["solve"].make({"total": total}, options, out, **how)
    return out


def _names(total: Statistics) -> list[str]:
    return sorted(who.name for who in total.clients)


def _by_digest(
    body: Mapping[str, Any], files: Sequence[Path]
) -> tuple[dict[str, Path], dict[str, Path]]:
    """The files that a certificate names."""
    known = {read_header(path)["digest"]: path for path in files}
    lacking = [f"the {k} {when}" for k in ("total", "head") for when in ("before", "after")
               if body[k][when] not in known]  # fmt: skip
    if lacking:
        raise InputError(f"the certificate names files that are not given: {', '.join(lacking)}")
    total, head = ({when: known[body[k][when]] for when in body[k]} for k in ("total", "head"))
    return total, head


def _apart(told: Path, again: Path) -> float:
    """The largest difference of two heads' numbers, by the largest; 0 for equal digests."""
    ours, theirs = load_head(told).head, load_head(again).head
    if ours.digest() == theirs.digest():
        return 0.0
    pairs = [(a, theirs.arrays()[name]) for name, a in ours.arrays().items()]
    apart = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)
    if apart > ROUNDING:
        raise MismatchError(f"{told} is not the solution of the total: it differs by {apart:.1e}")
    return apart


# ---------------------------------------------------------------- the certificate


def _certificate(
    session: Session, server: Identity, header: Mapping[str, Any], found: Mapping[str, Any]
) -> msg.Message:
    """The certificate as the server signs it; ``header``: of the member's file; ``found``: members,
    totals, heads, solve."""
    session.agreed.check_server(server.member, f"the private key {server.path}")
    removed = {"numbers": header["digest"], "header": canonical_json(header)}
    own = {"kind": TAKEN, "session": session.digest, "member": header["clients"]["names"][0]}
    rest = {"removed": removed, "says": SAYS, "nonce": secrets.token_hex(16)}
    return server.sign({**own, **msg.without_reals(found), **rest})


def _countersigned(path: Path, session: Session, me: Identity) -> msg.Message:
    """A certificate with the signature of the member that leaves."""
    taken, agreed = _read(path, session)
    if taken.body["member"] != me.name or agreed:
        who = "has been countersigned" if agreed else f"is for {taken.body['member']!r}"
        raise MismatchError(f"{path} {who}: {me.name!r} cannot sign it")
    session.agreed.check_key(me)
    return me.sign({"kind": AGREED, "member": me.name, "certificate": taken.as_dict()})


def _is_certificate(path: Path) -> bool:
    return msg.describe(path).get("kind") in (TAKEN, AGREED)


def _read(path: Path, session: Session) -> tuple[msg.Message, bool]:
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
