"""A session: every party replays the same messages, so a member believes nothing of the server.

Round 0 is the roll-call. Each further round sums one thing: raw features for a scale (if agreed),
what the head's phases gather, counts of test rows (if agreed). What is sent:

    key    i  server    the session's key K, and the key of the server's own boxes, for member i
    hello  0  member    SHA-256 of K, and its offer for round 1 (under masks)
    close  r  server    who is in round r, with the digest of each one's hello or sums, and the
                        digest of the close before: once, final
    sums   r  member    its numbers under masks, and its offer for round r + 1
    seen   r  member    which close it has seen: it answers when t members have seen the same
    shares r  member    of those in `close r` the shares of b_u, of those who dropped out of s_u
    total  r  server    in a signed session alone, where members cannot add up
    head   r  server    what its solve has made: every member has solved, too, and compares
    done   r  everybody the last close, the totals and the head: equal for all

All are encrypted for the session but `key`, and in a signed session `sums`, which are for one
reader. Every message is written once, into ``sent``, before it leaves, and the same bytes are sent
again. The server chooses who is in a round, at least the threshold and never more than in the
round before; nothing else. Between rounds of the same rows nobody may drop out, for the difference
of two such sums would tell of it: the session ends instead. What is rubbish, of a member or of the
place, counts as not there.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import AflError, CorruptFileError, IncompleteError, MismatchError
from ..files.atomic import delete, write_once
from ..files.hdf5 import recipe
from ..files.heads import load_head, save_head
from ..files.statistics import load_statistics, save_statistics
from ..heads.base import Head
from ..progress import log
from ..values.statistics import Context, Statistics
from .agreement import Agreement
from .compute import evaluation_of, first_head, solved
from .envelope import OVERHEAD, Box, Envelope, canonical, name_of
from .keys import Keys
from .masking import OWN, PAIRS, SHARE, Offer, Words, offer_size, unmask
from .noise import Noise
from .place import Place
from .scaling import Scaling
from .vectors import Layout

SESSION = "session.json"  # the only file in the place that is no message
DIGEST = re.compile("[0-9a-f]{64}")
MOST = {"close": 1 << 20, "done": 1 << 16, "head": 0}  # bytes of payloads of no fixed size


class Waiting(Exception):
    """What a party waits for, in words; its turn ends there."""


class Replica(ABC):
    """What members and server do alike: who is in a round, what it sums, its total and its head.

    ``folder`` has of each round the head before it (head-R.h5) and the total (total-R.h5); what was
    ``sent`` and ``taken`` are files that never change.
    """

    mended: tuple[str, ...] = ("sent",)  # the folders whose messages are sent again, see `mend`

    def __init__(self, place: Place, folder: Path, agreed: Agreement, me: Keys) -> None:
        self.place, self.folder, self.agreed, self.me = place, folder, agreed, me
        self.box, self._said = Box(agreed.digest, me), set[str]()
        self.private = {"key": me.agreeing}  # what opens the kinds that are for one reader alone
        self._closes, self._heads = dict[int, dict[str, str]](), dict[int, Head]()
        if me.party not in agreed.people.values():
            raise MismatchError(f"the key of {me.name!r} is not that of the session")

    def turn(self) -> str:
        """Do what can be done now; returns what is waited for, '' at the end.

        Raises `IncompleteError` where the session has ended without a head, or goes on without this
        member; `MismatchError` where somebody broke the rules in a way that cannot be passed over;
        `UnreachableError` where the place does not answer: later the same call goes on.
        """
        session = self.agreed.digest.encode()
        if write_once(self.folder / "of-session", session) != session:
            raise MismatchError(f"{self.folder} is of another session: take a folder of its own")
        if not self.known():
            self.keep_head(1, first_head(self.agreed))
        try:
            self.mend()
            self.go_on()
        except Waiting as waiting:
            return str(waiting)
        return ""

    @abstractmethod
    def go_on(self) -> None:
        """`turn`, after what was lost is there again; ends where it is `Waiting`."""

    # ------------------------------------------------------------ messages

    def say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.info(text)

    def path_of(self, kind: str, number: int, sender: str) -> Path:
        own = "sent" if sender == self.me.name else "taken"
        return self.folder / own / name_of(kind, number, sender)

    def post(self, kind: str, number: int, make: Callable[[], bytes], to: bytes = b"") -> str:
        """Send a message, made only once; returns its digest."""
        path = self.path_of(kind, number, self.me.name)
        if not path.exists():
            data = self.box.seal(kind, number, make(), to)
            there = self.place.read(path.name, len(data) + MOST.get(kind, 0))
            with suppress(CorruptFileError):
                self.box.body(kind, number, self.me.party, there or b"")
                raise MismatchError(
                    f"{self.place.url} has {path.name}, signed by you, and {self.folder} does not "
                    "know it: it was restored from a backup, or another copy of your key takes "
                    "part; this session is over for this site"
                )
            write_once(path, data)
        self.send(path)
        return sha256(path.read_bytes()).hexdigest()

    def send(self, path: Path) -> None:
        """Put a message into the place, unless it is there."""
        if self.place.size(path.name) != path.stat().st_size:
            self.place.write(path.name, path.read_bytes())

    def mend(self) -> None:
        """Send again what the place has lost and others may need, who are a round behind at most.

        What a reader finds to be rubbish it empties, so that a look at the sizes is enough.
        """
        least = self.known() - 1
        for folder in self.mended:
            for path in sorted((self.folder / folder).glob("[0-9]*")):
                if int(path.name.partition("-")[0]) >= least:
                    self.send(path)

    def take(
        self, kind: str, number: int, sender: str, digest: str = "", size: int | None = None
    ) -> Envelope | None:
        """A message of somebody if it has come and is whole, kept; what is not counts as not there.

        ``digest``: which one counts; else the first one. ``size``: of its payload, if another than
        that of its kind.
        """
        path = self.path_of(kind, number, sender)
        size = self.payload_size(kind, number) if size is None else size
        kept = path.exists()
        data = path.read_bytes() if kept else self.place.read(path.name, size + OVERHEAD)
        if data is None:
            return None
        try:
            person = self.agreed.people[sender]
            found = self.box.open(kind, number, person, data, self.private.get(kind))
            if kind not in MOST and len(found.payload) != size:
                raise CorruptFileError("another length")
            if digest not in ("", found.digest):
                raise CorruptFileError("not the one that the server has counted")
            self.check_payload(kind, number, sender, found.payload)
        except AflError as error:
            self.say(f"the {kind} of {sender!r} in round {number} counts as not there: {error}")
            if data and not kept:  # so that whoever has the right one sends it again
                with suppress(AflError):
                    self.place.write(path.name, b"")
            return None
        if not kept:
            write_once(path, data)
        return found

    def need(self, kind: str, number: int, sender: str, digest: str = "") -> Envelope:
        """`take`, of what nothing goes on without."""
        found = self.take(kind, number, sender, digest)
        if found is None:
            raise Waiting(f"the {kind} of {sender} in round {number}")
        return found

    def payload_size(self, kind: str, number: int) -> int:
        """Bytes of a payload, which its reader knows beforehand; of some kinds the most."""
        if kind == "shares":
            return SHARE * len(self.closed(number - 1))
        if kind in ("sums", "total"):
            offer = offer_size(self.agreed) if kind == "sums" else 0
            return 8 * self.layout(number).size + offer
        return {**MOST, "key": 64, "hello": 32 + offer_size(self.agreed), "seen": 32}[kind]

    def check_payload(self, kind: str, number: int, sender: str, payload: bytes) -> None:
        """Raise an `AflError` for what is of no use to its readers."""
        if kind == "hello" and payload[:32] != sha256(self.box.group).digest():
            raise CorruptFileError("for another key of the session")
        if kind in ("hello", "sums") and self.agreed.masked:
            self.offer_in(number, sender, payload)
        elif kind == "sums":
            self.layout(number).check_site(np.frombuffer(payload, "<u8"), sender)

    def offer_in(self, number: int, sender: str, payload: bytes) -> Offer:
        """The offer for the next round, with which a hello and sums end."""
        return Offer(self.agreed, number + 1, sender, payload[-offer_size(self.agreed) :])

    # ------------------------------------------------------------ who is in a round

    def closed(self, number: int) -> dict[str, str]:
        """Who is in a round, with the digest of what each has sent: the server says it once."""
        if number < 0:
            return dict.fromkeys(self.agreed.places, "")
        if number not in self._closes:
            before = self.closed(number - 1)
            said = self.need("close", number, self.agreed.server.name).payload
            self._closes[number] = self._names(number, said, before)
        return self._closes[number]

    def close_digest(self, number: int) -> str:
        return "" if number < 0 else self.need("close", number, self.agreed.server.name).digest

    def _names(self, number: int, payload: bytes, before: Mapping[str, str]) -> dict[str, str]:
        try:
            names: dict[str, str] = json.loads(payload)["members"]
            good = names.keys() <= before.keys() and all(map(DIGEST.fullmatch, names.values()))
            said = {"before": self.close_digest(number - 1), "members": names}
            good = good and payload == canonical(said)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            good = False
        if not good:
            raise MismatchError(f"the server has broken the rules: its close of round {number}")
        if gone := sorted(before.keys() - names.keys() if self.overlaps(number) else ()):
            self.forget()
            raise IncompleteError(
                f"the session has ended in round {number}: {', '.join(gone)} dropped out, and sums "
                "of the same rows with and without a member would tell of it. What earlier rounds "
                "have summed is known to all members"
            )
        if len(names) < self.agreed.threshold:
            raise MismatchError(f"the server has closed round {number} below the threshold")
        return names

    def forget(self) -> None:
        """Delete the secrets of all rounds: no sum of mine is opened any more."""
        for path in self.folder.glob("secrets-*"):
            delete(path)

    def overlaps(self, number: int) -> bool:
        """Whether a round is of the same rows as the one before it."""
        return number > 1 and not self.layout(number).first

    def salt(self, number: int) -> str:
        """What the masks of a round belong to: who is in it with which offers, and its head."""
        about = self.close_digest(number - 1), self.head(number).digest(), self.layout(number).phase
        return sha256("\0".join(about).encode()).hexdigest()

    # ------------------------------------------------------------ the schedule

    def head(self, number: int) -> Head:
        """The head before a round; of an evaluation the solved one."""
        if number not in self._heads:
            head = load_head(self.folder / f"head-{number}.h5").head
            self._heads[number] = head.bind(self.agreed.space["dim"], len(self.agreed.classes))
        return self._heads[number]

    def known(self) -> int:
        """The newest round whose head is here."""
        return max((int(p.stem[5:]) for p in self.folder.glob("head-*.h5")), default=0)

    def task(self, number: int) -> Head | None:
        """What a round sums; None after the last one."""
        o, head = self.agreed, self.head(number)
        if o.scale is not None and number == 1:
            return Scaling.within(o.scale).bind(o.space["dim"], len(o.classes))
        if head.phase() is not None:
            return head
        if o.evaluation is not None and self.head(number - 1).phase() is not None:
            return evaluation_of(o, head)
        return None

    def layout(self, number: int) -> Layout:
        task = self.task(number)
        assert task is not None
        return Layout.of(self.agreed, task, number == 1)

    def scale(self) -> Scaling | None:
        """By which rows are scaled, once round 1 is over."""
        task = self.task(1)
        return solved(task, self.total(1)) if isinstance(task, Scaling) else None

    # ------------------------------------------------------------ totals and heads

    def noise(self, number: int) -> Noise | None:
        return Noise.of(self.agreed, self.layout(number)) if self.agreed.noise else None

    def solve(self, number: int, total: Statistics) -> Head:
        """The head one round further, as everybody solves it."""
        head, noise = self.head(number), self.noise(number)
        if self.task(number) is not head:  # a scale, or an evaluation
            return head
        if noise is None:
            return solved(head, total)
        unit = 4.0 ** -self.agreed.space["fraction_bits"]
        return solved(head, total, noise.ridge(total.arrays["gram"], unit, len(total.clients)))

    def total(self, number: int) -> Statistics:
        """The sum of a round, from what its members have sent."""
        path = self.folder / f"total-{number}.h5"
        if not path.exists():
            inside, layout = self.closed(number), self.layout(number)
            x = self.unmasked(number) if self.agreed.masked else self.added(number)
            counts = None if layout.first else self.total(1).class_counts
            try:
                made = layout.statistics(x, inside, counts)
            except AflError as error:
                who = f"masks hide which of {', '.join(inside)} has sent something else"
                if not self.agreed.masked:
                    who = f"{self.agreed.server.name}, the server, says it"
                text = f"the sum of round {number} makes no sense: {error}; {who}"
                raise type(error)(text) from None
            if noise := self.noise(number):
                made = replace(made, context=replace(made.context, noise=noise.facts(self.agreed)))
            save_statistics(path, made, self._recipe(number))
            for old in (self.folder / "taken").glob(f"{number - 2:03d}-sums-*"):
                delete(old)  # everybody has that total, or has left
        return load_statistics(path)

    def _recipe(self, number: int) -> dict[str, Any]:
        return recipe("session", {"round": number}, {"of": self.agreed.digest})

    def added(self, number: int) -> Words:
        """The sum of what members have sent."""
        total = np.zeros(n := self.layout(number).size, np.uint64)
        for name, digest in self.closed(number).items():
            total += np.frombuffer(self.need("sums", number, name, digest).payload, "<u8", n)
        return total

    def offers(self, number: int) -> dict[str, Offer]:
        """The offers of all in a round, from what they have sent in the round before."""
        before, kind = number - 1, "sums" if number > 1 else "hello"
        found = {n: self.need(kind, before, n, d) for n, d in self.closed(before).items()}
        return {name: self.offer_in(before, name, one.payload) for name, one in found.items()}

    def unmasked(self, number: int) -> Words:
        """The sum without masks, from any t right answers; who has lied is named."""
        offers, inside, found = self.offers(number), self.closed(number), dict[str, bytes]()
        taken = {name: self.take("shares", number, name) for name in inside}
        answers = {name: one.payload for name, one in taken.items() if one}
        late = [name for name in inside if name not in answers]
        for i, (giver, offer) in enumerate(offers.items()):
            kind = OWN if giver in inside else PAIRS
            shares = {name: data[SHARE * i :][:SHARE] for name, data in answers.items()}
            secret, wrong = offer.opened(kind, shares)
            if wrong:
                self.say(
                    f"shares of {giver} from {', '.join(wrong)} in round {number} are not those "
                    "that it offered: one of these did not tell the truth"
                )
            if secret is not None:
                found[giver] = secret
            elif late:
                raise Waiting(f"the shares of {', '.join(late)} in round {number}")
            else:
                raise MismatchError(
                    f"the sum of round {number} cannot be opened: of the shares of {giver!r} "
                    f"those of {', '.join(wrong)} are wrong; {giver!r} or these broke the rules"
                )
        total = self.added(number)
        unmask(total, offers, inside, found, self.salt(number))
        return total

    def keep_head(self, number: int, head: Head) -> None:
        context = Context(self.agreed.space, self.agreed.classes)
        save_head(self.folder / f"head-{number}.h5", head, self._recipe(number), context)

    # ------------------------------------------------------------ the end

    def result(self, number: int) -> bytes:
        """What everybody signs: who was in the last round, and so in all, the totals, the head."""
        totals = [load_statistics(self.folder / f"total-{r}.h5").digest() for r in range(1, number)]
        head, last = self.head(number).digest(), self.close_digest(number - 1)
        return canonical({"close": last, "totals": totals, "head": head})

    def done(self, number: int, name: str) -> bool | None:
        """Whether somebody has signed the same end; None: it has not signed yet."""
        found = self.take("done", number, name)
        return None if found is None else found.payload == self.result(number)

    def certificate(self) -> dict[str, bool | None]:
        """Who has signed the end that this party knows; see `done`."""
        return {name: self.done(self.known(), name) for name in sorted(self.agreed.people)}
