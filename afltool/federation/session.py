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

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import CorruptFileError, IncompleteError, MismatchError
from ..files.atomic import delete, write_once
from ..files.hdf5 import recipe
from ..files.heads import load_head, save_head
from ..files.statistics import load_statistics, save_statistics
from ..heads.base import Head
from ..values.statistics import Context, Statistics
from .agreement import Agreement
from .compute import evaluation_of, first_head, solved
from .envelope import canonical, parsed
from .keys import Keys
from .masking import OWN, PAIRS, SHARE, Words, check_offer, offer_size, opened, right_shares, unmask
from .messages import VARIABLE, Messages
from .noise import Noise
from .place import Carrier
from .scaling import Scaling
from .vectors import Layout

SESSION = "session.json"  # the only file in the place that is no message
DIGEST = re.compile("[0-9a-f]{64}")


class Replica(Messages):
    """What members and server do alike: who is in a round, what it sums, its total and its head.

    ``folder`` has of each round the head before it (head-R.h5) and the total (total-R.h5).
    """

    def __init__(self, place: Carrier, folder: Path, agreed: Agreement, me: Keys) -> None:
        super().__init__(place, folder, agreed, me)
        self._closes, self._heads = dict[int, dict[str, str]](), dict[int, Head]()
        self._tasks = dict[int, Head | None]()

    def payload_size(self, kind: str, number: int) -> int:
        if kind == "hello":
            return 32 + offer_size(self.agreed)
        if kind == "shares":
            return SHARE * len(self.closed(number - 1) or {})
        if kind in ("sums", "total"):
            offer = self.offer_size(number + 1) if kind == "sums" else 0
            return 8 * self.layout(number).size + offer
        return {**VARIABLE, "key": 64, "seen": 32}[kind]

    def check_hello(self, data: bytes) -> None:
        if data[:32] != hashlib.sha256(self.box.group).digest():
            raise CorruptFileError("for another key of the session")
        check_offer(self.agreed, data[32:])

    # ------------------------------------------------------------ who is in a round

    def closed(self, number: int) -> dict[str, str] | None:
        """Who is in a round, with the digest of what each has sent: the server says it once."""
        if number not in self._closes:
            found = self.take("close", number, self.agreed.server.name)
            before = self.closed(number - 1) if number else dict.fromkeys(self.agreed.places, "")
            if found is None or before is None:
                return None
            self._closes[number] = self._names(number, found.payload, before)
        return self._closes[number]

    def close_digest(self, number: int) -> str:
        if number < 0:
            return ""
        found = self.take("close", number, self.agreed.server.name)
        assert found is not None
        return found.digest

    def _names(self, number: int, payload: bytes, before: Mapping[str, str]) -> dict[str, str]:
        try:
            said = parsed(payload)
            names: dict[str, str] = said["members"]
            good = set(said) == {"before", "members"} and names.keys() <= before.keys()
            good = good and all(DIGEST.fullmatch(d) for d in names.values())
            good = good and said["before"] == self.close_digest(number - 1)
        except (ValueError, TypeError, LookupError, AttributeError):
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

    def overlaps(self, number: int) -> bool:
        """Whether a round is of the same rows as the one before it."""
        return number > 1 and not self.layout(number).first

    def salt(self, number: int) -> str:
        """What the masks of a round belong to: who is in it with which offers, and its head."""
        about = self.close_digest(number - 1), self.head(number).digest(), self.layout(number).phase
        return hashlib.sha256("\0".join(about).encode()).hexdigest()

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
        if number not in self._tasks:
            self._tasks[number] = self._find_task(number)
        return self._tasks[number]

    def _find_task(self, number: int) -> Head | None:
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

    def offer_size(self, number: int) -> int:
        """Bytes of an offer for a round; there is none after the last one that there may be."""
        extra = (self.agreed.scale is not None) + (self.agreed.evaluation is not None)
        last = len(self.head(1).phases()) + extra
        return offer_size(self.agreed) if number <= last else 0

    def begin_heads(self) -> None:
        if not self.known():
            self.keep_head(1, first_head(self.agreed))

    def scale(self) -> Scaling | None:
        """By which rows are scaled, once round 1 is over."""
        task, total = self.task(1), self.total(1)
        if not isinstance(task, Scaling) or isinstance(total, str):
            return None
        return solved(task, total)

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
        first, counts = self.layout(number).first, None
        if not first:
            known = self.total(1)
            assert isinstance(known, Statistics)
            counts = known.class_counts
        made = self.layout(number).statistics(x, inside, counts)
        if noise := self.noise(number):
            made = replace(made, context=replace(made.context, noise=noise.facts(self.agreed)))
        save_statistics(path, made, self._recipe(number))
        for old in (self.folder / "taken").glob(f"{number - 2:03d}-sums-*"):
            delete(old)  # everybody has that total, or has left
        return load_statistics(path)

    def _recipe(self, number: int) -> dict[str, Any]:
        return recipe("session", {"round": number}, {"of": self.agreed.digest})

    def added(self, number: int, inside: Mapping[str, str]) -> Words | str:
        """The sum of what members have sent; their next offers are kept."""
        n, offers = self.layout(number).size, []
        total = np.zeros(n, np.uint64)
        for name in sorted(inside):
            found = self.take("sums", number, name, inside[name])
            if found is None:
                return f"the sums of {name!r} in round {number}"
            total += np.frombuffer(found.payload, "<u8", n)
            offers.append(found.payload[8 * n :])
        if self.agreed.masked:
            write_once(self.folder / f"offers-{number + 1}", b"".join(offers))
        return total

    def offers(self, number: int) -> dict[str, bytes] | str:
        """The offers of all in a round; kept when the sums of the round before were read."""
        path, size, inside = (
            self.folder / f"offers-{number}",
            offer_size(self.agreed),
            (self.closed(number - 1) or {}),
        )
        if not path.exists():
            assert number == 1, "offers of later rounds are kept with the total"
            found = {
                n: self.take("hello", 0, n, inside[n], check=self.check_hello)
                for n in sorted(inside)
            }
            if late := [name for name, one in found.items() if one is None]:
                return f"the hello of {', '.join(late)}"
            write_once(path, b"".join(one.payload[32:] for one in found.values() if one))
        data = path.read_bytes()
        return {name: data[i * size :][:size] for i, name in enumerate(sorted(inside))}

    def unmasked(self, number: int, inside: Mapping[str, str]) -> Words | str:
        """The sum without masks, from any t right answers; who has lied is named."""
        offers, answers = self.offers(number), dict[str, bytes]()
        if isinstance(offers, str):
            return offers
        for name in inside:
            if found := self.take("shares", number, name):
                answers[name] = found.payload
        late = [name for name in inside if name not in answers]
        found_secrets = {}
        for i, (giver, offer) in enumerate(offers.items()):
            kind = OWN if giver in inside else PAIRS
            shares = {name: data[SHARE * i :][:SHARE] for name, data in answers.items()}
            right = right_shares(self.agreed, number, giver, kind, offer, shares)
            if wrong := sorted(shares.keys() - right.keys()):
                self.say(
                    f"shares of {giver} from {', '.join(wrong)} in round {number} are not those "
                    "that it offered: one of these did not tell the truth"
                )
            if len(right) < self.agreed.threshold:
                if not late:
                    raise MismatchError(
                        f"the sum of round {number} cannot be opened: of the shares of {giver!r} "
                        f"those of {', '.join(wrong)} are wrong; {giver!r} or these broke the rules"
                    )
                return f"the shares of {', '.join(late)} in round {number}"
            found_secrets[giver] = opened(self.agreed, number, giver, kind, offer, right)
        total = self.added(number, inside)
        if not isinstance(total, str):
            unmask(total, offers, inside, found_secrets, self.salt(number))
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
