"""Stages `session_leave` and `session_countersign`: a member leaves, and a certificate of that."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import InputError, MismatchError, UsageError
from ..files.atomic import link_or_copy
from ..files.hdf5 import read_header
from ..files.heads import load_head
from ..files.schema import versions
from ..files.session_folder import SessionFolder
from ..files.statistics import load_statistics
from ..heads.base import binding
from ..options.privacy import CountersignOptions, LeaveOptions
from ..options.statistics import NO_LEAVING, AggregateOptions
from ..privacy import messages as msg
from ..privacy import totals
from ..privacy.identity import Identity
from ..privacy.protection import key_of, keys_in, passphrase
from ..privacy.session import Session
from ..privacy.session import load as load_session
from ..progress import log
from ..values.arrays import canonical_json
from ..values.names import file_stem
from ._agreeing import agree
from ._certificate import AGREED, ANEW, SAYS, TAKEN, check_following, names, read, solved_again
from .stage import STAGES


def session_leave(
    session: Path, out: Path, options: LeaveOptions, *, overwrite: bool = False
) -> Path | list[Path]:
    """Take a member's statistics out of a total of a session and solve the head again.

    Writes total, head and certificate into the folder ``out``; returns the certificate, which the
    server has signed. Exact, for a head of one round whose sums can be read.

    With ``without``: begin the session of the other members in ``out``, with the same first head,
    options, phases and terms; returns its file. Its head is exact, too: all phases are gathered
    again. Under masks and without noise refused unless two members who do not collude leave each
    sum, or ``again``: one sum less the other is what those who left had in it. Once that session
    has ended, with ``key``: a certificate for each who left, in ``out``; returns them.
    """
    o, agreed = options, load_session(session)
    if o.without and o.key is None:
        return _following(session, agreed, out, o, overwrite)
    if o.without and o.key is not None:
        server = key_of(o.key, agreed.server.name, passphrase(o.passphrase_file))
        return _anew(
            SessionFolder(session.parent), agreed, SessionFolder(out), server, o, overwrite
        )
    if o.key is None or o.total is None or o.statistics is None or o.head is None:
        raise UsageError(
            "give --total, --statistics, --head and --key to take a member out of a sum; or "
            "--without NAME to begin another session without it"
        )
    following = f"afltool session leave {session} --without NAME -o next/"
    if agreed.agreed.terms.masked:
        raise UsageError(f"{session} is under masks: {NO_LEAVING}. In a session: {following}")
    if (rounds := len(agreed.phases) - agreed.evaluated) > 1:
        raise UsageError(
            f"the head of {session} has {rounds} rounds, and the later ones depend on "
            "the member that leaves, so all phases have to be gathered again: make a new session "
            f"without it ({following})"
        )
    server = key_of(o.key, agreed.server.name, passphrase(o.passphrase_file))
    total = out / "total.h5"
    taking = AggregateOptions(subtract=(o.statistics,))
    STAGES["aggregate"].make({"files": (o.total,)}, taking, total, overwrite=overwrite)
    head = solved_again(total, o.head, out / "head.h5", overwrite=overwrite)
    both = {"before": (o.total, o.head), "after": (total, head)}
    facts = {
        "members": {when: names(load_statistics(one)) for when, (one, _) in both.items()},
        "total": {when: read_header(one)["digest"] for when, (one, _) in both.items()},
        "head": {when: read_header(one)["digest"] for when, (_, one) in both.items()},
        "solve": _solve_of(o.head),
    }
    header = read_header(o.statistics)
    removed = {"numbers": header["digest"], "header": canonical_json(header)}
    own = {"kind": TAKEN, "member": header["clients"]["names"][0], "removed": removed}
    return _certified(out / "certificate.json", agreed, server, {**own, **facts}, overwrite)


def _following(path: Path, before: Session, out: Path, o: LeaveOptions, overwrite: bool) -> Path:
    """The session of the members that stay; its first head is the same file."""
    old, gone = before.agreed, [before.agreed.member(name, "--without") for name in o.without]
    if old.terms.masked and old.terms.noise is None and not o.again:
        _check_hidden(path, before, {one.name for one in gone})
    stay = [one for one in old.members if one not in gone]
    number, t = secrets.token_hex(16), min(old.threshold, len(stay))
    agreed = replace(old, round=number, members=tuple(stay), threshold=t)
    new, place = replace(before, agreed=agreed), SessionFolder(out)
    head = SessionFolder(path.parent).head(1)
    new.round(binding(load_head(head).head))
    made = agree(new, place.session, overwrite, lambda: link_or_copy(head, place.head(1), "head"))
    again = " --again" if old.terms.masked else ""
    log.info(
        "session leave: next, at a place of its own: afltool session serve URL -o %s, and each "
        "site, with the new digest: afltool session join URL%s; when it has ended, this command "
        "with --key SERVER.key certifies it",
        out,
        again,
    )
    return made


def _check_hidden(path: Path, before: Session, gone: set[str]) -> None:
    """Refuse where a sum less the following one is of fewer than two who do not collude."""
    totals, least = path.parent.glob("round-*/total.h5"), before.agreed.colluding + 2
    sums = [names(load_statistics(one)) for one in totals] or [before.agreed.names()]
    hidden = [both for inside in sums if 0 < len(both := gone.intersection(inside)) < least]
    if hidden:
        who = ", ".join(map(repr, sorted(hidden[0])))
        raise UsageError(
            f"{path}: whoever has the sums with and without {who}, as the server will, knows the "
            f"statistics of {who}. Let at least {least} leave together (--without NAME --without "
            f"OTHER), or give --again if {who} agrees to be known; a session with noise "
            "(--dp-epsilon) allows one to leave (docs/privacy.md)"
        )


def session_countersign(
    paper: Path, out: Path, options: CountersignOptions, *, overwrite: bool = False
) -> Path:
    """Sign a certificate as the member that leaves; returns the file with both signatures."""
    o = options
    (me,) = keys_in(o.key, passphrase(o.passphrase_file))
    found = _countersigned(paper, load_session(o.session), me)
    return msg.write(out, found, overwrite)


# ---------------------------------------------------------------- the certificate


def _anew(
    old: SessionFolder,
    before: Session,
    new: SessionFolder,
    server: Identity,
    o: LeaveOptions,
    overwrite: bool,
) -> list[Path]:
    """Certificates for those who left that the session ``new`` has ended without them."""
    if not new.session.exists():
        raise UsageError(
            f"there is no {new.session}, which would be certified: begin the session of those who "
            "stay with the same command without --key"
        )
    following, first = load_session(new.session), _ended(old)
    check_following(old.session, before, following, o.without)
    rounds, again = _ended(new), {"following": following.digest}
    for number, one in enumerate(rounds, 1):
        head = {**following.agreed.head, "phase": one["phase"], "digest": one["head"]}
        totals.Told.load(totals.place(new.total(number)), following.round(head))
    both, heads = {"before": first, "after": rounds}, {}
    for when, folder in (("before", old), ("after", new)):
        heads[when] = folder.head(len(both[when]) + 1)
    facts = {
        "members": {
            k: sorted({who for one in v for who in one["members"]}) for k, v in both.items()
        },
        "total": {when: every[-1]["total"] for when, every in both.items()},
        "head": {when: read_header(head)["digest"] for when, head in heads.items()},
        "rounds": rounds,
        "solve": _solve_of(heads["after"]),
    }
    made = []
    for name in o.without:
        path = new.root / f"certificate-{file_stem(name)}.json"
        body = {"kind": ANEW, "member": before.agreed.member(name, "--without").name, **again}
        made.append(_certified(path, before, server, {**body, **facts}, overwrite))
    return made


def _ended(folder: SessionFolder) -> list[dict[str, Any]]:
    """The rounds of a session whose head is solved: phase, digests of head and total, members."""
    rounds: list[dict[str, Any]] = []
    while load_head(folder.head(number := len(rounds) + 1)).head.phase() is not None:
        for needed in (folder.total(number), folder.head(number + 1)):
            if not needed.exists():
                raise InputError(f"the session in {folder.root} has not ended: no {needed}")
        header = read_header(folder.total(number), "statistics")
        of, inside = header["context"]["head"], sorted(header["clients"]["names"])
        rounds.append({"phase": of["phase"], "head": of["digest"], "total": header["digest"],
                      "members": inside})  # fmt: skip
    return rounds


def _solve_of(head: Path) -> dict[str, Any]:
    return {"options": read_header(head)["recipe"]["options"], "versions": versions()}


def _certified(
    path: Path, session: Session, server: Identity, facts: Mapping[str, Any], overwrite: bool
) -> Path:
    """Write what was ``found`` as a certificate that the server signs; one that is there stays."""
    session.agreed.check_server(server.member, f"the private key {server.path}")
    if not path.exists() or overwrite:
        rest = {"session": session.digest, "says": SAYS[facts["kind"]]}
        nonce = {"nonce": secrets.token_hex(16)}
        signed = server.sign({**msg.without_reals(facts), **rest, **nonce})
        msg.write(path, signed, overwrite)
    log.info("session leave: next, the member that leaves: afltool session countersign %s", path)
    return path


def _countersigned(path: Path, session: Session, me: Identity) -> msg.Message:
    """A certificate with the signature of the member that leaves."""
    taken, agreed = read(path, session)
    if taken.body["member"] != me.name or agreed:
        who = "has been countersigned" if agreed else f"is for {taken.body['member']!r}"
        raise MismatchError(f"{path} {who}: {me.name!r} cannot sign it")
    session.agreed.check_key(me)
    return me.sign({"kind": AGREED, "member": me.name, "certificate": taken.as_dict()})
