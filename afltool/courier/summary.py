"""What letters tell of a session: who is in, who has sent what, bytes and seconds of each round."""

from __future__ import annotations

import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import InputError
from ..files.atomic import link_or_copy, write_bytes
from ..files.hdf5 import read_header
from ..files.headers import versions
from ..files.schema import FINAL_HEAD, SUMMARY
from ..files.session_folder import SessionFolder
from ..files.tables import write_json
from ..inputs import distinct_files
from ..plans.sessions import HEAD, OFFERED, REQUEST, REVEALED, STATISTICS, TOTAL
from ..privacy.session import Session
from ..privacy.session import load as load_session
from .depot import Depot
from .letters import Letters
from .party import CLOSED, DONE, LARGEST, SESSION, SOLVED


def status(url: str) -> dict[str, Any]:
    """Who is in the session at ``url``, who has sent what, who is waited for, and since when.

    It needs no key. What it tells is what the letters there say; only a site that has compared the
    digest knows whose letters they are.
    """
    depot = Depot(url)
    data = depot.read(SESSION, LARGEST)
    if not data:
        raise InputError(
            f"{url} holds no session: the server puts it there (afltool session serve)"
        )
    with TemporaryDirectory() as folder, distinct_files():
        session = load_session(write_bytes(data, Path(folder) / SESSION))
        letters = Letters(depot, session.digest, session.people, Path(folder))
        rounds = _history(letters, session)
        return {"url": url, **_facts(session), "rounds": rounds, **_now(letters, session, rounds)}


def _facts(session: Session) -> dict[str, Any]:
    """What was agreed."""
    agreed = session.agreed
    return {
        "session": session.digest,
        "members": agreed.names(),
        "server": session.server.name,
        "protection": agreed.terms.mode,
        "threshold": agreed.threshold,
    }


def _history(letters: Letters, session: Session) -> list[dict[str, Any]]:
    """The rounds that have begun: phase, when, who has sent how many bytes, bytes of the head.

    A head's bytes are those of its arrays that no head before it had.
    """
    found: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    server, number = session.server.name, 1
    while (head := letters.find(HEAD, number, server)) is not None:
        since, before = head.body["time"], sum(seen.values())
        seen |= {one["sha256"]: one["bytes"] for one in head.body["files"]}
        if found:
            found[-1]["seconds"] = since - found[-1]["since"]
        closed = letters.find(CLOSED + STATISTICS, number, server)
        found.append(
            {
                "round": number,
                "phase": head.body["text"],
                "since": since,
                "members": [] if closed is None else json.loads(closed.body["text"]),
                "sent": _sent(letters, session, number),
                "head_bytes": sum(seen.values()) - before,
            }
        )
        number += 1
    return found


def _sent(letters: Letters, session: Session, number: int) -> dict[str, int]:
    """Bytes that each member has sent in a round; an offer counts in the first one."""
    kinds = [(STATISTICS, number), (REVEALED, number), *([(OFFERED, 0)] if number == 1 else [])]
    found: dict[str, int] = {}
    for name in session.agreed.names():
        for what, of in kinds:
            if (letter := letters.find(what, of, name)) is not None:
                size = sum(one["bytes"] for one in letter.body["files"])
                found[name] = found.get(name, 0) + size
    return found


def _now(letters: Letters, session: Session, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """What is waited for, of whom, and since when."""
    server, everybody = session.server.name, session.agreed.names()
    if not rounds:
        return _waiting(letters, "offers", OFFERED, 0, everybody, [server])
    last, before = rounds[-1], [one["members"] for one in rounds[-2:-1]]
    number: int = last["round"]
    if letters.find(TOTAL, number, server) is not None:
        found = _waiting(letters, SOLVED, DONE, number, last["members"], [])
    elif last["phase"] == SOLVED:
        found = _waiting(letters, SOLVED, DONE, number, before[0] if before else [], [])
    else:
        what, who = STATISTICS, everybody
        if last["members"]:
            asked = letters.find(REQUEST, number, server) is not None
            what, who = (REVEALED, last["members"]) if asked else (HEAD, [])
        found = _waiting(letters, f"round {number} ({last['phase']})", what, number, who, [server])
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last["since"]))
    return {**found, "since": since}


def _waiting(
    letters: Letters, state: str, what: str, number: int, who: list[str], otherwise: list[str]
) -> dict[str, Any]:
    """Of those ``who`` are to send something the ones who have not; ``otherwise`` if all have."""
    late = [name for name in who if letters.find(what, number, name) is None]
    waits = {"what": what if late or not otherwise else HEAD, "who": late or otherwise}
    return {"state": state, "waiting_for": waits, "since": None}


def end(folder: SessionFolder, letters: Letters, number: int, session: Session) -> None:
    """Name the solved head, and write the summary of the session beside it."""
    rounds = _history(letters, session)
    with distinct_files():
        head = folder.head(number)
        if rounds[-1]["phase"] == SOLVED:
            link_or_copy(head, folder.root / FINAL_HEAD, "head")
        totals = [folder.total(k) for k in range(1, number + 1) if folder.total(k).exists()]
        found = {
            **_facts(session),
            "rounds": rounds,
            "sent_bytes": sum(sum(one["sent"].values()) for one in rounds),
            "head_bytes": sum(one["head_bytes"] for one in rounds),
            "seconds": rounds[-1]["since"] - rounds[0]["since"],
            "totals": [read_header(path, "statistics")["digest"] for path in totals],
            "head": read_header(head, "head")["digest"],
            "versions": versions(),
        }
        write_json(found, folder.root / SUMMARY, overwrite=True)
