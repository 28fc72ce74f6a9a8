"""Stages `session_leave` and `session_countersign`: a member leaves, and a certificate of that."""

from __future__ import annotations

from pathlib import Path

from ..errors import UsageError
from ..files.hdf5 import read_header
from ..files.headers import versions
from ..files.heads import load_head
from ..files.statistics import load_statistics
from ..options.privacy import NO_LEAVING, CountersignOptions, LeaveOptions
from ..options.statistics import AggregateOptions
from ..privacy import certificate, messages
from ..privacy.protection import key_of, keys_in, passphrase
from ..privacy.session import load as load_session
from ..progress import log
from . import STAGES
from ._unlearning import names, solved_again


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
    if len(agreed.phases) > 1:
        raise UsageError(
            f"the head of {session} has {len(agreed.phases)} rounds, and the later ones depend on "
            "the member that leaves: make a new session without it (afltool session new)"
        )
    assert agreed.agreed.server is not None
    server = key_of(o.key, agreed.agreed.server.name, passphrase(o.passphrase_file))
    total = out / "total.h5"
    taking, more = AggregateOptions(subtract=(o.statistics,)), {"overwrite": overwrite}
    STAGES["aggregate"].make({"files": (o.total,)}, taking, total, **more)
    head = solved_again(total, o.head, out / "head.h5", overwrite)
    used = load_head(o.head).header["recipe"]["options"]
    both = {"before": (o.total, o.head), "after": (total, head)}
    found = {
        "members": {when: names(load_statistics(one)) for when, (one, _) in both.items()},
        "total": {when: _digest(one) for when, (one, _) in both.items()},
        "head": {when: _digest(one) for when, (_, one) in both.items()},
        "solve": {"options": used, "versions": versions()},
    }
    path = out / "certificate.json"
    if not path.exists() or overwrite:
        made = certificate.new(agreed, server, read_header(o.statistics), found)
        messages.write(path, made, overwrite)
    log.info("session leave: next, the member that leaves: afltool session countersign %s", path)
    return path


def session_countersign(
    paper: Path, out: Path, options: CountersignOptions, *, overwrite: bool = False
) -> Path:
    """Sign a certificate as the member that leaves; returns the file with both signatures."""
    o = options
    (me,) = keys_in(o.key, passphrase(o.passphrase_file))
    found = certificate.countersigned(paper, load_session(o.session), me)
    return messages.write(out, found, overwrite)


def _digest(path: Path) -> str:
    return str(read_header(path)["digest"])
