"""What pictures of classes share: colours of counts, ticks with class names, checked counts.

Colours and the maps of one hue read the same with any colour vision. No picture changes
matplotlib's global state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidDataError
from .picture import POINT, plain, shortened, width_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Counts = npt.NDArray[np.integer[Any]]

_SMALLEST = 6  # points from a name to the next


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


def class_ticks(axes: Axes, class_names: Sequence[str], which: str, inches: float) -> None:
    """Every name where ``inches`` of an axis have room for it, else every n-th one."""
    pitch = 72 * inches / len(class_names)
    step = max(1, int(np.ceil(_SMALLEST / pitch)))
    places = np.arange(0, len(class_names), step)
    names = [plain(shortened(name)) for name in class_names[::step]]
    size = min(POINT, 0.9 * pitch * step)
    if "y" in which:
        axes.set_yticks(places, names, fontsize=size)
    if "x" in which:
        axes.set_xticks(places, names, fontsize=size, rotation=90)


def room_for(class_names: Sequence[str]) -> float:
    """Inches of the longest name."""
    return max(width_of(plain(shortened(name))) for name in class_names)


def picture_frame(axes: Axes) -> None:
    """A frame round coloured cells, and no lines across them."""
    axes.grid(False)
    axes.spines[:].set_visible(True)


def pale_to_dark(start: float = 0.0) -> Any:
    """One hue from white (or, from ``start``, from pale) to dark: more is darker in grey too."""
    from matplotlib.colors import LinearSegmentedColormap

    whole = LinearSegmentedColormap.from_list("whole", ["#FFFFFF", "#A9CCE8", "#3A87BF", "#06203F"])
    return LinearSegmentedColormap.from_list("paper", whole(np.linspace(start, 1, 256)))
