"""Sums of the files that the members of a roster have sent, signed or masked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import progress
from ..errors import AflError, InputError, MismatchError, UsageError
from ..files.arrays import damage_as_error
from ..files.hdf5 import fingerprint, read_header
from ..files.masked import load_masked
from ..files.recipes import recipe, up_to_date
from ..files.statistics import clients_of, context_of, save_statistics
from ..heads import conditions
from ..options.privacy import SummingOptions
from ..progress import log
from ..values.differences import difference
from ..values.phases import Phase
from ..values.statistics import Statistics
from . import masking, messages
from .identity import Identity
from .messages import Message
from .offers import Offers, missing
from .protection import key_of, passphrase
from .request import Request
from .reveal import load_reveals, secrets_of
from .roster import Roster
from .roster import load as load_roster
from .sealing import check_seal


def check_members(
    where: Path, paths: Sequence[Path], leaving: Sequence[Path], complete: bool
) -> dict[Path, dict[str, Any]]:
    """Refuse files that no member has signed for this round; log the members that are missing.

    ``where``: the roster. Returns the headers whose seals were checked: what is added up later must
    have these.
    """
    roster = _roster(where, len(paths) - len(leaving) if complete else None, masked=False)
    seals = _seals(roster, [*paths, *leaving], "statistics")
    absent = missing(roster, seals)
    gone = f"; missing: {', '.join(absent)}" if absent else ""
    log.info(f"aggregate: {len(seals)} of {len(roster.members)} members of the roster{gone}")
    return {one.path: one.header for one in seals.values()}


def _seals(roster: Roster, paths: Iterable[Path], kind: str) -> dict[str, _Sealed]:
    """Sealed files by member; `MismatchError` for two files of one member."""
    found: dict[str, _Sealed] = {}
    for path in paths:
        header = read_header(path, kind)
        with damage_as_error(path):
            one = _Sealed(path, header, check_seal(roster, path, header))
            roster.terms.check_rows(path, roster.path, header["context"])
            roster.terms.check_noise(path, roster.path, header["context"])
        known = found.setdefault(one.seal.body["member"], one)
        if known is not one:
            raise MismatchError(
                f"{path}: {one.seal.body['member']!r} is given twice, also as {known.path}"
            )
    return found


@dataclass(frozen=True)
class _Sealed:
    """A member's file, as far as its header describes it; the arrays are read later."""

    path: Path
    header: dict[str, Any]
    seal: Message


def _roster(path: Path, files: int | None, masked: bool) -> Roster:
    """The roster of such a sum; ``files``: how many, if none may be missing."""
    roster = load_roster(path)
    roster.terms.check_mode(masked, "--offers FOLDER", path)
    if files is not None:
        _check_complete(roster, files)
    return roster


def _check_complete(roster: Roster, stay: int) -> None:
    """Refuse a sum of fewer than all members."""
    members = len(roster.members)
    if stay < members:
        raise InputError(
            f"{stay} of {members} members of the roster {roster.path} are in the sum, "
            f"missing: {members - stay}; wait for their files, or leave --complete out"
        )


def masked_total(
    paths: Sequence[Path], out: Path, o: SummingOptions, overwrite: bool, complete: bool
) -> Path:
    """The request for the survivors of a round; with their reveals, the total."""
    assert o.roster is not None  # offers need it
    roster = _roster(o.roster, len(paths) if complete else None, masked=True)
    server = _server(roster, o)
    offers = Offers.load(roster, o.offers)
    sealed = _seals(offers.roster, paths, "masked")
    _check_alike(sealed)
    where = out.with_name(f"{out.stem}.request.json")
    request = _request(where, offers, sealed, server, overwrite and not o.reveal)
    if complete:  # files that came after the request are not in the sum
        _check_complete(roster, len(request.seals))
    gone = ", ".join(map(repr, request.missing)) or "nobody"
    sent = len(request.seals)
    log.info(
        f"aggregate: {sent} of {len(offers.by_member)} members have sent a masked file; missing: "
        f"{gone}"
    )
    if not o.reveal:
        log.info(
            f"aggregate: next, send {where} to these {sent}; at least {roster.threshold} must "
            f"answer: afltool mask reveal {where.name} --roster {roster.path.name} --offers OFFERS "
            "--key NAME.key -o reveals/; then the same command again with --reveal reveals/"
        )
        return where
    made_by = recipe("aggregate", {"law": "masked"}, {"request": request.digest})
    if not up_to_date(out, made_by, overwrite):
        opened = secrets_of(request, load_reveals(request, o.reveal, server))
        total = _unmasked(request, {n: sealed[n] for n in request.survivors}, opened)
        save_statistics(out, total, made_by)
    return out


def _server(roster: Roster, o: SummingOptions) -> Identity:
    """The private key of the roster's server."""
    if o.key is None or roster.server is None:
        raise UsageError("--offers needs --key SERVER.key, the private key of the roster's server")
    found = key_of(o.key, roster.server.name, passphrase(o.passphrase_file))
    roster.check_server(found.member, f"the private key {found.path}")
    return found


def _check_alike(sealed: Mapping[str, _Sealed]) -> None:
    """Refuse headers that do not belong together; the seals have been checked before."""
    first = next(iter(sealed.values()))
    for name, one in sealed.items():
        ours, theirs = (
            {**h["context"], "phase": h["phase"], "held_out": h["clients"]["held_out"]}
            for h in (first.header, one.header)
        )
        where = difference(ours, theirs, f"in {first.path}", f"in {one.path}")
        if where:
            raise MismatchError(f"{one.path} of {name!r} does not belong to the others: {where}")


def _request(
    where: Path, offers: Offers, sealed: Mapping[str, _Sealed], server: Identity, overwrite: bool
) -> Request:
    """The existing request, whose survivors are fixed, or a new one."""
    if overwrite or not where.exists():
        request = Request.new(offers, {name: one.seal for name, one in sealed.items()})
        messages.write(where, request.message(server), overwrite)
        return request
    request = Request.load(where, offers)
    for name, seal in request.seals.items():
        if name not in sealed:
            raise InputError(f"{where} needs the masked file of {name!r}, which is not given")
        if sealed[name].seal != seal:
            raise MismatchError(
                f"{sealed[name].path} of {name!r} is not the file that {where} was made for"
            )
    late = sorted(sealed.keys() - request.seals.keys())
    if late:
        names = ", ".join(map(repr, late))
        log.warning(
            f"aggregate: {names} came after the request {where}; left out, and it stays hidden"
        )
    return request


def _unmasked(
    request: Request, sealed: Mapping[str, _Sealed], opened: Mapping[str, bytes]
) -> Statistics:
    """The sum over the survivors, one file in memory at a time."""
    total: masking.Masked | None = None
    with progress.task("aggregate", len(sealed), "files") as task:
        for name, one in sealed.items():
            arrays = load_masked(one.path, fingerprint(one.header))
            if total is None:
                total = arrays
            else:
                masking.add_into(total, arrays, name)
            task.advance()
            progress.stop_point()
    assert total is not None  # a request has survivors
    masking.unmask(request.offers, request.survivors, opened, total)
    roster = request.offers.roster
    arrays, counts = masking.as_integers(total, len(sealed) * roster.limit)
    first = next(iter(sealed.values())).header
    clients = {who: c for one in sealed.values() for who, c in clients_of(one.header).items()}
    return _checked(Statistics(Phase(first["phase"]), arrays, counts, context_of(first), clients))


def _checked(total: Statistics) -> Statistics:
    """Refuse sums that no rows can have: a member masked other numbers, nobody can tell which."""
    try:
        conditions.check(total)
    except AflError as error:
        raise type(error)(
            f"the sum over {len(total.clients)} members makes no sense, one of them masked "
            f"something else: {error}"
        ) from None
    return total
