"""A page: one HTML file that asks no network, made of a template.

The page's own rules (its content security policy) forbid every request. All text from outside is
escaped by the template.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..files.atomic import write_text
from ..files.outputs import check_output
from ..values.text import shown


def check_page(out: Path) -> None:
    """Refuse a page that cannot be written, before the work."""
    if out.suffix not in (".html", ".htm"):
        raise UsageError(f"{out}: a page is an .html file; give such a name")
    check_output(out)


def write_page(template: str, out: Path, overwrite: bool, **facts: Any) -> Path:
    """Write the page of a template with its title, two lines of text below it, and more facts."""
    return write_text(templates().get_template(template).render(facts), out, overwrite)


def templates() -> Any:
    """The templates beside this module, which escape what they are given."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    how: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "undefined": StrictUndefined}
    loader = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=loader, autoescape=True, finalize=_printable, **how)


def _printable(value: Any) -> Any:
    """A value as text of a page; what is HTML already stays as it is."""
    return value if hasattr(value, "__html__") else shown(value)


def picture(draw: Callable[[Path], object]) -> str:
    """What ``draw`` draws into a file, as the page has it."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch) / "p.svg"
        draw(place)
        return base64.b64encode(place.read_bytes()).decode("ascii")
