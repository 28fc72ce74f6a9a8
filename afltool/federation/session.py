"""A session: every party replays the same messages, so a member believes nothing of the server.

Round 0 is the roll-call, rounds 1 … R sum what the head's phases gather. What is sent:

    key    i  server    the key of the session, for the eyes of member i
    hello  0  member    its offer for round 1 (under masks; else nothing)
    close  r  server    who is in round r, with the digest of each one's hello or sums: once, final
    sums   r  member    its numbers under masks, and its offer for round r + 1
    shares r  member    of those in `close r` the shares of b_u, of those who dropped out of s_u
    total  r  server    in a signed session alone, where members cannot add up
    head   r  server    what its solve has made: every member has solved, too, and compares

All but `key` are encrypted for the session, in a signed one `sums` for the server alone. Every
message is written once, into ``sent``, before it leaves, and the same bytes are sent again. The
server chooses who is in a round, at least the threshold and never more than in the round before;
nothing else. A total and a head are functions of the messages.
"""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import AflError, CorruptFileError, IncompleteError, MismatchError
from ..files.atomic import delete, write_once
from ..files.hdf5 import recipe
from ..files.heads import load_head, save_head
from ..files.statistics import load_statistics, save_statistics
from ..heads import make_head, make_options
from ..heads.base import Head
from ..progress import log
from ..values.statistics import Context, Statistics
from .agreement import LARGEST, Agreement
from .envelope import DOMAIN, HEADER, OVERHEAD, Box, Envelope, canonical, name_of
from .keys import Keys, Party, derive
from .masking import SHARE, Secrets, Words, held, mask, offer_size, opened, unmask
from .noise import Noise
from .place import Place
from .vectors import Layout, adopted, packed

SESSION = "session.json"  # the only file in the place that is no message


def first_head(agreed: Agreement) -> Head:
    """The head before its first round: of its name and options alone, nobody sends it."""
    head = make_head(agreed.head["name"], agreed.head["options"])
    head = head.bind(agreed.space["dim"], len(agreed.classes))
    if head.digest() != agreed.head["digest"]:
        raise MismatchError("this afltool makes another first head than was agreed on")
    return head


class Replica(ABC):
    """What members and server do alike. ``folder``: what was sent and taken, which never changes,
    and of each round the head and the total."""

    def __init__(self, place: Place, folder: Path, agreed: Agreement, me: Keys) -> None:
        self.place, self.folder, self.agreed, self.me = place, folder, agreed, me
        self.box, self._done, self._said = Box(agreed.digest, me), set[str](), set[str]()
        self._heads, self._layouts = dict[int, Head](), dict[int, Layout]()
        if me.party not in agreed.people.values():
            raise MismatchError(f"the key of {me.name!r} is not that of the session")

    @abstractmethod
    def turn(self) -> str:
        """Do what can be done now; returns what is waited for, '' at the end."""

    def run(self, poll: float = 5.0) -> None:
        while waits := self.turn():
            self.say(f"waiting for {waits}")
            time.sleep(poll)
            self._done.clear()
            self.send_again()

    def say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            log.info("session: %s", text)

    # ------------------------------------------------------------ messages

    def post(
        self, kind: str, number: int, make: Callable[[], bytes], to: Party | None = None
    ) -> str:
        """Send a message, made only once; returns its digest."""
        path = self.folder / "sent" / (name := name_of(kind, number, self.me.name))
        if not path.exists():
            self._check_not_sent(kind, number, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_once(path, self.box.seal(kind, number, make(), to))
        return self._send(path)

    def _send(self, path: Path) -> str:
        data = path.read_bytes()
        if path.name not in self._done and self.place.read(path.name, len(data)) != data:
            self.place.write(path.name, data)
        self._done.add(path.name)
        return hashlib.sha256(data).hexdigest()

    def send_again(self) -> None:
        """What the place has lost, of any round."""
        for path in sorted((self.folder / "sent").glob("*")):
            self._send(path)

    def _check_not_sent(self, kind: str, number: int, name: str) -> None:
        """A message of mine that this folder does not know: the folder is an old copy."""
        if (there := self.place.read(name, HEADER + 64, start=True)) is None:
            return
        header, _, rest = there.partition(b"\n")
        try:
            self.me.party.check(name, rest[:64], DOMAIN + header)
        except CorruptFileError:
            return  # somebody's rubbish
        raise MismatchError(
            f"{self.place.url} has {name}, signed by you, and {self.folder} does not know it: it was "
            "restored from a backup, or another copy of your key takes part; this session is over"
        )

    def take(
        self, kind: str, number: int, sender: str, size: int, keep: bool = True
    ) -> Envelope | None:
        """A message of somebody if it has come and is whole; the first one counts.

        ``size``: of its payload, at most; nothing larger is read.
        """
        own = "sent" if sender == self.me.name else "taken"
        kept = self.folder / own / (name := name_of(kind, number, sender))
        data = kept.read_bytes() if kept.exists() else self.place.read(name, size + OVERHEAD)
        if data is None:
            return None
        try:
            found = self.box.open(
                kind, number, self.agreed.people[sender], data, self._to(kind, sender)
            )
        except AflError as error:
            self.say(f"{error}; left aside until the right one is there")
            return None
        if keep and not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_once(kept, data)
        return found

    def _to(self, kind: str, sender: str) -> Party | None:
        """With whom alone its key was made, as its reader sees it; None: it is that of all."""
        if kind == "sums" and not self.agreed.masked:
            return self.agreed.people[sender]
        return self.agreed.server if kind == "key" else None

    # ------------------------------------------------------------ what the messages say

    def closed(self, number: int) -> dict[str, str] | None:
        """Who is in a round, with the digest of what each has sent: the server says it once."""
        found = self.take("close", number, self.agreed.server.name, 1 << 20)
        if found is None:
            return None
        before = self.closed(number - 1) if number else dict.fromkeys(
            p.name for p in self.agreed.members)  # fmt: skip
        said: dict[str, str] = json.loads(found.payload)
        if before is None or not set(said) <= set(before) or len(said) < self.agreed.threshold:
            raise MismatchError(
                f"the server has closed round {number} with others than may be in it"
            )
        return said

    def salt(self, number: int) -> str:
        """What the masks of a round belong to: who is in it with which offers, and its head."""
        close = self.take("close", number - 1, self.agreed.server.name, 1 << 20)
        assert close is not None
        return hashlib.sha256((close.digest + self.head(number).digest()).encode()).hexdigest()

    def head(self, number: int) -> Head:
        if number not in self._heads:
            head = load_head(self.folder / f"head-{number}.h5").head
            self._heads[number] = head.bind(self.agreed.space["dim"], len(self.agreed.classes))
        return self._heads[number]

    def layout(self, number: int) -> Layout:
        if number not in self._layouts:
            self._layouts[number] = Layout.of(self.agreed, self.head(number))
        return self._layouts[number]

    def known(self) -> int:
        """The newest round whose head is here."""
        return max((int(p.stem[5:]) for p in self.folder.glob("head-*.h5")), default=0)

    def sums(self, number: int, name: str, digest: str = "") -> bytes | None:
        """What a member has sent in a round: its numbers, then its next offer."""
        size = 8 * self.layout(number).size + offer_size(self.agreed)
        found = self.take("sums", number, name, size, keep=False)
        if found is None or len(found.payload) != size or digest not in ("", found.digest):
            return None
        return found.payload

    def offers(self, number: int) -> dict[str, bytes]:
        """The offers of all in a round; kept when the sums of the round before were read."""
        path, size = self.folder / f"offers-{number}", offer_size(self.agreed)
        names = sorted(self.closed(number - 1) or {})
        if not path.exists():
            assert number == 1
            found = [self.take("hello", 0, name, size) for name in names]
            path.write_bytes(b"".join(one.payload for one in found if one))
        data = path.read_bytes()
        return {name: data[i * size :][:size] for i, name in enumerate(names)}

    # ------------------------------------------------------------ totals and heads

    def noise(self, number: int) -> Noise | None:
        return Noise.of(self.agreed, self.layout(number)) if self.agreed.noise else None

    def absorbed(self, number: int, total: Statistics) -> Head:
        """The head one round further, as everybody solves it."""
        head = self.head(number)
        if noise := self.noise(number):
            unit = 4.0 ** -self.agreed.space["fraction_bits"]
            ridge = noise.ridge(total.arrays["gram"], unit, len(total.clients))
            options = make_options(head.name, {**head.options.as_dict(), "ridge": ridge})
            head = type(head).begin(options).bind(head.dim or 0, head.classes or 0)
        return head.absorb(total)[0]

    def total(self, number: int) -> Statistics | str:
        """The sum of a round, from what its members have sent; or what is waited for."""
        path = self.folder / f"total-{number}.h5"
        if path.exists():
            return load_statistics(path)
        inside = self.closed(number)
        if inside is None:
            return f"the end of round {number}"
        x = self.unmasked(number, inside) if self.agreed.masked else self.added(number, inside)
        if isinstance(x, str):
            return x
        made = self.layout(number).statistics(self.agreed, self.head(number), x, inside)
        if noise := self.noise(number):
            made = replace(made, context=replace(made.context, noise=noise.facts(self.agreed)))
        save_statistics(
            path, made, recipe("session", {"round": number}, {"of": self.agreed.digest})
        )
        return load_statistics(path)

    def added(self, number: int, inside: Mapping[str, str]) -> Words | str:
        """The sum of what members have sent; their next offers are kept."""
        n, offers = self.layout(number).size, []
        total = np.zeros(n, np.uint64)
        for name in sorted(inside):
            data = self.sums(number, name, inside[name])
            if data is None:
                return f"the sums of {name!r} in round {number}"
            total += np.frombuffer(data, "<u8", n)
            offers.append(data[8 * n :])
        (self.folder / f"offers-{number + 1}").write_bytes(b"".join(offers))
        return total

    def unmasked(self, number: int, inside: Mapping[str, str]) -> Words | str:
        offers, places = (
            self.offers(number),
            {p.name: i for i, p in enumerate(self.agreed.members, 1)},
        )
        answers = {}
        for name in inside:
            found = self.take("shares", number, name, SHARE * len(offers))
            if found is not None and len(found.payload) == SHARE * len(offers):
                answers[places[name]] = found.payload
        if len(answers) < self.agreed.threshold:
            late = [name for name in inside if places[name] not in answers]
            return f"the shares of {', '.join(late)} in round {number}"
        found_secrets = {}
        for i, (giver, offer) in enumerate(offers.items()):
            shares = {x: data[SHARE * i :][:SHARE] for x, data in answers.items()}
            kind = "own" if giver in inside else "pairs"
            try:
                found_secrets[giver] = opened(self.agreed, number, giver, kind, offer, shares)
            except CorruptFileError:
                if len(answers) == len(inside):
                    raise
                return f"more shares in round {number}, for some of those that came are wrong"
        total = self.added(number, inside)
        if not isinstance(total, str):
            unmask(total, offers, inside, found_secrets, self.salt(number))
        return total

    def keep_head(self, number: int, head: Head) -> None:
        context = Context(self.agreed.space, self.agreed.classes)
        made_by = recipe("session", {"round": number}, {"of": self.agreed.digest})
        save_head(self.folder / f"head-{number}.h5", head, made_by, context)


class Member(Replica):
    """A site: ``gather`` makes the statistics of its rows for a head, clipped to a norm if any."""

    def __init__(self, place: Place, folder: Path, agreed: Agreement, me: Keys,
                 gather: Callable[[Head, int | None], Statistics]) -> None:  # fmt: skip
        super().__init__(place, folder, agreed, me)
        self.gather = gather

    def turn(self) -> str:
        if not self.begin():
            return "the server to begin"
        self.post("hello", 0, lambda: self.draw(1))
        number = self.known()
        while True:
            inside = self.closed(number - 1)
            if inside is None:
                return f"the server to begin round {number}"
            if self.me.name not in inside:
                raise IncompleteError(f"the session goes on without {self.me.name!r}: it was late")
            if self.head(number).phase() is None:
                return ""
            to = None if self.agreed.masked else self.agreed.server
            mine = self.post("sums", number, lambda: self.protected(number), to)
            inside = self.closed(number)
            if inside is None:
                return f"the sums of others in round {number}"
            if inside.get(self.me.name, mine) != mine:
                raise MismatchError("the server counts other sums than this site has sent: stop")
            if self.agreed.masked and self.me.name in inside:
                if waits := self.agreed_upon(number, inside):
                    return waits
                self.post("shares", number, lambda: self.answer(number, inside))
                delete(self.folder / f"secrets-{number}")
            if waits := self.next_head(number):
                return waits
            number += 1

    def begin(self) -> bool:
        """Take the key of the session, and make its first head."""
        place = self.agreed.members.index(self.me.party) + 1
        found = self.take("key", place, self.agreed.server.name, 32)
        if found is None:
            return False
        self.box.group = found.payload
        if not self.known():
            self.keep_head(1, first_head(self.agreed))
        return True

    def draw(self, number: int) -> bytes:
        """Secrets for a round, kept until its answer; returns the offer."""
        if not self.agreed.masked:
            return b""
        drawn = Secrets.draw()
        write_once(self.folder / f"secrets-{number}", drawn.pairs + drawn.own)
        data = (self.folder / f"secrets-{number}").read_bytes()
        return Secrets(data[:32], data[32:]).offer(self.agreed, self.me, number)

    def protected(self, number: int) -> bytes:
        """This site's numbers as they leave it."""
        layout, noise = self.layout(number), self.noise(number)
        x = layout.flat(
            self.agreed, self.gather(self.head(number), noise.radius if noise else None)
        )
        if noise:
            x += noise.drawn(layout).view(np.uint64)
        if self.agreed.masked:
            data = (self.folder / f"secrets-{number}").read_bytes()
            drawn, offers = Secrets(data[:32], data[32:]), self.offers(number)
            mask(x, self.me.name, drawn, offers, self.salt(number))
        return x.tobytes() + self.draw(number + 1)

    def answer(self, number: int, inside: Mapping[str, str]) -> bytes:
        """Of each member one share: it is the only answer of this round."""
        shares = {
            g: held(self.agreed, self.me, g, number, o) for g, o in self.offers(number).items()
        }
        return b"".join(s["own" if g in inside else "pairs"] for g, s in shares.items())

    def agreed_upon(self, number: int, inside: Mapping[str, str]) -> str:
        """Say which closes this site has seen; wait until t members have seen the same."""
        if (self.folder / "sent" / name_of("shares", number, self.me.name)).exists():
            return ""
        both = [self.take("close", r, self.agreed.server.name, 1 << 20) for r in (number - 1, number)]
        seen = hashlib.sha256(b"".join(bytes.fromhex(one.digest) for one in both if one)).digest()
        self.post("seen", number, lambda: seen)
        found = {n: self.take("seen", number, n, 32) for n in inside}
        late = [n for n, one in found.items() if one is None or one.payload != seen]
        if others := [n for n in late if found[n]]:  # they, or the server, do not tell the truth
            self.say(f"{', '.join(others)} have been told of another round {number}")
        if len(inside) - len(late) < self.agreed.threshold:
            return f"{', '.join(late)} to have seen who is in round {number}"
        return ""

    def next_head(self, number: int) -> str:
        """Solve, compare with what the server has solved, and take its bits."""
        if (self.folder / f"head-{number + 1}.h5").exists():
            return ""
        total = self.total(number)
        if isinstance(total, str):
            return total
        name = name_of("head", number + 1, self.agreed.server.name)
        if self.place.read(name, HEADER, start=True) is None:  # before it solves
            return f"the head of round {number + 1}"
        before = self.head(number)
        after = self.absorbed(number, total)
        size = len(packed(before, after))
        found = self.take("head", number + 1, self.agreed.server.name, size, keep=False)
        if found is None:
            return f"the head of round {number + 1}"
        self.keep_head(number + 1, adopted(before, after, found.payload))
        return ""

    def added(self, number: int, inside: Mapping[str, str]) -> Words | str:
        if self.agreed.masked:
            return super().added(number, inside)
        size = 8 * self.layout(number).size
        found = self.take("total", number, self.agreed.server.name, size, keep=False)
        return (
            f"the sum of round {number}" if found is None else np.frombuffer(found.payload, "<u8")
        )


class Server(Replica):
    """The server: it says who is in each round, and otherwise does what all do."""

    deadline: float | None = None  # seconds after which a step goes on without who is late

    def turn(self) -> str:
        key = self.folder / "group-key"
        write_once(key, derive(self.me.agreeing.private_bytes_raw(), self.agreed.digest, "group"))
        self.box.group = key.read_bytes()
        self.publish()
        if waits := self.close(0):
            return waits
        number = self.known()
        while True:
            head = self.head(number)
            if number > 1:
                self.post("head", number, lambda: packed(self.head(number - 1), head))
            if head.phase() is None:
                return ""
            if waits := self.close(number):
                return waits
            total = self.total(number)
            if isinstance(total, str):
                return total
            if not self.agreed.masked:
                self.post("total", number, lambda: self.layout(number).joined(total).tobytes())
            after = self.absorbed(number, total)
            self.keep_head(number + 1, after)
            number += 1

    def publish(self) -> None:
        there = self.place.read(SESSION, LARGEST)
        if there not in (None, self.agreed.text):
            raise MismatchError(f"{self.place.url} holds another session")
        if there is None:
            self.place.write(SESSION, self.agreed.text)
        if not self.known():
            self.keep_head(1, first_head(self.agreed))
        for i, member in enumerate(self.agreed.members, 1):
            self.post("key", i, lambda: self.box.group or b"", member)

    def close(self, number: int) -> str:
        """Who is in a round: all who were in the one before, after the deadline those who came."""
        if (self.folder / "sent" / name_of("close", number, self.me.name)).exists():
            self.post("close", number, bytes)  # the same bytes, if they are not there
            return ""
        before = self.closed(number - 1) if number else {p.name: "" for p in self.agreed.members}
        assert before is not None
        came = {name: digest for name in before if (digest := self.arrived(number, name))}
        late = [name for name in before if name not in came]
        if late and not (self.is_over(number) and len(came) >= self.agreed.threshold):
            return f"{'the sums of ' if number else ''}{', '.join(late)} in round {number}"
        self.post("close", number, lambda: canonical(came))
        return ""

    def arrived(self, number: int, name: str) -> str:
        """The digest of a member's message of a round, '' where it has not come whole."""
        size = offer_size(self.agreed)
        if number:
            size += 8 * self.layout(number).size
        found = self.take("sums" if number else "hello", number, name, size, keep=not number)
        return found.digest if found and len(found.payload) == size else ""

    def is_over(self, number: int) -> bool:
        sent = [p.stat().st_mtime for p in (self.folder / "sent").iterdir()]
        return self.deadline is not None and time.time() - max(sent) >= self.deadline
