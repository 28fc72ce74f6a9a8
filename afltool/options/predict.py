"""Options of predict: what a row of predictions holds, and what becomes of unusable images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .features import NetworkOptions
from .fields import option


@dataclass(frozen=True, kw_only=True)
class PredictOptions(NetworkOptions):
    """What is predicted; of images, where the weights of the head's backbone come from."""

    scores: bool = option(False, "a column with the score of each class")
    top: int = option(
        1, "the classes of each row with the highest scores, so many (or all)", at_least=1,
        at_most=100_000,
    )  # fmt: skip
    on_error: str = option(
        "stop", "an image that cannot be used: stop, or a row that says why",
        choices=("stop", "row"), in_result=False,
    )  # fmt: skip
    data_root: Path | None = option(
        None,
        "folder that the paths in a table are relative to",
        unset="the table's own",
    )
