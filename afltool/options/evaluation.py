"""Options of what a solved head is used for: evaluate, calibrate, predict, export, pictures.

And of `diff`, which compares any two files.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from ..values.ridge_spec import parse_bins
from .base import LINES, File, FileIn, FileOut, Files, Reads, Writes, fields_of, grammar
from .common import SEED, STDOUT, Column, Output, Printed, Threads
from .features import ColumnOptions, NamedRows, NetworkOptions, WeightsOptions
from .statistics import LocalStatsOptions

Calibration = Literal["platt", "temperature", "isotonic"]


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(Threads):
    """What is measured."""

    EXECUTION_ONLY: ClassVar = frozenset({"each_round"})

    each_round: bool = Field(default=False, description="also evaluate the head of every round")
    separability: bool = Field(default=False, description="also measure CSR, IFS, DM of each layer")
    _metrics = (
        "figures, separated by commas: accuracy, balanced-accuracy, f1, auc, sensitivity, "
        "specificity, macro-sensitivity, macro-specificity, log-loss, ece"
    )
    metrics: str | None = Field(default=None, description=_metrics)
    _positive = "class of sensitivity, specificity and auc (default: of two classes the second)"
    positive: str | None = Field(default=None, description=_positive)
    by: Column = Field(default=None, description="TABLE:COLUMN: figures for each value of it")
    group: Column = Field(default=None, description="TABLE:COLUMN: the bootstrap draws its groups")
    _samples = "bootstrap samples of the 95 % intervals; 0: no intervals"
    samples: int = Field(default=1000, ge=0, le=1_000_000, description=_samples)
    seed: int = Field(default=0, ge=0, le=SEED, description="seed of the bootstrap samples")
    _against = "another solved head to compare with, by McNemar's test on the same rows"
    against: Annotated[Path | None, Reads("head")] = Field(default=None, description=_against)
    errors: FileOut = Field(default=None, description="table of the wrong rows, with scores")

    def check(self) -> None:
        super().check()
        for name in ("samples", "seed"):
            self.needs(name, "metrics", "by", "group")


@dataclass(frozen=True)
class Evaluate(EvaluateOptions, NamedRows, Output):
    """Measure a head: top-1 and top-5 accuracy, accuracy per class, the confusion matrix."""

    STAGE: ClassVar = "stages.evaluate:evaluate"

    head: Annotated[File, Reads("head")] = Field(description="a solved head")
    _features = "features with labels, such as the test split, or a table of them"
    features: Annotated[File, Reads("features")] = Field(description=_features)


@dataclass(frozen=True)
class Calibrate(Output):
    """Make probabilities of a head's scores, by counts of rows that it was not solved from.

    predict, export and evaluate take the new head; predict --coverage needs it.
    """

    STAGE: ClassVar = "stages.calibrate:calibrate"
    head: Annotated[File, Reads("head")] = Field(description="a solved head")
    counts: Annotated[File, Reads("statistics")] = Field(description="a total of evaluate --counts")
    out: Annotated[File, Writes("head")] = Field(description="head file")
    _method = "the map from scores to probabilities: of each class, or one of all (temperature)"
    method: Calibration = Field(default="platt", kw_only=True, description=_method)


@dataclass(frozen=True)
class Predict(Threads, NetworkOptions, ColumnOptions, Output):
    """Predict the classes of rows: of a feature file, of images, or of tables of images."""

    PRINTS: ClassVar = "cli.calls:predict"
    STAGE: ClassVar = "stages.predict:predict"
    #: What is used with images alone, with tables of them, and with tables of features.
    OF_IMAGES: ClassVar = frozenset({*fields_of(NetworkOptions), "backbone"})
    OF_TABLES: ClassVar = frozenset({"data_root"})
    OF_FEATURES: ClassVar = frozenset(fields_of(ColumnOptions))

    head: Annotated[File, Reads("head")] = Field(description="a solved head")
    _inputs = "a feature file, images, folders, tables of features or images, or - for stdin"
    inputs: Annotated[Files, Reads(LINES)] = Field(description=_inputs)
    _out = "a .csv, .jsonl or .parquet file (default: CSV on stdout)"
    out: Annotated[File, Writes()] = Field(default=STDOUT, description=_out)
    _: KW_ONLY
    as_json: bool = Field(default=False, description="JSON Lines instead of CSV on stdout")
    _backbone = "frozen backbone NAME.afl of the head's features; it runs without PyTorch"
    backbone: FileIn = Field(default=None, description=_backbone)
    scores: bool = Field(default=False, description="add a column with the score of each class")
    top: int = Field(default=1, ge=1, le=100_000, description="classes of each row, best first")
    _coverage = "of a calibrated head: a column set, with a row's own class with this chance"
    coverage: float | None = Field(default=None, gt=0, lt=1, description=_coverage)
    per_class: bool = Field(default=False, description="the chance holds for each class (Mondrian)")
    _least = "give no class where the highest probability is lower; error then says so"
    min_confidence: float | None = Field(default=None, gt=0, le=1, description=_least)
    _data_root = "folder that the paths in a table are relative to (default: the table's own)"
    data_root: Path | None = Field(default=None, description=_data_root)

    def check(self) -> None:
        super().check()
        self.needs("per_class", "coverage")
        self.needs("overwrite", "out")


@dataclass(frozen=True)
class Export(WeightsOptions, Output):
    """Write a solved head as one file that runs without afltool, and a model card."""

    STAGE: ClassVar = "stages.export:export"
    head: Annotated[File, Reads("head")] = Field(description="a solved head")
    out: Annotated[File, Writes()] = Field(description="a .onnx or .pt2 file")
    _: KW_ONLY
    _with_backbone = "include the network: the file then takes squares of bytes"
    with_backbone: bool = Field(default=False, description=_with_backbone)
    card: FileOut = Field(default=None, description="also write a model card to this file")
    _metrics = "what evaluate -o wrote for this head; its figures go on the card"
    metrics: FileIn = Field(default=None, description=_metrics)

    def check(self) -> None:
        super().check()
        for name in fields_of(WeightsOptions):
            self.needs(name, "with_backbone")
        self.needs("metrics", "card")


LEAST = 10  # rows of a group, unless said otherwise


@dataclass(frozen=True, kw_only=True)
class CountOptions(LocalStatsOptions):
    """Whose rows are counted, for which heads: bins, groups and heads are alike at every site."""

    _bins = "LO:HI:COUNT of score bins (default: 0:1:240 for probabilities, else -0.5:1.5:240)"
    bins: Annotated[str | None, grammar(parse_bins)] = Field(default=None, description=_bins)
    groups: tuple[str, ...] = Field(default=(), description="groups counted apart; may be repeated")
    by: Column = Field(default=None, description="TABLE:COLUMN: the group of each row")
    min_group: int = Field(default=LEAST, ge=1, description="fewest rows of a group, or none")

    def check(self) -> None:
        super().check()
        self.needs("groups", "by")


@dataclass(frozen=True)
class Counts(CountOptions, NamedRows, Output):
    """Count what a head predicts of the rows of sites, which aggregate adds up."""

    STAGE: ClassVar = "stages.local_stats:counts"
    head: Annotated[File, Reads("head")] = Field(description="a solved head")
    features: Annotated[File, Reads("features")] = Field(description="features with labels")
    out: Annotated[File, Writes("statistics")] = Field(description="folder; with --sum a file")


@dataclass(frozen=True, kw_only=True)
class EvaluateOrCount(Evaluate, CountOptions, Printed):
    """Measure a head: top-1 and top-5 accuracy, accuracy per class, the confusion matrix."""

    PRINTS: ClassVar = "cli.calls:evaluate"

    out: FileOut = Field(default=None, description="JSON file; - is stdout; with --counts a folder")
    counts: bool = Field(default=False, description="write counts, which aggregate adds up")
    confusion: FileOut = Field(default=None, description="also write the confusion matrix as CSV")
    rounds: FileOut = Field(default=None, description="also write the rounds, .csv")

    def check(self) -> None:
        super().check()
        streams = [self.out, self.confusion, self.rounds].count(STDOUT) + self.as_json
        if streams > 1:
            raise UsageError("one thing goes to stdout: --json, or one output that is -")
        figures, counts = fields_of(EvaluateOptions).keys(), fields_of(CountOptions).keys()
        if self.counts:
            for name in sorted(figures - counts | {"confusion", "rounds", "as_json"}):
                self.excludes(name, "counts")
            self.needs("counts", "out")
            return
        for name in sorted(counts - figures):
            self.needs(name, "counts")
        self.needs("overwrite", "out", "confusion", "rounds", "errors")
