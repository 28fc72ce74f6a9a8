"""What `--views` says: deterministic views of a picture, whose features are averaged.

flip             the picture and its mirror image
crops:N          N squares of the picture at 8/7 of the side: the centre, then the corners
flip+crops:N     these squares and their mirror images
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import UsageError
from ..values.parsed import Parsed

MOST_CROPS = 5
LARGER = 7  # with crops, the picture has a seventh more on each side: 256 pixels for 224


@dataclass(frozen=True)
class Views(Parsed):
    """Which views: mirrored ones, too (``flip``), of so many ``crops``; 0: the whole picture."""

    flip: bool = False
    crops: int = 0

    def __len__(self) -> int:
        return max(self.crops, 1) * (1 + self.flip)

    def __str__(self) -> str:
        return "+".join(["flip"] * self.flip + [f"crops:{self.crops}"] * bool(self.crops))

    def outer(self, side: int) -> int:
        """Side of the square that views of ``side`` are cut from.

        >>> Views(crops=5).outer(224)
        256
        """
        return side + side // LARGER if self.crops else side

    def inner(self, side: int) -> int:
        """The inverse of `outer`: side of the views, for a square of ``side``.

        Raises:
            UsageError: no view has it.
        """
        for inner in range(side, 0, -1):
            if self.outer(inner) == side:
                return inner
        raise UsageError(f"--views {self}: no view is cut from squares of {side} pixels")

    def corners(self, side: int) -> list[tuple[int, int]]:
        """Top and left of each view of ``side`` in its square."""
        rest = self.outer(side) - side
        places = [(rest // 2, rest // 2), (0, 0), (0, rest), (rest, 0), (rest, rest)]
        return places[: max(self.crops, 1)]


def parse_views(text: str) -> Views:
    """The views that a text names, in any order.

    >>> parse_views("crops:5+flip")
    Views(flip=True, crops=5)
    """
    flip, crops = False, 0
    for word in text.split("+"):
        match = re.fullmatch(r"crops:(\d)", word)
        if word == "flip" and not flip:
            flip = True
        elif match and not crops and 2 <= int(match[1]) <= MOST_CROPS:
            crops = int(match[1])
        else:
            raise UsageError(
                f"--views is flip, crops:N or flip+crops:N with N from 2 to {MOST_CROPS}; "
                f"found {text!r}"
            )
    return Views(flip, crops)
