"""Options of what a solved head is used for: evaluate, calibrate, predict, export, pictures."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import ClassVar

from ..values.parsed import Bins, parse_bins
from . import GIVEN, Options, option
from .features import NetworkOptions, WeightsOptions
from .shared import ThreadOptions, table_in
from .statistics import LocalStatsOptions

CALIBRATIONS = ("platt", "temperature", "isotonic")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions(ThreadOptions):
    """What is measured."""

    _each_round = "also evaluate the head after every round; this chooses nothing"
    each_round: bool = option(
        False, _each_round, in_result=False, only={"rounds": True}, of_axes=True
    )
    _separability = (
        "also measure how far apart the classes lie in the features that the head makes, in "
        "every layer: CSR, IFS and DM; lower is better"
    )
    separability: bool = option(False, _separability)
    train: Path | None = option(
        None, "training features: also measure the accuracy on these rows", in_run=False
    )
    _earlier = (
        "with --each-round: head files of earlier rounds that the head does not hold; may be "
        "repeated"
    )
    earlier: tuple[Path, ...] = option((), _earlier, in_run=False, only={"each_round": True})
    _metrics = (
        "more figures, separated by commas: accuracy, balanced-accuracy, f1 (mean over "
        "classes), auc, sensitivity, specificity, macro-sensitivity, macro-specificity, log-loss, "
        "ece; auc needs rows × classes × 32 bytes of memory"
    )
    metrics: str | None = option(None, _metrics, in_run=False)
    _positive = "class for which sensitivity, specificity and auc are computed, against the rest"
    positive: str | None = option(
        None,
        _positive,
        unset="of two classes the second; of more, auc is the mean over classes",
        in_run=False,
    )
    _by = "TABLE:COLUMN: figures for each value of the column, such as each site"
    by: str | None = option(None, _by, in_run=False, path_in=table_in)
    _group = "TABLE:COLUMN: the bootstrap draws whole groups, such as all rows of a patient"
    group: str | None = option(None, _group, in_run=False, path_in=table_in)
    _samples = "bootstrap samples of the 95 % intervals; 0: no intervals"
    samples: int = option(
        1000,
        _samples,
        at_least=0,
        at_most=1_000_000,
        in_run=False,
        only={"metrics|by|group": GIVEN},
    )
    _seed = "seed of the bootstrap samples"
    seed: int = option(
        0, _seed, at_least=0, at_most=2**63 - 1, in_run=False, only={"metrics|by|group": GIVEN}
    )
    against: Path | None = option(
        None,
        "another solved head to compare with, by McNemar's test on the same rows",
        in_run=False,
    )
    _errors = "write the wrongly predicted rows, with their scores, to this .csv or .parquet"
    errors: Path | None = option(None, _errors, in_run=False, writes=True)


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(Options):
    """How probabilities are made of scores."""

    _method = (
        "the map from a score to a probability: a line in the logit for each class, one line for "
        "all classes (temperature), or a line through bins that rises; the maps of each class can "
        "change predicted classes"
    )
    method: str = option(CALIBRATIONS[0], _method, choices=CALIBRATIONS)


@dataclass(frozen=True, kw_only=True)
class PredictOptions(ThreadOptions, NetworkOptions):
    """What is predicted; of images, where the weights of the head's backbone come from."""

    ONLY: ClassVar = {f.name: {"images": True} for f in fields(NetworkOptions)}

    _backbone = "frozen backbone NAME.afl of the head's features; it runs without PyTorch"
    backbone: Path | None = option(None, _backbone, only={"images": True})
    scores: bool = option(False, "add a column with the score of each class")
    _top = "number of classes to give for each row, by the highest scores"
    top: int = option(1, _top, at_least=1, at_most=100_000)
    _coverage = (
        "of a calibrated head: add a column set, the classes among which a row's own is with this "
        "chance, at least"
    )
    coverage: float | None = option(None, _coverage, above=0, below=1)
    _per_class = "the chance is that of the rows of each class (Mondrian)"
    per_class: bool = option(False, _per_class, only={"coverage": GIVEN})
    _least = "give no class where the highest probability is lower; error then says so"
    min_confidence: float | None = option(None, _least, above=0, at_most=1)
    _on_error = "what to do with an image that cannot be used; row writes a row that says why"
    on_error: str = option(
        "stop", _on_error, choices=("stop", "row"), in_result=False, only={"images": True}
    )
    _data_root = "folder that the paths in a table are relative to"
    data_root: Path | None = option(
        None, _data_root, unset="the table's own", only={"tables": True}
    )
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
    _metrics = "what evaluate -o wrote for this head; its figures go on the card"
    metrics: Path | None = option(None, _metrics, only={"card": GIVEN})


LEAST = 10  # rows of a group, unless said otherwise


@dataclass(frozen=True, kw_only=True)
class CountOptions(LocalStatsOptions):
    """Whose rows are counted, for which heads: bins, groups and heads are alike at every site."""

    _bins = "bins of the scores, LO:HI:COUNT, LO ≤ 0, HI ≥ 1; a unit has a multiple of 15 of them"
    bins: Bins | None = option(
        None, _bins, unset="0:1:240 for probabilities, else -0.5:1.5:240", parse=parse_bins
    )
    _groups = "group of rows that is counted apart; may be repeated, the same at every site"
    groups: tuple[str, ...] = option((), _groups)
    _least = "fewest rows of a group in the file of a site; groups without rows are allowed"
    min_group: int = option(LEAST, _least, at_least=1)
    _beside = "another solved head that is counted in the same round; may be repeated"
    beside: tuple[Path, ...] = option((), _beside)


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
