"""The commands of sessions as functions of their options, which `cli` has."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from ..cli._console import print_lines, print_message
from ..embeddings import TABLES
from ..errors import CorruptFileError, InputError, MismatchError, UnreachableError, UsageError
from ..files.atomic import private_folder, write_bytes, write_once, write_text
from ..files.counts import evaluations, read_counts
from ..files.heads import get_row_facts, head_from, save_head
from ..files.schema import SUMMARY, versions
from ..files.tables import write_json
from ..options.base import flag, get_fields
from ..options.features import Import, NamedRows
from ..progress import log, stop_point
from ..stages.import_embeddings import import_embeddings, options_as
from ..values.statistics import Context
from ..values.text import COLUMNS, json_text
from . import keys
from .agreement import LARGEST, Agreement, Budget, Consent, Counted, usual_threshold
from .cli import Join, Leave, Locked, NewKeys, NewSession, Party, Report, Serve, Status
from .compute import Layout, describe_head, first_head
from .ledger import Ledger
from .noise import Noise, epsilon
from .place import Place
from .rows import SiteRows
from .session import FINISHED, SESSION, Member, Replica, Server

MANY = 32  # members, above which every member loads more than is sensible
SOLVED, SCALING, COSTS = "head.h5", "scaling.h5", "costs.json"
RAW = {"dtype": "float32"}  # rows that the session scales
SLICE = 0.5  # seconds after which a sleeping process looks for a signal


def new_keys(o: NewKeys) -> list[Path]:
    return [keys.new(name, o.out, _passphrase(o)) for name in o.names]


def _passphrase(o: Locked) -> bytes | None:
    if o.passphrase_file is None:
        return None
    if not (line := o.passphrase_file.read_bytes().partition(b"\n")[0].rstrip(b"\r")):
        raise InputError(f"{o.passphrase_file} has no passphrase in its first line")
    return line


def create(o: NewSession | Leave) -> None:
    """Make a session, and print its terms and its code."""
    agreed = new(o) if isinstance(o, NewSession) else follow(o)
    print_lines(f"{format_text(agreed)}\n{'code':>12}  {agreed.code}\n")


def new(o: NewSession) -> Agreement:
    """Write what is agreed into the folder ``o.out``."""
    files = [f for p in o.members for f in (sorted(p.glob("*.pub")) if p.is_dir() else [p])]
    people = {keys.load_public(f) for f in files} - {server := keys.load_public(o.server)}
    scale = math.ceil(math.log2(o.max_value)) if o.scale == "standard" else None
    units: dict[str, Any] = {"dtype": "int16", "fraction_bits": o.fraction_bits}
    names = {*get_fields(NamedRows), "classes", *(("fraction_bits",) if scale is None else ())}
    given = {name: value for name, value in o.changed_options().items() if name in names}
    with TemporaryDirectory() as at:
        how = {**(units if scale is None else RAW), **given}
        rows = get_row_facts(features(o.data, Path(at) / "rows.h5", how, given))
    first = head_from(o.head)[0].bind(rows.space["dim"], len(rows.classes))
    budget = o.dp_epsilon, o.dp_delta, o.clip, o.colluding
    agreed = Agreement(
        members=tuple(sorted(people)),
        server=server,
        head=describe_head(first),
        space=rows.space if scale is None else {**rows.space, **units},
        classes=tuple(rows.classes),
        protection=o.protection,
        threshold=usual_threshold(len(people)) if o.threshold is None else o.threshold,
        min_rows=o.min_rows,
        max_rows=o.max_rows,
        noise=None if o.dp_epsilon is None else Budget(*budget),  # type: ignore[arg-type]
        scale=scale,
        evaluation=Counted(o.groups, o.min_cell) if o.evaluate else None,
    )
    return _is_written(agreed, o.out)


def features(path: Path, out: Path, how: Mapping[str, Any], given: Collection[str] = ()) -> Path:
    """A feature file (.h5) as it is, or one of a table as `import` makes it of what was given."""
    if path.suffix == ".h5" and given:
        raise UsageError(
            f"{flag(min(given))} is for a table; {path} is a feature file: leave it out"
        )
    made: Path = path if path.suffix == ".h5" else import_embeddings(Import(path, out, **how))
    return made


def _is_written(agreed: Agreement, out: Path) -> Agreement:
    lines(agreed)  # refuses noise that cannot be, and the like
    private_folder(out)  # totals will lie in it
    write_bytes(agreed.text, out / SESSION)
    if len(agreed.members) > MANY:
        log.warning(f"session: above {MANY} members each loads much: let some add up first")
    return agreed


def read_session(at: Path | Place) -> Agreement:
    """The session of a party's own folder, or that in a place, which nobody has approved."""
    if isinstance(at, Place):
        data, where = at.read(SESSION, LARGEST), at.url
    else:
        data, where = (at / SESSION).read_bytes() if (at / SESSION).is_file() else b"", str(at)
    if not data:
        raise InputError(f"{where} holds no session: session new makes one, session serve puts it")
    return Agreement.parse(data)


def format_text(agreed: Agreement) -> str:
    """`lines` as text."""
    return "\n".join(f"{k:>12}  {v}" for k, v in lines(agreed).items())


def lines(agreed: Agreement) -> dict[str, str]:
    """What a site approves: every term is in them. Refuses another first head than agreed on."""
    o, first, server = agreed, first_head(agreed), agreed.server
    rounds, rows = [*map(str, first.schedule())], f"{o.min_rows} to {o.max_rows} a site"
    protection = "signed: the server reads the sums of each site"
    noise, follows = "none: sums that are opened are exact", ["no other session"]
    if o.scale is not None:
        rounds.insert(0, f"scale (sums and sums of squares of features within ±2^{o.scale})")
    if e := o.evaluation:
        groups = ", ".join(map(repr, e.groups)) or "none"
        least = f"of each class and group a site has {e.min_cell} test rows or none"
        rounds.append(f"evaluation of the final head (counts of rows, groups: {groups}; {least})")
    if o.masked:
        protection = (
            f"masked: nobody opens a sum of fewer than {o.threshold} sites, nor do the server "
            f"and {o.colluding} members together learn more; {o.colluding + 1} may"
        )
    if n := o.noise:
        rows = "no limits: a refusal would tell of them"
        added = epsilon(Noise.of(o, Layout.of(o, first, first=True)).rho, n.delta)
        noise = (
            f"ε = {added:.4g}, δ = {n.delta:g} for one row (as asked: ε = "
            f"{n.epsilon:g}), rows of norm {n.clip:g} at most, {n.colluding} members may "
            "work with the server"
        )
    if o.follows:
        follows = [f"{o.follows[:16]}: with both sums those of a site that is new here are known"]
    follows += [f"{c.name} ({c.key[:16]}) has left {c.session[:16]}" for c in o.consents]
    return {
        "members": ", ".join(f"{p.name} ({p.key[:16]})" for p in o.members),
        "server": f"{server.name} ({server.key[:16]})",
        "protection": protection,
        "threshold": f"{o.threshold} of {len(o.members)} must stay",
        "noise": noise,
        "head": f"{first.name} {_short(o.head.options)} ({o.head.digest[:16]})",
        "rounds": f"{len(rounds)} at most: {'; '.join(rounds)}",
        "features": _short(o.space),
        "classes": f"{len(o.classes)}: {', '.join(map(repr, o.classes))}",
        "rows": rows,
        "follows": "; ".join(follows),
        "nonce": o.nonce,
    }


def _short(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{k} {v!r}" for k, v in facts.items() if v is not None)


def state() -> Path:
    """The private folder of this site: whom it has met, and the ledger of its rows."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(os.environ.get("AFLTOOL_STATE") or Path(home) / "afltool")


def serve(o: Serve) -> Path | None:
    """Turns of the server; returns the head's file, None where the session goes on."""
    server = Server(_place(o), o.out, read_session(o.out), keys.load(o.key, _passphrase(o)))
    server.deadline = None if o.deadline is None else 3600 * o.deadline
    print_message(f"session: read this code out by telephone: {server.agreed.code}")
    return run(server, o)


def join(o: Join) -> Path | None:
    """Turns of a member, as `serve`; before somebody has approved all terms these alone."""
    if o.approve is None and not (o.out / SESSION).exists():
        print_lines(describe_agreement(o))
        raise UsageError(
            "Nothing was sent. If you agree, ask for the code by phone: --approve CODE"
        )
    return run(member(o), o)


def describe_agreement(o: Join) -> str:
    """What would be approved, in words, but not the code; and who is new, or has another key."""
    me, agreed = keys.load(o.key, _passphrase(o)), read_session(Place(o.url))
    files = (state() / "people").glob("[0-9a-f]*")  # by key, each a file that stays as it is
    known, text = {p.name: p.read_text(errors="replace") for p in files}, f"{format_text(agreed)}\n"
    for name, person in agreed.people.items():
        if person != me.party and known.get(person.key) != name:
            other = "has ANOTHER KEY than before" if name in known.values() else "is new here"
            text += f"{'new':>12}  {name} {other}\n"
    return text


def member(o: Join) -> Member:
    """A member of the session at ``o.url``; refused until somebody has compared its code."""
    me, place, own = keys.load(o.key, _passphrase(o)), _place(o), o.out / SESSION
    agreed = read_session(place)
    if own.exists() and own.read_bytes() != agreed.text:
        raise MismatchError(f"{place.url} holds another session than {own}, which was approved")
    if me.party not in agreed.members:
        raise MismatchError(f"{o.key} is the key of no member of the session at {place.url}")
    if o.approve is not None or not own.exists():
        agreed.check_approved(o.approve or "", o.allow)
    rows = _rows(o, agreed)
    made = Member(place, o.out, agreed, me, rows, Ledger(state() / "ledger", o.again))
    for name, person in agreed.people.items():
        write_once(state() / "people" / person.key, name.encode())
    write_once(own, agreed.text)
    return made


def _rows(o: Join, agreed: Agreement) -> SiteRows:
    """The rows of this site, for training and, if they are counted at the end, for the test."""
    counted = agreed.evaluation
    if o.test and not counted:
        raise UsageError("--test is for a session with an evaluation. Leave it out")
    if counted and not o.test:
        log.warning("session: this site counts no test rows: pass --test FILE if it has some")
    groups = counted.groups if counted and o.test else ()
    if bool(groups) != bool(o.group_by):
        raise UsageError(f"--group-by TABLE:COLUMN is for groups; agreed: {[*groups] or 'none'}")
    private_folder(o.out)  # before a table's rows come into it
    raw = {} if agreed.scale is None else RAW
    columns = agreed.space.get(COLUMNS) if o.data.suffix in TABLES else None
    agreed_on = {"space": {**agreed.space, COLUMNS: columns}, "classes": agreed.classes}
    how = options_as(
        {**raw, **(given := o.to(NamedRows).changed_options())}, agreed_on, unlabeled=False
    )
    new = [path for path in (o.out / "data.h5", o.out / "test.h5") if not path.exists()]
    test = o.test and features(o.test, o.out / "test.h5", how)
    train = features(o.data, o.out / "data.h5", how, given)
    try:
        return SiteRows.of_files(agreed, train, test, o.group_by)
    except (InputError, MismatchError):
        for path in new:  # so that a table may be given again, corrected
            path.unlink(missing_ok=True)
        raise


def _place(o: Party) -> Place:
    here = Path(os.path.expanduser(re.sub("^(file|local):(//)?", "", o.url)))  # as fsspec reads it
    if o.out.resolve().is_relative_to(here.resolve()):
        raise UsageError(f"{o.url} is the place that all reach: your folder -o cannot be in it")
    place = Place(o.url)
    if (path := o.out / COSTS).exists():  # of an earlier process
        place.up, place.down = keys.read_typed(tuple[int, int], path)
    return place


def run(party: Server | Member, o: Party) -> Path | None:
    """Turns until the session is over, or one; returns the head's file, None where it goes on.

    A place that was reached once may be away for any time.
    """
    said, reached = "", False
    while True:
        stop_point()
        try:
            waits, reached = party.turn(), True
        except UnreachableError as error:
            if o.once or not reached:
                raise
            waits = f"the place ({error})"
        write_json((party.place.up, party.place.down), party.folder / COSTS, overwrite=True)
        if not waits:
            return finish(party)
        if waits != said:
            log.info("session: waiting for %s", said := waits)
        if o.once:
            return None
        for _ in range(math.ceil(o.poll / SLICE)):
            stop_point()
            time.sleep(min(SLICE, o.poll))


def finish(party: Replica) -> Path:
    """Write the solved head and the summary of a session that is over; returns the head's path."""
    agreed, folder, number = party.agreed, party.folder, party.newest_round()
    if (folder / SUMMARY).exists():
        return folder / SOLVED
    made_by, space = party.recipe_of(number - 1), dict(agreed.space)
    if scale := party.scale:  # its file is for `afltool import --scale`
        raw = {**space, **RAW, "fraction_bits": None}
        save_head(folder / SCALING, scale, made_by, Context(raw, agreed.classes))
        space["scaling"] = scale.digest()
    context = Context(space, agreed.classes)
    path = folder / SOLVED
    save_head(path, party.head(number), made_by, context)
    totals = [party.total(r) for r in range(1, number)]
    begun, over = ((folder / f"head-{r}.h5").stat().st_mtime for r in (1, number))
    counts = read_counts(folder / f"total-{number - 1}.h5") if agreed.evaluation else None
    found = {
        "session": agreed.digest,
        "party": party.me.name,
        "members": sorted(one.name for one in totals[-1].clients),
        "signed": keys.read_typed(list[str], folder / FINISHED),
        "head": party.head(number).digest(),
        "totals": [one.digest() for one in totals],
        "bytes_up": party.place.up,
        "bytes_down": party.place.down,
        "seconds": max(over - begun, 0.0),
        "evaluation": counts and evaluations(counts)[0],
        "versions": versions(),
    }
    write_json(found, folder / SUMMARY, overwrite=True)
    return path


def leave(o: Leave) -> Path | None:
    """The consent of a member that leaves, signed; or the session of those who stay."""
    if o.key is None:
        create(o)
        return None
    agreed, me = read_session(o.folder), keys.load(o.key, _passphrase(o))
    if me.party not in agreed.members:
        raise MismatchError(f"{o.key} is the key of no member of {o.folder}")
    return write_text(json_text(asdict(Consent.sign(agreed.digest, me))), o.out)


def follow(o: Leave) -> Agreement:
    """The session of those who stay: the same head and terms, all rounds anew."""
    old, leavers = read_session(o.folder), {*o.without}
    if unknown := sorted(leavers - {p.name for p in old.members}):
        raise UsageError(f"no members of {o.folder}: {', '.join(unknown)}")
    signed = {keys.read_typed(Consent, path) for path in o.consent}
    if missing := sorted(leavers - {c.name for c in signed if c.session == old.digest}):
        raise UsageError(
            f"{', '.join(missing)} must sign that they leave, since both sums tell theirs: afltool "
            "session leave SESSION --key NAME -o NAME.consent, then --consent NAME.consent"
        )
    stay = tuple(p for p in old.members if p.name not in leavers)
    threshold, consents = min(old.threshold, len(stay)), tuple(sorted({*old.consents, *signed}))
    made = replace(old, members=stay, threshold=threshold, consents=consents)
    return _is_written(replace(made, follows=old.digest, nonce=token_hex(16)), o.out)


def status(o: Status) -> None:
    """Print the terms, and whom the session waits for."""
    agreed = read_session(place := Place(o.url))
    print_lines(f"{format_text(agreed)}\n{waiting(place, agreed)}\n")


def waiting(place: Place, agreed: Agreement) -> str:
    """What a session waits for, as the files in its place tell.

    It needs no key and proves nothing: who may write into the place can make it say anything.
    """
    rounds = len(first_head(agreed).schedule())
    rounds += (agreed.scale is not None) + (agreed.evaluation is not None)
    number, kind, late = _describe_missing(place, agreed, rounds)
    said = f"waiting for the {kind} of {', '.join(late)}" if late else "solved"
    return f"round {number} of {rounds} at most: {said}" if number else f"roll-call: {said}"


def _describe_missing(place: Place, agreed: Agreement, rounds: int) -> tuple[int, str, list[str]]:
    """The round, and which message of whom is the next one; of nobody at the end."""

    def late(kind: str, number: int, who: list[str]) -> list[str]:
        return [name for name in who if not place.size(keys.name_of(kind, number, name))]

    inside, server, number = [p.name for p in agreed.members], [agreed.server.name], 0
    while number <= rounds and not late("close", number, server):
        gone = late("sums" if number else "hello", number, inside)
        inside, number = [name for name in inside if name not in gone], number + 1
    if late("key", 1, server):
        return 0, "beginning", server
    if number > rounds or not late("done", number, server):
        return number - 1, "end", late("done", number, server) or late("done", number, inside)
    answers = late("shares", number - 1, inside) if number > 1 and agreed.masked else []
    if len(inside) - len(answers) < agreed.threshold:
        return number - 1, "shares", answers
    kind = "sums" if number else "hello"
    missing = late(kind, number, inside)
    if number > 1 and missing == inside and late("head", number, server):
        return number - 1, "head", server
    return number, kind if missing else "close", missing or server


def report(o: Report) -> dict[str, Any] | Path:
    """The summary of a session that is over, or its page: one HTML file."""
    from jinja2 import Environment, UndefinedError

    if not (path := o.folder / SUMMARY).is_file():
        raise InputError(f"{o.folder} holds no session that is over: it has no {SUMMARY}")
    facts = keys.read_typed(dict[str, Any], path)
    if o.out is None:
        return facts
    if o.out.suffix != ".html":
        raise UsageError(f"A page is an .html file; found {str(o.out)!r}")
    agreed, page = read_session(o.folder), Environment(autoescape=True)
    try:
        made = page.from_string(Path(__file__).with_name("page.html").read_text())
        text = made.render(s=facts, agreed=lines(agreed).items(), masked=agreed.masked)
    except (UndefinedError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{path} is damaged: {error}") from None
    return write_text(text, o.out, o.overwrite)
