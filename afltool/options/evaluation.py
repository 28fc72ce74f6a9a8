"""Options of what a solved head is used for: evaluate, calibrate, predict, export."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from ..values.ridge_spec import parse_bins
from .base import FileIn, FileOut, Files, Input, Reads, Result, get_fields, grammar, option
from .common import SEED, STDOUT, Column, Output, Printed, Threads
from .features import ColumnOptions, NamedRows, NetworkOptions, WeightsOptions
from .statistics import LocalStatsOptions

Calibration = Literal["platt", "temperature", "isotonic"]
SolvedHead = Annotated[Input, Field(description="a solved head")]
INPUTS = "a feature file, images, folders, tables of features or images, or - for stdin"
METRICS = "figures, separated by commas, such as accuracy,f1,auc,sensitivity,ece; see evaluation.md"


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Threads):
    """What is measured."""

    EXECUTION_ONLY: ClassVar = frozenset({"each_round"})

    each_round: bool = option(False, "also evaluate the head of every round")
    separability: bool = option(False, "also measure CSR, IFS, DM of each layer")
    metrics: str | None = option(None, METRICS)
    positive: str | None = option(None, "positive class of sensitivity, specificity and AUC")
    group_by: Column = option(None, "report metrics per value of TABLE:COLUMN")
    resample_by: Column = option(None, "bootstrap whole groups of TABLE:COLUMN")
    bootstrap_samples: int = option(1000, "samples of the 95 % intervals; 0: none", ge=0, le=10**6)
    seed: int = option(0, "seed of the bootstrap", ge=0, le=SEED)
    against: FileIn = option(None, "head to compare with by McNemar's test")
    errors: FileOut = option(None, "write misclassified rows and their scores to this table")

    def check(self) -> None:
        for name in ("bootstrap_samples", "seed"):
            self.needs(name, "metrics", "group_by", "resample_by")


@dataclass(frozen=True)
class Evaluate(EvaluateOptions, NamedRows, Output):
    """Measure a head: top-1 and top-5 accuracy, accuracy per class, the confusion matrix."""

    STAGE: ClassVar = "stages.evaluate:evaluate"

    head: SolvedHead = Field()
    features: Input = Field(description="labeled feature file or table")


@dataclass(frozen=True)
class Calibrate(Output):
    """Make probabilities of a head's scores, by counts of rows that it was not solved from.

    predict, export and evaluate take the new head; predict --coverage needs it.
    """

    STAGE: ClassVar = "stages.calibrate:calibrate"
    head: SolvedHead = Field()
    counts: Input = Field(description="a total of evaluate --counts")
    out: Result = Field(description="head file")
    _: KW_ONLY
    method: Calibration = option("platt", "calibration method; temperature is one map for all")


@dataclass(frozen=True)
class Predict(Threads, NetworkOptions, ColumnOptions, Output):
    """Predict the classes of rows: of a feature file, of images, or of tables of images."""

    PRINTS: ClassVar = "cli.calls:predict"
    STAGE: ClassVar = "stages.predict:predict"
    #: What is used with images alone, with tables of them, and with tables of features.
    OF_IMAGES: ClassVar = frozenset({*get_fields(NetworkOptions), "backbone"})
    OF_TABLES: ClassVar = frozenset({"data_root"})
    OF_FEATURES: ClassVar = frozenset(get_fields(ColumnOptions))

    head: SolvedHead = Field()
    inputs: Annotated[Files, Reads("lines")] = Field(description=INPUTS)
    out: Result = option(STDOUT, "a .csv, .jsonl or .parquet file")
    _: KW_ONLY
    as_json: bool = option(False, "print JSON Lines instead of CSV")
    backbone: FileIn = option(None, "frozen backbone NAME.afl; works without PyTorch")
    scores: bool = option(False, "add a column with the score of each class")
    top: int = option(1, "list the k best classes per row", ge=1, le=100_000)
    coverage: float | None = option(None, "add prediction sets of this coverage", gt=0, lt=1)
    class_conditional: bool = option(False, "class-conditional coverage (Mondrian)")
    min_confidence: float | None = option(None, "abstain below this probability", gt=0, le=1)
    data_root: Path | None = option(None, "base directory of relative paths in a table")

    def check(self) -> None:
        self.needs("class_conditional", "coverage")
        self.needs("overwrite", "out")


@dataclass(frozen=True)
class Export(WeightsOptions, Output):
    """Write a solved head as one file that runs without afltool, and a model card."""

    STAGE: ClassVar = "stages.export:export"
    head: SolvedHead = Field()
    out: Result = Field(description="a .onnx or .pt2 file")
    _: KW_ONLY
    with_backbone: bool = option(False, "include the backbone; inputs are uint8 images")
    card: FileOut = option(None, "write a model card to this file")
    metrics: FileIn = option(None, "metrics for the card, written by evaluate -o")

    def check(self) -> None:
        for name in get_fields(WeightsOptions):
            self.needs(name, "with_backbone")
        self.needs("metrics", "card")


LEAST = 10  # rows of a group, unless said otherwise


@dataclass(frozen=True)
class Counts(LocalStatsOptions, NamedRows, Output):
    """Count what a head predicts of the rows of sites, which aggregate adds up.

    Bins, groups and heads are alike at every site.
    """

    STAGE: ClassVar = "stages.local_stats:counts"
    head: SolvedHead = Field()
    features: Input = Field(description="labeled feature file")
    out: Result = Field(description="output directory; with --sum a file")
    _: KW_ONLY
    bins: Annotated[str | None, grammar(parse_bins)] = option(None, "score bins, as LO:HI:COUNT")
    groups: tuple[str, ...] = option((), "groups to evaluate separately (repeatable)")
    group_by: Column = option(None, "group of each row, as TABLE:COLUMN")
    min_group: int = option(LEAST, "fewest rows of a group, or none", ge=1)

    def check(self) -> None:
        self.needs("groups", "group_by")


@dataclass(frozen=True, kw_only=True)
class EvaluateOrCount(Evaluate, Counts, Printed):
    """Measure a head: top-1 and top-5 accuracy, accuracy per class, the confusion matrix."""

    PRINTS: ClassVar = "cli.calls:evaluate"

    out: FileOut = option(None, "output JSON file, or - for stdout; with --counts a directory")  # type: ignore[assignment]
    counts: bool = option(False, "write counts, which aggregate adds up")

    def check(self) -> None:
        if self.out == STDOUT and self.as_json:
            raise UsageError("one thing goes to stdout: --json, or -o -")
        figures, counts = get_fields(Evaluate).keys(), get_fields(Counts).keys()
        if self.counts:
            self.excludes("counts", *sorted(figures - counts), "as_json")
            self.needs("counts", "out")
            return
        for name in sorted(counts - figures - {"out"}):
            self.needs(name, "counts")
        self.needs("overwrite", "out", "errors")
