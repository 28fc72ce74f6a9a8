"""The page of a finished trial: who took part, what left the sites, how good the head is.

It is made of the files in a folder: heads, what members have sent, and totals. Three readers have
their parts: those who took part, those who ask what left the sites, and those who check the
numbers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np

from ..errors import InputError
from ..files.counts import Counts, read_counts
from ..files.evaluations import figure_label, figure_text
from ..files.hdf5 import read_header
from ..show.classes import plot_confusion
from ..show.curves import plot_reliability
from ..stages._counted import evaluations
from ..stages.inspect import info
from ..values.names import COUNTS
from ..values.statistics import ClientId
from .page import check_page, picture, write_page

MANY = 30  # classes whose confusion is drawn
LISTED = 1000  # classes whose figures are on the page

Found = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """The folder of a trial."""

    root: Path

    @cached_property
    def headers(self) -> dict[Path, Found]:
        """Every file of ours that is no feature file or partition, with its header."""
        paths = sorted(self.root.rglob("*.h5"))
        by_path = {path: dict(read_header(path)) for path in paths}
        kinds = ("statistics", "head")
        return {path: header for path, header in by_path.items() if header["kind"] in kinds}

    @cached_property
    def sent(self) -> dict[str, list[Path]]:
        """The files of one client, by its name: what it has sent."""
        paths: dict[str, list[Path]] = defaultdict(list)
        for path, header in self.headers.items():
            names = header.get("clients", {}).get("names", [])
            if len(names) == 1:
                paths[names[0]].append(path)
        return paths

    @cached_property
    def totals(self) -> list[Counts]:
        """The counts of the most clients, for each round of evaluation in the folder."""
        best: dict[str, tuple[int, Path]] = {}
        for path, header in self.headers.items():
            if header["kind"] == "statistics" and header["phase"] == COUNTS:
                number = len(header["clients"]["names"])
                key = header["context"]["head"]["digest"]
                best[key] = max(best.get(key, (0, path)), (number, path))
        return [read_counts(path) for _, path in sorted(best.values())]

    def of_members(self) -> Iterator[tuple[str, Path]]:
        """The members' files, by the names of those."""
        for name, paths in sorted(self.sent.items()):
            yield from ((name, path) for path in paths)

    def bytes_of(self, name: str) -> int:
        """Bytes that a member has sent, of its files here."""
        return sum(path.stat().st_size for path in self.sent.get(name, []))

    def own(self, who: ClientId, total: Counts) -> Counts | None:
        """A member's own counts, where its file is here and can be read."""
        same = total.statistics.context.head["digest"]
        for path in self.sent.get(who.name, []):
            header = self.headers[path]
            if header["kind"] == "statistics" and header["context"]["head"].get("digest") == same:
                return read_counts(path)
        return None


def trial(root: Path, out: Path, overwrite: bool = False) -> Path:
    """Write the page of the trial in a folder: one HTML file that needs no network; returns it.

    Raises:
        InputError: the folder has no counts of a solved head (`evaluate --counts`).
    """
    check_page(out)
    found = Trial(root)
    if not root.is_dir() or not found.totals:
        raise InputError(
            f"{root} holds no study, and no counts of a solved head: write some with afltool "
            "evaluate HEAD FEATURES --counts, and add them up into this folder"
        )
    measured = {total.path: evaluations(total) for total in found.totals}
    last = found.totals[-1]
    every = measured[last.path]
    best = max(every, key=lambda one: float(one["top1"]))
    which = f"head {every.index(best)}, the best of {len(every)}," if every[1:] else "the head"
    shows = (
        f"Of 100 rows like those that were counted here {which} predicts about "
        f"{100 * best['top1']:.0f} right: accuracy {figure_text(best['metrics']['accuracy'])}."
    )
    files = [
        (path.relative_to(root), header["kind"], f"{path.stat().st_size:,}", header["digest"])
        for path, header in found.headers.items()
    ]
    return write_page(
        "trial.html",
        out,
        overwrite,
        title=f"Trial {root.resolve().name}",
        shows=shows,
        counts=f"{len(last.statistics.clients)} members, {last.rows:,} rows, "
        f"{len(last.classes)} classes",
        totals=[_total(found, total, measured[total.path]) for total in found.totals],
        sent=[
            (name, found.headers[path]["phase"], f"{path.stat().st_size:,}")
            for name, path in found.of_members()
        ],
        reveals=list(dict.fromkeys(_reveals(found))),
        commands=[
            f"afltool verify {root}/**/*.h5",
            *(f"afltool table {total.path} --format csv" for total in found.totals),
        ],
        files=files,
    )


def _total(trial: Trial, total: Counts, every: list[Found]) -> Found:
    """What the page says of a round of evaluation."""
    names = [
        f"{n}: {one['head']['name']} {one['head']['digest'][:8]}" for n, one in enumerate(every)
    ]
    figures = {k: v for one in every for k, v in one["metrics"].items()}
    rows = [
        (figure_label(name, figure), *(figure_text(one["metrics"].get(name)) for one in every))
        for name, figure in figures.items()
    ]
    known = [(one, name) for one, name in zip(every, names, strict=True) if one["classes"]]
    heads = [
        {
            "name": name,
            "others": [_against(one, name) for one in found.get("others", ())[number:]],
            **_classes(found),
            "groups": [_group(k, v) for k, v in found.get("by", {}).items()],
        }
        for number, (found, name) in enumerate(zip(every, names, strict=True))
    ]
    drawn = [one for found, name in known for one in _pictures(found, name)]
    whole = {"names": names, "figures": rows, "heads": heads, "pictures": drawn}
    return {**_members(trial, total), **whole}


def _members(trial: Trial, total: Counts) -> Found:
    """The members with their rows, and how far their accuracies lie apart."""
    rows, shares = [], []
    for who, client in sorted(total.statistics.clients.items()):
        own = trial.own(who, total)
        text = "–"
        if own is not None and own.rows:
            (figure, *_) = (one["metrics"]["accuracy"] for one in evaluations(own))
            shares.append(figure["value"])
            text = figure_text(figure)
        number = "not told" if client.rows is None else f"{client.rows:,}"
        rows.append((who.name, number, f"{trial.bytes_of(who.name):,}", text))
    between = shares[1:] and (
        f"Between sites the accuracy of head 0 goes from {min(shares):.1%} to {max(shares):.1%}, "
        f"with a standard deviation of {stdev(shares):.1%}."
    )
    return {"members": rows, "between": between}


def _against(other: Found, name: str) -> str:
    return (
        f"Head {name} alone is right on {other['only_this']:,} rows, {other['path']} alone on "
        f"{other['only_other']:,}. If both were equally good, a difference of this size or more "
        f"had the probability {other['p_value']:.3g} (McNemar's exact test)."
    )


def _classes(one: Found) -> Found:
    every = list(one["classes"].items())
    names = list(every[0][1]) if every else []
    rows = [
        (c, f"{figures['rows']:,}", *(figure_text(figures[name]) for name in names[1:]))
        for c, figures in every[:LISTED]
    ]
    more = f"; {LISTED} of {len(every)} classes, afltool table has all" * (len(every) > LISTED)
    return {"columns": names, "classes": rows, "more": more}


def _group(name: str, figures: Found) -> tuple[str, ...]:
    few = "held back" if figures["n"] is None else f"{figures['n']:,}"
    shares = ("–" if figures[k] is None else f"{figures[k]:.4f}" for k in list(figures)[1:])
    return (name, few, *shares)


def _pictures(one: Found, head: str) -> Iterator[tuple[str, str]]:
    title = f"head {head}"
    if "reliability" in one:
        note = f"expected calibration error {figure_text(one['metrics']['ece'])}"
        draw = partial(plot_reliability, one["reliability"], title=title, note=note)
        yield f"Head {head}: how often it is right, by how sure it says it is", picture(draw)
    if len(one["classes"]) <= MANY:
        confusion, names = np.array(one["confusion"]), list(one["classes"])
        draw = partial(plot_confusion, confusion, names, title=title)
        yield f"Head {head}: what it takes for what", picture(draw)


def _reveals(trial: Trial) -> Iterator[str]:
    """What a receiver can read from the members' files, in words."""
    for name, path in trial.of_members():
        if said := info(path).get("reveals"):
            yield f"{name}, {trial.headers[path]['phase']}: {said}"
