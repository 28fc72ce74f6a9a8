"""The look of a picture, and the file that it becomes: PNG, SVG or PDF, by the suffix of its name.

Text has 8 points whatever the width; matplotlib's constrained layout finds the places. Equal
pictures are equal bytes. Colors begin with those of Okabe and Ito, "Color universal design".
"""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..files.atomic import write_bytes
from ..files.outputs import check_output
from ..options.look import SizeOptions
from ..plugins import install
from ..values.text import escape_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = dict[str, Any]
POINT = 8  # of the text: readable in a column of a paper
CHARACTER, LINE = 0.57 * POINT / 72, 1.4 * POINT / 72  # inches of one, about
BLUE, PALE, ORANGE, GREY = "#0072B2", "#A9CCE8", "#D55E00", "#6E6E6E"
# A color and a mark each, so that gray prints read as well.
_HUES = (
    ("#000000", "o"), (BLUE, "s"), (ORANGE, "^"), ("#009E73", "D"), ("#CC79A7", "v"),
    ("#56B4E9", "P"), ("#E69F00", "X"), ("#882255", "<"), ("#999933", ">"), ("#332288", "p"),
)  # fmt: skip
_DASHES = ("-", "--", ":", "-.")
MOST_LINES = len(_DASHES) * len(_HUES)
NO_DATE: dict[str, Any] = {".png": {}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
_DPI = 150
_SIZES = (
    "figure.titlesize", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize",
    "legend.fontsize", "legend.title_fontsize", "font.size",
)  # fmt: skip
_RULES: dict[str, Any] = {
    **dict.fromkeys(_SIZES, POINT),
    "svg.hashsalt": "afltool", "pdf.fonttype": 42, "ps.fonttype": 42,
    "axes.spines.top": False, "axes.spines.right": False, "axes.titlelocation": "left",
    "axes.axisbelow": True, "axes.grid": True, "grid.color": "0.92", "grid.linewidth": 0.6,
    "lines.linewidth": 1.2, "lines.markersize": 3.5, "legend.frameon": False,
}  # fmt: skip


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
    """A figure to draw on, in inches; written to ``path`` when the block ends without an error."""
    check_picture(path)
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"pictures need matplotlib, which is not installed: {install('plot')}"
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
    text = "\n".join(wrap_plain(one, drawn.get_figwidth()) for one in lines if one)
    if text:
        drawn.suptitle(text, x=0.01, ha="left")
        higher(drawn, 1 + text.count("\n"))


def legend_below(drawn: Figure, entries: Iterable[tuple[Any, str]], title: str = "") -> None:
    """A legend below all panels, of what is drawn with its name, in as many columns as fit."""
    wide, beside = drawn.get_figwidth(), 0.4  # inches of an entry beside its name
    handles, labels = zip(*entries, strict=True)
    names = [wrap_plain(label, wide - beside) for label in labels]
    longest = max(len(line) for name in names for line in name.split("\n"))
    columns = max(1, min(len(names), int(wide / (longest * CHARACTER + beside))))
    how: dict[str, Any] = {"ncols": columns, "title": title or None, "columnspacing": 1}
    drawn.legend(handles, names, loc="outside lower center", **how)
    lines = max(1 + name.count("\n") for name in names)
    higher(drawn, lines * -(-len(names) // columns) + 1 + bool(title))


def higher(drawn: Figure, lines: int) -> None:
    drawn.set_figheight(drawn.get_figheight() + LINE * lines)


def wrap_plain(text: str, width: float) -> str:
    """`plain` of a text, in lines of about ``width`` inches."""
    return textwrap.fill(escape_line(text), max(1, int(width / CHARACTER))).replace("$", r"\$")


def plain(text: str) -> str:
    """A text that matplotlib draws unchanged: a pair of dollars would start a formula."""
    return escape_line(text).replace("$", r"\$")


def shorten(name: str) -> str:
    return plain(name if len(name) <= 24 else name[:23] + "…")


def look(number: int) -> Look:
    """Color, mark and style of a line; `UsageError` where more lines are told apart by nothing."""
    if number >= MOST_LINES:
        raise UsageError(f"more than {MOST_LINES} lines cannot be told apart: choose fewer")
    dash, hue = divmod(number, len(_HUES))
    return {"color": _HUES[hue][0], "marker": _HUES[hue][1], "linestyle": _DASHES[dash]}


def logarithmic(axes: Axes) -> None:
    """A logarithmic x axis with few numbers, as people write them, of what is drawn already."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log")
    low, high = axes.get_xlim()
    # Powers of ten alone may be one, or none; closer numbers would touch where they are long.
    digits = (1, 2, 5) if high < 4 * low else (1, 3) if high < 100 * low else (1,)
    axes.xaxis.set_major_locator(LogLocator(subs=digits, numticks=5))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
