"""What a session has cost and found: the summary of a party's folder, and its page."""

from __future__ import annotations

from itertools import pairwise
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
PAGE = Path(__file__).with_name("page.html")  # for Jinja2


def known_costs(place: Place, folder: Path) -> Place:
    """A place that counts on from where an earlier process of this folder has stopped."""
    if (path := folder / COSTS).exists():
        for counted, known in zip((place.up, place.down), read_json(path, "costs"), strict=True):
            counted.update({int(number): size for number, size in known.items()})
    return place


def note_costs(party: Replica) -> None:
    with distinct_files():  # it is written again and again
        write_json((party.place.up, party.place.down), party.folder / COSTS, overwrite=True)


def summarize(party: Replica) -> Path:
    """Write summary.json into the folder of a party whose session is over."""
    end, agreed, folder = party.known(), party.agreed, party.folder
    headers = [read_header(folder / f"total-{r}.h5", "statistics") for r in range(1, end)]
    at = [(folder / f"head-{r}.h5").stat().st_mtime for r in range(1, end + 1)]
    phases = ["roll-call", *(one["phase"] for one in headers), "end"]
    seconds = [0.0, *(max(then - now, 0.0) for now, then in pairwise(at)), 0.0]
    up, down = party.place.up, party.place.down
    rounds = [
        {"round": r, "phase": phase, "bytes_up": up[r], "bytes_down": down[r], "seconds": took}
        for r, (phase, took) in enumerate(zip(phases, seconds, strict=True))
    ]
    counts = read_counts(folder / f"total-{end - 1}.h5") if agreed.evaluation else None
    signed = [name for name, same in party.certificate().items() if same]
    if (path := folder / FINISHED).exists():  # the server has no key any more, but a list
        signed = [party.me.name, *read_json(path, "who has signed")]
    found = {
        "session": agreed.digest,
        "party": party.me.name,
        "members": headers[-1]["clients"]["names"],
        "signed": sorted(signed),
        "head": party.head(end).digest(),
        "totals": [one["digest"] for one in headers],
        "rounds": rounds,
        **{k: sum(one[k] for one in rounds) for k in ("bytes_up", "bytes_down", "seconds")},
        "evaluation": counts and evaluations(counts)[0],
        "versions": versions(),
    }
    return write_json(found, folder / SUMMARY, overwrite=True)


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a session that is over, from a party's folder."""
    if not (path := folder / SUMMARY).is_file():
        raise InputError(f"{folder} holds no session that is over: it has no {SUMMARY}")
    return dict(read_json(path, "a summary"))


def page(folder: Path, out: Path, overwrite: bool = False) -> Path:
    """Write the page of a session that is over: one HTML file."""
    from jinja2 import Environment

    if out.suffix != ".html":
        raise UsageError(f"A page is an .html file; found {str(out)!r}")
    facts, agreed = read_summary(folder), Agreement.parse((folder / SESSION).read_bytes())
    made = Environment(autoescape=True).from_string(PAGE.read_text())
    text = made.render(s=facts, agreed=lines(agreed).items(), masked=agreed.masked)
    return write_text(text, out, overwrite)
