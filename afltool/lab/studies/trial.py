"""The page of a finished trial: who took part, what left the sites, how good the head is.

It is made of the files in a folder: heads, what members have sent, and totals. Three readers have
their parts: those who took part, those who ask what left the sites, and those who check the
numbers.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np

from ...errors import InputError
from ...files.counts import Counts, evaluations, read_counts
from ...files.evaluations import figure_label, figure_text
from ...files.hdf5 import read_header
from ...rendering.classes import plot_confusion
from ...rendering.curves import plot_reliability
from ...values.names import COUNTS
from ...values.text import shown

Found = dict[str, Any]
Headers = dict[Path, Found]


def of_trial(root: Path) -> Found:
    """What the page says of the trial in a folder.

    Raises:
        InputError: the folder has no counts of a solved head (`evaluate --counts`).
    """
    every = {path: dict(read_header(path)) for path in sorted(root.rglob("*.h5"))}
    headers = {p: one for p, one in every.items() if one["kind"] in ("statistics", "head")}
    totals = _totals(headers)
    if not totals:
        raise InputError(
            f"{root} holds no study, and no counts of a solved head: write some with afltool "
            "evaluate HEAD FEATURES --counts, and add them up into this folder"
        )
    last, heads = totals[-1], evaluations(totals[-1])
    best = max(heads, key=lambda one: float(one["top1"]))
    which = f"head {heads.index(best)}, the best of {len(heads)}," if heads[1:] else "the head"
    sent = sorted(
        (*one["clients"]["names"], path)
        for path, one in headers.items()
        if len(one.get("clients", {}).get("names", [])) == 1
    )
    size = {path: f"{path.stat().st_size:,}" for path in headers}
    tables = (f"afltool table {total.path} --format csv" for total in totals)
    return {
        "title": f"Trial {root.resolve().name}",
        "shows": f"Of 100 rows like those that were counted here {which} predicts about "
        f"{100 * best['top1']:.0f} right: accuracy {figure_text(best['metrics']['accuracy'])}.",
        "counts": f"{len(last.statistics.clients)} members, {last.rows:,} rows, "
        f"{len(last.classes)} classes",
        "totals": [_total(headers, sent, total) for total in totals],
        "listed": LISTED,
        "sent": [(name, headers[path]["phase"], size[path]) for name, path in sent],
        "commands": [f"afltool verify {root}/**/*.h5", *tables],
        "files": [
            (path.relative_to(root), one["kind"], size[path], one["digest"])
            for path, one in headers.items()
        ],
    }


def _head_of(header: Found) -> str:
    """The digest of the head whose rows are counted; '' of other files."""
    is_count = header["kind"] == "statistics" and header["phase"] == COUNTS
    return str(header["context"]["head"]["digest"]) if is_count else ""


def _totals(headers: Headers) -> list[Counts]:
    """The counts of the most clients, for each round of evaluation in the folder."""
    best: dict[str, tuple[int, Path]] = {}
    for path, header in headers.items():
        if key := _head_of(header):
            number = len(header["clients"]["names"])
            best[key] = max(best.get(key, (0, path)), (number, path))
    return [read_counts(path) for _, path in sorted(best.values())]


def _total(headers: Headers, sent: list[tuple[str, Path]], total: Counts) -> Found:
    """What the page says of a round of evaluation: members, and how far their accuracies lie apart.

    A member's own counts are read where its file is here.
    """
    heads, members, shares = evaluations(total), [], []
    for who, client in sorted(total.statistics.clients.items()):
        paths = [path for name, path in sent if name == who.name]
        same = total.statistics.context.head["digest"]
        own = next((read_counts(one) for one in paths if _head_of(headers[one]) == same), None)
        text = "–"
        if own is not None and own.rows:
            figure = evaluations(own)[0]["metrics"]["accuracy"]
            shares.append(figure["value"])
            text = figure_text(figure)
        number = "not told" if client.rows is None else f"{client.rows:,}"
        members.append((who.name, number, f"{sum(p.stat().st_size for p in paths):,}", text))
    between = shares[1:] and (
        f"Between sites the accuracy of head 0 goes from {min(shares):.1%} to {max(shares):.1%}, "
        f"with a standard deviation of {stdev(shares):.1%}."
    )
    names = [
        f"{i}: {one['head']['name']} {one['head']['digest'][:8]}" for i, one in enumerate(heads)
    ]
    pairs = zip(heads, names, strict=True)
    return {
        "members": members,
        "between": between,
        "names": names,
        "figures": {k: v for one in heads for k, v in one["metrics"].items()},
        "heads": heads,
        "pictures": [
            one for head, name in pairs if head["classes"] for one in _pictures(head, name)
        ],
    }


def _pictures(one: Found, head: str) -> Iterator[Drawn]:
    title = f"head {head}"
    if "reliability" in one:
        note = f"expected calibration error {figure_text(one['metrics']['ece'])}"
        draw = partial(plot_reliability, one["reliability"], title=title, note=note)
        yield f"Head {head}: how often it is right, by how sure it says it is", picture(draw)
    if len(one["classes"]) <= MANY:
        confusion, names = np.array(one["confusion"]), list(one["classes"])
        draw = partial(plot_confusion, confusion, names, title=title)
        yield f"Head {head}: what it takes for what", picture(draw)


MANY = 30  # classes whose confusion is drawn
LISTED = 1000  # classes whose figures are on the page
Drawn = tuple[str, str]  # what a picture shows, and the picture


def templates() -> Any:
    """The templates beside this module, which escape what they are given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    def printable(value: Any) -> Any:  # what is HTML already stays as it is
        return value if hasattr(value, "__html__") else shown(value)

    how: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(loader=loader, autoescape=True, finalize=printable, **how)
    made.filters |= {"figure": figure_text, "label": figure_label}
    return made


def picture(draw: Callable[[Path], object]) -> str:
    """What ``draw`` draws into a file, as the page has it."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "p.svg"
        draw(place)
        return base64.b64encode(place.read_bytes()).decode("ascii")
