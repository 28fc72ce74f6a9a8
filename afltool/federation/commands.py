"""The commands of sessions as functions: new, serve, join, leave, finish. `cli` types them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..errors import InputError, MismatchError, UnreachableError, UsageError
from ..files.atomic import write_bytes
from ..files.hdf5 import recipe
from ..files.heads import head_from, rows_of, save_head
from ..files.schema import SUMMARY
from ..heads import make_head
from ..heads.base import Head
from ..inputs import read_json
from ..options.features import ImportOptions
from ..progress import log, stop_point
from ..stages.imports import import_embeddings
from ..values.arrays import F64
from ..values.parsed import usual_bins
from ..values.statistics import Context
from ..values.text import difference, json_text
from . import keys
from .agreement import LARGEST, MASKED, Agreement, Consent, usual_threshold
from .compute import described
from .keys import Party
from .ledger import Ledger
from .member import Member
from .place import Place
from .report import note_costs, summarize
from .rows import SiteRows
from .server import Server
from .session import SESSION, Replica
from .words import lines

MANY = 32  # members, above which every member loads more than is sensible
SOLVED, SCALING = "head.h5", "scaling.h5"
REMIND = 3600.0  # seconds after which it is said again what is waited for
SLICE = 0.5  # seconds after which a sleeping process looks for a signal


@dataclass(frozen=True)
class Table:
    """Rows of a site: a feature file (.h5), or a table as `afltool import` takes it."""

    path: Path
    y: str | None = None
    row_ids: str | None = None

    def file(
        self, out: Path, space: Mapping[str, Any], classes: Sequence[str] | Path | None, raw: bool
    ) -> Path:
        """A feature file of them: itself, or made here; ``raw``: of real numbers."""
        if self.path.suffix == ".h5":
            return self.path
        how = {"dtype": "float32"} if raw else {"fraction_bits": space["fraction_bits"]}
        names = tuple(classes) if isinstance(classes, Sequence) else classes
        options = ImportOptions(
            y=self.y, row_ids=self.row_ids, classes=names, backbone=space["backbone"], **how
        )
        return import_embeddings(self.path, out, options)

    def context(self, scaled: bool, bits: int, classes: Path | None) -> Context:
        """Space and classes of a session that sums such rows."""
        space = {"backbone": ImportOptions().backbone, "fraction_bits": bits}
        with TemporaryDirectory() as folder:
            found = rows_of(self.file(Path(folder) / "rows.h5", space, classes, scaled))
        units = {"dtype": "int16", "fraction_bits": bits} if scaled else {}
        return replace(found, space={**found.space, **units})


# ---------------------------------------------------------------- what is agreed


def new(
    members: Sequence[Path],
    server: Path,
    head: str,
    data: Table,
    out: Path,
    *,
    threshold: int | None = None,
    classes: Path | None = None,
    bits: int = 9,
    evaluation: Mapping[str, Any] | None = None,
    **terms: Any,
) -> Agreement:
    """Write what is agreed into the folder ``out``; the other terms are those of `Agreement`."""
    files = [f for p in members for f in (sorted(p.glob("*.pub")) if p.is_dir() else [p])]
    people = sorted({keys.load_public(f) for f in files} - {boss := keys.load_public(server)})
    rows = data.context(terms.get("scale") is not None, bits, classes)
    first, _ = head_from(head)
    first = first.bind(rows.space["dim"], len(rows.classes))
    agreed = Agreement(
        members=tuple(people),
        server=boss,
        head=described(first),
        space=dict(rows.space),
        classes=tuple(rows.classes),
        evaluation=_evaluation(evaluation, first),
        threshold=usual_threshold(len(people)) if threshold is None else threshold,
        **terms,
    )
    list(lines(agreed))  # noise that cannot be, and the like
    return _written(agreed, out)


def _evaluation(given: Mapping[str, Any] | None, head: Head) -> dict[str, Any] | None:
    if given is None:
        return None
    return {"groups": [], **given, "bins": given.get("bins") or usual_bins(head.log_probabilities)}


def _written(agreed: Agreement, out: Path) -> Agreement:
    path = out / SESSION
    if path.exists() and path.read_bytes() != agreed.text:
        raise UsageError(f"{out} holds a session already. Choose another -o")
    agreed.write(path)
    warn_of_many(agreed)
    return agreed


def warn_of_many(agreed: Agreement) -> None:
    if (n := len(agreed.members)) > MANY:
        log.warning(
            "session: each of %d members loads what all have sent, in every round: above "
            "%d members let some add up together first",
            n,
            MANY,
        )


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
    path = state() / "people.json"
    met = read_json(path, "whom this site has met") if path.exists() else {}
    if not isinstance(met, dict) or not all(isinstance(name, str) for name in met.values()):
        raise InputError(f"{path} is damaged. Remove it: then everybody is new to this site")
    return met


def newcomers(agreed: Agreement, me: Party) -> list[str]:
    """Who is new to this site, and whose key is another one than before."""
    met, found = _met(), []
    for name, person in agreed.people.items():
        if person != me and met.get(person.key) != name:
            other = "has ANOTHER KEY than before" if name in met.values() else "is new here"
            found.append(f"{name} {other}")
    return found


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
    data: Table,
    folder: Path,
    *,
    test: Table | None = None,
    approve: str | None = None,
    allow: str = MASKED,
    again: bool = False,
    passphrase: bytes | None = None,
) -> Member:
    """A member of the session at ``url``; refused until somebody has compared its code."""
    me, place, own = keys.load(key, passphrase), _place(url, folder), folder / SESSION
    agreed = fetch_session(place)
    if own.exists() and own.read_bytes() != agreed.text:
        raise MismatchError(f"{place.url} holds another session than {own}, which was approved")
    if me.party not in agreed.members:
        raise MismatchError(f"{key} is the key of no member of the session at {place.url}")
    if approve is not None or not own.exists():
        agreed.check_approved(approve, allow)
        warn_of_many(agreed)
    if test and not agreed.evaluation:
        raise UsageError("--test is for a session with an evaluation. Leave it out")
    if agreed.evaluation and not test:
        log.warning("session: this site counts no test rows: pass --test FILE if it has some")
    files = [
        table.file(folder / f"{name}.h5", agreed.space, agreed.classes, agreed.scale is not None)
        for name, table in (("data", data), ("test", test))
        if table
    ]
    for path in files:
        _check_space(agreed, path)
    rows = SiteRows.of_files(agreed, *files)
    if agreed.evaluation:
        rows.check_cells(agreed)  # at once, and not after the head is solved
    member = Member(place, folder, agreed, me, rows, Ledger(state() / "ledger", again))
    _meet(agreed)
    agreed.write(own)
    return member


def _check_space(agreed: Agreement, path: Path) -> None:
    """Refuse other features, of which the session may scale the numbers."""
    units = ("dtype", "fraction_bits") if agreed.scale is not None else ()
    ours, theirs = (
        {k: v for k, v in space.items() if k not in units}
        for space in (agreed.space, rows_of(path).space)
    )
    if where := difference(ours, theirs, "agreed", f"in {path}"):
        raise MismatchError(f"the rows of {path} are not those of the session: {where}")


def _place(url: str, folder: Path) -> Place:
    if "://" not in url and Path(url).resolve() == folder.resolve():
        raise UsageError(f"{url} is the place that all reach, so it cannot be your folder -o, too")
    return Place(url)


def run(party: Replica, once: bool = False, poll: float = 5.0) -> Path | None:
    """Turns until the session is over, or one; returns the head's file, None where it goes on.

    A place that was reached once may be away for any time.
    """
    said, when, reached = "", 0.0, False
    while True:
        stop_point()
        try:
            waits, reached = party.turn(), True
        except UnreachableError as error:
            if once or not reached:
                raise
            waits = f"the place ({error})"
        if isinstance(party.place, Place):
            note_costs(party.place, party.folder)
        if not waits:
            return finish(party)
        if waits != said or time.monotonic() - when >= REMIND:
            log.info("session: waiting for %s", waits)
            said, when = waits, time.monotonic()
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
    if (scale := party.scale()) and scale.found:
        digest = _save_scaling(folder / SCALING, *scale.found, context, made_by)
        context = replace(context, space={**context.space, "scaling": digest})
    path = save_head(folder / SOLVED, party.head(number), made_by, context)
    summarize(party)
    return path


def _save_scaling(
    path: Path, mean: F64, deviation: F64, context: Context, made_by: Mapping[str, Any]
) -> str:
    """A file for `afltool import --scale`; returns its digest."""
    none = np.zeros(len(mean))
    arrays = {"centre": mean, "spread": deviation, "mean": mean, "constant": none, "missing": none}
    first = make_head("scaling", {"method": "standard"}).bind(len(mean), len(context.classes))
    head = first.restore(None, arrays)
    space = {**context.space, "dtype": "float32", "fraction_bits": None}
    save_head(path, head, made_by, replace(context, space=space))
    return head.digest()


# ---------------------------------------------------------------- members who leave


def consent(before: Path, key: Path, out: Path, passphrase: bytes | None = None) -> Path:
    """The consent of a member that leaves, signed; the server takes it into the next session."""
    agreed, me = read_session(before), keys.load(key, passphrase)
    if me.party not in agreed.members:
        raise MismatchError(f"{key} is the key of no member of {before}")
    signed = Consent.sign(agreed.digest, me)
    return write_bytes(json_text(vars(signed)).encode(), out, overwrite=False)


def leave(before: Path, without: Sequence[str], consents: Sequence[Path], out: Path) -> Agreement:
    """The session of those who stay: the same head and terms, all rounds anew."""
    old = read_session(before)
    if unknown := sorted(set(without) - {p.name for p in old.members}):
        raise UsageError(f"no members of {before}: {', '.join(unknown)}")
    signed = tuple(sorted(_consent(path) for path in consents))
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
    except TypeError:
        raise InputError(f"{path} is no consent of a member that leaves") from None
