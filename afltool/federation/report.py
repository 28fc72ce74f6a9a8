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
from ..inputs import distinct_files, read_json
from ..stages._counted import evaluations
from .agreement import Agreement
from .place import Place
from .server import FINISHED
from .session import SESSION, Replica
from .words import lines

COSTS = "costs.json"
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


def note_costs(place: Place, folder: Path) -> None:
    """Add what was sent and loaded to the costs of a folder, by rounds; it counts from 0 again."""
    if not place.up and not place.down:
        return
    known = _costs(folder)
    for way, more in (("bytes_up", place.up), ("bytes_down", place.down)):
        for number, size in more.items():
            known.setdefault(str(number), {"bytes_up": 0, "bytes_down": 0})[way] += size
        more.clear()
    with distinct_files():  # it is written again and again
        write_json(known, folder / COSTS, overwrite=True)


def _costs(folder: Path) -> dict[str, dict[str, int]]:
    path = folder / COSTS
    return dict(json.loads(path.read_bytes())) if path.exists() else {}


def _rounds(folder: Path, end: int) -> Iterator[dict[str, Any]]:
    """Of each round what was summed, the bytes each way, and the seconds until its end."""
    costs, before = _costs(folder), 0.0
    for number in range(end):
        total = folder / f"total-{number}.h5"
        phase = read_header(total, "statistics")["phase"] if number else "roll-call"
        last = (total if number else folder / "head-1.h5").stat().st_mtime
        seconds, before = max(last - (before or last), 0.0), last
        sizes = [costs.get(str(k), {}) for k in {number, end if number == end - 1 else number}]
        ways = {w: sum(one.get(w, 0) for one in sizes) for w in ("bytes_up", "bytes_down")}
        yield {"round": number, "phase": phase, **ways, "seconds": seconds}


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
        made.render(s=facts, agreed=list(lines(agreed)), masked=agreed.masked), out, overwrite
    )
