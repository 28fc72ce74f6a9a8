"""Lines of a picture: a look for each, so that no two are alike, and the legend that names them.

Where names have two parts, as a method and a setting, the first one is a colour and a mark, the
second one a line style and the filling of the mark: the legend then names the parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from .picture import BLUE, EDGE, GREY, ORANGE, POINT, add_lines, width_of, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Look = dict[str, Any]
#: A name of a line: what tells it from others, such as a method and an option.
Name = tuple[str, ...]
# A colour and a mark each, so that grey prints read as well.
_HUES = (
    ("#000000", "o"), (BLUE, "s"), (ORANGE, "^"), ("#009E73", "D"), ("#CC79A7", "v"),
    ("#56B4E9", "P"), ("#E69F00", "X"), ("#882255", "<"), ("#999933", ">"), ("#332288", "p"),
)  # fmt: skip
_DASHES = (("-", "full"), ("--", "none"), (":", "top"), ("-.", "right"))
MOST_LINES = len(_DASHES) * len(_HUES)


def look(hue: int, dash: int = 0) -> Look:
    """Colour, mark and line style of a line."""
    colour, mark = _HUES[hue]
    style, filled = _DASHES[dash]
    return {"color": colour, "marker": mark, "linestyle": style, "fillstyle": filled}


def looks(names: Sequence[Name]) -> tuple[list[Look], list[tuple[str, Look]]]:
    """The look of each line, and the names of the legend with theirs.

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
        pairs = [(one, look(i)) for i, one in enumerate(firsts)]
        return styles, pairs + [(one or "else", look(0, i) | grey) for i, one in enumerate(rests)]
    every = [look(hue, dash) for dash, hue in product(range(len(_DASHES)), range(len(_HUES)))]
    styles = every[: len(names)]
    return styles, list(zip((", ".join(name) for name in names), styles, strict=True))


def _rest(name: Name) -> str:
    return ", ".join(name[1:])


def named_below(drawn: Figure, entries: Iterable[tuple[str, Look]], title: str = "") -> None:
    """`legend_below` of names with their looks."""
    from matplotlib.lines import Line2D

    names, styles = zip(*entries, strict=True)
    legend_below(drawn, [Line2D([], [], **style) for style in styles], names, title)


def legend_below(
    drawn: Figure, handles: Sequence[Any], names: Sequence[str], title: str = ""
) -> None:
    """A legend below all panels, in as many columns as fit; it makes the picture higher."""
    em, room = POINT / 72, drawn.get_figwidth() - 2 * EDGE
    texts = [wrapped(one, room - 3 * em) for one in names]
    entry = 3 * em + max(width_of(line) for one in texts for line in one.split("\n"))
    columns = max(1, min(len(texts), int((room + em) / (entry + em))))
    how: dict[str, Any] = {"handlelength": 2, "handletextpad": 0.6, "columnspacing": 1}
    how |= {"ncols": columns, "title": title or None}
    drawn.legend(handles, texts, loc="outside lower center", **how)
    most = 1 + max(one.count("\n") for one in texts)
    add_lines(drawn, most * -(-len(texts) // columns) + 1 + bool(title))


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
