"""What sites and server have in common: turns until nothing is left to do, and legs of the plan."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path

from ..errors import UnreachableError, UsageError
from ..files.heads import load_head
from ..files.session_folder import SessionFolder
from ..heads.base import Head
from ..inputs import distinct_files
from ..options.session import CourierOptions
from ..plans.sessions import Leg, Part, legs_of, opening
from ..privacy import messages as msg
from ..privacy import session as sessions
from ..privacy.identity import Identity
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
    def session(self) -> sessions.Session:
        return sessions.load(self.folder.session)

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

    def opening(self, me: Part) -> list[Leg]:
        return opening(self.folder, me) if self.masked else []

    def legs(self, number: int, me: Part) -> Iterator[Leg]:
        asks = self.masked and not self.session.agreed.all
        solved = self.head(number).of_sums
        return legs_of(self.folder, number, me, masked=self.masked, asks=asks, solved=solved)

    def head(self, number: int) -> Head:
        return load_head(self.folder.head(number)).head

    def phase(self, number: int) -> str:
        """What the head of a round gathers next, or `SOLVED`."""
        return self.head(number).phase() or SOLVED

    def heads(self) -> list[int]:
        """The rounds whose heads are there."""
        found = (path.stem.removeprefix("head-") for path in self.folder.root.glob("head-*.h5"))
        return [int(number) for number in found if number.isdecimal()]

    def send(self, leg: Leg, parcels: Callable[[], list[Parcel]]) -> msg.Message:
        """Carry out a step whose result travels, and send that; what was sent stays as it is."""
        begun, new = self.clock.now(), not self.letters.has(leg.what, leg.round, self.me.name)
        if new:
            self.make(leg)
        letter = self.letters.post(leg.what, leg.round, parcels)
        if new:
            size = sum(one["bytes"] for one in letter.body["files"]) / 1e6
            took = self.clock.now() - begun
            log.info(
                "session: round %d: %s sent (%.3f MB, %.1f s)", leg.round, leg.what, size, took
            )
        return letter

    def make(self, leg: Leg) -> None:
        """Carry out a step; what it has made of the same inputs is kept."""
        with distinct_files(), quiet():  # what a stage says comes next is what is done here
            leg.step.make()


def last_name(url: str) -> str:
    return url.rstrip("/").rpartition("/")[2]


def refusal(name: str, letter: msg.Message) -> str:
    """What a refusal is about: whose letter, and which."""
    return f"{name} {letter.digest[:16]}"
