"""Options of predict: the columns of the predictions, and what happens to unusable images."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .features import NetworkOptions
from .fields import option


@dataclass(frozen=True, kw_only=True)
class PredictOptions(NetworkOptions):
    """What is predicted; of images, where the weights of the head's backbone come from."""

    scores: bool = option(False, "add a column with the score of each class")
    top: int = option(
        1, "number of classes to give for each row, by the highest scores", at_least=1,
        at_most=100_000,
    )  # fmt: skip
    on_error: str = option(
        "stop", "what to do with an image that cannot be used; row writes a row that says why",
        choices=("stop", "row"), in_result=False,
    )  # fmt: skip
    data_root: Path | None = option(
        None,
        "folder that the paths in a table are relative to",
        unset="the table's own",
    )
    path_column: str = option("path", "column of a table whose values are the images' paths")
