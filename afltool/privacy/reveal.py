"""After a round: what the server asks of the members that stayed, and which secrets they reveal.

For a member that stayed, the server asks for shares of its self-mask; for one that dropped out, for
shares of its pairwise masks. It never gets both (Bonawitz et al., CCS 2017, round 4). The server
signs what it asks, and answers are encrypted for it: a reader of all files can do neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from ..errors import CorruptFileError, MismatchError
from ..files.atomic import write_once
from ..files.schema import ABSENT, mismatch
from ..values.arrays import canonical_json
from ..values.text import difference
from . import messages as msg
from . import shamir
from .identity import Identity, agree, decrypt, encrypt, public_of
from .offers import SHARE_BYTES, Offers, check_secret_share, commitment
from .roster import HEAD
from .rounds import ANSWERED, RoundFolder
from .sealing import SEAL

REQUEST = {
    "server": msg.name,
    "roster": msg.SHA256,
    "offers": msg.SHA256,
    "seals": [dict],
    "head": (HEAD, ABSENT),  # in a session: it says which round it is
}
REVEAL = {
    "member": msg.name,
    "roster": msg.SHA256,
    "offers": msg.SHA256,
    "request": msg.SHA256,
    "key": msg.hexadecimal(32),
    "sealed": msg.hexadecimal(16, most=msg.LARGEST_MESSAGE // 2),
}
RECORD = {"request": msg.SHA256, "answer": dict}
Shares = Mapping[str, int]  # one of each member that made an offer


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
            if seal.body["offers"] != offers.digest:
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

    def kind(self, giver: str) -> str:
        """Which secret of a member is asked for."""
        return "self" if giver in self.seals else "mask"

    @cached_property
    def body(self) -> msg.Body:
        roster = self.offers.roster
        return {
            "kind": "request",
            "server": "" if roster.server is None else roster.server.name,
            "roster": roster.digest,
            "offers": self.offers.digest,
            "seals": [seal.as_dict() for seal in self.seals.values()],
            **({} if roster.series is None else {"head": roster.head}),
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
        _check_round(f"the request {path}", message.body, offers)
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


def head_of(path: Path) -> Mapping[str, str] | None:
    """The head that a request is for, as it says before it is checked; None outside sessions."""
    head: Mapping[str, str] | None = msg.read(path, "request", REQUEST).body.get("head")
    return head


def _check_round(where: str, body: Mapping[str, Any], offers: Offers) -> None:
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


# ---------------------------------------------------------------- at a member


def answer(request: Request, me: Identity) -> msg.Message:
    """`reveal`, once in a round: again for the same request the same bytes, for another none.

    The answer is kept, so the round's secrets are needed for nothing more, and deleted.
    """
    folder = RoundFolder.of(request.offers.roster, me)
    path = folder.folder / ANSWERED
    if not path.exists():
        folder.check_open()
        folder.check_used(request.offers)
        message = reveal(request, me)
        record = {"request": request.digest, "answer": message.as_dict()}
        write_once(path, canonical_json(record).encode())
    record = msg.parse(path)
    if wrong := mismatch(record, RECORD, exact=True):
        raise CorruptFileError(f"{path} is damaged: {wrong}")
    if record["request"] != request.digest:
        raise MismatchError(
            f"{me.name!r} has answered another request in this round; a second one could open "
            f"both secrets of a member (recorded in {path})"
        )
    folder.close()
    return msg.message_of(str(path), record["answer"], "reveal", REVEAL)


def reveal(request: Request, me: Identity) -> msg.Message:
    """My shares that the request asks for, encrypted for the server and signed; only survivors are
    asked."""
    if me.name not in request.seals:
        raise MismatchError(
            f"the request counts {me.name!r} as dropped out, so it is not asked; if its masked "
            "file was sent in time, do not trust this server"
        )
    offers = request.offers
    shares = [offers.open(giver, me)[request.kind(giver)] for giver in offers.by_member]
    return sealed(request, me, b"".join(shares))


def sealed(request: Request, me: Identity, shares: bytes) -> msg.Message:
    """The signed answer that holds these shares, one after the other, for the server's eyes."""
    roster, once = request.offers.roster, X25519PrivateKey.generate()
    if roster.server is None:
        raise MismatchError(f"the roster {roster.path} names no server")
    secret = agree(once, roster.server.agree, roster.server.name)
    return me.sign(
        {
            "kind": "reveal",
            "member": me.name,
            "roster": roster.digest,
            "offers": request.offers.digest,
            "request": request.digest,
            "key": public_of(once),
            "sealed": encrypt(secret, shares, *_purpose(request, me.name)),
        }
    )


def _purpose(request: Request, member: str) -> tuple[bytes, str, str, str]:
    """Salt and purpose of the key of one answer: of this round, this member, to this request."""
    return bytes.fromhex(request.offers.roster.digest), "reveal", member, request.digest


# ---------------------------------------------------------------- at the server


def load_reveals(
    request: Request, paths: Iterable[str | Path], server: Identity
) -> dict[str, Shares]:
    """The shares of each member that answered: signature, round, request, every share checked."""
    roster = request.offers.roster
    roster.check_server(server.member, f"the private key {server.path}")
    reveals = roster.collect(paths, "reveal", REVEAL, partial(_check_reveal, request))
    return {name: opened(request, message, server) for name, message in reveals.items()}


def _check_reveal(request: Request, where: str, message: msg.Message) -> None:
    body, name = message.body, message.body["member"]
    _check_round(f"{where} of {name!r}", body, request.offers)
    if body["request"] != request.digest:
        raise MismatchError(
            f"{where} of {name!r} answers another request than that of this sum: members answer "
            "one request, the first one; give the masked files that it names"
        )
    if name not in request.seals:
        raise MismatchError(f"{where} is of {name!r}, who has dropped out")


def opened(request: Request, message: msg.Message, server: Identity) -> Shares:
    """The shares in a member's answer, each checked against its commitment."""
    body, name, offers = message.body, message.body["member"], request.offers
    wrong = (
        f"the answer of {name!r} cannot be decrypted with {server.path}: it was encrypted for "
        "another key"
    )
    secret = agree(server.agreeing, body["key"], name)
    text = decrypt(secret, body["sealed"], wrong, *_purpose(request, name))
    if len(text) != SHARE_BYTES * len(offers.by_member):
        raise CorruptFileError(f"the answer of {name!r} does not hold a share of each member")
    shares = {}
    for i, giver in enumerate(offers.by_member):
        share = text[i * SHARE_BYTES :][:SHARE_BYTES]
        shares[giver] = check_secret_share(offers, giver, name, request.kind(giver), share, name)
    return shares


def secrets_of(request: Request, reveals: Mapping[str, Shares]) -> dict[str, bytes]:
    """The secrets that the shares give, each compared with its member's commitment."""
    roster = request.offers.roster
    roster.check_enough(reveals, request.seals, "answered")
    holders = sorted(reveals)[: roster.threshold]
    factors = shamir.weights([roster.place(name) for name in holders])
    secrets = {}
    for giver in request.offers.by_member:
        secret = shamir.join(factors, [reveals[holder][giver] for holder in holders])
        secrets[giver] = checked(request, giver, secret.to_bytes(33))
    return secrets


def checked(request: Request, giver: str, data: bytes) -> bytes:
    """A member's secret of 32 bytes (with a 0 before them, 33); refused unless that was offered."""
    offers, secret = request.offers, data[1:] if len(data) == 33 and data[0] == 0 else data
    if len(secret) == 32:
        if request.kind(giver) == "mask":
            public = public_of(X25519PrivateKey.from_private_bytes(secret))
            good = public == offers.mask_key(giver)
        else:
            wanted = offers.by_member[giver].body["self_commitment"]
            good = commitment(offers.roster, "self-mask", giver, secret=secret) == wanted
        if good:
            return secret
    raise CorruptFileError(
        f"the shares that {giver!r} gave to the others do not make the secret that it offered: "
        f"{giver!r} broke the rules; make a new round without it"
    )
