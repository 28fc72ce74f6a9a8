"""A site of a session: it does the steps of the plan that are its own, and waits for others."""

from __future__ import annotations

from pathlib import Path

from ..errors import MismatchError, UsageError
from ..files.atomic import write_bytes
from ..files.session_folder import SessionFolder
from ..options.privacy import MemberOptions
from ..options.session import JoinOptions
from ..plans.sessions import FORGET, HEAD, OFFERS, TOTAL, Leg, Part
from ..privacy import messages as msg
from ..privacy import session as sessions
from ..privacy.identity import load as load_key
from ..privacy.protection import passphrase
from ..progress import log, quiet
from ..stages.stage import Place
from ..values.names import file_stem
from . import heads
from .depot import Depot
from .letters import Parcel
from .party import (
    DONE,
    LARGEST,
    REFUSED,
    SESSION,
    SOLVED,
    Clock,
    Party,
    file_in,
    heads_in,
    refusal,
    until_done,
)
from .summary import end

SHORTEST = 16  # digits of a digest that somebody compared


def join(
    url: str, options: JoinOptions, out: Path | None = None, *, clock: Clock | None = None
) -> Path:
    """Take part in the session at ``url`` until its head is solved; returns this site's folder.

    With ``once`` only what can be done now. Killed at any moment, the same command goes on from
    there and sends the same bytes.

    Raises:
        UsageError: the session was not approved yet; the message has its digest.
        MismatchError: another session lies there, or the server has refused what this site sent.
        UnreachableError: the place does not answer at the first try.
    """
    o, clock = options, clock or Clock()
    name = load_key(o.key, passphrase(o.passphrase_file)).name
    folder = out or Path(f"{url.rstrip('/').rpartition('/')[2] or 'session'}-{file_stem(name)}")
    until_done(Site(url, folder, o, clock).turn, url, o, clock)
    return folder


class Site:
    """One site's turns: the session comes first, then its `_Member` has it."""

    def __init__(self, url: str, folder: Path, o: JoinOptions, clock: Clock) -> None:
        self.url, self.folder, self.o, self.clock = url, folder, o, clock
        self.depot = Depot(url)
        self.member: _Member | None = None

    def turn(self) -> str:
        if self.member is None:
            if not self._has_session():
                return f"the session at {self.url} (afltool session serve)"
            self.member = _Member(self.url, self.folder, self.o, self.clock)
        return self.member.turn()

    def _has_session(self) -> bool:
        """Whether the session is there; refused unless its digest was compared."""
        place = SessionFolder(self.folder).session
        data = self.depot.read(SESSION, LARGEST)
        if place.exists():
            if data and data != place.read_bytes():
                raise MismatchError(
                    f"{self.url} holds another session than {place}, which was approved: ask the "
                    "server which one is meant; for a new session choose another -o"
                )
            return True
        if not data:
            return False
        draft = write_bytes(data, place.with_name("offered.json"), overwrite=True)
        found = sessions.load(draft)
        self._check_approved(found)
        write_bytes(data, place)
        return True

    def _check_approved(self, found: sessions.Session) -> None:
        said, digest = self.o.approve, found.digest
        if said is None:
            raise UsageError(
                f"the session at {self.url} has the digest {digest}: compare it with the server "
                "and the other sites by telephone; if all have the same, give the same command "
                f"with --approve {digest}"
            )
        if len(said) < SHORTEST or not digest.startswith(said.lower()):
            raise MismatchError(
                f"the session at {self.url} has the digest {digest}, not {said} (--approve): "
                "somebody has put another one there, or the digest is not whole; ask the server"
            )


class _Member(Party):
    """A member of a session that was approved."""

    def __init__(self, url: str, folder: Path, o: JoinOptions, clock: Clock) -> None:
        super().__init__(url, folder, o, clock)
        self.agreed.check_key(self.me)
        self.part = Part(o.key, o.passphrase_file, self.me.name, o.features, o.again)

    def turn(self) -> str:
        if not self.letters.has(OFFERS, 0, self.server):
            for leg in self.opening(self.part):
                if waits := self.carry(leg):
                    return waits
        while number := self.newest():
            phase = self.phase(number)
            if phase == SOLVED:
                return self.finish(number)
            waits = next(filter(None, map(self.carry, self.legs(number, self.part))), "")
            if waits and self.newest() == number:
                return f"{waits} in round {number} ({phase})"
            if self.letters.has(TOTAL, number, self.server):
                return self.finish(number)
        return f"the first head of {self.server!r}"

    def newest(self) -> int:
        """The newest head that the server has published, 0 for none; it is fetched."""
        have = number = max(heads_in(self.folder), default=0)
        while (letter := self.letters.find(HEAD, number + 1, self.server)) is not None:
            number, newest = number + 1, letter
        return number if number == have or self.take(newest, self.folder.head(number)) else have

    def carry(self, leg: Leg) -> str:
        """Do a step of this site, or take what the server made; returns what it waits for."""
        if leg.place is Place.SITE:
            letter = self.send(leg, lambda: [Parcel.of_file(leg.file(self.me.name))])
            self.check_refused(leg, letter)
        elif leg.what:
            found = self.letters.find(leg.what, leg.round, self.server)
            if found is None or not self.take(found, leg.file(self.server)):
                return f"the {leg.what} of {self.server!r}"
        return ""

    def take(self, letter: msg.Message, path: Path) -> bool:
        """Fetch the files of a letter of the server; False where one is not whole yet."""
        b = letter.body
        if b["what"] == HEAD:
            earlier = max((k for k in heads_in(self.folder) if k < b["round"]), default=0)
            head = self.folder.head(earlier) if earlier else None
            whole = path.exists() or heads.receive(
                self.letters, b["files"], self.server, path, head
            )
        else:
            places = [path.with_name(file_in(one["name"])) for one in b["files"]]
            every = zip(b["files"], places, strict=True)
            whole = all(self.letters.fetch(one, place, self.server) for one, place in every)
        if whole and self.letters.keep(letter):
            log.info("session: round %d: %s of %r", b["round"], b["what"], self.server)
        return whole

    def check_refused(self, leg: Leg, letter: msg.Message) -> None:
        """Stop where the server has refused this very letter."""
        about = refusal(self.me.name, letter)
        found = self.letters.arrived(REFUSED + leg.what, leg.round, self.server, about)
        if found is not None:
            raise MismatchError(
                f"{self.server!r} has refused the {leg.what} of {self.me.name!r} in round "
                f"{leg.round}: {found.body['text']}; put it right and join again, with another -o"
            )

    def finish(self, number: int) -> str:
        self.letters.post(DONE, number)
        if self.masked:
            forget = MemberOptions(**self.part.unlocks)
            with quiet():
                FORGET.make({"roster": self.folder.session}, forget, None)
        end(self.folder, self.letters, number, self.session)
        return ""
