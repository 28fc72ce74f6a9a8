"""What a session has cost and found: the summary of a party's folder, and its page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import InputError, UsageError
from ..files.atomic import write_text
from ..files.counts import read_counts
from ..files.hdf5 import read_header
from ..files.schema import SUMMARY, versions
from ..files.tables import write_json
from ..inputs import read_json
from ..stages._counted import evaluations
from .agreement import Agreement
from .server import FINISHED
from .session import SESSION, Replica

MOST_BYTES = 64 << 20  # of a summary
PAGE = Path(__file__).with_name("page.html")  # for Jinja2


def summarize(party: Replica) -> Path:
    """Write summary.json into the folder of a party whose session is over."""
    number, agreed, folder = party.known(), party.agreed, party.folder
    rounds = list(_rounds(folder, number))
    totals = [folder / f"total-{r}.h5" for r in range(1, number)]
    last = read_header(totals[-1], "statistics")
    found = {
        "session": agreed.digest,
        "party": party.me.name,
        "members": last["clients"]["names"],
        "signed": sorted(_signed(party)),
        "head": party.head(number).digest(),
        "totals": [read_header(path, "statistics")["digest"] for path in totals],
        "rounds": rounds,
        **{k: sum(one[k] for one in rounds) for k in ("bytes_up", "bytes_down", "seconds")},
        "evaluation": evaluations(read_counts(totals[-1]))[0] if agreed.evaluation else None,
        "versions": versions(),
    }
    return write_json(found, folder / SUMMARY, overwrite=True)


def _signed(party: Replica) -> list[str]:
    """Who has signed the same end; a server that is done has no key any more, but a list."""
    if (path := party.folder / FINISHED).exists():
        return [party.me.name, *json.loads(path.read_bytes())]
    return [name for name, same in party.certificate().items() if same]


def _rounds(folder: Path, end: int) -> Iterator[dict[str, Any]]:
    """Of each round what was summed, the bytes of messages each way, and the seconds it took."""
    each = {
        way: list(_messages(folder / name, end))
        for way, name in (("bytes_up", "sent"), ("bytes_down", "taken"))
    }
    times = sorted((number, when) for every in each.values() for number, _, when in every)
    before = times[0][1] if times else 0.0
    for number in range(end):
        last = max((when for n, when in times if n == number), default=before)
        sizes = {
            way: sum(size for n, size, _ in every if n == number) for way, every in each.items()
        }
        total = folder / f"total-{number}.h5"
        phase = read_header(total, "statistics")["phase"] if number else "roll-call"
        yield {"round": number, "phase": phase, **sizes, "seconds": max(last - before, 0.0)}
        before = max(last, before)


def _messages(folder: Path, end: int) -> Iterator[tuple[int, int, float]]:
    """The round that each message belongs to, its bytes, and when it was written here."""
    for path in sorted(folder.glob("[0-9]*")):
        number, kind, _ = path.name.split("-", 2)
        of_round = {"key": 0, "head": int(number) - 1}.get(kind, min(int(number), end - 1))
        about = path.stat()
        yield of_round, about.st_size, about.st_mtime


def page(folder: Path, out: Path, overwrite: bool = False) -> Path:
    """Write the page of a session that is over, from a party's folder: one HTML file."""
    try:
        from jinja2 import Environment
    except ImportError:
        raise UsageError("A page needs Jinja2: pip install 'afltool[session]'") from None
    if out.suffix != ".html":
        raise UsageError(f"A page is an .html file; found {str(out)!r}")
    if not (folder / SUMMARY).is_file() or not (folder / SESSION).is_file():
        raise InputError(f"{folder} holds no session that is over: it has no {SUMMARY}")
    agreed = Agreement.parse((folder / SESSION).read_bytes())
    facts = read_json(folder / SUMMARY, "a summary", MOST_BYTES)
    made = Environment(autoescape=True).from_string(PAGE.read_text())
    return write_text(
        made.render(s=facts, agreed=list(agreed.lines()), masked=agreed.masked), out, overwrite
    )
