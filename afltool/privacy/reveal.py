"""After a round: who stayed, which shares each survivor reveals, which secrets these give.

For a member that stayed, the server asks for shares of its self-mask; for one that dropped out, for
shares of its pairwise masks. It never gets both (Bonawitz et al., CCS 2017, round 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import CorruptFileError, MismatchError
from . import messages as msg
from . import shamir
from .identity import Identity
from .offers import SHARE, Offers, check_secret_share, commitment
from .roster import Roster
from .sealing import SEAL

REQUEST = {"roster": msg.SHA256, "offers": msg.SHA256, "seals": [dict]}
REVEAL = {
    "member": msg.name,
    "roster": msg.SHA256,
    "offers": msg.SHA256,
    "request": msg.SHA256,
    "shares": dict,
}


@dataclass(frozen=True)
class Request:
    """The members whose masked files the server has, with their signatures as proof."""

    offers: Offers
    seals: Mapping[str, msg.Message]

    @classmethod
    def new(cls, offers: Offers, seals: Mapping[str, msg.Message]) -> Request:
        """Refuse fewer seals than the threshold, and seals of strangers or for other offers."""
        roster = offers.roster
        for name, seal in seals.items():
            where = f"the masked file of {name!r}"
            roster.check_message(where, seal)
            if seal.body["offers"] != offers.digest():
                raise MismatchError(
                    f"{where} was masked with another set of offers: all members must use the "
                    "same; give them the same folder of offers, and make a new round"
                )
            if name != seal.body["member"] or name not in offers.by_member:
                raise MismatchError(f"{where} is of {seal.body['member']!r}, who made no offer")
        why = ": the sum of fewer must stay secret"
        roster.check_enough(seals, offers.by_member, "sent a masked file", why)
        return cls(offers, dict(sorted(seals.items())))

    @property
    def survivors(self) -> list[str]:
        return list(self.seals)

    @property
    def missing(self) -> list[str]:
        """Members that have made an offer and sent nothing."""
        return [name for name in self.offers.by_member if name not in self.seals]

    def message(self) -> msg.Message:
        return msg.Message(
            {
                "kind": "request",
                "roster": self.offers.roster.digest(),
                "offers": self.offers.digest(),
                "seals": [seal.as_dict() for seal in self.seals.values()],
            }
        )

    def digest(self) -> str:
        return self.message().digest()

    @classmethod
    def load(cls, path: Path, offers: Offers) -> Request:
        """Read a request; every signature in it is checked again."""
        body = msg.read(path, "request", REQUEST).body
        _same(f"the request {path}", body, offers)
        seals: dict[str, msg.Message] = {}
        for i, value in enumerate(body["seals"]):
            seal = msg.message_of(f"{path}, seal {i}", value, "seal", SEAL)
            if seals.setdefault(seal.body["member"], seal) is not seal:
                raise CorruptFileError(f"{path} names {seal.body['member']!r} twice")
        return cls.new(offers, seals)


def _same(where: str, body: Mapping[str, Any], offers: Offers) -> None:
    for key, ours in (("roster", offers.roster.digest()), ("offers", offers.digest())):
        if body[key] != ours:
            raise MismatchError(
                f"{where} is for other {key} ({body[key][:12]}, here {ours[:12]}): it is of "
                "another round, or some offers are not here"
            )


def reveal(request: Request, me: Identity) -> msg.Message:
    """My shares that the request asks for, signed; only survivors are asked."""
    if me.name not in request.seals:
        raise MismatchError(
            f"the request counts {me.name!r} as dropped out, so it is not asked; if its masked "
            "file was sent in time, do not trust this server"
        )
    shares = {}
    for giver in request.offers.by_member:
        kind = "self" if giver in request.seals else "mask"
        shares[giver] = {kind: request.offers.open(giver, me)[kind].hex()}
    return me.sign(
        {
            "kind": "reveal",
            "member": me.name,
            "roster": request.offers.roster.digest(),
            "offers": request.offers.digest(),
            "request": request.digest(),
            "shares": shares,
        }
    )


def load_reveals(request: Request, paths: Iterable[str | Path]) -> dict[str, msg.Message]:
    """Reveals by member, each checked: signature, round, request, every share."""
    roster = request.offers.roster
    return roster.collect(paths, "reveal", REVEAL, partial(_check_reveal, request))


def _check_reveal(request: Request, where: str, message: msg.Message) -> None:
    body, name = message.body, message.body["member"]
    _same(f"{where} of {name!r}", body, request.offers)
    if body["request"] != request.digest():
        raise MismatchError(
            f"{where} of {name!r} answers another request than that of this sum: members answer "
            "one request, the first one; give the masked files that it names"
        )
    if name not in request.seals:
        raise MismatchError(f"{where} is of {name!r}, who has dropped out")
    if body["shares"].keys() != request.offers.by_member.keys():
        raise CorruptFileError(f"{where} of {name!r} does not hold a share of each member")
    for giver, share in body["shares"].items():
        kind = "self" if giver in request.seals else "mask"
        if not isinstance(share, dict) or list(share) != [kind] or not SHARE(share[kind]):
            raise CorruptFileError(f"{where} of {name!r} holds no {kind} share of {giver!r}")
        check_secret_share(request.offers, giver, name, kind, bytes.fromhex(share[kind]), name)


def secrets_of(request: Request, reveals: Mapping[str, msg.Message]) -> dict[str, bytes]:
    """The secrets that the shares give, each compared with its member's commitment."""
    roster = request.offers.roster
    roster.check_enough(reveals, request.seals, "answered")
    holders = sorted(reveals)[: roster.threshold]
    factors = shamir.weights([roster.place(name) for name in holders])
    found = {}
    for giver in request.offers.by_member:
        kind = "self" if giver in request.seals else "mask"
        values = [int(reveals[holder].body["shares"][giver][kind], 16) for holder in holders]
        secret = shamir.join(factors, values)
        found[giver] = _checked(roster, request.offers, giver, kind, secret)
    return found


def _checked(roster: Roster, offers: Offers, giver: str, kind: str, secret: int) -> bytes:
    data = secret.to_bytes(33)
    if data[0] == 0:
        data = data[1:]
        if kind == "mask":
            key = X25519PrivateKey.from_private_bytes(data).public_key().public_bytes_raw().hex()
            good = key == offers.mask_key(giver)
        else:
            wanted = offers.by_member[giver].body["self_commitment"]
            good = commitment(roster, "self-mask", giver, secret=data) == wanted
        if good:
            return data
    raise CorruptFileError(
        f"the shares that {giver!r} gave to the others do not make the secret that it offered: "
        f"{giver!r} broke the rules; make a new round without it"
    )
