"""What sites and server have in common: turns, legs of the plan, and what letters tell of them."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import InputError, UnreachableError, UsageError
from ..files.atomic import link_or_copy, write_bytes
from ..files.hdf5 import read_header
from ..files.heads import load_head
from ..files.schema import ADDABLE_SPACE, FINAL_HEAD, SUMMARY, Open, different_texts, versions
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
from ..values.names import Phase
from ..values.text import json_text
from .letters import Letters, Parcel
from .urls import ENDING, place_at

SESSION = "session.json"  # in the place
LARGEST = 16 << 20  # bytes of a session
# Letters beside those of the plan.
DONE, CLOSED, REFUSED, CHECKED = "done", "closed-", "refused-", "checked"
STOPPED, RESUMED = "stopped", "resumed"  # the server cannot go on, and can again; counted from 1
ROWS = "rows"  # that of the server with what the first member that sent something has bound
BOUND = {"space": Open(ADDABLE_SPACE), "classes": different_texts}  # what it says of the rows
SERVED = (plan.REQUEST, plan.SIGNED, plan.TOTAL)  # of the server, in a round
SOLVED = "solved"  # what a head says in place of its next phase
GRADIENT = "gradient"  # the kind of a phase
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
        self.depot, self.folder, self.me, self.o = place_at(url), SessionFolder(folder), me, o
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

    @property
    def server(self) -> str:
        return self.session.server.name

    def check_rows(self, where: str | Path, rows: Mapping[str, Any]) -> None:
        """Refuse rows of other features or classes than the session's, which the first member that
        sends something binds where it leaves them open."""
        terms, whose = self.session.agreed.terms, str(self.folder.session)
        if (letter := self.letters.find(ROWS, 0, self.server)) is not None:
            bound = json.loads(letter.body["text"])
            whose = f"{whose}, as {bound.pop('member')!r} has bound it, who sent first"
            terms = replace(terms, **bound)
        terms.check_rows(where, whose, rows)

    @abstractmethod
    def turn(self) -> str:
        """Do what can be done now; returns what is waited for, '' at the end."""

    def take_turns(self) -> Path:
        """Take turns until the end, with ``once`` a single one; returns the folder.

        A place that was reached once may be away for any time.
        """
        last, when, reached = "", 0.0, False
        while True:
            stop_point()
            try:
                waits, reached = self.turn(), True
            except UnreachableError as error:
                if self.o.once or not reached:
                    raise
                waits = f"{self.depot.url}, which is away ({error})"
            if waits and (waits != last or self.clock.now() - when >= REMIND):
                log.info("session: waiting for %s", waits)
                last, when = waits, self.clock.now()
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
        numbers = (path.stem.removeprefix("head-") for path in self.folder.root.glob("head-*.h5"))
        return [int(number) for number in numbers if number.isdecimal()]

    def closed(self, what: str, number: int) -> list[str]:
        """Who is in a step that is closed."""
        return closed(self.letters, self.session, what, number)

    def send(self, leg: plan.Leg, text: str = "") -> msg.Message:
        """Carry out a step whose result travels, and send that; what was sent stays as it is."""
        begun, new = self.clock.now(), not self.letters.has(leg.what, leg.round, self.me.name)
        if new:
            self.make(leg)
        made = leg.file(self.me.name)
        letter = self.letters.post(leg.what, leg.round, lambda: [Parcel.of_file(made)], text)
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
            summary = {
                **_facts(self.session),
                "rounds": rounds,
                "sent_bytes": sum(sum(one["sent"].values()) for one in rounds),
                "head_bytes": sum(one["head_bytes"] for one in rounds),
                "given_bytes": sum(one["given_bytes"] for one in rounds),
                "seconds": rounds[-1]["since"] - rounds[0]["since"],
                "totals": [read_header(path, "statistics")["digest"] for path in totals],
                "head": read_header(head, "head")["digest"],
                "versions": versions(),
            }
            write_json(summary, folder.root / SUMMARY, overwrite=True)


def last_name(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2].removesuffix(ENDING)


def rows_text(rows: Mapping[str, Any], **more: str) -> str:
    """What a letter says of rows: those of a feature file, or of the context of statistics."""
    return json_text({**msg.without_reals({key: rows[key] for key in BOUND}), **more})


def refusal(name: str, letter: msg.Message) -> str:
    """What a refusal is about: whose letter, and which."""
    return f"{name} {letter.digest[:16]}"


# ---------------------------------------------------------------- what letters tell


def stopped(letters: Letters, server: str) -> tuple[int, msg.Message | None]:
    """Which stop of the server comes next or is in force, and its letter if it is."""
    number = 1
    while letters.find(RESUMED, number, server):
        number += 1
    return number, letters.find(STOPPED, number, server)


def status(url: str) -> dict[str, Any]:
    """Who is in the session at ``url``, who has sent what, who is waited for, and since when.

    It needs no key. What it tells is what the letters there say; only a site that has compared the
    digest knows whose letters they are.
    """
    depot = place_at(url)
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


def takers(letters: Letters, session: Session, phase: str) -> list[str]:
    """Who may send statistics: whose offer came in time; in rounds of gradients who was in the
    round before the first of them, whose sums bound the steps."""
    what, number = plan.OFFERED, 0
    if Phase(phase).kind == GRADIENT:
        kinds = [Phase(one).kind for one in session.phases]
        what, number = plan.STATISTICS, kinds.index(GRADIENT)
    return closed(letters, session, what, number) or session.agreed.names()


def closed(letters: Letters, session: Session, what: str, number: int) -> list[str]:
    """Who is in a step that is closed; nobody before."""
    letter = letters.find(CLOSED + what, number, session.server.name)
    return [] if letter is None else list(json.loads(letter.body["text"]))


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
    """The rounds that have begun: phase, when, and the bytes of files that each member has ``sent``
    and that the server has given to all, offers in the first round; of a head those of its arrays
    that no head before it had."""
    history: list[dict[str, Any]] = []
    seen: dict[str, int] = {}
    server, number = session.server.name, 1
    while (head := letters.find(plan.HEAD, number, server)) is not None:
        since, before = head.body["time"], sum(seen.values())
        seen |= {one["sha256"]: one["bytes"] for one in head.body["files"]}
        if history:
            history[-1]["seconds"] = since - history[-1]["since"]
        new, first = sum(seen.values()) - before, number == 1
        kinds = [(plan.STATISTICS, number), (plan.REVEALED, number), *first * [(plan.OFFERED, 0)]]
        sent = {name: _size(letters, name, kinds) for name in session.agreed.names()}
        given = [*((what, number) for what in SERVED), *first * [(plan.OFFERS, 0)]]
        history.append(
            {
                "round": number,
                "phase": head.body["text"],
                "since": since,
                "members": closed(letters, session, plan.STATISTICS, number),
                "sent": {name: size for name, size in sent.items() if size},
                "head_bytes": new,
                "given_bytes": new + _size(letters, server, given),
            }
        )
        number += 1
    return history


def _size(letters: Letters, sender: str, kinds: Sequence[tuple[str, int]]) -> int:
    """Bytes of the files of some letters of somebody, by what they are and their round."""
    there = (letters.find(what, number, sender) for what, number in kinds)
    return sum(one["bytes"] for letter in there if letter for one in letter.body["files"])


def _now(letters: Letters, session: Session, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """What is waited for, of whom, and since when: the last step that the server has begun."""
    server, everybody = session.server.name, session.agreed.names()
    last = rounds[-1] if rounds else {"round": 0, "phase": None, "members": []}
    number, stay, state = last["round"], last["members"], f"round {last['round']} ({last['phase']})"
    head = (state, plan.STATISTICS, takers(letters, session, last["phase"] or SOLVED))
    if last["phase"] == SOLVED:
        head = (SOLVED, DONE, rounds[-2]["members"] if len(rounds) > 1 else [])
    steps: dict[str, tuple[str, str, list[str]]] = {  # by the letter that begins them
        "session": ("offers", plan.OFFERED, everybody if session.agreed.terms.masked else []),
        plan.HEAD: head,
        CLOSED + plan.STATISTICS: (state, plan.HEAD, []),
        plan.REQUEST: (state, plan.REVEALED, stay),
        CLOSED + plan.REVEALED: (state, plan.HEAD, []),
        plan.TOTAL: (SOLVED, DONE, stay),
    }
    letters_of = {what: letters.find(what, number, server) for what in steps}
    began = next((what for what in reversed(letters_of) if letters_of[what] is not None), "session")
    state, what, who = steps[began]
    have = {name: letters.find(what, number, name) for name in who}
    late = [name for name, letter in have.items() if letter is None]
    current = [letters_of[began]] if late else [letters_of[began], *have.values()]
    times = [letter.body["time"] for letter in current if letter is not None]
    waits = {"what": what, "who": late}
    if not late and state != SOLVED:
        waits = {"what": plan.HEAD, "who": [server]}
    if (stop := stopped(letters, server)[1]) is not None:
        state, waits = f"{state}, stopped: {stop.body['text']}", {"what": RESUMED, "who": [server]}
        times = [stop.body["time"]]
    when = time.localtime(max(times, default=0))
    since = time.strftime("%Y-%m-%d %H:%M:%S", when) if times else None
    return {"state": state, "waiting_for": waits, "since": since}
