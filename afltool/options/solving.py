"""Options of solve, evaluate, predict and export; those of a head are in `afltool.heads`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from .csv_files import CsvOptions
from .features import NetworkOptions, WeightsOptions
from .fields import Options, option
from .files import table_in
from .used_with import GIVEN


@dataclass(frozen=True, kw_only=True)
class SolveOptions(Options):
    """How a total is solved."""

    head: Path | None = option(
        None,
        "head file that the total was gathered for; needed when solve does not find it",
        in_run=False,
    )
    validate: Path | None = option(
        None, "sum over the held-out clients, which chooses the ridge and the layers", in_run=False
    )
    threads: int = option(
        1, "BLAS threads; another number may change the last bits of a head",
        at_least=1, at_most=1024,
        always=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(CsvOptions):
    """What is measured."""

    each_round: bool = option(
        False, "also evaluate the head after every round; this chooses nothing", in_result=False,
        only={"rounds": True}, of_axes=True,
    )  # fmt: skip
    separability: bool = option(
        False, "also measure how far apart the classes lie in the features that the head makes, in "
        "every layer: CSR, IFS and DM; lower is better",
    )  # fmt: skip
    train: Path | None = option(
        None, "training features: also measure the accuracy on these rows", in_run=False
    )
    earlier: tuple[Path, ...] = option(
        (), "with --each-round: head files of earlier rounds that the head does not hold; may be "
        "repeated", in_run=False, only={"each_round": True},
    )  # fmt: skip
    metrics: str | None = option(
        None, "more figures, separated by commas: accuracy, balanced-accuracy, f1 (mean over "
        "classes), auc, sensitivity, specificity, macro-sensitivity, macro-specificity, log-loss, "
        "ece; auc keeps rows × classes × 8 bytes in memory", in_run=False,
    )  # fmt: skip
    positive: str | None = option(
        None, "class for which sensitivity, specificity and auc are computed, against the rest",
        unset="of two classes the second; of more, auc is the mean over classes", in_run=False,
    )  # fmt: skip
    by: str | None = option(
        None, "TABLE:COLUMN: figures for each value of the column, such as each site",
        in_run=False, path_in=table_in,
    )  # fmt: skip
    group: str | None = option(
        None,
        "TABLE:COLUMN: the bootstrap draws whole groups, such as all rows of a patient",
        in_run=False, path_in=table_in,
    )  # fmt: skip
    samples: int = option(
        1000, "bootstrap samples of the 95 % intervals; 0: no intervals", at_least=0,
        at_most=1_000_000, in_run=False, only={"metrics|by|group": GIVEN},
    )  # fmt: skip
    seed: int = option(
        0, "seed of the bootstrap samples", at_least=0, at_most=2**63 - 1, in_run=False,
        only={"metrics|by|group": GIVEN},
    )  # fmt: skip
    against: Path | None = option(
        None,
        "another solved head to compare with, by McNemar's test on the same rows",
        in_run=False,
    )
    errors: Path | None = option(
        None, "write the wrongly predicted rows, with their scores, to this .csv or .parquet",
        in_run=False, writes=True,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PredictOptions(NetworkOptions, CsvOptions):
    """What is predicted; of images, where the weights of the head's backbone come from."""

    ONLY: ClassVar = {f.name: {"images": True} for f in fields(NetworkOptions)}

    scores: bool = option(False, "add a column with the score of each class")
    top: int = option(
        1, "number of classes to give for each row, by the highest scores", at_least=1,
        at_most=100_000,
    )  # fmt: skip
    on_error: str = option(
        "stop", "what to do with an image that cannot be used; row writes a row that says why",
        choices=("stop", "row"), in_result=False, only={"images": True},
    )  # fmt: skip
    data_root: Path | None = option(
        None, "folder that the paths in a table are relative to", unset="the table's own",
        only={"tables": True},
    )  # fmt: skip
    path_column: str = option(
        "path", "column of a table whose values are the images' paths", only={"tables": True}
    )


@dataclass(frozen=True, kw_only=True)
class ExportOptions(WeightsOptions):
    """What goes into the file, and what is said beside it."""

    ONLY: ClassVar = {f.name: {"with_backbone": True} for f in fields(WeightsOptions)}

    with_backbone: bool = option(
        False, "include the network and the preprocessing: the file then takes pictures"
    )
    card: Path | None = option(None, "also write a model card, Markdown, to this file", writes=True)
    metrics: Path | None = option(
        None, "what evaluate -o wrote for this head; its figures go on the card",
        only={"card": GIVEN},
    )  # fmt: skip
