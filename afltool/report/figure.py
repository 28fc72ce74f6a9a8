"""A figure and the file that it becomes: PNG, SVG or PDF, by the suffix of its name.

Equal pictures are equal bytes: no date is written, and the names inside an SVG come from a fixed
seed. Colours are those of Okabe and Ito, "Color universal design"; they and the maps of one hue
read the same with any colour vision. No picture changes matplotlib's global state.
"""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidDataError, UsageError
from ..shown import shown
from ..store.atomic import write_bytes
from ..store.outputs import check_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Counts = npt.NDArray[np.integer[Any]]
_LABELS = 120  # up to so many classes every name can be read
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
def figure(
    path: str | os.PathLike[str], width: float, height: float, overwrite: bool = False
) -> Iterator[Figure]:
    """A figure to draw on, in inches; written to ``path`` when the block ends without an error.

    An existing other picture is replaced only with ``overwrite``; see `write_bytes`.
    """
    check_picture(Path(path))
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "pictures need matplotlib, which is not installed: pip install 'afltool[plot]'"
        ) from error
    drawn = Figure(figsize=(width, height), layout="constrained")
    yield drawn
    suffix, data = Path(path).suffix, io.BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": "afltool"}):
        # Where the font lacks the script of a class name, boxes are drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        drawn.savefig(data, format=suffix[1:], dpi=150, metadata=NO_DATE[suffix])
    write_bytes(data.getvalue(), Path(path), overwrite)


def plain(text: str) -> str:
    """A text that matplotlib draws unchanged: a pair of dollars would start a formula."""
    return shown(text).replace("$", r"\$")


def short_name(name: str) -> str:
    """`plain` of a class name, with at most 24 characters."""
    return plain(name if len(name) <= 24 else name[:23] + "…")


# ------------------------------------------------------------ pictures of classes


def checked_counts(counts: Counts, class_names: Sequence[str], name: str) -> Counts:
    counts = np.asarray(counts)
    if counts.ndim != 2 or not counts.size or counts.shape[1] != len(class_names):
        raise InvalidDataError(
            f"{name}: expected a matrix with {len(class_names)} columns, one per class name, found "
            f"shape {counts.shape}"
        )
    if counts.dtype.kind not in "iu" or counts.min() < 0:
        raise InvalidDataError(
            f"{name}: expected counts, found {counts.dtype} with minimum {counts.min()}"
        )
    return counts.astype(np.int64)


def class_ticks(axes: Axes, class_names: Sequence[str], which: str) -> None:
    """Every name up to 120 classes, every n-th of more, so that no two names overlap."""
    step = -(-len(class_names) // _LABELS)
    places = np.arange(0, len(class_names), step)
    names = [short_name(name) for name in class_names[::step]]
    size = float(np.clip(660 / len(places), 4.5, 9))
    if "y" in which:
        axes.set_yticks(places, names, fontsize=size)
    if "x" in which:
        axes.set_xticks(places, names, fontsize=size, rotation=90)


def pale_to_dark(start: float = 0.0) -> Any:
    """One hue from white (or, from ``start``, from pale) to dark: more is darker in grey too."""
    from matplotlib.colors import LinearSegmentedColormap

    whole = LinearSegmentedColormap.from_list("whole", ["#FFFFFF", "#A9CCE8", "#3A87BF", "#06203F"])
    return LinearSegmentedColormap.from_list("paper", whole(np.linspace(start, 1, 256)))
