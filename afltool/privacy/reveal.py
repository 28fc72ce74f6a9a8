"""After a round: which shares each survivor reveals, and which secrets these give.

For a member that stayed, the server asks for shares of its self-mask; for one that dropped out, for
shares of its pairwise masks. It never gets both (Bonawitz et al., CCS 2017, round 4). The server
signs what it asks, and answers are encrypted for it: a reader of all files can do neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from ..errors import CorruptFileError, MismatchError
from ..files import headers
from ..files.atomic import write_once
from ..values.digest import canonical_json
from . import messages as msg
from . import shamir
from .identity import Identity, Member, agree, derive
from .offers import (
    ANSWERED,
    NONCE,
    SHARE_BYTES,
    RoundFolder,
    check_secret_share,
    commitment,
)
from .request import Request, check_round
from .roster import Roster

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
        found = reveal(request, me)
        record = {"request": request.digest, "answer": found.as_dict()}
        write_once(path, canonical_json(record).encode())
    record = msg.parse(path)
    if wrong := headers.mismatch(record, RECORD, exact=True):
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
    server = _server(roster)
    key = _key(request, me.name, agree(once, server.agree, server.name))
    return me.sign(
        {
            "kind": "reveal",
            "member": me.name,
            "roster": roster.digest,
            "offers": request.offers.digest,
            "request": request.digest,
            "key": once.public_key().public_bytes_raw().hex(),
            "sealed": ChaCha20Poly1305(key).encrypt(NONCE, shares, None).hex(),
        }
    )


def _server(roster: Roster) -> Member:
    if roster.server is None:
        raise MismatchError(f"the roster {roster.path} names no server")
    return roster.server


def _key(request: Request, member: str, secret: bytes) -> bytes:
    """The key of one answer: of this round, of this member, to this request."""
    salt = bytes.fromhex(request.offers.roster.digest)
    return derive(secret, salt, "reveal", member, request.digest)


# ---------------------------------------------------------------- at the server


def load_reveals(
    request: Request, paths: Iterable[str | Path], server: Identity
) -> dict[str, Shares]:
    """The shares of each member that answered: signature, round, request, every share checked."""
    roster = request.offers.roster
    roster.check_server(server.member, f"the private key {server.path}")
    found = roster.collect(paths, "reveal", REVEAL, partial(_check_reveal, request))
    return {name: opened(request, message, server) for name, message in found.items()}


def _check_reveal(request: Request, where: str, message: msg.Message) -> None:
    body, name = message.body, message.body["member"]
    check_round(f"{where} of {name!r}", body, request.offers)
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
    key = _key(request, name, agree(server.agreeing, body["key"], name))
    try:
        text = ChaCha20Poly1305(key).decrypt(NONCE, bytes.fromhex(body["sealed"]), None)
    except InvalidTag:
        raise CorruptFileError(
            f"the answer of {name!r} cannot be decrypted with {server.path}: it was encrypted for "
            "another key"
        ) from None
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
    found = {}
    for giver in request.offers.by_member:
        secret = shamir.join(factors, [reveals[holder][giver] for holder in holders])
        found[giver] = checked(request, giver, secret.to_bytes(33))
    return found


def checked(request: Request, giver: str, data: bytes) -> bytes:
    """A member's secret of 32 bytes (with a 0 before them, 33); refused unless that was offered."""
    offers, kind = request.offers, request.kind(giver)
    if len(data) == 33 and data[0] == 0:
        data = data[1:]
    if len(data) == 32:
        if kind == "mask":
            key = X25519PrivateKey.from_private_bytes(data).public_key().public_bytes_raw().hex()
            good = key == offers.mask_key(giver)
        else:
            wanted = offers.by_member[giver].body["self_commitment"]
            good = commitment(offers.roster, "self-mask", giver, secret=data) == wanted
        if good:
            return data
    raise CorruptFileError(
        f"the shares that {giver!r} gave to the others do not make the secret that it offered: "
        f"{giver!r} broke the rules; make a new round without it"
    )
