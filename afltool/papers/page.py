"""One self-contained page of a study: tables, pictures, commands, digests; it asks no network.

The page's own rules (its content security policy) forbid every request. All text from outside is
escaped here, in one place.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from ..values.escaping import shown
from .crosstab import Crosstab, Entry, stat_words, statistic

TEMPLATE = Path(__file__).with_name("page.html")


@dataclass(frozen=True)
class CellFacts:
    """A cell as the page tells it: its name, state, command line, and facts by name."""

    name: str
    state: str
    command: str
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Page:
    """What a page holds. ``pictures``: SVG by caption; ``published``: rows of texts, headed."""

    title: str
    shows: str
    counts: str
    tables: Sequence[Crosstab]
    pictures: Mapping[str, bytes]
    published: Sequence[Sequence[str]]
    published_name: str
    commands: Sequence[str]
    cells: Sequence[CellFacts]
    versions: Mapping[str, str]


def text(value: Any) -> str:
    """Anything as text of a page: what cannot be printed is written as Python writes it."""
    return html.escape(shown(value))


def page(told: Page) -> str:
    """The HTML of a page."""
    parts = [_crosstab(one) for one in told.tables]
    if told.pictures:
        drawn = "".join(_picture(caption, svg) for caption, svg in told.pictures.items())
        parts.append(f'<h2>Pictures</h2><div class="pictures">{drawn}</div>')
    if told.published:
        parts.append(_published(told))
    parts += ["<h2>Commands</h2>", *map(_command, told.commands)]
    parts += ["<h2>Cells</h2>", *map(_cell, told.cells)]
    versions = ", ".join(f"{text(k)} {text(v)}" for k, v in told.versions.items())
    parts.append(f'<h2>Versions</h2><p class="soft">{versions}</p>')
    given = {"title": text(told.title), "shows": text(told.shows), "counts": text(told.counts)}
    return Template(TEMPLATE.read_text("utf-8")).substitute(given, body="\n".join(parts))


def _crosstab(table: Crosstab) -> str:
    names = [table.corner, *(table.column_names[c] for c in table.columns)]
    lines = []
    for row in table.rows:
        cells = [f'<th scope="row">{text(table.row_names[row])}</th>']
        for column in table.columns:
            entry = table.entries.get((row, column), Entry())
            value = f"{statistic(entry, table.stat)[0]:.12g}" if entry.values else ""
            cells.append(f'<td data-value="{value}">{text(table.text(row, column))}</td>')
        kind = "published" if row[0] == "published" else ""
        lines.append(f'<tr class="{kind}">{"".join(cells)}</tr>')
    notes = "".join(f"<li>{text(note)}</li>" for note in table.notes)
    return (
        f"<h2>{text(table.title)}</h2>"
        + _table(names, lines, stat_words(table.stat))
        + (f'<ul class="notes">{notes}</ul>' if notes else "")
    )


def _table(names: Sequence[str], lines: Sequence[str], caption: str) -> str:
    heads = "".join(
        f'<th scope="col"><button type="button">{text(name)}</button></th>' for name in names
    )
    return (
        f'<div class="scroll"><table><caption>{text(caption)}</caption><thead><tr>{heads}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _picture(caption: str, svg: bytes) -> str:
    data = base64.b64encode(svg).decode("ascii")
    return (
        f'<figure><img alt="{text(caption)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def _published(told: Page) -> str:
    head, *rows = told.published
    lines = [
        '<tr class="published">'
        + "".join(f'<td class="text">{text(cell)}</td>' for cell in row)
        + "</tr>"
        for row in rows
    ]
    name = text(told.published_name)
    return (
        f"<h2>Published figures</h2><details><summary>{name}: {len(rows)} figures as published, "
        "with other backbone, weights or splits than ours</summary>"
        + _table(head, lines, "as published")
        + "</details>"
    )


def _command(line: str) -> str:
    return (
        f'<div class="command"><pre>{text(line)}</pre>'
        '<button class="copy" type="button">copy</button></div>'
    )


def _cell(one: CellFacts) -> str:
    facts = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in one.facts.items())
    return (
        f'<details class="cell"><summary><span class="state {text(one.state)}">{text(one.state)}'
        f"</span> {text(one.name)}</summary>{_command(one.command)}<dl>{facts}</dl></details>"
    )
