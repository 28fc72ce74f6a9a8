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
    positive: str | None = option(None, "class of sensitivity, specificity and auc")
    group_by: Column = option(None, "TABLE:COLUMN: figures for each value of it")
    resample_by: Column = option(None, "TABLE:COLUMN: the bootstrap draws its groups")
    bootstrap_samples: int = option(1000, "samples of the 95 % intervals; 0: none", ge=0, le=10**6)
    seed: int = option(0, "seed of the bootstrap samples", ge=0, le=SEED)
    against: FileIn = option(None, "another head to compare, by McNemar's test on the same rows")
    errors: FileOut = option(None, "table of the wrong rows, with scores")

    def check(self) -> None:
        for name in ("bootstrap_samples", "seed"):
            self.needs(name, "metrics", "group_by", "resample_by")


@dataclass(frozen=True)
class Evaluate(EvaluateOptions, NamedRows, Output):
    """Measure a head: top-1 and top-5 accuracy, accuracy per class, the confusion matrix."""

    STAGE: ClassVar = "stages.evaluate:evaluate"

    head: SolvedHead = Field()
    features: Input = Field(description="features with labels, such as the test split, or a table")


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
    method: Calibration = option("platt", "map from scores to probabilities, temperature: one map")


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
    as_json: bool = option(False, "JSON Lines instead of CSV on stdout")
    backbone: FileIn = option(None, "frozen backbone NAME.afl of the features; needs no PyTorch")
    scores: bool = option(False, "add a column with the score of each class")
    top: int = option(1, "classes of each row, best first", ge=1, le=100_000)
    coverage: float | None = option(None, "add prediction sets of this coverage", gt=0, lt=1)
    class_conditional: bool = option(False, "the chance holds for each class (Mondrian)")
    min_confidence: float | None = option(None, "give no class below this probability", gt=0, le=1)
    data_root: Path | None = option(None, "folder that paths in a table are relative to")

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
    with_backbone: bool = option(False, "include the network: the file takes squares of bytes")
    card: FileOut = option(None, "also write a model card to this file")
    metrics: FileIn = option(None, "what evaluate -o wrote for this head, for the card")

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
    features: Input = Field(description="features with labels")
    out: Result = Field(description="folder; with --sum a file")
    _: KW_ONLY
    bins: Annotated[str | None, grammar(parse_bins)] = option(None, "LO:HI:COUNT of score bins")
    groups: tuple[str, ...] = option((), "groups counted apart; may be repeated")
    group_by: Column = option(None, "TABLE:COLUMN: the group of each row")
    min_group: int = option(LEAST, "fewest rows of a group, or none", ge=1)

    def check(self) -> None:
        self.needs("groups", "group_by")


@dataclass(frozen=True, kw_only=True)
class EvaluateOrCount(Evaluate, Counts, Printed):
    """Measure a head: top-1 and top-5 accuracy, accuracy per class, the confusion matrix."""

    PRINTS: ClassVar = "cli.calls:evaluate"

    out: FileOut = option(None, "JSON file, or -; folder of counts")  # type: ignore[assignment]
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
