"""What a member keeps beside its key over its rounds: secrets, what they were used for, noise.

The same rows masked twice are two sums to subtract. Two releases with the same noise reveal their
difference exactly, and the same release with other noise halves what protects it. So what was done
is recorded, and each release has a random number of its own.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, MismatchError
from ..files.atomic import close_to_others, delete, write_once
from ..values.arrays import canonical_json
from ..values.names import ROUNDS, file_stem
from ..values.text import difference
from . import messages as msg
from .identity import Identity, derive
from .offers import Offers, Secrets, draw, of_series, offer_of, pattern
from .roster import Roster

ANSWERED, FORGOTTEN = "answered", "forgotten"  # records of the end of a round
NOISE = "noise"  # the folder of releases: in that of a round under masks, or beside those of rounds
PREFIX = "secrets-"  # in a session; and the round whose key it is
PURPOSES = ("mask", "self")  # X25519 key of the pairwise masks, seed of the own mask


def rounds_of(me: Identity) -> Path:
    """The private folder of a member's rounds, beside its key."""
    return me.path.parent / f"{file_stem(me.name)}{ROUNDS}"


def open_rounds(me: Identity) -> list[Path]:
    """The folders of a member's rounds, and sessions, that have begun and are not over."""
    return sorted({path.parent for path in rounds_of(me).glob("*/secrets*")})


# ---------------------------------------------------------------- the secrets of a session


def next_key(key: bytes, session: str, number: int) -> bytes:
    """Key ``number`` + 1 from key ``number``."""
    return derive(key, bytes.fromhex(session), "session", "next", str(number))


def of_round(key: bytes, session: str, number: int) -> list[bytes]:
    """The secrets of round ``number`` from its key, in the order of `PURPOSES`."""
    salt = bytes.fromhex(session)
    return [derive(key, salt, "session", purpose, str(number)) for purpose in PURPOSES]


@dataclass(frozen=True)
class Chain:
    """The private files of a session: one key, encrypted with the member's, and its offer.

    The first key is drawn. Key r gives the two secrets of round r and key r + 1, by HKDF. So the
    secrets of a round tell nothing of another one, and who finds key r learns nothing of rounds
    before, whose keys are deleted.
    """

    folder: Path
    session: str
    rounds: int
    me: Identity

    def offer(self, make: Callable[[list[list[bytes]]], msg.Message]) -> msg.Message:
        """The offer of all rounds: at the first call ``make`` makes it of their secrets."""
        path, first = self.folder / "offer", self._place(1)
        if not path.exists():
            if not first.exists():
                key = secrets.token_bytes(32)
                record = {"key": key.hex(), "offer": make(self._every(key)).as_dict()}
                write_once(first, self.me.lock(record, "chain"))
            message = self.me.unlock(first, first.read_bytes(), "chain")
            write_once(path, canonical_json(message["offer"]).encode())
        message = msg.parse(path)
        return msg.Message(message["body"], message["signature"])

    def _every(self, key: bytes) -> list[list[bytes]]:
        rounds = []
        for number in range(1, self.rounds + 1):
            rounds.append(of_round(key, self.session, number))
            key = next_key(key, self.session, number)
        return rounds

    def key(self, number: int) -> bytes:
        """The key of a round; refused for one before a round that was masked or is over."""
        kept = self._kept()
        if not kept or number < kept[-1]:
            raise MismatchError(
                f"{self.me.name!r} has no secrets of round {number} of the session "
                f"{self.session[:12]}: "
                + (f"it is at round {kept[-1]}, and" if kept else "it has made no offer, or")
                + " secrets of rounds that are over are deleted; rounds only go on"
            )
        path = self._place(kept[-1])
        key = bytes.fromhex(self.me.unlock(path, path.read_bytes(), "chain")["key"])
        for one in range(kept[-1], number):
            key = next_key(key, self.session, one)
        return key

    def go_on(self, number: int) -> None:
        """From now on only round ``number`` and later ones are possible."""
        kept = self._kept()
        if kept and kept[-1] < number <= self.rounds:
            key = {"key": self.key(number).hex()}
            write_once(self._place(number), self.me.lock(key, "chain"))
        for one in kept:
            if one < number:
                delete(self._place(one))

    def _kept(self) -> list[int]:
        """The rounds whose keys are there: one, or two where a step was killed."""
        names = (p.name.removeprefix(PREFIX) for p in self.folder.glob(f"{PREFIX}*"))
        return sorted(int(name) for name in names if name.isdigit())

    def _place(self, number: int) -> Path:
        return self.folder / f"{PREFIX}{number}"


# ---------------------------------------------------------------- one round


@dataclass(frozen=True)
class RoundFolder:
    """What a member knows and has done in one round: private files, each written only once.

    ``secrets`` (in a session those of its `Chain`) and what lies in ``noise``, both encrypted with
    the member's private key, ``used`` (what was masked), ``answered`` (which request, and the
    answer), ``forgotten`` (the round was given up). With one of the last two the round is over, and
    secrets and noise are deleted; the records stay, and of an answered round the ``offer``, which
    is public.
    """

    folder: Path
    roster: Roster
    me: Identity

    @classmethod
    def of(cls, roster: Roster, me: Identity) -> RoundFolder:
        """The folder of a round, beside the member's private file."""
        roster.check_key(me)
        beside = rounds_of(me)
        folder = beside / roster.offered[:32]
        for private in (beside, folder):
            close_to_others(private)
        return cls(folder, roster, me)

    @cached_property
    def chain(self) -> Chain | None:
        """Where the secrets of a session are."""
        series = self.roster.series
        if series is None:
            return None
        folder = rounds_of(self.me) / series.session[:32]
        return Chain(folder, series.session, series.rounds, self.me)

    def _every_round(self) -> list[Roster]:
        """The rosters of all rounds of the session, or of the only round."""
        series = self.roster.series
        if series is None:
            return [self.roster]
        numbers = range(1, series.rounds + 1)
        return [replace(self.roster, series=replace(series, number=k)) for k in numbers]

    def offer(self) -> msg.Message:
        """The signed offer of this round, or session: made at the first call, then the same."""
        if self.chain is not None:
            return self.chain.offer(self._offer_of_session)
        path = self.folder / "offer"
        if path.exists():
            return msg.message_of(str(path), msg.parse(path), "offer", pattern(self.roster))
        self.check_open()
        if not (path := self.folder / "secrets").exists():
            drawn = draw(self.roster, self.me)
            keys = {"mask": drawn.mask.hex(), "self": drawn.self.hex()}
            value = {**keys, "offer": drawn.offer.as_dict()}
            write_once(path, self.me.lock(value, "secrets"))
        return self._secrets().offer

    def _offer_of_session(self, drawn: Sequence[Sequence[bytes]]) -> msg.Message:
        self.check_open()
        pairs = zip(self._every_round(), drawn, strict=True)
        return offer_of(self.roster, self.me, [(one, mask, own) for one, (mask, own) in pairs])

    def secrets(self) -> Secrets:
        """The secrets of this round; refused where no offer was made, or after the round."""
        self.check_open()
        return self._secrets()

    def _secrets(self) -> Secrets:
        if self.chain is not None and (series := self.roster.series) is not None:
            mask, own = of_round(self.chain.key(series.number), series.session, series.number)
            return Secrets(mask, own, of_series(self.roster, self.offer()))
        path = self.folder / "secrets"
        if not path.exists():
            raise MismatchError(
                f"{self.me.name!r} has made no offer for the roster {self.roster.digest[:12]} "
                f"(there is no {path}): afltool mask offer comes first"
            )
        secrets = self.me.unlock(path, path.read_bytes(), "secrets")
        offer = msg.message_of(str(path), secrets["offer"], "offer", pattern(self.roster))
        return Secrets(bytes.fromhex(secrets["mask"]), bytes.fromhex(secrets["self"]), offer)

    def check_open(self) -> None:
        """Refuse a round that is over."""
        for record, what in ((ANSWERED, "answered its request"), (FORGOTTEN, "given it up")):
            path = self.folder / record
            if path.exists():
                raise MismatchError(
                    f"the round of the roster {self.roster.digest[:12]} is over for "
                    f"{self.me.name!r}, who has {what}: its secrets are deleted (recorded in "
                    f"{path}); another round needs a new roster"
                )

    def forget(self) -> None:
        """Give the round up, or end the session: no step is possible from now on."""
        for roster in self._every_round():
            one = RoundFolder.of(roster, self.me)
            if not (one.folder / ANSWERED).exists():
                one.once(FORGOTTEN, {"roster": roster.offered}, "another round was given up")
            one._delete()
        if self.chain is not None:
            self.chain.go_on(self.chain.rounds + 1)

    def close(self) -> None:
        """Delete the secrets of an answered round: nobody can unmask its file with this key."""
        if self.chain is not None:
            self.go_on(1)
        elif (self.folder / "secrets").exists():
            with suppress(CorruptFileError):  # what cannot be read is deleted all the same
                offer = canonical_json(self._secrets().offer.as_dict())
                write_once(self.folder / "offer", offer.encode())
        self._delete()

    def go_on(self, further: int = 0) -> None:
        """In a session: the rounds before this one are over; with 1 this one, too."""
        if self.chain is not None and self.roster.series is not None:
            self.chain.go_on(self.roster.series.number + further)

    def _delete(self) -> None:
        """Delete what opens this member's file: the noise in it, and its masks."""
        for path in sorted((self.folder / NOISE).glob("*")):
            delete(path)
        delete(self.folder / "secrets")

    def check_used(self, offers: Offers) -> None:
        """Refuse unless this member has masked with these offers."""
        path = self.folder / "used"
        used = msg.parse(path) if path.exists() else {}
        if used.get("offers") != offers.digest:
            raise MismatchError(
                f"{self.me.name!r} has not masked anything with these offers"
                + (f" but with others ({path})" if used else "")
            )

    def once(self, step: str, value: Mapping[str, Any], otherwise: str) -> None:
        """Record what a step was done with; another value is refused from then on."""
        data = canonical_json(value).encode()
        path = self.folder / step
        if write_once(path, data) != data:
            raise MismatchError(f"{otherwise} (recorded in {path})")

    # ------------------------------------------------------------ the ledger of all rounds

    def check_new(self, content: str, again: bool) -> None:
        """Refuse what was masked for another roster; ``content``: which rows, for which round.

        For each statistics that were masked there is a file beside the private key. Its name is a
        digest of what they are under that key, so it tells others nothing; it holds the digest of
        the first roster they were masked for. In a round that has masked, its own record counts.
        """
        path = self._ledger(content)
        if again or not path.exists() or (self.folder / "used").exists():
            return
        first = path.read_text("ascii", "replace")
        if not msg.SHA256(first):
            raise CorruptFileError(f"{path} is damaged: it holds no digest of a roster")
        if first != self.roster.offered:
            raise MismatchError(
                f"{self.me.name!r} has masked the same rows before, for the same round of a head "
                f"and the roster {first[:12]}. Whoever learns the sums of both rounds, and their "
                "members differ by one, knows the statistics of that one: one sum less the other. "
                f"{self._told(first)}. If the other round never came to a sum, or has the same "
                "members until its end, give --again"
            )

    def claim(self, content: str, again: bool) -> None:
        """`check_new`, with the record that they are masked now."""
        if not (self.folder / "used").exists():
            write_once(self._ledger(content), self.roster.offered.encode())
            self.check_new(content, again)

    def _told(self, first: str) -> str:
        """What the member knows of the other round, whose roster has the digest ``first``."""
        folder = rounds_of(self.me) / first[:32]
        if (folder / ANSWERED).exists():
            return "It has answered there, so the server may have that sum, whatever it says"
        done = (folder / FORGOTTEN).exists()
        return "It has not answered there" + (" and no longer can" if done else "")

    def _ledger(self, content: str) -> Path:
        name = derive(self.me.private_key("ledger"), b"", "masked", content).hex()
        return rounds_of(self.me) / "masked" / name


# ---------------------------------------------------------------- noise


@dataclass(frozen=True)
class Release:
    """One release: ``context`` is everything that it depends on, ``nonce`` its 32 random bytes."""

    context: Mapping[str, Any]
    nonce: bytes

    @classmethod
    def of(cls, me: Identity, folder: Path, context: Mapping[str, Any]) -> Release:
        """The release of a context: its number is drawn at the first call, the same one later.

        The record lies below ``folder``, and is on the disk before the number is used. Its name and
        its bytes tell nothing without the private key.

        Raises `CorruptFileError`: a record that is damaged, or of another release or key.
        """
        text = canonical_json(context)
        path = folder / NOISE / derive(me.private_key("release"), text.encode(), "name").hex()[:32]
        drawn = {"context": json.loads(text), "nonce": secrets.token_hex(32)}
        data = path.read_bytes() if path.exists() else write_once(path, me.lock(drawn, "release"))
        release = me.unlock(path, data, "release")
        if where := difference(release["context"], drawn["context"], "in the file", "now"):
            raise CorruptFileError(
                f"{path} records the noise of another release, which is used for nothing else: "
                f"{where}; bring the file back to where it was"
            )
        return cls(drawn["context"], bytes.fromhex(release["nonce"]))

    def key(self) -> bytes:
        """The key of the noise."""
        return derive(self.nonce, canonical_json(self.context).encode(), "noise")
