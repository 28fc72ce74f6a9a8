"""A figure and the file that it becomes: PNG, SVG or PDF, by the suffix of its name.

Equal pictures are equal bytes: no date is written, and the names inside an SVG come from a fixed
seed. Colours are those of Okabe and Ito, "Color universal design".
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..shown import shown
from ..store.atomic import write_bytes
from ..store.outputs import check_output

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, PALE, ORANGE, GREY = "#0072B2", "#A9CCE8", "#D55E00", "#6E6E6E"
# A colour and a mark for each of several lines, so that grey prints read as well.
STYLES = (
    ("#000000", "o"), (BLUE, "s"), (ORANGE, "^"), ("#009E73", "D"),
    ("#CC79A7", "v"), ("#56B4E9", "P"), ("#E69F00", "X"),
)  # fmt: skip
NO_DATE: dict[str, dict[str, Any]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}


def check_picture(path: Path) -> None:
    """Refuse a name that is not of a picture format that we write, before the picture is drawn."""
    if path.suffix not in NO_DATE:
        raise UsageError(f"{path}: a picture is a {', '.join(NO_DATE)} file; give such a name")
    check_output(path)


@contextlib.contextmanager
def figure(path: Path, width: float, height: float, overwrite: bool = False) -> Iterator[Figure]:
    """A figure to draw on, in inches; written to ``path`` when the block ends without an error.

    An existing other picture is replaced only with ``overwrite``; see `write_bytes`.
    """
    check_picture(path)
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "pictures need matplotlib, which is not installed: pip install 'afltool[plot]'"
        ) from error
    drawn = Figure(figsize=(width, height), layout="constrained")
    yield drawn
    suffix, data = path.suffix, io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "afltool"}):
        # Where the font lacks the script of a class name, boxes are drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        drawn.savefig(data, format=suffix[1:], dpi=150, metadata=NO_DATE[suffix])
    write_bytes(data.getvalue(), path, overwrite)


def plain(text: str) -> str:
    """A text that matplotlib draws unchanged: a pair of dollars would start a formula."""
    return shown(text).replace("$", r"\$")


def short_name(name: str) -> str:
    """`plain` of a class name, with at most 24 characters."""
    return plain(name if len(name) <= 24 else name[:23] + "…")
