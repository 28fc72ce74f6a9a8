"""The server of a session: it adds up what has come, refuses by name what does not fit, and solves.

A phase is closed when all have sent, or when the deadline is over and the threshold is met; the
letter that closes it names who is in. What comes later is left aside.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from .. import errors
from ..errors import CorruptFileError, MismatchError
from ..files.atomic import delete, link_or_copy
from ..files.hdf5 import read_header
from ..files.schema import mismatch
from ..heads.base import binding
from ..inputs import parsed_json
from ..options.privacy import ServeOptions
from ..plans import sessions as plan
from ..privacy import messages as msg
from ..privacy.identity import load
from ..privacy.members import check_sent
from ..privacy.offers import Offers, collected
from ..privacy.protection import passphrase
from ..privacy.reveal import Request, load_reveals
from ..privacy.session import roster_of
from ..progress import log
from ..stages.aggregate import check_repeats
from ..stages.stage import Place
from ..values.names import COUNTS
from ..values.text import json_text
from . import party
from .letters import Parcel, head_parcels
from .urls import refresh

UNFIT = (  # not a full disk here, nor a place that is away
    MismatchError,
    CorruptFileError,
    errors.InvalidDataError,
    errors.NumericalError,
    errors.UsageError,
)
HOUR = 3600  # seconds


def serve(
    url: str, options: ServeOptions, out: Path | None = None, *, clock: party.Clock | None = None
) -> Path:
    """Lead the session in the folder ``out`` over the place ``url`` until its head is solved.

    With ``once`` only what can be done now. Killed at any moment, the same command goes on from
    there. Returns the folder, which then has the head and summary.json.

    Raises:
        MismatchError: another session lies at ``url``, or the key is not the server's.
        UnreachableError: the place does not answer at the first try.
    """
    me = load(options.key, passphrase(options.passphrase_file))
    server = Server(url, out or Path(party.last_name(url)), me, options, clock)
    server.session.agreed.check_server(me.member, f"the key {options.key}")
    return server.take_turns()


class Server(party.Party):
    """The server's turns."""

    o: ServeOptions
    since = 0  # when the step began for which sites are waited for

    def turn(self) -> str:
        waits = self.rounds()
        if (stop := party.stopped(self.letters, self.me.name))[1] is not None:
            self.post(party.RESUMED, stop[0])
        refresh(self.depot)
        return waits

    def make(self, leg: plan.Leg) -> None:
        """Carry out a step; where it fails, the sites are told, once, before the command ends."""
        try:
            super().make(leg)
        except (*UNFIT, errors.IncompleteError) as error:
            number, letter = party.stopped(self.letters, self.me.name)
            why = f"{leg.step.stage.name}: {error}"[:2000]
            self.post(party.STOPPED, number, text=why) if letter is None else None
            refresh(self.depot)
            raise

    def rounds(self) -> str:
        """All that can be done now in the rounds; returns what it waits for."""
        self.publish()
        part = plan.Part(self.o.key, self.o.passphrase_file)
        for leg in self.opening(part):
            if waits := self.carry(leg):
                return waits
        number, evaluated = max(self.heads()), self.session.evaluated
        number -= evaluated and self.phase(number) == COUNTS  # the solved head may be lost there
        while True:
            phase = self.phase(number)
            self.post(plan.HEAD, number, partial(head_parcels, self.folder.head(number)), phase)
            if phase == party.SOLVED:
                if not evaluated:
                    return self.finish(number, number - 1)
                plan.evaluating(self.folder, number).make()
                number += 1
                continue
            for leg in self.legs(number, part):
                if waits := self.carry(leg):
                    return f"{waits} in round {number} ({phase})"
            if leg.what == plan.TOTAL:
                return self.finish(number, number)
            number += 1

    def publish(self) -> None:
        """Put the session in the place, unless it is there."""
        there = self.depot.read(party.SESSION, party.LARGEST)
        if there not in (b"", self.folder.session.read_bytes()):
            raise MismatchError(
                f"{self.depot.url} holds another session than {self.folder.session}: a place "
                "has one session; choose another one for this"
            )
        if not there:
            self.depot.send(self.folder.session, party.SESSION)
        self.post("session", 0)
        if self.letters.has(party.ROWS, 0, self.me.name):
            self.letters.post(party.ROWS, 0)

    def carry(self, leg: plan.Leg) -> str:
        """Collect what sites make, or do a step of the server; returns what it waits for."""
        if leg.place is Place.SITE:
            return self.collect(leg)
        if leg.step.stage is plan.GIVEN:
            offers = [leg.file(name) for name in self.closed(plan.OFFERED, 0)]
            self.post(leg.what, 0, lambda: list(map(Parcel.of_file, offers)))
        elif leg.what and leg.what != plan.HEAD:
            self.since = self.send(leg).body["time"]
        else:
            self.make(leg)
        return ""

    # ------------------------------------------------------------ what sites send

    def collect(self, leg: plan.Leg) -> str:
        """Accept what has come of a step of the sites; returns for whom is still waited."""
        if self.letters.has(party.CLOSED + leg.what, leg.round, self.me.name):
            return ""
        wanted = self.senders(leg)
        got = [name for name in wanted if self.accepted(leg, name)]
        late = ", ".join(repr(name) for name in wanted if name not in got)
        enough = self.is_over() and len(got) >= self.session.agreed.threshold
        if late and not enough:
            return f"the {leg.what} of {late} ({len(got)} of {len(wanted)} have come)"
        self.post(party.CLOSED + leg.what, leg.round, text=json_text(got))
        without = f"; without {late}" if late else ""
        log.info("session: round %d: %s of %d%s", leg.round, leg.what, len(got), without)
        return ""

    def senders(self, leg: plan.Leg) -> list[str]:
        """Who is to send something: members that took part in the step before."""
        if leg.what == plan.REVEALED:
            return self.closed(plan.STATISTICS, leg.round)
        if leg.what == plan.STATISTICS:
            return party.takers(self.letters, self.session, self.phase(leg.round))
        return self.session.agreed.names()

    def is_over(self) -> bool:
        """Whether the deadline of this step is over."""
        hours = self.o.deadline
        return hours is not None and self.clock.now() >= self.since + hours * HOUR

    def accepted(self, leg: plan.Leg, name: str) -> bool:
        """Whether a member's file has come, is whole and fits; one that does not is refused."""
        letter = self.letters.arrived(leg.what, leg.round, name)
        if self.letters.has(leg.what, leg.round, name):
            if letter and letter != self.letters.find(leg.what, leg.round, name):
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
            self.check_arrival(leg, name, draft)
            rows = self.check_alike(leg, letter, draft)
        except UNFIT as error:
            self.refuse(leg, letter, str(error))
            return False
        if rows:
            self.letters.post(party.ROWS, 0, text=rows)
        delete(place)  # it was there where this process was killed before the letter was kept
        link_or_copy(draft, place, "")
        delete(draft)
        log.info("session: round %d: %s of %r has come", leg.round, leg.what, name)
        return self.letters.keep(letter)

    def check_arrival(self, leg: plan.Leg, name: str, path: Path) -> None:
        """Refuse a file that is not what the member ``name`` sends in this step."""
        if leg.what == plan.OFFERED:
            senders = [*collected(roster_of(self.folder.session), [path])]
        else:
            roster = self.session.round(binding(self.head(leg.round)))
            if leg.what == plan.STATISTICS:
                senders = [check_sent(roster, path)]
            else:
                offers = Offers.load(roster, [self.folder.offers])
                request = Request.load(self.folder.request(leg.round), offers)
                senders = [*load_reveals(request, [path], self.me)]
        if senders != [name]:
            raise MismatchError(f"it is of {senders[0]!r}, not of {name!r}")
        if leg.what == plan.STATISTICS and not self.masked:
            check_repeats(path, sorted({*leg.file(name).parent.glob("*.h5")} - {leg.file(name)}))

    def check_alike(self, leg: plan.Leg, letter: msg.Message, path: Path) -> str:
        """Refuse rows that do not go with those of others; returns what is bound by them."""
        name, bound = letter.body["sender"], letter.body["text"]
        where = f"the {leg.what} of {name!r}"
        if leg.what == plan.STATISTICS:
            rows = read_header(path)["context"]
        elif leg.what == plan.OFFERED and bound:  # before there is a file of the rows
            rows = parsed_json(bound, where)
            if wrong := mismatch(rows, party.BOUND, exact=True):
                raise CorruptFileError(f"{where} does not say what its rows are: {wrong}")
        else:
            return ""
        self.check_rows(where, rows)
        return party.rows_text(rows, member=name)

    def refuse(self, leg: plan.Leg, letter: msg.Message, why: str) -> None:
        """Tell a member, once, that its letter is not in, and why."""
        name = letter.body["sender"]
        self.letters.say_once(f"round {leg.round}: {leg.what} of {name!r} refused: {why}")
        about = party.refusal(name, letter)
        self.letters.post(party.REFUSED + leg.what, leg.round, text=why[:2000], about=about)

    # ------------------------------------------------------------ what the server sends

    def post(
        self, what: str, number: int, parcels: Callable[[], list[Parcel]] = list, text: str = ""
    ) -> None:
        """Post a letter; sites are waited for from its time on."""
        self.since = self.letters.post(what, number, parcels, text).body["time"]

    def finish(self, number: int, last: int) -> str:
        """Wait until all that were in the ``last`` sum have the result; then write the summary."""
        waited = []
        for name in self.closed(plan.STATISTICS, last):
            if (letter := self.letters.find(party.DONE, number, name)) is not None:
                self.letters.keep(letter)
            else:
                waited.append(repr(name))
        if waited and not self.is_over():
            return f"{', '.join(waited)} to fetch the result"
        self.end(number)
        return ""
