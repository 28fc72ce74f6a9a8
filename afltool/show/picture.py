"""A figure and the file that it becomes: PNG, SVG or PDF, by the suffix of its name.

Every picture is as wide as it is asked to be, and its text has 8 points whatever the width. Equal
pictures are equal bytes: no date is written, and the names inside an SVG come from a fixed seed.
Fonts in a PDF are TrueType, which publishers take. Colours begin with those of Okabe and Ito,
"Color universal design".
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..files.atomic import write_bytes
from ..files.outputs import check_output
from ..options.evaluation import SizeOptions
from ..values.text import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINT = 8  # of the text: readable in a column of a paper
LINE = 1.4 * POINT / 72  # inches of a line of text
EDGE = 0.06  # inches without text
BLUE, PALE, ORANGE, GREY = "#0072B2", "#A9CCE8", "#D55E00", "#6E6E6E"
NO_DATE: dict[str, dict[str, Any]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
_DPI = 150
_RULES: dict[str, Any] = {
    "svg.hashsalt": "afltool",
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "font.size": POINT,
    "figure.titlesize": POINT,
    "axes.titlesize": POINT,
    "axes.titlelocation": "left",
    "axes.labelsize": POINT,
    "xtick.labelsize": POINT,
    "ytick.labelsize": POINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.fontsize": POINT,
    "legend.title_fontsize": POINT,
    "legend.frameon": False,
}


def check_picture(path: Path, size: SizeOptions | None = None) -> None:
    """Refuse a name that is not of a picture format that we write, before the picture is drawn."""
    if path.suffix not in NO_DATE:
        raise UsageError(f"{path}: a picture is a {', '.join(NO_DATE)} file; give such a name")
    if size is not None and size.dpi is not None and path.suffix != ".png":
        raise UsageError(f"--dpi {size.dpi} is for a .png file; {path} has no pixels: leave it out")
    check_output(path)


@contextlib.contextmanager
def figure(
    path: Path, width: float, height: float, overwrite: bool = False, dpi: int | None = None
) -> Iterator[Figure]:
    """A figure to draw on, in inches; written to ``path`` when the block ends without an error.

    Texts beside the panels (`heading`, `lines.legend_below`) add to the height. An existing
    other picture is replaced only with ``overwrite``; see `write_bytes`. Raises `InputError` where
    it cannot be written, `UsageError` for another suffix and without matplotlib.
    """
    check_picture(path)
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "pictures need matplotlib, which is not installed: pip install 'afltool[plot]'"
        ) from error
    # A user's own matplotlibrc would make other pictures of equal figures.
    with style.context(["default", _RULES]), warnings.catch_warnings():
        # Where the font lacks the script of a class name, boxes are drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        drawn = Figure(figsize=(width, height), layout="constrained")
        yield drawn
        suffix, data = path.suffix, io.BytesIO()
        drawn.savefig(data, format=suffix[1:], dpi=dpi or _DPI, metadata=NO_DATE[suffix])
    write_bytes(data.getvalue(), path, overwrite)


def heading(drawn: Figure, *lines: str) -> None:
    """Texts above all panels, from the left edge, broken where the picture ends."""
    wide = drawn.get_figwidth()
    text = "\n".join(wrapped(one, wide - 2 * EDGE) for one in lines if one)
    if text:
        drawn.suptitle(text, x=EDGE / wide, ha="left")
        add_lines(drawn, 1 + text.count("\n"))


def add_lines(drawn: Figure, number: int) -> None:
    """Make a figure higher by lines of text."""
    drawn.set_figheight(drawn.get_figheight() + LINE * number)


def wrapped(text: str, width: float) -> str:
    """`plain` of a text, in lines of at most ``width`` inches; words that are longer are broken."""
    lines = [""]
    for word in shown(text).split(" "):
        if lines[-1] and width_of(f"{lines[-1]} {word}") > width:
            lines.append("")
        lines[-1] += " " * bool(lines[-1]) + word
        while len(line := lines[-1]) > 1 and width_of(line) > width:
            cut = max([1, *(n for n in range(2, len(line)) if width_of(line[:n]) <= width)])
            lines[-1:] = [line[:cut], line[cut:]]
    return "\n".join(map(_dollars, lines))


def width_of(text: str) -> float:
    """Inches of a line of text."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    size = FontProperties(size=POINT)
    return float(text_to_path.get_text_width_height_descent(text, size, ismath=False)[0]) / 72


def plain(text: str) -> str:
    """A text that matplotlib draws unchanged: a pair of dollars would start a formula."""
    return _dollars(shown(text))


def _dollars(text: str) -> str:
    return text.replace("$", r"\$")


def shortened(name: str) -> str:
    """A class name with at most 24 characters."""
    return name if len(name) <= 24 else name[:23] + "…"
