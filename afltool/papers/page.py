"""What pages are made with: templates that escape what they are given, and pictures in them."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..files.evaluations import figure_label, figure_text
from ..values.text import shown

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
