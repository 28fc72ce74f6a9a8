"""Options of `plot`: the size of every picture, and what of a file is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import Options, option

MM = 25.4  # millimetres of an inch


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """The size of a picture: options of every `plot`."""

    _width_mm = (
        "width of the picture; its text has 8 points whatever the width; a column of a paper "
        "has 85, a page 180"
    )
    width_mm: float | None = option(
        None, _width_mm, at_least=40, at_most=400, unit="mm", unset="as wide as the picture needs"
    )
    dpi: int | None = option(
        None, "pixels per inch of a .png file", at_least=30, at_most=1200, unset="150"
    )

    def inches(self, otherwise: float) -> float:
        """The width in inches; ``otherwise``: millimetres where none is given."""
        return (otherwise if self.width_mm is None else self.width_mm) / MM


AS_NEEDED = SizeOptions()


@dataclass(frozen=True, kw_only=True)
class TotalOptions(SizeOptions):
    """Options of pictures of an evaluation, which may be a total of counts of several heads."""

    number: int = option(0, "of a total of counts: which head, from 0 on", at_least=0)


@dataclass(frozen=True, kw_only=True)
class RocOptions(TotalOptions):
    """Options of `plot roc`."""

    _positive = "class whose curve against the rest is drawn; may be repeated"
    positive: tuple[str, ...] = option(
        (), _positive, unset="the positive class of evaluate, else every class"
    )
