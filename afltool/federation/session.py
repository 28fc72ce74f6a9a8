"""A session: every party replays the same messages, so a member believes nothing of the server.

Round 0 is the roll-call. Each further round sums one thing: raw features for a scale (if agreed),
what the head's phases gather, counts of test rows (if agreed). docs/privacy.md has messages, and
why they open one sum a round. Each is written once, into ``sent``, before it leaves. The server
chooses who is in a round, at least the threshold and never more than before; nothing else. Between
rounds of the same rows nobody may drop out: the session ends instead. Rubbish counts as not there.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec import Struct, to_builtins
from msgspec.json import decode

from ..errors import AflError, CorruptFileError, IncompleteError, MismatchError
from ..files.atomic import delete, write_once
from ..files.hdf5 import recipe
from ..files.heads import load_head, save_head
from ..files.statistics import load_statistics, save_statistics
from ..heads.base import Head, Task
from ..heads.evaluation import Evaluation
from ..heads.scaling import ScalingOptions
from ..progress import log
from ..values.arrays import I64
from ..values.names import COUNTS
from ..values.statistics import Context, Statistics
from . import compute, masking
from .agreement import LARGEST, Agreement, Digest
from .compute import Layout, check_point, first_head, solve_next
from .keys import OVERHEAD, Box, Keys, canonical, name_of
from .ledger import Hashes, Ledger
from .masking import OWN, PAIRS, SHARE, Offer, Words, offer_size
from .noise import Noise
from .place import Place
from .rows import PART, Scaling, SiteRows

SESSION = "session.json"  # the only file in the place that is no message
FINISHED = "finished"  # who has signed the same end; then the server deletes the session's key
MOST = {"close": 1 << 20, "done": 1 << 16, "head": 0}  # bytes of payloads of no fixed size


class Close(Struct, forbid_unknown_fields=True):
    """Who is in a round, with the digests of their hellos or sums, and that of the close before."""

    before: str
    members: dict[str, Digest]


class Waiting(Exception):
    """What a party waits for, in words; its turn ends there."""


@dataclass(eq=False)
class Replica(ABC):
    """What members and server do alike: who is in a round, what it sums, its total and its head.

    ``folder`` has head-R.h5, the head before round R, total-R.h5, and what was sent and taken.
    """

    mended: ClassVar[tuple[str, ...]] = ("sent",)  # folders whose messages are sent again

    place: Place
    folder: Path
    agreed: Agreement
    me: Keys

    def __post_init__(self) -> None:
        self.box, self._said = Box(self.agreed.digest, self.me), set[str]()
        self.private = {"key": self.me.agreeing}  # what opens the kinds that are for one reader
        self._closes, self._heads = dict[int, dict[str, str]](), dict[int, Head]()
        self._totals = dict[int, Statistics]()
        self._gathered, self._solved = dict[int, Statistics](), dict[int, Head]()  # of one round

    def turn(self) -> str:
        """Do what can be done now; returns what is waited for, '' at the end.

        `IncompleteError`: the session ends without a head, or goes on without this member.
        """
        if not self.newest_round():
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
            own = self.box.is_of(kind, number, self.me.party, there or b"")
            if own and not path.exists():  # nor has another process of this site just made it
                raise MismatchError(
                    f"{self.place.url} has {path.name}, signed by you, and {self.folder} not: it "
                    "was restored from a backup, or another copy of your key takes part; stop"
                )
            write_once(path, data)
        self.send(path)
        return self.digest_of(kind, number, self.me.name)

    def digest_of(self, kind: str, number: int, sender: str) -> str:
        return sha256(self.path_of(kind, number, sender).read_bytes()).hexdigest()

    def send(self, path: Path) -> None:
        """Put a message into the place, unless it is there."""
        if self.place.size(path.name) != path.stat().st_size:
            self.place.write(path.name, path.read_bytes())

    def mend(self) -> None:
        """Send again what the place has lost and others, a round behind at most, may need."""
        paths = sorted(p for one in self.mended for p in (self.folder / one).glob("[0-9]*"))
        for path in (p for p in paths if int(p.name.partition("-")[0]) >= self.newest_round() - 1):
            self.send(path)

    def take(self, kind: str, number: int, sender: str, digest: str = "") -> bytes | None:
        """A message of somebody if it has come and is whole, kept; what is not counts as not there.

        ``digest``: which one counts; else the first one.
        """
        path, person = self.path_of(kind, number, sender), self.agreed.people[sender]
        size, kept = self.payload_size(kind, number), path.exists()
        data = path.read_bytes() if kept else self.place.read(path.name, size + OVERHEAD)
        if data is None:
            return None
        try:
            payload = self.box.open(kind, number, person, data, self.private.get(kind))
            if kind not in MOST and len(payload) != size:
                raise CorruptFileError("another length")
            if digest not in ("", sha256(data).hexdigest()):
                raise CorruptFileError("not the one that the server has counted")
            self.check_payload(kind, number, sender, payload)
        except AflError as error:
            self.say(f"the {kind} of {sender!r} in round {number} counts as not there: {error}")
            if data and not kept:  # so that a look at the sizes tells who has the right one
                with suppress(AflError):
                    self.place.write(path.name, b"")
            return None
        if not kept:
            write_once(path, data)
        return payload

    def require(self, kind: str, number: int, sender: str, digest: str = "") -> bytes:
        """`take`, of what nothing goes on without."""
        if (payload := self.take(kind, number, sender, digest)) is None:
            raise Waiting(f"the {kind} of {sender} in round {number}")
        return payload

    def has(self, kind: str, number: int, sender: str) -> bool:
        """Whether a message was taken, or can be now."""
        kept = self.path_of(kind, number, sender).exists()
        return kept or self.take(kind, number, sender) is not None

    def payload_size(self, kind: str, number: int) -> int:
        """Bytes of a payload, which its reader knows beforehand; of some kinds the most."""
        if kind == "shares":
            return SHARE * len(self.get_close(number - 1))
        if kind in ("sums", "total"):
            return 8 * self.layout(number).size + (kind == "sums") * offer_size(self.agreed)
        if kind == "head":
            arrays = self._solved[number - 1].state_dict().items()
            return 8 + sum(16 + len(name) + array.nbytes for name, array in arrays)
        return {**MOST, "key": 64, "hello": 32 + offer_size(self.agreed), "seen": 32}[kind]

    def check_payload(self, kind: str, number: int, sender: str, payload: bytes) -> None:
        """Raise an `AflError` for what is of no use to its readers."""
        if kind == "hello" and payload[:32] != sha256(self.box.group).digest():
            raise CorruptFileError("for another key of the session")
        if kind in ("hello", "sums") and self.agreed.masked:
            Offer.of(self.agreed, number + 1, sender, payload)
        elif kind == "sums":
            layout, x = self.layout(number), np.frombuffer(payload, "<u8")
            layout.check_site(x, sender, self.counts(number))

    def get_close(self, number: int) -> dict[str, str]:
        """Who is in a round, with the digest of what each has sent: the server says it once."""
        if number < 0:
            return dict.fromkeys(self.agreed.places, "")
        if number not in self._closes:
            before, server = self.get_close(number - 1), self.agreed.server.name
            payload = self.require("close", number, server)
            try:
                close = decode(payload, type=Close)
                names, said = close.members, (close.before, canonical(to_builtins(close)))
                if said != (self.close_digest(number - 1), payload) or names.keys() - before.keys():
                    raise ValueError
            except (ValueError, RecursionError):
                text = f"the server has broken the rules: its close of round {number}"
                raise MismatchError(text) from None
            gone = sorted(before.keys() - names.keys())
            if gone and self.overlaps(number):
                why = f"{', '.join(gone)} dropped out, and sums of the same rows would tell of it"
                self.forget(f"the session has ended in round {number}: {why}")
            if len(names) < self.agreed.threshold:
                raise MismatchError(f"the server has closed round {number} below the threshold")
            if self.me.name in gone:
                why = "what it has sent came late, or was not whole; begin a new session"
                self.forget(f"the session goes on without {self.me.name!r}: {why}")
            self._closes[number] = names
        return self._closes[number]

    def close_digest(self, number: int) -> str:
        self.get_close(number)  # has taken it
        return "" if number < 0 else self.digest_of("close", number, self.agreed.server.name)

    def forget(self, why: str = "") -> None:
        """Delete the secrets of all rounds; ``why`` the session has ended for this party."""
        for path in self.folder.glob("secrets-*"):
            delete(path)
        if why:
            raise IncompleteError(why)

    def overlaps(self, number: int) -> bool:
        """Whether a round is of the same rows as the one before it."""
        return number > 1 and not self.layout(number).first

    def salt(self, number: int) -> str:
        """What the masks of a round belong to: who is in it with which offers, and its head."""
        head = self.head(number).digest(), str(self.layout(number).task.phase())
        return sha256("\0".join((self.close_digest(number - 1), *head)).encode()).hexdigest()

    def head(self, number: int) -> Head:
        """The head before a round; of an evaluation the solved one."""
        if number not in self._heads:
            head = load_head(self.folder / f"head-{number}.h5").head
            self._heads[number] = head.bind(self.agreed.space["dim"], len(self.agreed.classes))
        return self._heads[number]

    def keep_head(self, number: int, head: Head) -> None:
        context = Context(self.agreed.space, self.agreed.classes)
        save_head(self.folder / f"head-{number}.h5", head, self.recipe_of(number), context)

    def recipe_of(self, number: int) -> dict[str, Any]:
        return recipe("session", {"round": number}, {"of": self.agreed.digest})

    def newest_round(self) -> int:
        """The newest round whose head is here."""
        rounds = (p.stem[5:] for p in self.folder.glob("head-*.h5"))
        return max((int(r) for r in rounds if r.isdecimal()), default=0)

    def task(self, number: int) -> Task | None:
        """What a round sums; None after the last one."""
        o, head = self.agreed, self.head(number)
        if o.scale is not None and number == 1:
            options = ScalingOptions(unit_bits=PART - o.scale)
            return Scaling(options).bind(o.space["dim"], len(o.classes))
        if head.phase() is not None:
            return head
        if (e := o.evaluation) is not None and self.head(number - 1).phase() is not None:
            return Evaluation.of([head], None, e.groups, e.min_cell)
        return None

    def solves(self, number: int) -> bool:
        """Whether a round changes the head: not that of a scale, nor an evaluation."""
        return self.task(number) is self.head(number)

    def layout(self, number: int) -> Layout:
        task = self.task(number)
        assert task is not None
        return Layout.of(self.agreed, task, number == 1)

    def counts(self, number: int) -> I64 | None:
        """Class counts of all sites, where a round is of rows that were counted before."""
        return None if self.layout(number).first else self.total(1).class_counts

    @cached_property
    def scale(self) -> Scaling | None:
        """By which rows are scaled, once round 1 is over."""
        task = self.task(1)
        return solve_next(task, self.total(1)) if isinstance(task, Scaling) else None

    def noise(self, number: int) -> Noise | None:
        return Noise.of(self.agreed, self.layout(number)) if self.agreed.noise else None

    def solve(self, number: int, total: Statistics) -> Head:
        """The head one round further, as everybody solves it."""
        head, ridge = self.head(number), None
        if not self.solves(number):
            return head
        if noise := self.noise(number):
            unit = 4.0 ** -self.agreed.space["fraction_bits"]
            ridge = noise.ridge(total.arrays["gram"], unit, len(total.clients))
        return solve_next(head, total, ridge)

    def total(self, number: int) -> Statistics:
        """The sum of a round, from what its members have sent."""
        if number not in self._totals:
            path = self.folder / f"total-{number}.h5"
            if not path.exists():
                save_statistics(path, self.check_total(number), self.recipe_of(number))
                for old in (self.folder / "taken").glob(f"{number - 2:03d}-sums-*"):
                    delete(old)  # everybody has that total, or has left
            self._totals[number] = load_statistics(path)
        return self._totals[number]

    def check_total(self, number: int) -> Statistics:
        """`total`, where it is not known yet; refused where no rows can have it."""
        inside, masked = self.get_close(number), self.agreed.masked
        x = self.unmask_sum(number) if masked else self.sum_messages(number)
        try:
            made = self.layout(number).statistics(x, inside, self.counts(number))
        except AflError as error:
            lied = f"; masks hide which of {', '.join(inside)} has sent something else" * masked
            raise MismatchError(
                f"the sum of round {number} makes no sense: {error}{lied}"
            ) from None
        if noise := self.noise(number):
            made = replace(made, context=replace(made.context, noise=noise.facts(self.agreed)))
        return made

    def sum_messages(self, number: int) -> Words:
        """The sum of what members have sent."""
        total = np.zeros(n := self.layout(number).size, np.uint64)
        for name, digest in self.get_close(number).items():
            total += np.frombuffer(self.require("sums", number, name, digest), "<u8", n)
        return total

    def offers(self, number: int) -> dict[str, Offer]:
        """The offers of all in a round, from what they have sent in the round before."""
        before, kind = number - 1, "sums" if number > 1 else "hello"
        found = {n: self.require(kind, before, n, d) for n, d in self.get_close(before).items()}
        return {n: Offer.of(self.agreed, number, n, payload) for n, payload in found.items()}

    def unmask_sum(self, number: int) -> Words:
        """The sum without masks, from any t right answers; who has lied is named."""
        offers, inside, found = self.offers(number), self.get_close(number), dict[str, bytes]()
        answers = {n: x for n in inside if (x := self.take("shares", number, n)) is not None}
        late = [name for name in inside if name not in answers]
        for i, (giver, offer) in enumerate(offers.items()):
            kind = OWN if giver in inside else PAIRS
            shares = {name: data[SHARE * i :][:SHARE] for name, data in answers.items()}
            secret, wrong = offer.combine_shares(kind, shares)
            if wrong:
                self.say(f"shares of {giver} from {', '.join(wrong)} in round {number} are wrong")
            if secret is not None:
                found[giver] = secret
            elif late:
                raise Waiting(f"the shares of {', '.join(late)} in round {number}")
            else:
                who = f"of {giver!r} from {', '.join(wrong)} are wrong; one of them broke the rules"
                raise MismatchError(f"nobody can open the sum of round {number}: shares {who}")
        total = self.sum_messages(number)
        masking.unmask(total, offers, inside, found, self.salt(number))
        return total

    def result(self, number: int) -> bytes:
        """What everybody signs: who was in the last round, and so in all, the totals, the head."""
        totals = [self.total(r).digest() for r in range(1, number)]
        head, last = self.head(number).digest(), self.close_digest(number - 1)
        return canonical({"close": last, "totals": totals, "head": head})

    def end(self, number: int, awaited: Collection[str]) -> None:
        """Sign the end, and keep who has signed the same once those have who are waited for."""
        mine, server = self.result(number), self.agreed.server.name
        self.post("done", number, lambda: mine)
        everybody = sorted({*self.get_close(number - 1), server})
        found = {one: self.take("done", number, one) for one in everybody}
        for name in (name for name, payload in found.items() if payload not in (None, mine)):
            if name == server:
                raise MismatchError(f"{name!r}, the server, has signed another end of the session")
            self.say(f"{name} signed another end of the session")
        if late := [name for name in everybody if name in awaited and found[name] is None]:
            raise Waiting(f"{', '.join(late)} to sign the end")
        signed = [name for name, payload in found.items() if payload == mine]
        write_once(self.folder / FINISHED, canonical(signed))


@dataclass(eq=False)
class Member(Replica):
    """A member of a session, with its rows and its ledger; see `Replica.turn`."""

    rows: SiteRows
    ledger: Ledger

    def go_on(self) -> None:
        server = self.agreed.server.name
        found = self.take("key", self.agreed.places[self.me.name], server)
        if found is None:
            raise Waiting(f"{server}, the server, to begin")
        self.box.group, self.server_key = found[:32], found[32:]
        self.post("hello", 0, lambda: sha256(self.box.group).digest() + self.draw(1))
        number = self.newest_round()
        while self.get_close(number - 1) and self.task(number) is not None:
            self.sum_up(number)
            self.next_head(number)
            number = self.newest_round()
        self.forget()
        self.end(number, [server])

    def sum_up(self, number: int) -> None:
        """Send this site's numbers and, once it is known who is in the round, its shares."""
        if not self.path_of("sums", number, self.me.name).exists():
            self.check_rows(number)
        to = b"" if self.agreed.masked else self.server_key
        mine = self.post("sums", number, lambda: self.protect(number), to)
        inside = self.get_close(number)
        if inside[self.me.name] != mine:
            raise MismatchError("the server counts other sums than this site has sent: stop")
        if self.agreed.masked:
            self.have_seen(number, inside)
            self.claim(number, inside)
            self.post("shares", number, lambda: self.answer(number))
            delete(self.folder / f"secrets-{number}")

    def check_rows(self, number: int) -> None:
        """Refuse what this site must not sum, before anything of it leaves."""
        layout, inside = self.layout(number), self.get_close(number - 1)
        if number > 1 and (scale := self.scale):
            self.rows.check_scale(self.agreed, scale)
        if self.agreed.noise or not self.agreed.masked:
            self.claim(number, inside)  # others may open it, or the server reads it at once
        elif layout.first:
            self.ledger.check(self.agreed, inside, *self.hashes)

    def claim(self, number: int, inside: Mapping[str, str]) -> None:
        if noise := self.noise(number):
            spent = self.ledger.folder / self.agreed.digest / "rho"
            write_once(spent, repr(noise.rho).encode())  # sessions together: Σ ρ
        elif self.layout(number).first:
            self.ledger.claim(self.agreed, number, inside, *self.hashes)

    @cached_property
    def hashes(self) -> tuple[Hashes, bytes]:
        """Those of all rows and labels, to which this folder is bound from its first round on."""
        blocks = (block for part in (self.rows.train, self.rows.test) for block in part())
        found, digest = self.ledger.hashes(self.agreed, blocks)
        if write_once(self.folder / "rows", digest) != digest:
            raise MismatchError(f"{self.folder} was begun with other rows: give the same ones")
        return found, digest

    def send(self, path: Path) -> None:
        self.ledger.note(self.agreed, path.name, sha256(path.read_bytes()).hexdigest())
        super().send(path)

    def draw(self, number: int) -> bytes:
        """Secrets for a round, kept until its answer; returns the offer."""
        if not self.agreed.masked:
            return b""
        drawn = write_once(self.folder / f"secrets-{number}", secrets.token_bytes(64))
        return masking.make_offer(self.agreed, number, self.me.name, drawn)

    def gather(self, number: int) -> Statistics:
        """This site's statistics for a round."""
        if number not in self._gathered:
            task, noise = self.layout(number).task, self.noise(number)
            if noise is None:
                _ = self.hashes  # the rows are those of the first round
            if self.agreed.scale is not None and isinstance(task, Scaling):
                blocks = self.rows.raw(self.agreed.scale)
            else:
                radius, test = noise.radius if noise else None, task.phase() == COUNTS
                blocks = self.rows.blocks(self.agreed, test, self.scale, radius)
            self._gathered = {number: compute.compute_statistics(self.agreed, task, blocks)}
        return self._gathered[number]

    def protect(self, number: int) -> bytes:
        """This site's numbers as they leave it, and its next offer."""
        layout, noise = self.layout(number), self.noise(number)
        sums, offers = self.gather(number), self.offers(number) if self.agreed.masked else {}
        if not layout.first:
            check_point(sums, self.total(1).rows, len(self.agreed.classes))
        layout.check_rows(sums.class_counts, 1)
        x = layout.joined(sums)
        if noise:
            x += noise.draw(layout).view(np.uint64)
        if self.agreed.masked:
            drawn = (self.folder / f"secrets-{number}").read_bytes()
            masking.mask(x, self.me.name, drawn, offers, self.salt(number))
        return x.tobytes() + self.draw(number + 1)

    def have_seen(self, number: int, inside: Mapping[str, str]) -> None:
        """Say which close this site has seen; wait until t members have seen the same.

        Two sets of t share an honest member, so all honest answers of a round open one sum.
        """
        everybody = self.agreed.threshold == len(self.agreed.members)
        if everybody or self.path_of("shares", number, self.me.name).exists():
            return  # of all members nobody is missing, and no s_u is opened
        seen = bytes.fromhex(self.close_digest(number))
        self.post("seen", number, lambda: seen)
        found = {name: self.take("seen", number, name) for name in inside}
        same = [name for name, payload in found.items() if payload == seen]
        if others := sorted(n for n, payload in found.items() if payload not in (None, seen)):
            self.say(f"{', '.join(others)} or the server lie about who is in round {number}")
        if len(same) < self.agreed.threshold:
            late = [name for name in inside if name not in same]
            raise Waiting(f"{', '.join(late)} to have seen who is in round {number}")

    def answer(self, number: int) -> bytes:
        """Of each member one share: it is the only answer of this round."""
        inside, offers = self.get_close(number), self.offers(number)
        kinds = {giver: OWN if giver in inside else PAIRS for giver in offers}
        return b"".join(
            offers[giver].decrypt_shares(self.me)[kind] for giver, kind in kinds.items()
        )

    def sum_messages(self, number: int) -> Words:
        if self.agreed.masked:
            return super().sum_messages(number)
        x = np.frombuffer(self.require("total", number, self.agreed.server.name), "<u8")
        layout, own, counts = self.layout(number), self.gather(number), self.counts(number)
        others = [name for name in self.get_close(number) if name != self.me.name]
        try:  # without this site's sums it has to be a sum that rows of the others have
            rest = None if counts is None else counts - own.class_counts
            layout.statistics(x - layout.joined(own), others, rest)
        except AflError as error:
            what = f"the server's total of round {number} does not hold this site's sums"
            raise MismatchError(f"{what}: of the rest {error}; tell the others, and stop") from None
        return x.copy()

    def next_head(self, number: int) -> None:
        """Solve, compare with what the server has solved, and take its bits."""
        total = self.total(number)
        if number not in self._solved:  # once, while it waits
            self._solved = {number: self.solve(number, total)}
        after = self._solved[number]
        if self.solves(number):
            found = self.require("head", number + 1, self.agreed.server.name)
            after = compute.adopt_last_bits(self.head(number), after, total, found)
        self.keep_head(number + 1, after)


class Server(Replica):
    """``deadline``: seconds after which a step goes on without those who are late; None: never."""

    deadline: float | None = None
    mended = ("sent", "taken")  # also what is counted, should a member put something else there

    def go_on(self) -> None:
        if not (self.folder / FINISHED).exists():
            self.play()
        delete(self.folder / "group-key")

    def play(self) -> None:
        self.begin()
        self.close(0)
        number = self.newest_round()
        while True:
            head = self.head(number)
            if number > 1 and self.solves(number - 1):
                self.post("head", number, partial(compute.pack_arrays, self.head(number - 1), head))
            if self.task(number) is None:
                break
            self.close(number)
            total = self.total(number)
            if not self.agreed.masked:
                self.post("total", number, self.layout(number).joined(total).tobytes)
            self.keep_head(number + 1, self.solve(number, total))
            number += 1
        self.end(number, [] if self.is_over() else self.get_close(number - 1))

    def begin(self) -> None:
        """The agreement, and for each member the keys of the session."""
        if self.me.party != self.agreed.server:
            raise MismatchError(f"the key of {self.me.name!r} is not that of the session's server")
        keys = write_once(self.folder / "group-key", secrets.token_bytes(64))
        self.box.group, own = keys[:32], X25519PrivateKey.from_private_bytes(keys[32:])
        if not self.agreed.masked:
            self.private["sums"] = own
        there, begun = self.place.read(SESSION, LARGEST), (self.folder / "sent").exists()
        if there not in (None, b"", self.agreed.text) and not begun:
            raise MismatchError(f"{self.place.url} holds another session: take an empty place")
        if there != self.agreed.text:
            self.place.write(SESSION, self.agreed.text)
        given = keys[:32] + own.public_key().public_bytes_raw()
        for member in self.agreed.members:
            self.post("key", self.agreed.places[member.name], lambda: given, member.agreeing)

    def close(self, number: int) -> None:
        """Who is in a round: all who were in the one before, after the deadline those who came."""
        if not self.path_of("close", number, self.me.name).exists():
            before, kind = self.get_close(number - 1), "sums" if number else "hello"
            late = [name for name in before if not self.has(kind, number, name)]
            came = [name for name in before if name not in late]
            enough = len(came) >= self.agreed.threshold or self.overlaps(number)
            if late and not (self.is_over() and enough):
                raise Waiting(f"the {kind} of {', '.join(late)} in round {number}")
            digests = {name: self.digest_of(kind, number, name) for name in came}
            said = {"before": self.close_digest(number - 1), "members": digests}
            self.post("close", number, lambda: canonical(said))
        self.get_close(number)  # raises where the session has ended

    def is_over(self) -> bool:
        sent = [p.stat().st_mtime for p in (self.folder / "sent").iterdir()]
        return self.deadline is not None and time.time() - max(sent) >= self.deadline
