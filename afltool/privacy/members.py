"""Sums of the files that the members of a roster have sent, signed or masked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import progress
from ..errors import AflError, InputError, MismatchError, UsageError
from ..files.arrays import damage_as_error
from ..files.hdf5 import fingerprint, read_header, recipe, up_to_date
from ..files.masked import load_masked
from ..files.statistics import clients_of, context_of, load_statistics, save_statistics
from ..heads import conditions
from ..options.statistics import AggregateOptions, SummingOptions
from ..progress import log
from ..values.names import Phase
from ..values.statistics import Statistics
from ..values.text import difference
from . import identity, masking, messages, totals
from .identity import Identity
from .messages import Message
from .offers import Offers, missing
from .protection import key_of, passphrase
from .reveal import Request, load_reveals, secrets_of
from .roster import Roster
from .sealing import check_file, member_of
from .session import roster_of


def check_members(
    where: Path, paths: Sequence[Path], leaving: Sequence[Path], complete: bool
) -> dict[Path, dict[str, Any]]:
    """Refuse files that no member has signed for this round; log the members that are missing.

    ``where``: the roster. Returns the headers whose seals were checked: what is added up later must
    have these.
    """
    roster = _roster(where, paths, len(paths) - len(leaving) if complete else None, masked=False)
    seals = _seals(roster, [*paths, *leaving])
    if roster.series is not None:
        roster.check_enough(seals, roster.names(), "sent their statistics")
    absent = missing(roster, seals)
    gone = f"; missing: {', '.join(absent)}" if absent else ""
    log.info(f"aggregate: {len(seals)} of {len(roster.members)} members of the roster{gone}")
    return {one.path: one.header for one in seals.values()}


def check_sent(roster: Roster, path: Path) -> str:
    """Whose statistics they are; refused where they are not as was agreed, or no rows have them."""
    (name,) = _seals(roster, [path])
    if not roster.terms.masked:
        load_statistics(path)
    return name


def _seals(roster: Roster, paths: Iterable[Path]) -> dict[str, _Sealed]:
    """Sealed files by member; `MismatchError` for two files of one member."""
    seals: dict[str, _Sealed] = {}
    for path in paths:
        header = _header_of(roster, path)
        with damage_as_error(path):
            one = _Sealed(path, header, *check_file(roster, path, header))
            roster.terms.check_rows(path, roster.path, header["context"])
            roster.terms.check_noise(path, roster.path, header["context"])
        known = seals.setdefault(one.member, one)
        if known is not one:
            raise MismatchError(f"{path}: {one.member!r} is given twice, also as {known.path}")
    return seals


def _header_of(roster: Roster, path: Path) -> dict[str, Any]:
    """The header of a member's file; refused if it is not of the kind that was agreed on."""
    kind, header = "masked" if roster.terms.masked else "statistics", read_header(path)
    if header["kind"] in {"statistics", "masked"} - {kind}:
        raise MismatchError(
            f"{path} of {member_of(roster, path, header)!r} is a {header['kind']} file; expected a "
            f"{kind} file here: the roster {roster.path} says that statistics leave their members "
            f"{roster.terms.mode}"
        )
    return header if header["kind"] == kind else read_header(path, kind)


@dataclass(frozen=True)
class _Sealed:
    """A member's file, as far as its header describes it; the arrays are read later."""

    path: Path
    header: dict[str, Any]
    member: str
    seal: Message | None  # None: of statistics that are plain by agreement


def _roster(path: Path, paths: Sequence[Path], files: int | None, masked: bool) -> Roster:
    """The roster of a sum of files at ``paths``; ``files``: how many, if none may be missing."""
    head = read_header(paths[0]).get("context", {}).get("head") if paths else None
    roster = roster_of(path, head)
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


def masked_total(paths: Sequence[Path], out: Path, o: AggregateOptions, overwrite: bool) -> Path:
    """The request for the survivors of a round; with their reveals, the total.

    Where all members must stay, the total at once.
    """
    roster, offers, sealed = _under_masks(paths, o, o.complete)
    server = _server(roster, o)
    where = out.with_name(f"{out.stem}.request.json")
    if roster.all:
        request = Request.new(offers, _given_seals(sealed))
    else:
        request = _request(where, offers, sealed, server, overwrite and not o.reveal)
    if o.complete:  # files that came after the request are not in the sum
        _check_complete(roster, len(request.seals))
    gone = ", ".join(map(repr, request.missing)) or "nobody"
    sent = len(request.seals)
    log.info(
        f"aggregate: {sent} of {len(offers.by_member)} members have sent a masked file; missing: "
        f"{gone}"
    )
    if not o.reveal and not roster.all:
        log.info(
            f"aggregate: next, send {where} to these {sent}; at least {roster.threshold} must "
            f"answer: afltool mask reveal {where.name} --roster {roster.path.name} --offers OFFERS "
            "--key NAME.key -o reveals/; then the same command again with --reveal reveals/"
        )
        return where
    made_by = recipe("aggregate", {"law": "masked"}, {"request": request.digest})
    if not up_to_date(out, made_by, overwrite) or not totals.place(out).exists():
        opened = {} if roster.all else secrets_of(request, load_reveals(request, o.reveal, server))
        total = _unmasked(request, {n: sealed[n] for n in request.survivors}, opened)
        if not up_to_date(out, made_by, overwrite):
            save_statistics(out, total, made_by)
        totals.tell(
            out, server, roster, request.survivors, total.digest(), request, opened, overwrite
        )
    return out


def check_masked(paths: Sequence[Path], o: SummingOptions, total: Path) -> str:
    """Add the masked files up as the server did; refused unless that is what it has signed.

    Returns the digest of the sum.
    """
    roster, offers, sealed = _under_masks(paths, o, False)
    place = totals.place(total)
    said = totals.Told.load(place, roster)
    if lacking := [name for name in said.body["members"] if name not in sealed]:
        raise InputError(f"{place} is of members whose files are not given: {', '.join(lacking)}")
    inside = {name: sealed[name] for name in said.body["members"]}
    request = Request.new(offers, _given_seals(inside))
    me = None if o.key is None else identity.load(o.key, passphrase(o.passphrase_file))
    if me is not None and me.member in roster.members and me.name not in inside:
        log.warning(f"aggregate: {me.name!r} is not in this sum: the server has counted it as gone")
    opened = {} if roster.all else said.opened(request, me)
    digest = _unmasked(request, inside, opened).digest()
    said.check(digest, request.survivors, request)
    return digest


def tell_signed(
    paths: Sequence[Path], o: SummingOptions, total: Path, digest: str, check: bool
) -> bool:
    """Sign a total of readable files, if there is a key; or ``check`` what the server signed.
    Whether it is signed."""
    if o.roster is None or (o.key is None and not check):
        return False
    roster = _roster(o.roster, paths, None, masked=False)
    if roster.server is None:
        return False
    names = [member_of(roster, path, read_header(path)) for path in paths]
    if check:
        totals.Told.load(totals.place(total), roster).check(digest, names)
    else:
        totals.tell(total, _server(roster, o), roster, names, digest)
    return True


def _given_seals(sealed: Mapping[str, _Sealed]) -> dict[str, Message]:
    return {name: one.seal for name, one in sealed.items() if one.seal is not None}


def _under_masks(
    paths: Sequence[Path], o: SummingOptions, complete: bool
) -> tuple[Roster, Offers, dict[str, _Sealed]]:
    """The roster, the offers and the masked files of a round, all checked."""
    assert o.roster is not None  # offers need it
    roster = _roster(o.roster, paths, len(paths) if complete else None, masked=True)
    offers = Offers.load(roster, o.offers)
    sealed = _seals(offers.roster, paths)
    _check_alike(sealed)
    return roster, offers, sealed


def _server(roster: Roster, o: SummingOptions) -> Identity:
    """The private key of the roster's server."""
    if o.key is None or roster.server is None:
        raise UsageError("--offers needs --key SERVER.key, the private key of the roster's server")
    identity = key_of(o.key, roster.server.name, passphrase(o.passphrase_file))
    roster.check_server(identity.member, f"the private key {identity.path}")
    return identity


def _check_alike(sealed: Mapping[str, _Sealed]) -> None:
    """Refuse headers that do not belong together; the seals have been checked before."""
    first = next(iter(sealed.values()))
    for name, one in sealed.items():
        ours, theirs = (
            {**h["context"], "phase": h["phase"], "held_out": h["clients"]["held_out"]}
            for h in (first.header, one.header)
        )
        if where := difference(ours, theirs, f"in {first.path}", f"in {one.path}"):
            raise MismatchError(f"{one.path} of {name!r} does not belong to the others: {where}")


def _request(
    where: Path, offers: Offers, sealed: Mapping[str, _Sealed], server: Identity, overwrite: bool
) -> Request:
    """The existing request, whose survivors are fixed, or a new one."""
    if overwrite or not where.exists():
        request = Request.new(offers, _given_seals(sealed))
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
    if late := ", ".join(map(repr, sorted(sealed.keys() - request.seals.keys()))):
        log.warning(
            f"aggregate: {late} came after the request {where}; left out, and it stays hidden"
        )
    return request


def _unmasked(
    request: Request, sealed: Mapping[str, _Sealed], opened: Mapping[str, bytes]
) -> Statistics:
    """The sum over the survivors, one file in memory at a time."""
    total: masking.Masked = {}
    with progress.task("aggregate", len(sealed), "files") as task:
        for name, one in sealed.items():
            arrays = load_masked(one.path, fingerprint(one.header))
            if total:
                masking.add_into(total, arrays, name)
            total = total or arrays
            task.advance()
            progress.stop_point()
    masking.unmask(request.offers, request.survivors, opened, total)
    roster = request.offers.roster
    arrays, counts = masking.as_integers(total, len(sealed) * roster.limit)
    first = next(iter(sealed.values())).header
    clients = {who: c for one in sealed.values() for who, c in clients_of(one.header).items()}
    statistics = Statistics(Phase(first["phase"]), arrays, counts, context_of(first), clients)
    try:
        conditions.check(statistics)
    except AflError as error:  # nobody can tell which member
        raise type(error)(
            f"the sum over {len(clients)} members makes no sense, one of them masked something "
            f"else: {error}"
        ) from None
    return statistics
