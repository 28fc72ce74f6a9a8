"""What pages are made of: texts, tables, pictures and commands as HTML that asks no network."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from string import Template
from typing import Any

from ..errors import UsageError
from ..files.atomic import write_text
from ..files.outputs import check_output
from ..values.text import shown

TEMPLATE = Path(__file__).with_name("page.html")


def check_page(out: Path) -> None:
    """Refuse a page that cannot be written, before the work."""
    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out}: a page is an .html file; give such a name")
    check_output(out)


def write_page(
    out: Path, title: str, shows: str, counts: str, body: Iterable[str], overwrite: bool
) -> Path:
    """The page with a title, two lines of text below it, and parts that are HTML."""
    page = Template(TEMPLATE.read_text("utf-8")).substitute(
        title=text(title), shows=text(shows), counts=text(counts), body="\n".join(body)
    )
    return write_text(page, out, overwrite)


def text(value: Any) -> str:
    """Anything as text of a page: what cannot be printed is written as Python writes it."""
    return html.escape(shown(value))


def html_table(names: Sequence[str], lines: Iterable[str], caption: str) -> str:
    heads = "".join(
        f'<th scope="col"><button type="button">{text(name)}</button></th>' for name in names
    )
    return (
        f'<div class="scroll"><table><caption>{text(caption)}</caption><thead><tr>{heads}</tr>'
        f"</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def picture(caption: str, svg: bytes) -> str:
    data = base64.b64encode(svg).decode("ascii")
    return (
        f'<figure><img alt="{text(caption)}" src="data:image/svg+xml;base64,{data}">'
        f"<figcaption>{text(caption)}</figcaption></figure>"
    )


def command(typed: str) -> str:
    return (
        f'<div class="command"><pre>{text(typed)}</pre>'
        '<button class="copy" type="button">copy</button></div>'
    )
