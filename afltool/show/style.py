"""The look of a picture, and the file that it becomes: PNG, SVG or PDF, by the suffix of its name.

Every picture is as wide as it is asked to be, and its text has 8 points whatever the width. Equal
pictures are equal bytes: no date is written, and the names inside an SVG come from a fixed seed.
Fonts in a PDF are TrueType, which publishers take. Colours begin with those of Okabe and Ito,
"Color universal design".

Where names of lines have two parts, as a method and a setting, the first one is a colour and a
mark, the second one a line style and the filling of the mark: the legend then names the parts.
"""

from __future__ import annotations

import contextlib
import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..files.atomic import write_bytes
from ..files.outputs import check_output
from ..options.look import SizeOptions
from ..values.text import shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = dict[str, Any]
#: A name of a line: what tells it from others, such as a method and an option.
Name = tuple[str, ...]
POINT = 8  # of the text: readable in a column of a paper
LINE = 1.4 * POINT / 72  # inches of a line of text
CHARACTER = 0.57 * POINT / 72  # inches of a character, about
BLUE, PALE, ORANGE, GREY = "#0072B2", "#A9CCE8", "#D55E00", "#6E6E6E"
# A colour and a mark each, so that grey prints read as well.
_HUES = (
    ("#000000", "o"), (BLUE, "s"), (ORANGE, "^"), ("#009E73", "D"), ("#CC79A7", "v"),
    ("#56B4E9", "P"), ("#E69F00", "X"), ("#882255", "<"), ("#999933", ">"), ("#332288", "p"),
)  # fmt: skip
_DASHES = (("-", "full"), ("--", "none"), (":", "top"), ("-.", "right"))
MOST_LINES = len(_DASHES) * len(_HUES)


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
    **dict.fromkeys(("figure.titlesize", "axes.titlesize", "axes.labelsize"), POINT),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), POINT),
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "0.92",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
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

    Texts beside the panels (`heading`, `legend_below`) add to the height. An existing other
    picture is replaced only with ``overwrite``; see `write_bytes`. Raises `InputError` where it
    cannot be written, `UsageError` for another suffix and without matplotlib.
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
    text = "\n".join(wrapped(one, drawn.get_figwidth()) for one in lines if one)
    if text:
        drawn.suptitle(text, x=0.01, ha="left")
        add_lines(drawn, 1 + text.count("\n"))


def legend_below(
    drawn: Figure, entries: Sequence[tuple[Any, str]], title: str = "", room: float = 0.4
) -> None:
    """A legend below all panels, of names with their look or with what is drawn.

    It makes the picture higher. ``room``: inches of an entry beside its name.
    """
    from matplotlib.lines import Line2D

    wide = drawn.get_figwidth()
    names = [wrapped(name, wide - room) for _, name in entries]
    longest = max(len(line) for name in names for line in name.split("\n"))
    columns = max(1, min(len(names), int(wide / (longest * CHARACTER + room))))
    handles = [Line2D([], [], **one) if isinstance(one, dict) else one for one, _ in entries]
    how: dict[str, Any] = {"ncols": columns, "title": title or None, "columnspacing": 1}
    drawn.legend(handles, names, loc="outside lower center", **how)
    most = 1 + max(name.count("\n") for name in names)
    add_lines(drawn, most * -(-len(names) // columns) + 1 + bool(title))


def handles_of(axes: Axes) -> list[tuple[Any, str]]:
    """What is drawn with a label, for `legend_below`."""
    return list(zip(*axes.get_legend_handles_labels(), strict=True))


def add_lines(drawn: Figure, number: int) -> None:
    """Make a figure higher by lines of text."""
    drawn.set_figheight(drawn.get_figheight() + LINE * number)


def wrapped(text: str, width: float) -> str:
    """`plain` of a text, in lines of about ``width`` inches; words that are longer are broken."""
    return _dollars("\n".join(textwrap.wrap(shown(text), max(1, int(width / CHARACTER)))))


def plain(text: str) -> str:
    """A text that matplotlib draws unchanged: a pair of dollars would start a formula."""
    return _dollars(shown(text))


def _dollars(text: str) -> str:
    return text.replace("$", r"\$")


def shortened(name: str) -> str:
    """A class name with at most 24 characters."""
    return name if len(name) <= 24 else name[:23] + "…"


def look(hue: int, dash: int = 0) -> Look:
    """Colour, mark and line style of a line."""
    colour, mark = _HUES[hue]
    style, filled = _DASHES[dash]
    return {"color": colour, "marker": mark, "linestyle": style, "fillstyle": filled}


def looks(names: Sequence[Name]) -> tuple[list[Look], list[tuple[Any, str]]]:
    """The look of each line, and the entries of the legend.

    Raises `UsageError` where there are more lines than can be told apart.
    """
    if len(names) > MOST_LINES:
        raise UsageError(
            f"{len(names)} lines cannot be told apart: at most {MOST_LINES}; choose fewer"
        )
    firsts = list(dict.fromkeys(name[0] for name in names))
    rests = list(dict.fromkeys(_rest(name) for name in names))
    by_parts = len(firsts) <= len(_HUES) and 1 < len(rests) <= len(_DASHES)
    if by_parts and len(firsts) + len(rests) < len(names):
        styles = [look(firsts.index(name[0]), rests.index(_rest(name))) for name in names]
        grey = {"color": GREY, "marker": "o"}
        pairs = [(look(i), one) for i, one in enumerate(firsts)]
        dashes = [(look(0, i) | grey, one or "else") for i, one in enumerate(rests)]
        return styles, pairs + dashes
    every = [look(hue, dash) for dash, hue in product(range(len(_DASHES)), range(len(_HUES)))]
    styles = every[: len(names)]
    every_name = (", ".join(name) for name in names)
    return styles, list(zip(styles, every_name, strict=True))


def _rest(name: Name) -> str:
    return ", ".join(name[1:])


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
