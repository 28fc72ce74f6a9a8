"""The page of a finished trial: who took part, what left the sites, how good the head is.

It is made of the files in a folder: heads, what members have sent, and totals. Three readers have
their parts: those who took part, those who ask what left the sites, and those who check the
numbers.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import stdev
from typing import Any

import numpy as np

from ..errors import InputError
from ..files.counts import Counts, read_counts
from ..files.hdf5 import read_header
from ..files.own_files import figure_label, figure_text
from ..inputs import distinct_files
from ..show.classes import plot_confusion
from ..show.curves import plot_reliability
from ..stages._counted import evaluations
from ..stages.inspect import info
from ..values.names import COUNTS
from ..values.statistics import ClientId
from .hypertext import check_page, command, html_table, picture, text, write_page

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
    counts = (
        f"{len(last.statistics.clients)} members, {last.rows:,} rows, {len(last.classes)} classes"
    )
    return write_page(
        out, f"Trial {root.resolve().name}", shows, counts, _body(found, measured), overwrite
    )


def _body(trial: Trial, measured: Mapping[Path, list[Found]]) -> Iterator[str]:
    for total in trial.totals:
        yield from _members(trial, total)
        yield from _figures(measured[total.path])
    yield from _sent(trial)
    yield from _files(trial)


def _members(trial: Trial, total: Counts) -> Iterator[str]:
    lines, shares = [], []
    for who, client in sorted(total.statistics.clients.items()):
        own = trial.own(who, total)
        text = "–"
        if own is not None and own.rows:
            (figure, *_) = (one["metrics"]["accuracy"] for one in evaluations(own))
            shares.append(figure["value"])
            text = figure_text(figure)
        rows = "not told" if client.rows is None else f"{client.rows:,}"
        lines.append(_line(who.name, rows, f"{trial.bytes_of(who.name):,}", text))
    names = ("member", "rows evaluated", "bytes sent, all rounds", "accuracy on its own rows")
    yield "<h2>Members</h2>" + html_table(names, lines, "each site; – is what only the site knows")
    if len(shares) > 1:
        yield (
            f"<p>Between sites the accuracy of head 0 goes from {min(shares):.1%} to "
            f"{max(shares):.1%}, with a standard deviation of {stdev(shares):.1%}.</p>"
        )


def _line(name: Any, *cells: Any) -> str:
    return (
        f'<tr><th scope="row">{text(name)}</th>{"".join(f"<td>{text(c)}</td>" for c in cells)}</tr>'
    )


def _figures(every: Sequence[Found]) -> Iterator[str]:
    heads = [
        f"{n}: {one['head']['name']} {one['head']['digest'][:8]}" for n, one in enumerate(every)
    ]
    lines = [
        _line(figure_label(name, figure), *(figure_text(one["metrics"].get(name)) for one in every))
        for name, figure in {k: v for one in every for k, v in one["metrics"].items()}.items()
    ]
    caption = (
        "in brackets 95 % intervals; ± at most: from bins of scores, with the bound on the error"
    )
    yield "<h2>Figures</h2>" + html_table(("figure", *heads), lines, caption)
    for number, one in enumerate(every):
        for other in one.get("others", ())[number:]:
            yield (
                f"<p>Head {text(heads[number])} alone is right on {other['only_this']:,} rows, "
                f"{text(other['path'])} alone on {other['only_other']:,}. If both were equally "
                "good, a difference of this size or more had the probability "
                f"{other['p_value']:.3g} (McNemar's exact test).</p>"
            )
        if one["classes"]:
            yield _classes(one, heads[number])
        yield from _groups(one, heads[number])
    known = [(one, head) for one, head in zip(every, heads, strict=True) if one["classes"]]
    drawn = [picture for one, head in known for picture in _pictures(one, head)]
    yield f'<h2>Pictures</h2><div class="pictures">{"".join(drawn)}</div>'


def _classes(one: Found, head: str) -> str:
    names = list(next(iter(one["classes"].values())))
    every = list(one["classes"].items())
    lines = [
        _line(c, f"{figures['rows']:,}", *(figure_text(figures[name]) for name in names[1:]))
        for c, figures in every[:LISTED]
    ]
    more = f"; {LISTED} of {len(every)} classes, afltool table has all" * (len(every) > LISTED)
    return f"<h2>By class</h2>{html_table(('class', *names), lines, f'head {head}{more}')}"


def _groups(one: Found, head: str) -> Iterator[str]:
    if "by" not in one:
        return
    lines = []
    for name, figures in one["by"].items():
        few = "held back" if figures["n"] is None else f"{figures['n']:,}"
        shares = ("–" if figures[k] is None else f"{figures[k]:.4f}" for k in list(figures)[1:])
        lines.append(_line(name, few, *shares))
    names = ("group", "rows", "accuracy", "balanced accuracy", "f1")
    yield f"<h2>By group</h2>{html_table(names, lines, f'head {head}')}"


def _pictures(one: Found, head: str) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as scratch, distinct_files():
        if "reliability" in one:
            note = f"expected calibration error {figure_text(one['metrics']['ece'])}"
            at = Path(scratch) / "r.svg"
            plot_reliability(one["reliability"], at, f"head {head}", note)
            yield picture(
                f"Head {head}: how often it is right, by how sure it says it is", at.read_bytes()
            )
        if len(one["classes"]) <= MANY:
            confusion, names = np.array(one["confusion"]), list(one["classes"])
            at = plot_confusion(confusion, names, Path(scratch) / "c.svg", f"head {head}")
            yield picture(f"Head {head}: what it takes for what", at.read_bytes())


def _sent(trial: Trial) -> Iterator[str]:
    lines = []
    for name, paths in sorted(trial.sent.items()):
        for path in paths:
            lines.append(_line(name, trial.headers[path]["phase"], f"{path.stat().st_size:,}"))
    names = ("member", "what was summed", "bytes")
    yield "<h2>What left the sites</h2>"
    yield "<p>Rows, images and texts never left a site: only sums over them did.</p>"
    if lines:
        yield html_table(names, lines, "files of one member that are in this folder")
    reveals = (  # what a receiver can read from the members' files, in words
        f"{name}, {trial.headers[path]['phase']}: {said}"
        for name, paths in sorted(trial.sent.items())
        for path in paths
        if (said := info(path).get("reveals"))
    )
    yield from (f"<p>{text(one)}</p>" for one in dict.fromkeys(reveals))


def _files(trial: Trial) -> Iterator[str]:
    lines = []
    for path, header in trial.headers.items():
        name, sent = path.relative_to(trial.root), f"{path.stat().st_size:,}"
        lines.append(_line(name, header["kind"], sent, header["digest"]))
    yield "<h2>To check the numbers</h2><p>Each file has a digest of what it means. The sum of the "
    yield "members' files has the digest of the total, in any order.</p>"
    yield command(f"afltool verify {trial.root}/**/*.h5")
    for total in trial.totals:
        yield command(f"afltool table {total.path} --format csv")
    yield f"<details><summary>{len(lines)} files</summary>"
    names = ("file", "kind", "bytes", "digest")
    yield html_table(names, lines, "files of this folder") + "</details>"
