"""What the server asks of the members that stayed: whose masked files it has, signed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError, MismatchError
from ..files import headers
from ..values.differences import difference
from . import messages as msg
from .identity import Identity
from .offers import Offers
from .roster import HEAD
from .sealing import SEAL

REQUEST = {
    "server": msg.name,
    "roster": msg.SHA256,
    "offers": msg.SHA256,
    "seals": [dict],
    "head": (HEAD, headers.ABSENT),  # in a session: it says which round it is
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
            check_offers(where, seal, offers)
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

    def kind(self, giver: str) -> str:
        """Which secret of a member is asked for."""
        return "self" if giver in self.seals else "mask"

    @cached_property
    def body(self) -> msg.Body:
        server = self.offers.roster.server
        return {
            "kind": "request",
            "server": "" if server is None else server.name,
            "roster": self.offers.roster.digest,
            "offers": self.offers.digest,
            "seals": [seal.as_dict() for seal in self.seals.values()],
            **({} if self.offers.roster.series is None else {"head": self.offers.roster.head}),
        }

    def message(self, server: Identity) -> msg.Message:
        """The request, signed by the server of the roster."""
        self.offers.roster.check_server(server.member, f"the private key {server.path}")
        return server.sign(self.body)

    @cached_property
    def digest(self) -> str:
        return msg.digest_of(self.body)

    @classmethod
    def load(cls, path: Path, offers: Offers) -> Request:
        """Read a request that the server signed; every seal in it is checked again."""
        message = msg.read(path, "request", REQUEST)
        check_round(f"the request {path}", message.body, offers)
        offers.roster.check_signed_by_server(f"the request {path}", message)
        seals: dict[str, msg.Message] = {}
        for i, value in enumerate(message.body["seals"]):
            seal = msg.message_of(f"{path}, seal {i}", value, "seal", SEAL)
            if seals.setdefault(seal.body["member"], seal) is not seal:
                raise CorruptFileError(f"{path} names {seal.body['member']!r} twice")
        request = cls.new(offers, seals)
        if wrong := difference(request.body, message.body, "by its seals", "in it"):
            raise CorruptFileError(f"the request {path} is not as the server writes it: {wrong}")
        return request


def check_offers(where: str, seal: msg.Message, offers: Offers) -> None:
    """Refuse a file that was masked with other offers."""
    if seal.body["offers"] != offers.digest:
        raise MismatchError(
            f"{where} was masked with another set of offers: all members must use the same; give "
            "them the same folder of offers, and make a new round"
        )


def head_of(path: Path) -> Mapping[str, str] | None:
    """The head that a request is for, as it says before it is checked; None outside sessions."""
    found: Mapping[str, str] | None = msg.read(path, "request", REQUEST).body.get("head")
    return found


def check_round(where: str, body: Mapping[str, Any], offers: Offers) -> None:
    """Refuse a message that is for another roster, or for other offers."""
    for key, what, ours in (
        ("roster", "roster", offers.roster.digest),
        ("offers", "set of offers", offers.digest),
    ):
        if body[key] != ours:
            raise MismatchError(
                f"{where} is for another {what} ({body[key][:12]}, given is {ours[:12]}): it is "
                "of another round, or some offers were not given"
            )
