"""Options of `plot`: what of a file is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import Options, option

PAGE_MM = 180.0  # width of a page's text in a two-column paper


@dataclass(frozen=True, kw_only=True)
class PartitionPictureOptions(Options):
    """Options of `plot partition`."""

    width_mm: float | None = option(
        None, "width of the picture for a paper; a column has 84, a page 180", at_least=40,
        at_most=400, unit="mm", unset="305 for one file, 180 for several",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RocOptions(Options):
    """Options of `plot roc`."""

    positive: tuple[str, ...] = option(
        (), "class whose curve against the rest is drawn; may be repeated",
        unset="the positive class of evaluate, else every class",
    )  # fmt: skip
