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
PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Session {{ s.session[:16] }}</title>
<style>body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}
table{border-collapse:collapse}td,th{border-bottom:1px solid #ccc;padding:.2em .8em;text-align:left;
vertical-align:top}.n{text-align:right}</style>
<h1>A session of {{ s.members | length }} sites</h1>
<p>As {{ s.party }} has it. Every party has computed the totals and the head itself.
<h2>What was agreed</h2>
<table>{% for name, text in agreed %}<tr><th>{{ name }}<td>{{ text }}{% endfor %}</table>
<h2>Who has signed the end</h2>
<p>In all rounds: {{ s.members | join(", ") }}. Signed so far, when this was written:
{{ s.signed | join(", ") or "nobody" }}. The head is {{ s.head }}.
<h2>What it cost {{ s.party }}</h2>
<table><tr><th>round<th>sum<th>bytes up<th>bytes down<th>seconds
{% for r in s.rounds %}<tr><td class=n>{{ r.round }}<td>{{ r.phase }}
<td class=n>{{ "{:,}".format(r.bytes_up) }}<td class=n>{{ "{:,}".format(r.bytes_down) }}
<td class=n>{{ "%.1f" | format(r.seconds) }}{% endfor %}
<tr><th colspan=2>all<td class=n>{{ "{:,}".format(s.bytes_up) }}
<td class=n>{{ "{:,}".format(s.bytes_down) }}<td class=n>{{ "%.1f" | format(s.seconds) }}</table>
{% if s.evaluation %}<h2>How good the head is</h2>
<p>Over the test rows of all sites together, which were counted {{ "under masks" if masked else
"with signatures" }}. Low and high are the ends of the 95 % interval of Wilson.
<table><tr><th>metric<th>value<th>low<th>high
{% for name, m in s.evaluation.metrics.items() %}<tr><td>{{ name }}
{% for k in ("value", "low", "high") %}<td class=n>{{ "%.4f" | format(m[k]) if m[k] is number }}
{% endfor %}{% endfor %}</table>{% endif %}
</html>
"""


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
    each = {way: list(_messages(folder / name, end)) for way, name in
            (("bytes_up", "sent"), ("bytes_down", "taken"))}  # fmt: skip
    times = sorted((number, when) for every in each.values() for number, _, when in every)
    before = times[0][1] if times else 0.0
    for number in range(end):
        last = max((when for n, when in times if n == number), default=before)
        sizes = {way: sum(size for n, size, _ in every if n == number)
                 for way, every in each.items()}  # fmt: skip
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
    made = Environment(autoescape=True).from_string(PAGE)
    return write_text(made.render(s=facts, agreed=list(agreed.lines()), masked=agreed.masked),
                      out, overwrite)  # fmt: skip
