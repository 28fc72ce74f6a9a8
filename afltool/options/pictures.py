"""Options of `plot`: what of a file is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from .fields import Options, option


@dataclass(frozen=True, kw_only=True)
class RocOptions(Options):
    """Options of `plot roc`."""

    positive: tuple[str, ...] = option(
        (), "class whose curve against the rest is drawn; may be repeated",
        unset="of two classes the second, else every class",
    )  # fmt: skip
