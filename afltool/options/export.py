"""Options of `export`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .features import WeightsOptions
from .fields import option


@dataclass(frozen=True, kw_only=True)
class ExportOptions(WeightsOptions):
    """What goes into the file, and what is said beside it."""

    with_backbone: bool = option(
        False, "put in the network and the preprocessing: the file then takes pictures"
    )
    card: Path | None = option(None, "also write a model card, Markdown, to this file")
    metrics: Path | None = option(
        None, "what evaluate -o wrote for this head; its figures go on the card"
    )

    def check(self) -> None:
        if self.metrics is not None and self.card is None:
            raise UsageError("--metrics FILE goes on the model card: give --card FILE, too")
