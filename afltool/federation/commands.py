"""The commands of sessions as functions: new, serve, join, leave, finish. `cli` types them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

from ..errors import InputError, MismatchError, UnreachableError, UsageError
from ..files.atomic import write_bytes
from ..files.hdf5 import recipe
from ..files.heads import head_from, rows_of, save_head
from ..files.schema import SUMMARY
from ..inputs import read_json
from ..options.features import Import
from ..progress import log, stop_point
from ..stages.imports import import_embeddings
from ..values.parsed import usual_bins
from ..values.statistics import Context
from ..values.text import json_text
from . import keys
from .agreement import LARGEST, MASKED, Agreement, Consent, usual_threshold
from .compute import described
from .ledger import Ledger
from .member import Member
from .place import Place
from .report import known_costs, note_costs, summarize
from .rows import SiteRows
from .server import Server
from .session import SESSION, Replica
from .words import in_words, lines

NO_OPTIONS: Mapping[str, Any] = {}  # of a table, as `afltool import` has them: y, row_ids, classes
MANY = 32  # members, above which every member loads more than is sensible
SOLVED, SCALING = "head.h5", "scaling.h5"
SLICE = 0.5  # seconds after which a sleeping process looks for a signal


# ---------------------------------------------------------------- what is agreed


def new(
    members: Sequence[Path],
    server: Path,
    head: str,
    data: Path,
    out: Path,
    *,
    table: Mapping[str, Any] = NO_OPTIONS,
    bits: int = 9,
    threshold: int | None = None,
    scale: int | None = None,
    evaluation: Mapping[str, Any] | None = None,
    **terms: Any,
) -> Agreement:
    """Write what is agreed into the folder ``out``; the other terms are those of `Agreement`.

    ``data``: rows of the features and classes, with ``bits`` fraction bits if it is a table.
    """
    files = [f for p in members for f in (sorted(p.glob("*.pub")) if p.is_dir() else [p])]
    people = sorted({keys.load_public(f) for f in files} - {boss := keys.load_public(server)})
    with TemporaryDirectory() as at:
        rows = rows_of(features(data, Path(at) / "rows.h5", scale, bits, table))
    units = {} if scale is None else {"dtype": "int16", "fraction_bits": bits}
    first = head_from(head)[0].bind(rows.space["dim"], len(rows.classes))
    if evaluation is not None:
        bins = evaluation.get("bins") or usual_bins(first.log_probabilities)
        evaluation = {"groups": [], **evaluation, "bins": bins}
    agreed = Agreement(
        members=tuple(people),
        server=boss,
        head=described(first),
        space={**rows.space, **units},
        classes=tuple(rows.classes),
        threshold=usual_threshold(len(people)) if threshold is None else threshold,
        scale=scale,
        evaluation=evaluation,
        **terms,
    )
    lines(agreed)  # refuses noise that cannot be, and the like
    return _written(agreed, out)


def features(path: Path, out: Path, scale: int | None, bits: int, table: Mapping[str, Any]) -> Path:
    """A feature file (.h5) as it is, or one of a table as `afltool import` makes it."""
    if path.suffix == ".h5":
        return path
    form = {"fraction_bits": bits} if scale is None else {"dtype": "float32"}  # raw ones
    return import_embeddings(Import(path, out, **form, **table))


def _written(agreed: Agreement, out: Path) -> Agreement:
    agreed.write(out / SESSION)
    if len(agreed.members) > MANY:
        text = "session: each member loads what all send: above %d members let some add up first"
        log.warning(text, MANY)
    return agreed


def read_session(folder: Path) -> Agreement:
    """The session of a party's own folder."""
    path = folder / SESSION if folder.is_dir() else folder
    if not path.is_file():
        raise InputError(f"{folder} holds no session. Make one: afltool session new")
    return Agreement.parse(path.read_bytes())


def fetch_session(place: Place) -> Agreement:
    """The session that lies in a place; nobody has approved it."""
    data = place.read(SESSION, LARGEST)
    if not data:
        raise InputError(f"{place.url} holds no session: the server puts it there (session serve)")
    return Agreement.parse(data)


# ---------------------------------------------------------------- who is known to this site


def state() -> Path:
    """The private folder of this site: whom it has met, and the ledger of its rows."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(os.environ.get("AFLTOOL_STATE") or Path(home) / "afltool")


def _met() -> dict[str, str]:
    """Names of parties by their keys."""
    path = state() / "people.json"
    met = read_json(path, "whom this site has met") if path.exists() else {}
    if not isinstance(met, dict) or not all(isinstance(name, str) for name in met.values()):
        raise InputError(f"{path} is damaged. Remove it: then everybody is new to this site")
    return met


def what_is_agreed(url: str, key: Path, passphrase: bytes | None = None) -> str:
    """What would be approved, in words, but not the code; and who is new, or has another key."""
    me, agreed, met = keys.load(key, passphrase), fetch_session(Place(url)), _met()
    text = f"{in_words(agreed)}\n"
    for name, person in agreed.people.items():
        if person != me.party and met.get(person.key) != name:
            other = "has ANOTHER KEY than before" if name in met.values() else "is new here"
            text += f"{'new':>12}  {name} {other}\n"
    return text


def _meet(agreed: Agreement) -> None:
    people = {**_met(), **{p.key: name for name, p in agreed.people.items()}}
    (path := state() / "people.json").parent.mkdir(parents=True, exist_ok=True)
    write_bytes(json_text(people).encode(), path, overwrite=True)


# ---------------------------------------------------------------- serve and join


def serve(url: str, key: Path, folder: Path, passphrase: bytes | None = None) -> Server:
    agreed, me = read_session(folder), keys.load(key, passphrase)
    return Server(_place(url, folder), folder, agreed, me)


def join(
    url: str,
    key: Path,
    data: Path,
    folder: Path,
    passphrase: bytes | None = None,
    table: Mapping[str, Any] = NO_OPTIONS,
    test: Path | None = None,
    by: str = "",
    *,
    approve: str | None = None,
    allow: str | None = None,
    again: bool = False,
) -> Member:
    """A member of the session at ``url``; refused until somebody has compared its code."""
    me, place, own = keys.load(key, passphrase), _place(url, folder), folder / SESSION
    agreed = fetch_session(place)
    if own.exists() and own.read_bytes() != agreed.text:
        raise MismatchError(f"{place.url} holds another session than {own}, which was approved")
    if me.party not in agreed.members:
        raise MismatchError(f"{key} is the key of no member of the session at {place.url}")
    if approve is not None or not own.exists():
        agreed.check_approved(approve or "", allow or MASKED)
    if test and not agreed.evaluation:
        raise UsageError("--test is for a session with an evaluation. Leave it out")
    if agreed.evaluation and not test:
        log.warning("session: this site counts no test rows: pass --test FILE if it has some")
    groups = agreed.evaluation["groups"] if agreed.evaluation and test else []
    if bool(groups) != bool(by):
        raise UsageError(
            f"--by TABLE:COLUMN is for the groups of test rows; agreed: {groups or 'none'}"
        )
    table = {**table, "backbone": agreed.space["backbone"], "classes": agreed.classes}
    form = agreed.scale, agreed.space["fraction_bits"], table
    tested = test and features(test, folder / "test.h5", *form)
    rows = SiteRows.of_files(agreed, features(data, folder / "data.h5", *form), tested, by)
    if agreed.evaluation:
        rows.check_cells(agreed)  # at once, and not after the head is solved
    member = Member(place, folder, agreed, me, rows, Ledger(state() / "ledger", again))
    _meet(agreed)
    if not own.exists():
        _written(agreed, folder)
    return member


def _place(url: str, folder: Path) -> Place:
    if "://" not in url and Path(url).resolve() == folder.resolve():
        raise UsageError(f"{url} is the place that all reach, so it cannot be your folder -o, too")
    return known_costs(Place(url), folder)


def run(party: Server | Member, once: bool = False, poll: float = 5.0) -> Path | None:
    """Turns until the session is over, or one; returns the head's file, None where it goes on.

    A place that was reached once may be away for any time.
    """
    said, reached = "", False
    while True:
        stop_point()
        try:
            waits, reached = party.turn(), True
        except UnreachableError as error:
            if once or not reached:
                raise
            waits = f"the place ({error})"
        note_costs(party)
        if not waits:
            return finish(party)
        if waits != said:
            log.info("session: waiting for %s", said := waits)
        if once:
            return None
        end = time.monotonic() + poll
        while (left := end - time.monotonic()) > 0:
            stop_point()
            time.sleep(min(SLICE, left))


def finish(party: Replica) -> Path:
    """Write the solved head and the summary of a session that is over; returns the head's path."""
    agreed, folder, number = party.agreed, party.folder, party.known()
    if (folder / SUMMARY).exists():
        return folder / SOLVED
    made_by = recipe("session", {"round": number - 1}, {"of": agreed.digest})
    context = Context(dict(agreed.space), agreed.classes)
    if scale := party.scale():  # its file is for `afltool import --scale`
        raw = {**context.space, "dtype": "float32", "fraction_bits": None}
        save_head(folder / SCALING, scale, made_by, replace(context, space=raw))
        context = replace(context, space={**context.space, "scaling": scale.digest()})
    path = save_head(folder / SOLVED, party.head(number), made_by, context)
    summarize(party)
    return path


# ---------------------------------------------------------------- members who leave


def consent(before: Path, key: Path, out: Path, passphrase: bytes | None = None) -> Path:
    """The consent of a member that leaves, signed; the server takes it into the next session."""
    agreed, me = read_session(before), keys.load(key, passphrase)
    if me.party not in agreed.members:
        raise MismatchError(f"{key} is the key of no member of {before}")
    signed = Consent.sign(agreed.digest, me)
    return write_bytes(json_text(asdict(signed)).encode(), out, overwrite=False)


def leave(before: Path, without: Sequence[str], consents: Sequence[Path], out: Path) -> Agreement:
    """The session of those who stay: the same head and terms, all rounds anew."""
    old = read_session(before)
    if unknown := sorted(set(without) - {p.name for p in old.members}):
        raise UsageError(f"no members of {before}: {', '.join(unknown)}")
    signed = {_consent(path) for path in consents}
    given = {c.name for c in signed if c.session == old.digest}
    if missing := sorted(set(without) - given):
        raise UsageError(
            f"{', '.join(missing)} must sign that they leave, since both sums together tell theirs "
            "exactly: afltool session leave SESSION --key NAME -o NAME.consent, then --consent "
            "NAME.consent here"
        )
    stay = tuple(p for p in old.members if p.name not in without)
    made = replace(
        old,
        members=stay,
        threshold=min(old.threshold, len(stay)),
        follows=old.digest,
        consents=tuple(sorted({*old.consents, *signed})),
        nonce=token_hex(16),
    )
    return _written(made, out)


def _consent(path: Path) -> Consent:
    try:
        return Consent(**read_json(path, "a consent"))
    except (TypeError, UsageError) as error:
        raise InputError(f"{path} is no consent of a member that leaves: {error}") from None
