"""What sites and server have in common: turns, legs of the plan, and what letters tell of them."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import InputError, UnreachableError, UsageError
from ..files.atomic import link_or_copy, write_bytes
from ..files.hdf5 import read_header
from ..files.heads import load_head
from ..files.schema import FINAL_HEAD, SUMMARY, versions
from ..files.session_folder import SessionFolder
from ..files.tables import write_json
from ..heads.base import Head
from ..inputs import distinct_files
from ..options.privacy import CourierOptions
from ..plans import sessions as plan
from ..privacy import messages as msg
from ..privacy.identity import Identity
from ..privacy.session import Session
from ..privacy.session import load as load_session
from ..progress import log, quiet, stop_point
from .depot import Depot
from .letters import Letters, Parcel

SESSION = "session.json"  # in the place
LARGEST = 16 << 20  # bytes of a session
DONE, CLOSED, REFUSED = "done", "closed-", "refused-"  # letters beside those of the plan
SOLVED = "solved"  # what a head says in place of its next phase
SLICE = 0.5  # seconds after which a sleeping process looks for a signal
REMIND = 3600  # seconds after which a process says again for whom it waits


class Clock:
    """The time, and waiting; tests have another one."""

    def now(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            stop_point()
            time.sleep(min(SLICE, left))


class Party(ABC):
    """A site or the server: its folder, its key, and its letters in the place."""

    def __init__(
        self, url: str, folder: Path, me: Identity, o: CourierOptions, clock: Clock | None
    ) -> None:
        self.depot, self.folder, self.me, self.o = Depot(url), SessionFolder(folder), me, o
        self.clock = clock or Clock()
        if Path(url.removeprefix("file://")).resolve() == folder.resolve():
            raise UsageError(
                f"{url} is the place that all reach, and the folder that only you have ({folder}): "
                "give another one with -o"
            )

    @cached_property
    def session(self) -> Session:
        return load_session(self.folder.session)

    @cached_property
    def letters(self) -> Letters:
        session, root = self.session, self.folder.root
        return Letters(self.depot, session.digest, session.people, root, self.me, self.clock.now)

    @property
    def masked(self) -> bool:
        return self.session.agreed.terms.masked

    @abstractmethod
    def turn(self) -> str:
        """Do what can be done now; returns what is waited for, '' at the end."""

    def take_turns(self) -> Path:
        """Take turns until the end, with ``once`` a single one; returns the folder.

        A place that was reached once may be away for any time.
        """
        said, when, reached = "", 0.0, False
        while True:
            stop_point()
            try:
                waits, reached = self.turn(), True
            except UnreachableError as error:
                if self.o.once or not reached:
                    raise
                waits = f"{self.depot.url}, which is away ({error})"
            if waits and (waits != said or self.clock.now() - when >= REMIND):
                log.info("session: waiting for %s", waits)
                said, when = waits, self.clock.now()
            if self.o.once or not waits:
                return self.folder.root
            self.clock.sleep(self.o.poll)

    def opening(self, me: plan.Part) -> list[plan.Leg]:
        return plan.opening(self.folder, me) if self.masked else []

    def legs(self, number: int, me: plan.Part) -> Iterator[plan.Leg]:
        asks = self.masked and not self.session.agreed.all
        solved = self.head(number).of_sums
        return plan.legs_of(self.folder, number, me, masked=self.masked, asks=asks, solved=solved)

    def head(self, number: int) -> Head:
        return load_head(self.folder.head(number)).head

    def phase(self, number: int) -> str:
        """What the head of a round gathers next, or `SOLVED`."""
        return self.head(number).phase() or SOLVED

    def heads(self) -> list[int]:
        """The rounds whose heads are there."""
        found = (path.stem.removeprefix("head-") for path in self.folder.root.glob("head-*.h5"))
        return [int(number) for number in found if number.isdecimal()]

    def closed(self, what: str, number: int) -> list[str]:
        """Who is in a step that is closed."""
        letter = self.letters.find(CLOSED + what, number, self.session.server.name)
        return [] if letter is None else list(json.loads(letter.body["text"]))

    def send(self, leg: plan.Leg) -> msg.Message:
        """Carry out a step whose result travels, and send that; what was sent stays as it is."""
        begun, new = self.clock.now(), not self.letters.has(leg.what, leg.round, self.me.name)
        if new:
            self.make(leg)
        made = leg.file(self.me.name)
        letter = self.letters.post(leg.what, leg.round, lambda: [Parcel.of_file(made)])
        if new:
            size = sum(one["bytes"] for one in letter.body["files"]) / 1e6
            took = self.clock.now() - begun
            log.info(
                "session: round %d: %s sent (%.3f MB, %.1f s)", leg.round, leg.what, size, took
            )
        return letter

    def make(self, leg: plan.Leg) -> None:
        """Carry out a step; what it has made of the same inputs is kept."""
        with distinct_files(), quiet():  # what a stage says comes next is what is done here
            leg.step.make()

    def end(self, number: int) -> None:
        """Name the solved head, and write the summary of the session beside it."""
        folder, rounds = self.folder, _history(self.letters, self.session)
        last = number - self.session.evaluated
        head, solved = folder.head(last), self.phase(last) == SOLVED
        with distinct_files():
            if solved:
                link_or_copy(head, folder.root / FINAL_HEAD, "head")
            totals = [folder.total(k) for k in range(1, number + 1) if folder.total(k).exists()]
            found = {
                **_facts(self.session),
                "rounds": rounds,
                "sent_bytes": sum(sum(one["sent"].values()) for one in rounds),
                "head_bytes": sum(one["head_bytes"] for one in rounds),
                "seconds": rounds[-1]["since"] - rounds[0]["since"],
                "totals": [read_header(path, "statistics")["digest"] for path in totals],
                "head": read_header(head, "head")["digest"],
                "versions": versions(),
            }
            write_json(found, folder.root / SUMMARY, overwrite=True)


def last_name(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def refusal(name: str, letter: msg.Message) -> str:
    """What a refusal is about: whose letter, and which."""
    return f"{name} {letter.digest[:16]}"


# ---------------------------------------------------------------- what letters tell


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
    while (head := letters.find(plan.HEAD, number, server)) is not None:
        since, before = head.body["time"], sum(seen.values())
        seen |= {one["sha256"]: one["bytes"] for one in head.body["files"]}
        if found:
            found[-1]["seconds"] = since - found[-1]["since"]
        closed = letters.find(CLOSED + plan.STATISTICS, number, server)
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
    kinds = [
        (plan.STATISTICS, number),
        (plan.REVEALED, number),
        *([(plan.OFFERED, 0)] if number == 1 else []),
    ]
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
        return _waiting(letters, "offers", plan.OFFERED, 0, everybody, [server])
    last, before = rounds[-1], [one["members"] for one in rounds[-2:-1]]
    number: int = last["round"]
    if letters.find(plan.TOTAL, number, server) is not None:
        found = _waiting(letters, SOLVED, DONE, number, last["members"], [])
    elif last["phase"] == SOLVED:
        found = _waiting(letters, SOLVED, DONE, number, before[0] if before else [], [])
    else:
        what, who = plan.STATISTICS, everybody
        if last["members"]:
            asked = letters.find(plan.REQUEST, number, server) is not None
            what, who = (plan.REVEALED, last["members"]) if asked else (plan.HEAD, [])
        found = _waiting(letters, f"round {number} ({last['phase']})", what, number, who, [server])
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(last["since"]))
    return {**found, "since": since}


def _waiting(
    letters: Letters, state: str, what: str, number: int, who: list[str], otherwise: list[str]
) -> dict[str, Any]:
    """Of those ``who`` are to send something the ones who have not; ``otherwise`` if all have."""
    late = [name for name in who if letters.find(what, number, name) is None]
    waits = {"what": what if late or not otherwise else plan.HEAD, "who": late or otherwise}
    return {"state": state, "waiting_for": waits, "since": None}
