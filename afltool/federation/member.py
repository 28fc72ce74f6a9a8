"""A site: it answers once a round, and believes what it has computed itself."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import IncompleteError, MismatchError
from ..files.atomic import delete, write_once
from ..heads.base import Head
from ..values.statistics import Statistics
from .agreement import Agreement
from .compute import check_point, statistics_of
from .keys import Keys
from .ledger import Hashes, Ledger
from .masking import OWN, PAIRS, Secrets, Words, held, mask
from .place import Carrier
from .rows import SiteRows
from .scaling import Scaling
from .session import Replica
from .vectors import adopted, largest_head


class Member(Replica):
    """A member of a session, with its rows and its ledger; see `Replica.turn`."""

    def __init__(
        self,
        place: Carrier,
        folder: Path,
        agreed: Agreement,
        me: Keys,
        rows: SiteRows,
        ledger: Ledger,
    ) -> None:
        super().__init__(place, folder, agreed, me)
        self.rows, self.ledger = rows, ledger
        self._solved: tuple[int, Head] | None = None

    def go_on(self) -> str:
        if not self.begin():
            return f"{self.agreed.server.name}, the server, to begin"
        self.post("hello", 0, lambda: self._key_digest + self.draw(1))
        number = self.known()
        while True:
            inside = self.closed(number - 1)
            if inside is None:
                return f"{self.agreed.server.name}, the server, to begin round {number}"
            self.check_inside(inside)
            if self.task(number) is None:
                return self.end(number)
            if waits := self.sum_up(number) or self.next_head(number):
                return waits
            number += 1

    def begin(self) -> bool:
        """Take the key of the session, and make its first head."""
        place = self.agreed.places[self.me.name]
        found = self.take("key", place, self.agreed.server.name)
        if found is None:
            return False
        self.box.group, self.server_key = found.payload[:32], found.payload[32:]
        self.begin_heads()
        return True

    @property
    def _key_digest(self) -> bytes:
        return hashlib.sha256(self.box.group).digest()

    def check_inside(self, inside: Mapping[str, str]) -> None:
        if self.me.name not in inside:
            self.forget()
            raise IncompleteError(
                f"the session goes on without {self.me.name!r}: what it has sent came late, or "
                "was not whole, and a member that has left does not come back"
            )

    def forget(self) -> None:
        for path in self.folder.glob("secrets-*"):
            delete(path)

    # ------------------------------------------------------------ one round

    def sum_up(self, number: int) -> str:
        """Send this site's numbers and, once it is known who is in the round, its shares."""
        offers = self.offers(number) if self.agreed.masked else {}
        if isinstance(offers, str):
            return offers
        if not self.path_of("sums", number, self.me.name).exists():
            self.check_rows(number)
        to = b"" if self.agreed.masked else self.server_key
        mine = self.post("sums", number, lambda: self.protected(number, offers), to)
        inside = self.closed(number)
        if inside is None:
            return f"the sums of others in round {number}"
        self.check_inside(inside)
        if inside[self.me.name] != mine:
            raise MismatchError("the server counts other sums than this site has sent: stop")
        if self.agreed.masked:
            if waits := self.have_seen(number, inside):
                return waits
            self.claim(number, inside)
            self.post("shares", number, lambda: self.answer(number, offers, inside))
            delete(self.folder / f"secrets-{number}")
        return ""

    def check_rows(self, number: int) -> None:
        """Refuse what this site must not sum, before anything of it leaves."""
        layout = self.layout(number)
        if not layout.first:
            return
        inside = self.closed(number - 1) or {}
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

    def before_sending(self, name: str, digest: str) -> None:
        self.ledger.note(self.agreed, name, digest)

    def draw(self, number: int) -> bytes:
        """Secrets for a round, kept until its answer; returns the offer."""
        if not self.offer_size(number):
            return b""
        drawn = Secrets.draw()
        write_once(self.folder / f"secrets-{number}", drawn.pairs + drawn.own)
        return self._secrets(number).offer(self.agreed, self.me, number)

    def _secrets(self, number: int) -> Secrets:
        data = (self.folder / f"secrets-{number}").read_bytes()
        return Secrets(data[:32], data[32:])

    def gathered(self, number: int) -> Statistics:
        """This site's statistics for a round."""
        task, noise = self.task(number), self.noise(number)
        if self.agreed.noise is None:
            _ = self.hashes  # the rows are those of the first round
        assert task is not None
        if isinstance(task, Scaling):
            return statistics_of(self.agreed, task, self.rows.train())
        radius, test = noise.radius if noise else None, not task.of_sums
        blocks = self.rows.blocks(self.agreed, test, self.scale(), radius)
        return statistics_of(self.agreed, task, blocks)

    def protected(self, number: int, offers: Mapping[str, bytes]) -> bytes:
        """This site's numbers as they leave it, and its next offer."""
        layout, noise, sums = self.layout(number), self.noise(number), self.gathered(number)
        if not layout.first:
            total = self.total(1)
            assert isinstance(total, Statistics)
            check_point(sums, total.rows, len(self.agreed.classes))
        x = layout.flat(sums)
        if noise:
            x += noise.drawn(layout).view(np.uint64)
        if self.agreed.masked:
            mask(x, self.me.name, self._secrets(number), offers, self.salt(number))
        return x.tobytes() + self.draw(number + 1)

    def have_seen(self, number: int, inside: Mapping[str, str]) -> str:
        """Say which close this site has seen; wait until t members have seen the same.

        Two sets of t share an honest member, which says it once: so all honest answers of a round
        are for one close, and open one sum.
        """
        everybody = self.agreed.threshold == len(self.agreed.members)
        if everybody or self.path_of("shares", number, self.me.name).exists():
            return ""  # of all members nobody is missing, and no s_u is opened
        seen = bytes.fromhex(self.close_digest(number))
        self.post("seen", number, lambda: seen)
        found = {name: self.take("seen", number, name) for name in inside}
        same = [name for name, one in found.items() if one and one.payload == seen]
        if others := [name for name, one in found.items() if one and one.payload != seen]:
            self.say(
                f"{', '.join(others)} say that they were told of another round {number}: they "
                "or the server do not tell the truth"
            )
        if len(same) >= self.agreed.threshold:
            return ""
        late = [name for name in inside if name not in same]
        return f"{', '.join(late)} to have seen who is in round {number}"

    def answer(self, number: int, offers: Mapping[str, bytes], inside: Mapping[str, str]) -> bytes:
        """Of each member one share: it is the only answer of this round."""
        shares = {g: held(self.agreed, self.me, g, number, o) for g, o in offers.items()}
        return b"".join(s[OWN if g in inside else PAIRS] for g, s in shares.items())

    # ------------------------------------------------------------ totals and heads

    def added(self, number: int, inside: Mapping[str, str]) -> Words | str:
        if self.agreed.masked:
            return super().added(number, inside)
        found = self.take("total", number, self.agreed.server.name)
        if found is None:
            return f"the total of round {number}"
        return np.frombuffer(found.payload, "<u8").copy()

    def next_head(self, number: int) -> str:
        """Solve, compare with what the server has solved, and take its bits."""
        if (self.folder / f"head-{number + 1}.h5").exists():
            return ""
        total, before, server = self.total(number), self.head(number), self.agreed.server.name
        if isinstance(total, str):
            return total
        waits = f"the head of round {number + 1}"
        if self.task(number) is not before:  # a scale, or an evaluation
            self.keep_head(number + 1, before)
            return ""
        if not self.place.size(self.path_of("head", number + 1, server).name):  # before it solves
            return waits
        if self._solved is None or self._solved[0] != number:
            self._solved = number, self.solve(number, total)
        after = self._solved[1]
        found = self.take("head", number + 1, server, size=largest_head(after))
        if found is None:
            return waits
        self.keep_head(number + 1, adopted(before, after, total, found.payload))
        return ""

    def end(self, number: int) -> str:
        """Sign who was in the rounds, their totals and the head; the server has signed the same."""
        self.forget()
        self.post("done", number, lambda: self.result(number))
        server = self.agreed.server.name
        same = self.done(number, server)
        if same is False:
            raise MismatchError(f"{server!r}, the server, has signed another end of the session")
        return "" if same else f"{server}, the server, to sign the end"
