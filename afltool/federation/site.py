"""The commands as functions: new, serve, join, status, leave (afltool.federation.cli types them)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any

from ..errors import InputError, MismatchError, UsageError
from ..files.features import Features, open_features
from ..files.heads import head_from, rows_of
from ..files.partitions import ClientRows
from ..heads.base import Block, Head
from ..math.gram import FixedPoint
from ..values.statistics import Statistics
from . import keys
from .agreement import LARGEST, MASKED, Agreement, usual_threshold
from .envelope import KINDS, OVERHEAD, name_of
from .ledger import Ledger, meaning
from .noise import clip_rows
from .place import Place
from .session import SESSION, Member, Server

LEDGER = Path.home() / ".local/state/afltool/masked.json"


def new(members: Sequence[Path], server: Path, head: str, space: Path, out: Path,
        threshold: int | None = None, head_options: Mapping[str, Any] | None = None,
        **terms: Any) -> Agreement:  # fmt: skip
    """Write session.json into the folder ``out``; what all compare."""
    rows = rows_of(space).as_dict()
    first, _ = head_from(head, head_options)
    first = first.bind(rows["space"]["dim"], len(rows["classes"]))
    files = [f for p in members for f in (sorted(p.glob("*.pub")) if p.is_dir() else [p])]
    people = sorted({keys.load_public(f) for f in files} - {boss := keys.load_public(server)})
    bits = 39 if any(":" in p or "block" in p or "gradient" in p for p in first.phases()) else 30
    usual = usual_threshold(len(people), terms.get("colluding", 0), bool(terms.get("noise")))
    agreed = Agreement(
        members=tuple(people), server=boss, space=rows["space"], classes=tuple(rows["classes"]),
        head={"name": first.name, "options": first.options.as_dict(), "digest": first.digest(),
              "phases": [str(p) for p in first.phases()]},
        threshold=usual if threshold is None else threshold, bits_of_row=bits, **terms,
    )  # fmt: skip
    agreed.write(out / SESSION)
    return agreed


def serve(url: str, key: Path, folder: Path, passphrase: bytes | None = None) -> Server:
    agreed = Agreement.parse((folder / SESSION).read_bytes())
    return Server(Place(url), folder, agreed, keys.load(key, passphrase))


def join(url: str, key: Path, features: Path, folder: Path, approve: str | None = None,
         allow: str = MASKED, again: bool = False, passphrase: bytes | None = None,
         ledger: Path | None = None) -> Member:  # fmt: skip
    """A member of the session at ``url``; refused until its code was compared."""
    me, place, own = keys.load(key, passphrase), Place(url), folder / SESSION
    agreed = _session(place)
    if own.exists() and own.read_bytes() != agreed.text:
        raise MismatchError(f"{url} holds another session than {own}, which was approved")
    if not own.exists():
        agreed.check_approved(approve, allow)
    with open_features(features) as rows:
        check_rows(agreed, rows)
        if agreed.masked:
            content = meaning(rows.data[:], rows.labels, agreed.classes)
            Ledger(ledger or LEDGER).claim(content, agreed, again)
    agreed.write(own)
    return Member(place, folder, agreed, me, gathering(features))


def _session(place: Place) -> Agreement:
    data = place.read(SESSION, LARGEST)
    if data is None:
        raise InputError(f"{place.url} holds no session: the server puts it there (session serve)")
    return Agreement.parse(data)


def check_rows(agreed: Agreement, rows: Features) -> None:
    """Refuse features or classes that are not those of the session."""
    for what, ours in (("space", dict(agreed.space)), ("classes", list(agreed.classes))):
        if rows.header[what] != ours:
            raise MismatchError(f"{rows.path}: its {what} is not that of the session: {ours}")


def gathering(features: Path) -> Callable[[Head, int | None], Statistics]:
    """Statistics of all rows of a feature file, clipped to a norm if there is noise."""

    def clipped(blocks: Iterator[Block], radius: int | None) -> Iterator[Block]:
        for X, y in blocks:
            assert isinstance(X, FixedPoint)
            yield (X if radius is None else FixedPoint(clip_rows(X.values, radius), X.bits)), y

    def gather(head: Head, radius: int | None) -> Statistics:
        with open_features(features) as rows:
            ((_, blocks),) = ClientRows.of_silo(rows, "site").each([0])
            return head.gather(clipped(iter(blocks), radius))[0]

    return gather


def status(url: str) -> dict[str, Any]:
    """Who has sent what, and who is waited for; it needs no key, and proves nothing."""
    place, kinds = Place(url), [k for k in KINDS if k not in ("key", "total")]
    agreed, rounds = _session(place), list[dict[str, Any]]()

    def there(kind: str, number: int, name: str) -> bool:
        return place.read(name_of(kind, number, name), OVERHEAD, start=True) is not None

    for number in range(len(agreed.phases) + 2):
        found = {k: [n for n in agreed.people if there(k, number, n)] for k in kinds}
        if not any(found.values()):
            break
        rounds.append({"round": number, **{k: v for k, v in found.items() if v}})
    last = rounds[-1] if rounds else {}
    waited = "close" not in last and last.get("round", 0) <= len(agreed.phases)
    names = [p.name for p in agreed.members]
    late = [n for n in names if n not in last.get("sums" if last.get("round") else "hello", [])]
    return {"agreed": dict(agreed.lines()), "rounds": rounds, "waiting_for": late if waited else []}


def leave(before: Path, without: Sequence[str], out: Path) -> Agreement:
    """The session of those who stay: the same head and terms, all phases gathered again.

    Its digest names the session before, so what each member approves, and what every message of it
    is signed for, says who has left: the messages are the certificate.
    """
    old = Agreement.parse((before / SESSION).read_bytes())
    if unknown := set(without) - set(old.people):
        raise UsageError(f"no members of {before}: {', '.join(sorted(unknown))}")
    stay = tuple(p for p in old.members if p.name not in without)
    t = min(old.threshold, len(stay))
    made = replace(old, members=stay, threshold=t, follows=old.digest, nonce=token_hex(16))
    made.write(out / SESSION)
    return made
