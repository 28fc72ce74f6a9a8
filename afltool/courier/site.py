"""A site of a session: it does the steps of the plan that are its own, and waits for others."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree

from ..errors import IncompleteError, MismatchError, UsageError
from ..files.atomic import write_bytes
from ..files.counts import Counts, read_counts
from ..files.heads import rows_of
from ..inputs import distinct_files
from ..options.privacy import JoinOptions, MemberOptions
from ..plans import sessions as plan
from ..privacy import messages as msg
from ..privacy import session as sessions
from ..privacy.identity import load
from ..privacy.protection import passphrase
from ..privacy.totals import TOTAL
from ..progress import log, quiet
from ..stages.stage import Place
from ..values.names import COUNTS, file_of_name, file_stem
from . import party

SHORTEST = 16  # digits of a digest that somebody compared


def join(
    url: str, options: JoinOptions, out: Path | None = None, *, clock: party.Clock | None = None
) -> Path:
    """Take part in the session at ``url`` until its head is solved; returns this site's folder.

    With ``once`` only what can be done now. Killed at any moment, the same command goes on from
    there and sends the same bytes.

    Raises:
        UsageError: the session was not approved yet; the message has its digest.
        MismatchError: another session lies there, or the server has refused what this site sent.
        UnreachableError: the place does not answer at the first try.
    """
    me = load(options.key, passphrase(options.passphrase_file))
    folder = out or Path(f"{party.last_name(url) or 'session'}-{file_stem(me.name)}")
    return Site(url, folder, me, options, clock).take_turns()


class Site(party.Party):
    """The turns of one site."""

    o: JoinOptions
    has_session = False

    def turn(self) -> str:
        if not self.has_session and not self.take_session():
            return f"the session at {self.depot.url} (afltool session serve)"
        self.check_stopped()
        o = self.o
        part = plan.Part(o.key, o.passphrase_file, self.me.name, o.features, o.again, o.test)
        if not self.letters.has(plan.OFFERS, 0, self.server):
            for leg in self.opening(part):
                if waits := self.carry(leg):
                    return waits
        while number := self.newest():
            if waits := self.check_sums(number, part):
                return waits
            phase = self.phase(number)
            if phase == party.SOLVED:
                if not self.session.evaluated:
                    return self.finish(number, part)
                plan.evaluating(self.folder, number).make()
                continue
            waits = next(filter(None, map(self.carry, self.legs(number, part))), "")
            if waits and self.newest() == number:
                return f"{waits} in round {number} ({phase})"
            if self.letters.has(plan.TOTAL, number, self.server):
                return self.check_sums(number + 1, part) or self.finish(number, part)
        return f"the first head of {self.server!r}"

    def take_session(self) -> bool:
        """Whether the session is there; refused unless its digest was compared."""
        place, url = self.folder.session, self.depot.url
        data = self.depot.read(party.SESSION, party.LARGEST)
        if place.exists():
            if data and data != place.read_bytes():
                raise MismatchError(
                    f"{url} holds another session than {place}, which was approved: ask the "
                    "server which one is meant; for a new session choose another -o"
                )
        elif not data:
            return False
        else:
            draft = write_bytes(data, place.with_name("offered.json"), overwrite=True)
            self.check_approved(sessions.load(draft).digest)
            write_bytes(data, place)
        self.session.agreed.check_key(self.me)
        self.check_test()
        if not self.heads() and not self.letters.has(plan.OFFERED, 0, self.me.name):
            self.own_rows()
        self.has_session = True
        return True

    def check_test(self) -> None:
        """Refuse a session with a round of evaluation and no rows for it, and the reverse."""
        test = self.o.test
        if self.session.evaluated != (test is not None):
            raise UsageError(
                f"the session at {self.depot.url} ends with an evaluation of its head: give your "
                "rows of test, --test FILE"
                if test is None
                else f"the session at {self.depot.url} evaluates no head: leave --test out"
            )

    def check_approved(self, digest: str) -> None:
        approved, url = self.o.approve, self.depot.url
        if approved is None:
            raise UsageError(
                f"the session at {url} has the digest {digest}: compare it with the server "
                "and the other sites by telephone; if all have the same, give the same command "
                f"with --approve {digest}"
            )
        if len(approved) < SHORTEST or not digest.startswith(approved.lower()):
            raise MismatchError(
                f"the session at {url} has the digest {digest}, not {approved} (--approve): "
                "somebody has put another one there, or the digest is not whole; ask the server"
            )

    def newest(self) -> int:
        """The newest head that the server has published, 0 for none; it is fetched.

        No later one than the solved head: what is made of that, this site makes itself.
        """
        have = number = max(self.heads(), default=0)
        solved = bool(have) and self.phase(have) == party.SOLVED
        while not solved and (letter := self.letters.find(plan.HEAD, number + 1, self.server)):
            number, newest = number + 1, letter
            solved = letter.body["text"] == party.SOLVED
        return number if number == have or self.take(newest, self.folder.head(number)) else have

    def carry(self, leg: plan.Leg) -> str:
        """Do a step of this site, or take what the server made; returns what it waits for."""
        if leg.place is Place.SITE:
            within = self.closed(plan.STATISTICS, leg.round)
            if leg.what == plan.STATISTICS and not within:
                within = party.takers(self.letters, self.session, self.phase(leg.round))
            if within and self.me.name not in within:  # too late: the round goes on without it
                return ""
            new = not self.letters.has(leg.what, leg.round, self.me.name)
            rows = self.own_rows() if new and leg.what != plan.REVEALED else ""
            self.check_refused(leg, self.send(leg, rows if leg.what == plan.OFFERED else ""))
        elif leg.what:
            letter = self.letters.find(leg.what, leg.round, self.server)
            if letter is None or not self.take(letter, leg.file(self.server)):
                return f"the {leg.what} of {self.server!r}"
        return ""

    def own_rows(self) -> str:
        """What this site's features are, checked before anything is computed of them."""
        for path in filter(None, (self.o.test, self.o.features)):
            rows = rows_of(path).as_dict()
            self.check_rows(path, rows)
        return party.rows_text(rows)

    def take(self, letter: msg.Message, path: Path) -> bool:
        """Fetch the files of a letter of the server; False where one is not whole yet."""
        b = letter.body
        if b["what"] == plan.HEAD:
            earlier = max((k for k in self.heads() if k < b["round"]), default=0)
            known = self.folder.head(earlier) if earlier else None
            whole = path.exists() or self.letters.fetch_head(b["files"], path, self.server, known)
        else:
            places = [path.with_name(file_in(one["name"])) for one in b["files"]]
            every = zip(b["files"], places, strict=True)
            whole = all(self.letters.fetch(one, place, self.server) for one, place in every)
        if whole and self.letters.keep(letter):
            log.info("session: round %d: %s of %r", b["round"], b["what"], self.server)
        return whole

    def check_sums(self, before: int, part: plan.Part) -> str:
        """Add up what all have sent in earlier rounds, as the server did, and say that it was so;
        returns what it waits for."""
        for number in sorted(self.heads()) if self.o.check_sums else ():
            done = self.letters.has(party.CHECKED, number, self.me.name)
            if number >= before or done or self.phase(number) == party.SOLVED:
                continue
            signed, files = self.folder.signed(number), self.folder.root / "checking"
            letter = self.letters.find(plan.SIGNED, number, self.server)
            if letter is None or not self.take(letter, signed):
                return f"the signed sum of round {number} of {self.server!r}"
            for name in msg.read(signed, "total", TOTAL).body["members"]:
                sent = self.letters.find(plan.STATISTICS, number, name)
                place = files / file_of_name(name)
                if sent is None or not self.letters.fetch(sent.body["files"][0], place, name):
                    return f"the statistics of {name!r} in round {number}, to check the sum"
            with distinct_files():
                plan.checking(self.folder, number, files, part, masked=self.masked).make(check=True)
            rmtree(files)
            self.letters.post(party.CHECKED, number)
        return ""

    def check_stopped(self) -> None:
        """Stop where the server could not go on, unless it does again."""
        if (letter := party.stopped(self.letters, self.server)[1]) is not None:
            raise IncompleteError(
                f"{self.server!r} has stopped at {letter.body['text']}; nothing that you sent is "
                "lost: give the same command again when they say that the session goes on"
            )

    def check_refused(self, leg: plan.Leg, letter: msg.Message) -> None:
        """Stop where the server has refused this very letter."""
        about = party.refusal(self.me.name, letter)
        refusal = self.letters.arrived(party.REFUSED + leg.what, leg.round, self.server, about)
        if refusal is not None:
            raise MismatchError(
                f"{self.server!r} has refused the {leg.what} of {self.me.name!r} in round "
                f"{leg.round}: {refusal.body['text']}; put it right and join again, with another -o"
            )

    def finish(self, number: int, part: plan.Part) -> str:
        self.letters.post(party.DONE, number)
        counted, session = self.phase(number) == COUNTS, self.folder.session
        with quiet():
            if self.masked:
                plan.FORGET.make({"roster": session}, MemberOptions(**part.unlocks), None)
            if counted:
                plan.counting(self.folder, number, part).make()
        if counted:
            own, pooled = self.folder.kept(self.me.name), self.folder.total(number)
            every, mine = (_top1(read_counts(path)) for path in (pooled, own))
            log.info(
                "session: top-1 of all %s (afltool info %s), of your own rows %s (%s)",
                every,
                pooled,
                mine,
                own,
            )
        self.end(number)
        return ""


def _top1(counts: Counts) -> str:
    """Of the solved head: the share of rows that it predicts right."""
    return f"{counts.heads[0].right / max(counts.rows, 1):.2%}"


def file_in(name: str) -> str:
    """The name of a file that a letter has; refused where it leads elsewhere."""
    if Path(name).name != name or name in ("", ".", ".."):
        raise MismatchError(f"a letter names the file {name!r}: expected a name without folders")
    return name
