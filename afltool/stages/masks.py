"""Stages `mask offer`, `mask reveal`, `mask forget`: a member before it masks and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import MismatchError
from ..options.privacy import MemberOptions, RevealOptions
from ..privacy import messages
from ..privacy.identity import Identity
from ..privacy.offers import Offers, missing
from ..privacy.protection import keys_in, passphrase
from ..privacy.reveal import Request, answer, head_of
from ..privacy.rounds import RoundFolder
from ..privacy.session import roster_of
from ..progress import log
from ..values.names import file_stem


def mask_offer(
    roster: Path, out: Path, options: MemberOptions, *, overwrite: bool = False
) -> list[Path]:
    """Draw a member's secrets of a round, or session, and write its offer into the folder ``out``.

    The secrets stay in a private folder beside the key. The same command again writes the same
    offer. Returns the offers' paths: one for each key.
    """
    o = options
    agreed = roster_of(roster)
    agreed.terms.check_mode(True, "mask offer", agreed.path)
    log.info("mask offer: the roster's digest is %s", agreed.compared)
    paths = []
    for me in keys_in(o.key, passphrase(o.passphrase_file)):
        offer = RoundFolder.of(agreed, me).offer()
        paths.append(messages.write(_path(out, "offer", me), offer, overwrite))
    log.info(
        "mask offer: next, everybody gets %s; when the offers of all are in one folder, each gives "
        "its command for statistics with --sign NAME.key --roster %s --mask OFFERS",
        _shown(paths),
        agreed.path.name,
    )
    return paths


def mask_reveal(
    request: Path, out: Path, options: RevealOptions, *, overwrite: bool = False
) -> list[Path]:
    """Answer the server's request: a member's shares of what did not cancel, one file a key.

    A member answers one request in a round; with a folder of keys those of survivors answer. Then
    the round is over for it: its secrets are deleted.
    """
    o = options
    offers = Offers.load(roster_of(o.roster, head_of(request)), o.offers)
    asked = Request.load(request, offers)
    log.info(
        "mask reveal: %r asks for the sum over %d of the %d members of %s; dropped out: %s",
        asked.body["server"], len(asked.seals), len(offers.roster.members), o.roster,
        ", ".join(missing(offers.roster, asked.seals)) or "nobody",
    )  # fmt: skip
    everybody = keys_in(o.key, passphrase(o.passphrase_file))
    answering = [me for me in everybody if me.name in asked.seals] if o.key.is_dir() else everybody
    if not answering:
        raise MismatchError(
            f"none of the {len(everybody)} keys in {o.key} is of a member that stayed"
        )
    paths = []
    for me in answering:
        paths.append(messages.write(_path(out, "reveal", me), answer(asked, me), overwrite))
    log.info("mask reveal: next, send %s to the server, which alone can read it", _shown(paths))
    return paths


def mask_forget(roster: Path, options: MemberOptions) -> list[Path]:
    """End a round that a member has not answered, or a session: its secrets are deleted, no step
    is possible.

    A file that it has sent may still be in the sum, if enough others answer. Returns the folders of
    the round, whose records stay: one for each key.
    """
    o = options
    agreed, folders = roster_of(roster), []
    for me in keys_in(o.key, passphrase(o.passphrase_file)):
        folder = RoundFolder.of(agreed, me)
        folder.forget()
        log.info(
            "mask forget: the round %s is over for %r; a masked file that was sent may still be in "
            "the sum, if enough others answer",
            agreed.compared[:12],
            me.name,
        )
        folders.append(folder.folder)
    return folders


def _shown(paths: Sequence[Path]) -> str:
    return str(paths[0]) if len(paths) == 1 else f"the {len(paths)} files in {paths[0].parent}"


def _path(out: Path, what: str, me: Identity) -> Path:
    return out / f"{what}-{file_stem(me.name)}.json"
