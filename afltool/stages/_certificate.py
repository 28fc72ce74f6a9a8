"""Certificates of unlearning: what they say, and how anybody checks it (docs/privacy.md)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, MismatchError
from ..files.hdf5 import read_header
from ..files.heads import load_head
from ..files.schema import Open, different_texts
from ..files.statistics import load_statistics
from ..heads import make_options
from ..options.statistics import SolveOptions
from ..privacy import messages as msg
from ..privacy.sealing import check_file
from ..privacy.session import Session, is_session
from ..privacy.session import load as load_session
from ..privacy.totals import Told
from ..progress import log
from ..values.statistics import Statistics, Sum
from ..values.text import difference
from .stage import STAGES

ROUNDING = 1e-9  # largest difference of weights, by the largest one, that other machines make
TAKEN, ANEW, AGREED = "unlearning", "unlearning-anew", "unlearning-agreed"
COPIES = (
    "Nothing here proves that copies of the numbers, the total or the head before were deleted; "
    "whoever has both totals knows what was taken out."
)
SAYS = {
    TAKEN: "The total after is the total before less the numbers of the member, and the head after "
    f"is its solution. {COPIES}",
    ANEW: "The session that follows gathered all its phases from the members named, and the member "
    "is not among them; the head after is the solution of its last total. That each total is the "
    "sum of what these members sent, the server has signed; whoever has their files can check it "
    "(aggregate --check). Nothing here proves what rows they had, or who has seen earlier heads. "
    f"{COPIES}",
}
BOTH = {
    "session": msg.SHA256,
    "member": msg.name,
    "members": {"before": different_texts, "after": different_texts},
    "total": {"before": msg.SHA256, "after": msg.SHA256},
    "head": {"before": msg.SHA256, "after": msg.SHA256},
    "solve": {"options": Open({}), "versions": Open({})},
    "says": str,
    "nonce": msg.hexadecimal(16),
}
ROUND = {"phase": str, "head": msg.SHA256, "total": msg.SHA256, "members": different_texts}
PATTERNS: dict[str, dict[str, Any]] = {
    TAKEN: {**BOTH, "removed": {"numbers": msg.SHA256, "header": str}},
    ANEW: {**BOTH, "following": msg.SHA256, "rounds": [ROUND]},
}
COUNTERSIGNED = {"member": msg.name, "certificate": dict}


def read(path: Path, session: Session) -> tuple[msg.Message, bool]:
    """A certificate, and whether it is countersigned; refused unless each signature holds.

    So does the seal of the file that was taken out, if it had one.
    """
    paper, where = msg.parse(path), str(path)
    agreed = paper["body"].get("kind") == AGREED
    if agreed:
        both = msg.message_of(where, paper, AGREED, COUNTERSIGNED)
        paper = both.body["certificate"]
    kind = ANEW if paper.get("body", {}).get("kind") == ANEW else TAKEN
    taken = msg.message_of(where, paper, kind, PATTERNS[kind])
    body, roster = taken.body, session.agreed
    if body["session"] != session.digest:
        raise MismatchError(f"{path} is of the session {body['session'][:12]}, not of this one")
    roster.check_signed_by_server(where, taken)
    member = roster.member(body["member"], where)
    if agreed:
        member.check(where, both)
    if kind == TAKEN:
        header = json.loads(body["removed"]["header"])
        name, _ = check_file(session.round(header["context"]["head"]), path, header)
        if name != body["member"] or header["digest"] != body["removed"]["numbers"]:
            raise MismatchError(f"{path}: what was taken out is not what {name!r} has sealed")
    return taken, agreed


def check_certificate(papers: Sequence[Path], files: Sequence[Path]) -> dict[str, Any]:
    """Repeat what a certificate says: its signatures, the subtraction or the rounds, the solve.

    ``papers``: the certificate and the session's file; where another session follows its file, too,
    and its signed totals. ``files``: both totals and both heads; or the last total, the head after,
    and of a head of several rounds that before its last one.
    """
    certificates = [p for p in papers if msg.describe(p).get("kind") in (TAKEN, ANEW, AGREED)]
    sessions = {one.digest: one for one in map(load_session, filter(is_session, papers))}
    if not sessions or not certificates:
        raise InputError("a certificate is checked with the file of its session: give session.json")
    path = certificates[-1]
    facts = msg.describe(path)
    of = facts.get("session") or facts["certificate"].get("body", {}).get("session")
    session = sessions.get(of, next(iter(sessions.values())))
    taken, agreed = read(path, session)
    body = taken.body
    if body["kind"] == TAKEN:
        apart, done = _check_taken(path, body, files), "is out of the total"
    else:
        totals = [p for p in papers if msg.describe(p).get("kind") == "total"]
        apart = _check_anew(path, body, session, sessions, totals, files)
        done = f"is in none of the {len(body['rounds'])} totals of the session that follows"
    log.info(
        "verify: %r %s, the head solves the rest%s; signed by the server%s. %s",
        body["member"], done, f" up to {apart:.1e}" if apart else ", bit by bit",
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


def _check_taken(path: Path, body: Mapping[str, Any], files: Sequence[Path]) -> float:
    """The subtraction and the solve; returns by how much the head differs."""
    wanted = [(k, when) for k in ("total", "head") for when in ("before", "after")]
    taken = _given({f"the {k} {when}": body[k][when] for k, when in wanted}, _by_digest(files))
    before, after, head, solved = taken
    totals = {"before": load_statistics(before), "after": load_statistics(after)}
    members = {when: names(total) for when, total in totals.items()}
    gone = [*set(members["before"]) - set(members["after"])]
    if members != body["members"] or gone != [body["member"]]:
        raise MismatchError(f"{path} names other members than the totals: {body['members']}")
    less = Sum(totals["before"]).subtract(totals["after"]).result()
    if less.digest() != body["removed"]["numbers"]:
        raise MismatchError(f"{path}: the totals differ by other numbers than those it names")
    return _apart(solved, after, head)


def _check_anew(
    path: Path, body: Mapping[str, Any], before: Session, sessions: Mapping[str, Session],
    totals: Sequence[Path], files: Sequence[Path],
) -> float:  # fmt: skip
    """Members and signed totals of each round of the session that follows, and its last solve."""
    rounds, name = body["rounds"], body["member"]
    following = sessions.get(body["following"])
    if following is None:
        raise InputError(
            f"{path} names a session that is not given: that of those who stay, "
            f"{body['following'][:12]}"
        )
    check_following(path, before, following, [name])
    _check_rounds(path, rounds, following, totals)
    inside = sorted({who for one in rounds for who in one["members"]})
    if body["members"]["after"] != inside or body["total"]["after"] != rounds[-1]["total"]:
        raise MismatchError(f"{path} says other members or another total after than its rounds")
    known = _by_digest(files)
    named = {one[k] for one in rounds for k in ("head", "total")}
    named |= {*body["total"].values(), *body["head"].values()}
    if strange := [str(p) for digest, p in known.items() if digest not in named]:
        raise MismatchError(f"{path} does not name {', '.join(strange)}: a file of something else")
    wanted = {"the total after": body["total"]["after"], "the head after": body["head"]["after"]}
    if len(rounds) > 1:
        wanted["the head of the last round"] = rounds[-1]["head"]
    total, solved, *start = _given(wanted, known)
    if names(load_statistics(total)) != rounds[-1]["members"]:
        raise MismatchError(f"{path} names other members of the last total than {total}")
    return _apart(solved, total, solved, *start)


def check_following(where: Path, before: Session, after: Session, gone: Collection[str]) -> None:
    """Refuse a session that is not the one before, less at least those who are gone."""
    free = {"members": [], "threshold": 0, "round": ""}
    ours, theirs = ({**one.as_dict(), **free} for one in (before, after))
    old, new = before.agreed, after.agreed
    if wrong := difference(ours, theirs, f"in {old.path}", f"in {new.path}"):
        raise MismatchError(f"{where}: {new.path} does not follow from {old.path}: {wrong}")
    for one in new.members:
        if one.name in gone:
            raise MismatchError(f"{where}: {one.name!r}, who left, is a member of {new.path}")
        if one not in old.members:
            raise MismatchError(f"{where}: {one.name!r} of {new.path} is not in {old.path}")


def _check_rounds(
    path: Path, rounds: Sequence[Mapping[str, Any]], session: Session, totals: Sequence[Path]
) -> None:
    """Compare the rounds that a certificate names with what the server has signed of each."""
    signed = {msg.describe(p)["roster"]: p for p in totals}
    for number, one in enumerate(rounds, 1):
        if session.number(one["phase"]) != number:
            raise MismatchError(f"{path}: {one['phase']!r} is not the phase of round {number}")
        head = {**session.agreed.head, "phase": one["phase"], "digest": one["head"]}
        roster = session.round(head)
        if strange := [who for who in one["members"] if who not in roster.names()]:
            raise MismatchError(f"{path}: {strange[0]!r} of round {number} is not in {roster.path}")
        if (place := signed.pop(roster.digest, None)) is None:
            raise InputError(
                f"{path}: the signed total of round {number} is not given: expected "
                f"round-{number}/total.signed.json of {roster.path.parent}"
            )
        said = Told.load(place, roster).body
        if (said["members"], said["digest"]) != (one["members"], one["total"]):
            raise MismatchError(
                f"{place} and {path} say other things of the total of round {number}"
            )
    if signed or not rounds:
        raise MismatchError(f"{path} names no round of {', '.join(map(str, signed.values()))}")


def solved_again(
    total: Path, like: Path, out: Path, start: Path | None = None, overwrite: bool = False
) -> Path:
    """The head of a total with the options that the head ``like`` was solved with.

    ``start``: the head that the total was gathered for, where there were rounds before.
    """
    head = load_head(like)
    context = load_statistics(total).context.head
    agreed, used = make_options(context["name"], context["options"]), head.head.options
    both = {name: (getattr(used, name), getattr(agreed, name)) for name in agreed.changeable()}
    changed = {name: now for name, (now, then) in both.items() if now != then}
    inputs = {"total": total, **({} if start is None else {"head": start})}
    how: dict[str, Any] = {"head_options": changed, "overwrite": overwrite}
    STAGES["solve"].make(inputs, SolveOptions(), out, **how)
    return out


def names(total: Statistics) -> list[str]:
    """The members in a sum."""
    return sorted(who.name for who in total.clients)


def _by_digest(files: Sequence[Path]) -> dict[str, Path]:
    return {read_header(path)["digest"]: path for path in files}


def _given(wanted: Mapping[str, str], known: Mapping[str, Path]) -> list[Path]:
    """The files of these digests, in order."""
    if lacking := [what for what, digest in wanted.items() if digest not in known]:
        raise InputError(f"the certificate names files that are not given: {', '.join(lacking)}")
    return [known[digest] for digest in wanted.values()]


def _apart(signed: Path, total: Path, like: Path, start: Path | None = None) -> float:
    """The largest difference of a head's numbers and of those solved again, by the largest."""
    with tempfile.TemporaryDirectory() as folder:
        again = solved_again(total, like, Path(folder) / "head.h5", start)
        ours, theirs = load_head(signed).head, load_head(again).head
        if ours.digest() == theirs.digest():
            return 0.0
        pairs = [(a, theirs.arrays()[name]) for name, a in ours.arrays().items()]
        apart = max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs)
    if apart > ROUNDING:
        raise MismatchError(f"{signed} is not the solution of the total: it differs by {apart:.1e}")
    return apart
