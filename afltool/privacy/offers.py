"""Before a round: each member's fresh secrets, in shares; any t of the others open them.

Bonawitz et al., "Practical Secure Aggregation for Privacy-Preserving Machine Learning", CCS 2017,
rounds 0 and 1 in one message: the long-lived keys to encrypt shares for are in the roster, so an
offer holds both the fresh key for pairwise masks and the shares. The offer of a session holds them
for each of its rounds. Where all members must stay, there are no shares and no masks of their own.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import CorruptFileError
from ..files.schema import Quick
from ..values.arrays import canonical_json
from . import messages as msg
from . import shamir
from .identity import Identity, agree, decrypt, encrypt, public_of
from .roster import Roster

SHARE_BYTES = 33  # a number below shamir.PRIME
SECRETS = ("mask", "self")  # the secret of the pairwise masks, that of the self-mask
SEALED_BYTES = 2 * SHARE_BYTES + 16  # both shares, and the tag of the cipher
PARTS = {"sealed": 2 * SEALED_BYTES, "mask": 64, "self": 64}  # what an offer has for each holder


def _shares(value: Any) -> bool:
    """Whether all shares are hexadecimal; checked in one pass, because n members make n² shares."""
    if type(value) is not list or any(type(one) is not dict or len(one) != 3 for one in value):
        return False
    return all(_digits([one.get(name) for one in value], size) for name, size in PARTS.items())


def _digits(texts: Any, size: int = 2 * SEALED_BYTES + 128) -> bool:
    """Whether they are a list of texts of ``size`` hexadecimal digits."""
    if type(texts) is not list or {*map(type, texts)} != {str} or {*map(len, texts)} != {size}:
        return False
    try:
        return bytes.fromhex(text := "".join(texts)).hex() == text  # no upper case, no spaces
    except ValueError:
        return False


MASK_KEY = {"mask_key": msg.hexadecimal(32)}
SHARE_KEY = {"share_key": msg.hexadecimal(32)}
OF_ROUND = {
    **MASK_KEY,
    "self_commitment": msg.SHA256,
    "shares": Quick(
        _shares, [{"sealed": msg.hexadecimal(SEALED_BYTES), **dict.fromkeys(SECRETS, msg.SHA256)}]
    ),
}
# Since version 2 of the masks the parts of a share are one text: a hundred offers are read sooner.
OF_ROUND_2 = {**OF_ROUND, "shares": Quick(_digits, [msg.hexadecimal(SEALED_BYTES + 64)])}
WHOSE = {"member": msg.name, "roster": msg.SHA256}


@dataclass(frozen=True)
class Secrets:
    """The secrets that a member draws for one round; ``offer`` is the published part."""

    mask: bytes  # private X25519 key of the pairwise masks
    self: bytes  # key of the self-mask
    offer: msg.Message

    @property
    def mask_key(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.mask)


def commitment(roster: Roster, purpose: str, *about: object, secret: bytes) -> str:
    """SHA-256 commitment to 32 or 33 random bytes; it does not reveal them."""
    text = canonical_json(["afltool commitment", roster.offered, purpose, *about])
    return hashlib.sha256(text.encode() + b"\n" + secret).hexdigest()


def draw(roster: Roster, me: Identity) -> Secrets:
    """Fresh secrets of a round and their signed offer."""
    mask, own = secrets.token_bytes(32), secrets.token_bytes(32)
    return Secrets(mask, own, offer_of(roster, me, [(roster, mask, own)]))


def offer_of(
    roster: Roster, me: Identity, drawn: Sequence[tuple[Roster, bytes, bytes]]
) -> msg.Message:
    """The signed offer of rounds, with the roster and both secrets of each."""
    ephemeral = X25519PrivateKey.generate()  # forgotten below: its holder cannot open them later
    agreed = [] if roster.all else [agree(ephemeral, m.agree, m.name) for m in roster.members]
    each = [_of_round(one, me, mask, own, agreed) for one, mask, own in drawn]
    body = {
        "kind": "offer",
        "member": me.name,
        "roster": roster.compared,
        **({} if roster.all else {"share_key": public_of(ephemeral)}),
        **(each[0] if roster.series is None else {"rounds": each}),
    }
    return me.sign(body)


def _of_round(
    roster: Roster, me: Identity, mask: bytes, own: bytes, agreed: Sequence[bytes]
) -> dict[str, Any]:
    """What an offer says of one round; ``agreed``: a secret with each holder of shares."""
    public = {"mask_key": public_of(X25519PrivateKey.from_private_bytes(mask))}
    if roster.all:
        return public
    n, t = len(roster.members), roster.threshold
    both = [shamir.split(int.from_bytes(secret), t, n) for secret in (mask, own)]
    shares = []
    for i, (holder, secret) in enumerate(zip(roster.members, agreed, strict=True)):
        pair = [shares_of[i].to_bytes(SHARE_BYTES) for shares_of in both]
        marks = {
            kind: commitment(roster, kind, me.name, holder.name, secret=share)
            for kind, share in zip(SECRETS, pair, strict=True)
        }
        sealed = encrypt(secret, b"".join(pair), *_between(roster, me.name, holder.name))
        parts = {"sealed": sealed, **marks}
        shares.append(parts if roster.masks == 1 else "".join(parts[name] for name in PARTS))
    committed = commitment(roster, "self-mask", me.name, secret=own)
    return {**public, "self_commitment": committed, "shares": shares}


def _between(roster: Roster, giver: str, holder: str) -> tuple[bytes, str, str, str]:
    """Salt and purpose of the key that a share is encrypted with."""
    return bytes.fromhex(roster.offered), "share", giver, holder


def pattern(roster: Roster) -> dict[str, Any]:
    """The fields of an offer for a roster."""
    of_round = MASK_KEY if roster.all else OF_ROUND if roster.masks == 1 else OF_ROUND_2
    common = WHOSE if roster.all else {**WHOSE, **SHARE_KEY}
    return {**common, **(of_round if roster.series is None else {"rounds": [of_round]})}


def of_series(roster: Roster, offer: msg.Message) -> msg.Message:
    """What an offer says of the round of a roster, as the offer of that round alone."""
    if roster.series is None:
        return offer
    common = {key: value for key, value in offer.body.items() if key != "rounds"}
    return msg.Message({**common, **offer.body["rounds"][roster.series.number - 1]})


# ---------------------------------------------------------------- a set of offers


@dataclass(frozen=True)
class Offers:
    """The offers of a round, by member; all members must use the same set."""

    roster: Roster
    by_member: Mapping[str, msg.Message]

    @classmethod
    def load(cls, roster: Roster, paths: Iterable[str | Path]) -> Offers:
        """Read offers and check each; at least as many as the threshold are needed."""
        by_member = collected(roster, paths)
        roster.check_enough(by_member, roster.names(), "made an offer")
        return cls(
            roster, {name: of_series(roster, one) for name, one in sorted(by_member.items())}
        )

    @cached_property
    def digest(self) -> str:
        """A digest of the set: equal if two members mask with the same offers."""
        each = {name: offer.digest for name, offer in self.by_member.items()}
        return msg.digest_of({"kind": "offers", "roster": self.roster.digest, "offers": each})

    def mask_key(self, name: str) -> str:
        key: str = self.by_member[name].body["mask_key"]
        return key

    def share(self, giver: str, holder: str) -> Mapping[str, str]:
        """What the offer of a member has for a holder of its shares: `PARTS`."""
        sealed = self.by_member[giver].body["shares"][self.roster.place(holder) - 1]
        if isinstance(sealed, dict):
            return sealed
        text = StringIO(sealed)
        return {name: text.read(size) for name, size in PARTS.items()}

    def open(self, giver: str, me: Identity) -> dict[str, bytes]:
        """My shares of another member's two secrets; refused unless they match the offer."""
        share = self.share(giver, me.name)
        secret = agree(me.agreeing, self.by_member[giver].body["share_key"], giver)
        wrong = (
            f"the offer of {giver!r} holds a share for {me.name!r} that cannot be decrypted: "
            f"leave {giver!r} out of the round, or use the key that is in the roster"
        )
        both = decrypt(secret, share["sealed"], wrong, *_between(self.roster, giver, me.name))
        pair = dict(zip(SECRETS, (both[:SHARE_BYTES], both[SHARE_BYTES:]), strict=True))
        for kind, value in pair.items():
            check_secret_share(self, giver, me.name, kind, value, giver)
        return pair

    def check_all(self, me: Identity) -> None:
        """Before masking: check that every share for me opens and matches its commitment."""
        for giver in () if self.roster.all else self.by_member:
            self.open(giver, me)


def check_secret_share(
    offers: Offers, giver: str, holder: str, kind: str, share: bytes, blamed: str
) -> int:
    """The share as a number; `CorruptFileError`, naming ``blamed``, unless it matches the offer."""
    wanted = offers.share(giver, holder)[kind]
    if commitment(offers.roster, kind, giver, holder, secret=share) != wanted:
        raise CorruptFileError(
            f"{blamed!r} gave a share of the {kind} secret of {giver!r} (for {holder!r}) that is "
            "not the share of the offer"
        )
    return int.from_bytes(share)


def collected(roster: Roster, paths: Iterable[str | Path]) -> dict[str, msg.Message]:
    """Offers by member, each checked."""
    check = partial(_check_offer, roster)
    return roster.collect(paths, "offer", pattern(roster), check, roster.compared)


def _check_offer(roster: Roster, where: str, offer: msg.Message) -> None:
    """Refuse an offer of another number of rounds or shares than the roster says."""
    body, name, n = offer.body, offer.body["member"], len(roster.members)
    rounds = body.get("rounds", [body])
    if roster.series is not None and len(rounds) != roster.series.rounds:
        raise CorruptFileError(
            f"{where} of {name!r} is for {len(rounds)} rounds, the session has "
            f"{roster.series.rounds}"
        )
    for one in () if roster.all else rounds:
        if (shares := len(one["shares"])) != n:
            raise CorruptFileError(f"{where} of {name!r} has {shares} shares for {n} members")


def missing(roster: Roster, names: Iterable[str]) -> list[str]:
    """Members that are not among those found, by name."""
    return [repr(name) for name in roster.names() if name not in set(names)]
