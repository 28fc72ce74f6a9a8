"""A site: it answers once a round, and believes what it has computed itself."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import AflError, IncompleteError, MismatchError
from ..files.atomic import delete, write_once
from ..heads.base import Block
from ..values.statistics import Statistics
from .agreement import Agreement
from .compute import check_point, statistics_of
from .keys import Keys
from .ledger import Hashes, Ledger
from .masking import OWN, PAIRS, Words, mask, offered
from .place import Place
from .rows import SiteRows
from .scaling import Scaling
from .session import Replica, Waiting
from .vectors import adopted, largest_head


class Member(Replica):
    """A member of a session, with its rows and its ledger; see `Replica.turn`."""

    def __init__(
        self,
        place: Place,
        folder: Path,
        agreed: Agreement,
        me: Keys,
        rows: SiteRows,
        ledger: Ledger,
    ) -> None:
        super().__init__(place, folder, agreed, me)
        self.rows, self.ledger = rows, ledger
        self._gathered = dict[int, Statistics]()

    def go_on(self) -> None:
        self.begin()
        self.post("hello", 0, lambda: self._key_digest + self.draw(1))
        number = self.known()
        while self.inside(number - 1) and self.task(number) is not None:
            self.sum_up(number)
            self.next_head(number)
            number += 1
        self.end(number)

    def begin(self) -> None:
        """Take the key of the session."""
        server = self.agreed.server.name
        found = self.take("key", self.agreed.places[self.me.name], server)
        if found is None:
            raise Waiting(f"{server}, the server, to begin")
        self.box.group, self.server_key = found.payload[:32], found.payload[32:]

    @property
    def _key_digest(self) -> bytes:
        return hashlib.sha256(self.box.group).digest()

    def inside(self, number: int) -> Mapping[str, str]:
        """Who is in a round; refused where this site is not."""
        inside = self.closed(number)
        if self.me.name not in inside:
            self.forget()
            raise IncompleteError(
                f"the session goes on without {self.me.name!r}: what it has sent came late, or "
                "was not whole, and a member that has left does not come back"
            )
        return inside

    # ------------------------------------------------------------ one round

    def sum_up(self, number: int) -> None:
        """Send this site's numbers and, once it is known who is in the round, its shares."""
        if not self.path_of("sums", number, self.me.name).exists():
            self.check_rows(number)
        to = b"" if self.agreed.masked else self.server_key
        mine = self.post("sums", number, lambda: self.protected(number), to)
        inside = self.inside(number)
        if inside[self.me.name] != mine:
            raise MismatchError("the server counts other sums than this site has sent: stop")
        if self.agreed.masked:
            self.have_seen(number, inside)
            self.claim(number, inside)
            self.post("shares", number, lambda: self.answer(number))
            delete(self.folder / f"secrets-{number}")

    def check_rows(self, number: int) -> None:
        """Refuse what this site must not sum, before anything of it leaves."""
        layout, inside = self.layout(number), self.closed(number - 1)
        if not layout.first:
            return
        if not layout.task.of_sums:
            self.rows.check_cells(self.agreed)
        if not self.agreed.masked:
            self.claim(number, inside)  # the server reads it at once
        elif self.agreed.noise is None:
            self.ledger.check(self.agreed, inside, self.hashes)

    def claim(self, number: int, inside: Mapping[str, str]) -> None:
        if noise := self.noise(number):
            self.ledger.spend(self.agreed, noise.rho)
        elif self.layout(number).first:
            self.ledger.claim(self.agreed, number, inside, self.hashes)

    @cached_property
    def hashes(self) -> Hashes:
        """Those of all rows, which this folder is bound to from its first round on."""
        parts = (blocks() for blocks in (self.rows.train, self.rows.test))
        found, digest = self.ledger.hashes(self.agreed, (b for part in parts for b in part))
        if write_once(self.folder / "rows", digest) != digest:
            raise MismatchError(
                f"{self.folder} was begun with other rows: a site sums the same rows in all rounds"
            )
        return found

    def send(self, path: Path) -> None:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.ledger.note(self.agreed, path.name, digest)
        super().send(path)

    def draw(self, number: int) -> bytes:
        """Secrets for a round, kept until its answer; returns the offer."""
        if not self.agreed.masked:
            return b""
        drawn = write_once(self.folder / f"secrets-{number}", secrets.token_bytes(64))
        return offered(self.agreed, number, self.me.name, drawn)

    def gathered(self, number: int) -> Statistics:
        """This site's statistics for a round."""
        if number not in self._gathered:
            task, noise = self.task(number), self.noise(number)
            if self.agreed.noise is None:
                _ = self.hashes  # the rows are those of the first round
            assert task is not None
            blocks: Iterable[Block] = self.rows.train()
            if not isinstance(task, Scaling):
                radius, test = noise.radius if noise else None, not task.of_sums
                blocks = self.rows.blocks(self.agreed, test, self.scale(), radius)
            self._gathered = {number: statistics_of(self.agreed, task, blocks)}
        return self._gathered[number]

    def protected(self, number: int) -> bytes:
        """This site's numbers as they leave it, and its next offer."""
        layout, noise = self.layout(number), self.noise(number)
        sums, offers = self.gathered(number), self.offers(number) if self.agreed.masked else {}
        if not layout.first:
            check_point(sums, self.total(1).rows, len(self.agreed.classes))
        x = layout.flat(sums)
        if noise:
            x += noise.drawn(layout).view(np.uint64)
        if self.agreed.masked:
            drawn = (self.folder / f"secrets-{number}").read_bytes()
            mask(x, self.me.name, drawn, offers, self.salt(number))
        return x.tobytes() + self.draw(number + 1)

    def have_seen(self, number: int, inside: Mapping[str, str]) -> None:
        """Say which close this site has seen; wait until t members have seen the same.

        Two sets of t share an honest member, which says it once: so all honest answers of a round
        are for one close, and open one sum.
        """
        everybody = self.agreed.threshold == len(self.agreed.members)
        if everybody or self.path_of("shares", number, self.me.name).exists():
            return  # of all members nobody is missing, and no s_u is opened
        seen = bytes.fromhex(self.close_digest(number))
        self.post("seen", number, lambda: seen)
        found = {name: self.take("seen", number, name) for name in inside}
        same = [name for name, one in found.items() if one and one.payload == seen]
        if others := [name for name, one in found.items() if one and one.payload != seen]:
            self.say(
                f"{', '.join(others)} say that they were told of another round {number}: they "
                "or the server do not tell the truth"
            )
        if len(same) < self.agreed.threshold:
            late = [name for name in inside if name not in same]
            raise Waiting(f"{', '.join(late)} to have seen who is in round {number}")

    def answer(self, number: int) -> bytes:
        """Of each member one share: it is the only answer of this round."""
        inside, offers = self.closed(number), self.offers(number)
        kinds = {giver: OWN if giver in inside else PAIRS for giver in offers}
        return b"".join(offers[giver].held(self.me)[kind] for giver, kind in kinds.items())

    # ------------------------------------------------------------ totals and heads

    def added(self, number: int) -> Words:
        if self.agreed.masked:
            return super().added(number)
        x = np.frombuffer(self.need("total", number, self.agreed.server.name).payload, "<u8")
        self.check_total(number, x)
        return x.copy()

    def check_total(self, number: int, x: Words) -> None:
        """Refuse a server's total which, without this site's sums, no rows of the others have."""
        layout, own, others = self.layout(number), self.gathered(number), dict(self.closed(number))
        del others[self.me.name]
        counts = None if layout.first else self.total(1).class_counts - own.class_counts
        try:
            layout.statistics(x - layout.joined(own), others, counts)
        except AflError as error:
            raise MismatchError(
                f"the server's total of round {number} is not that of this site's sums and "
                f"others': of the rest {error}; tell the others, and do not go on with this server"
            ) from None

    def next_head(self, number: int) -> None:
        """Solve, compare with what the server has solved, and take its bits."""
        if (self.folder / f"head-{number + 1}.h5").exists():
            return
        total, before, server = self.total(number), self.head(number), self.agreed.server.name
        after = before
        if self.task(number) is before:  # not a scale, nor an evaluation
            name = self.path_of("head", number + 1, server).name
            there, found = self.place.size(name), None
            if there:  # so that it is solved once
                after = self.solve(number, total)
                found = self.take("head", number + 1, server, size=largest_head(after))
            if found is None:
                raise Waiting(f"the head of {server} in round {number + 1}")
            after = adopted(before, after, total, found.payload)
        self.keep_head(number + 1, after)

    def end(self, number: int) -> None:
        """Sign who was in the rounds, their totals and the head; the server has signed the same."""
        self.forget()
        self.post("done", number, lambda: self.result(number))
        server = self.agreed.server.name
        same = self.done(number, server)
        if same is None:
            raise Waiting(f"{server}, the server, to sign the end")
        if not same:
            raise MismatchError(f"{server!r}, the server, has signed another end of the session")
