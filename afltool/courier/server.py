"""The server of a session: it adds up what has come, refuses by name what does not fit, and solves.

A phase is closed when all have sent, or when the deadline is over and the threshold is met; the
letter that closes it names who is in. What comes later is left aside.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from ..errors import (
    CorruptFileError,
    InvalidDataError,
    MismatchError,
    NumericalError,
    UsageError,
)
from ..files.atomic import delete, link_or_copy
from ..options.session import ServeOptions
from ..plans.sessions import GIVEN, HEAD, OFFERED, REVEALED, STATISTICS, TOTAL, Leg, Part
from ..privacy import messages as msg
from ..progress import log
from ..stages.stage import Place
from ..values.json_text import json_text
from . import heads
from .arrivals import check_arrival
from .letters import Parcel
from .party import (
    CLOSED,
    DONE,
    LARGEST,
    REFUSED,
    SESSION,
    SOLVED,
    Clock,
    Party,
    heads_in,
    refusal,
    until_done,
)
from .summary import end

UNFIT = (MismatchError, CorruptFileError, InvalidDataError, NumericalError, UsageError)
HOUR = 3600  # seconds


def serve(
    url: str, options: ServeOptions, out: Path | None = None, *, clock: Clock | None = None
) -> Path:
    """Lead the session in the folder ``out`` over the place ``url`` until its head is solved.

    With ``once`` only what can be done now. Killed at any moment, the same command goes on from
    there. Returns the folder, which then has the head and summary.json.

    Raises:
        MismatchError: another session lies at ``url``, or the key is not the server's.
        UnreachableError: the place does not answer at the first try.
    """
    o, clock = options, clock or Clock()
    folder = out or Path(url.rstrip("/").rpartition("/")[2])
    until_done(Server(url, folder, o, clock).turn, url, o, clock)
    return folder


class Server(Party):
    """The server's turns."""

    def __init__(self, url: str, folder: Path, o: ServeOptions, clock: Clock) -> None:
        super().__init__(url, folder, o, clock)
        self.agreed.check_server(self.me.member, f"the key {o.key}")
        self.deadline = o.deadline
        self.part = Part(o.key, o.passphrase_file)
        self.since = 0  # when the step began for which sites are waited for

    def turn(self) -> str:
        self.publish()
        for leg in self.opening(self.part):
            if waits := self.carry(leg):
                return waits
        number = max(heads_in(self.folder))
        while True:
            head = self.folder.head(number)
            phase = self.phase(number)
            self.post(HEAD, number, partial(heads.parcels, head), phase)
            if phase == SOLVED:
                return self.finish(number, number - 1)
            for leg in self.legs(number, self.part):
                if waits := self.carry(leg):
                    return f"{waits} in round {number} ({phase})"
            if leg.what == TOTAL:
                return self.finish(number, number)
            number += 1

    def publish(self) -> None:
        """Put the session in the place, unless it is there."""
        there = self.depot.read(SESSION, LARGEST)
        mine = self.folder.session.read_bytes()
        if there not in (b"", mine):
            raise MismatchError(
                f"{self.depot.url} holds another session than {self.folder.session}: a place "
                "has one session; choose another one for this"
            )
        if not there:
            self.depot.send(self.folder.session, SESSION)
        self.post("session", 0)

    def carry(self, leg: Leg) -> str:
        """Collect what sites make, or do a step of the server; returns what it waits for."""
        if leg.place is Place.SITE:
            return self.collect(leg)
        if leg.step.stage is GIVEN:
            offers = [leg.file(name) for name in self.closed(OFFERED, 0)]
            self.post(leg.what, 0, lambda: list(map(Parcel.of_file, offers)))
        elif leg.what and leg.what != HEAD:
            letter = self.send(leg, lambda: [Parcel.of_file(leg.file(self.me.name))])
            self.since = letter.body["time"]
        else:
            self.make(leg)
        return ""

    # ------------------------------------------------------------ what sites send

    def collect(self, leg: Leg) -> str:
        """Accept what has come of a step of the sites; returns for whom is still waited."""
        if self.letters.has(CLOSED + leg.what, leg.round, self.me.name):
            return ""
        wanted = self.senders(leg)
        got = [name for name in wanted if self.accepted(leg, name)]
        absent = [name for name in wanted if name not in got]
        if absent and not self.may_go_on(len(got)):
            late = ", ".join(map(repr, absent))
            return f"the {leg.what} of {late} ({len(got)} of {len(wanted)} have come)"
        self.post(CLOSED + leg.what, leg.round, text=json_text(got))
        late = f"; without {', '.join(map(repr, absent))}" if absent else ""
        log.info("session: round %d: %s of %d%s", leg.round, leg.what, len(got), late)
        return ""

    def senders(self, leg: Leg) -> list[str]:
        """Who is to send something: members that took part in the step before."""
        before = {STATISTICS: (OFFERED, 0), REVEALED: (STATISTICS, leg.round)}
        what, number = before.get(leg.what, ("", 0))
        everybody = leg.what == OFFERED or (what == OFFERED and not self.masked)
        return self.agreed.names() if everybody else self.closed(what, number)

    def closed(self, what: str, number: int) -> list[str]:
        """Who is in a step that is closed."""
        letter = self.letters.find(CLOSED + what, number, self.me.name)
        return [] if letter is None else list(json.loads(letter.body["text"]))

    def is_over(self) -> bool:
        """Whether the deadline of this step is over."""
        if self.deadline is None:
            return False
        return self.clock.now() >= self.since + self.deadline * HOUR

    def may_go_on(self, come: int) -> bool:
        """Whether the deadline is over and the threshold is met."""
        if not self.is_over():
            return False
        return come >= self.agreed.threshold

    def accepted(self, leg: Leg, name: str) -> bool:
        """Whether a member's file has come, is whole and fits; one that does not is refused."""
        kept = self.letters.has(leg.what, leg.round, name)
        letter = self.letters.arrived(leg.what, leg.round, name)
        if kept:
            if letter is not None and letter != self.letters.find(leg.what, leg.round, name):
                self.refuse(leg, letter, "another one had come before, and that one counts")
            return True
        if letter is None:
            return False
        place = leg.file(name)
        draft = self.folder.root / "arriving" / place.name
        files = letter.body["files"]
        if len(files) != 1:
            self.refuse(leg, letter, f"it names {len(files)} files, expected 1")
            return False
        if not self.letters.fetch(files[0], draft, name):
            return False
        try:
            check_arrival(self.session, self.folder, leg, name, draft, self.me)
        except UNFIT as error:  # not a full disk here, nor a place that is away
            self.refuse(leg, letter, str(error))
            return False
        delete(place)  # it was there where this process was killed before the letter was kept
        link_or_copy(draft, place, "")
        delete(draft)
        log.info("session: round %d: %s of %r has come", leg.round, leg.what, name)
        return self.letters.keep(letter)

    def refuse(self, leg: Leg, letter: msg.Message, why: str) -> None:
        """Tell a member, once, that its letter is not in, and why."""
        name = letter.body["sender"]
        self.letters.say_once(f"round {leg.round}: {leg.what} of {name!r} refused: {why}")
        about = refusal(name, letter)
        self.letters.post(REFUSED + leg.what, leg.round, text=why[:2000], about=about)

    # ------------------------------------------------------------ what the server sends

    def post(
        self, what: str, number: int, parcels: Callable[[], list[Parcel]] = list, text: str = ""
    ) -> None:
        """Post a letter; sites are waited for from its time on."""
        self.since = self.letters.post(what, number, parcels, text).body["time"]

    def finish(self, number: int, last: int) -> str:
        """Wait until all that were in the ``last`` sum have the result; then write the summary."""
        waited = [n for n in self.closed(STATISTICS, last) if not self.is_done(n, number)]
        if waited and not self.is_over():
            return f"{', '.join(map(repr, waited))} to fetch the result"
        end(self.folder, self.letters, number, self.session)
        return ""

    def is_done(self, name: str, number: int) -> bool:
        letter = self.letters.find(DONE, number, name)
        if letter is not None:
            self.letters.keep(letter)
        return letter is not None
