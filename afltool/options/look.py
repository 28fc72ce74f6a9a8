"""Options of the commands that look at files: info, verify, status, and every picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from .base import File, Files, Options, Reads, Writes
from .common import Output, Printed, Threads

ANY = "any file that afltool wrote"


@dataclass(frozen=True, kw_only=True)
class Found(Printed):
    """How what is found is printed."""

    field: str | None = Field(default=None, description="only this field, such as report.ridge")

    def check(self) -> None:
        self.excludes("as_json", "field")


@dataclass(frozen=True)
class Info(Found):
    """Show what is in a file, and its digest; with --all also where it comes from."""

    PRINTS: ClassVar = "cli.calls:info"
    file: Annotated[File, Reads()] = Field(description=ANY)
    all: bool = Field(default=False, kw_only=True, description="print all, such as the recipe")

    def check(self) -> None:
        super().check()
        self.excludes("all", "as_json", "field")


@dataclass(frozen=True)
class Diff(Printed):
    """Print in what two files of one kind differ: recipe, space, classes, clients, arrays."""

    STAGE: ClassVar = "stages.inspect:diff"
    PRINTS: ClassVar = "cli.calls:diff"
    first: Annotated[File, Reads()] = Field(description=ANY)
    second: Annotated[File, Reads()] = Field(description="another one of its kind")


@dataclass(frozen=True)
class Store(Printed):
    """List what is kept: features, imported tables, frozen networks; --prune removes old files."""

    STAGE: ClassVar = "stages.inspect:store"
    PRINTS: ClassVar = "cli.calls:store"
    _folder = "a store (default: $AFLTOOL_STORE, else an ./afl-store that is there, else the cache)"
    folder: Path | None = Field(default=None, description=_folder)
    _prune = "remove what was not read for so many days; runs that linked it keep it"
    prune: float | None = Field(default=None, ge=0, kw_only=True, description=_prune)


@dataclass(frozen=True)
class StatusOf(Found):
    """Show what of a run or study is done, running, failed or stale, and how to continue it."""

    PRINTS: ClassVar = "cli.calls:status"
    folder: Annotated[File, Reads()] = Field(description="the folder of a run or a study")


@dataclass(frozen=True)
class Verify(Threads, Printed):
    """Read every byte and compare every checksum and digest; stop at the first damaged file."""

    PRINTS: ClassVar = "cli.calls:verify"
    files: Annotated[Files, Reads()] = Field(description="files, folders, or - for stdin")


# ---------------------------------------------------------------- pictures

MM = 25.4  # millimetres of an inch


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """The size of a picture: options of every `plot`."""

    _width_mm = "width of the picture; a column of a paper has 85 (default: as it needs)"
    width_mm: float | None = Field(default=None, ge=40, le=400, description=_width_mm)
    _dpi = "pixels per inch of a .png file (default: 150)"
    dpi: int | None = Field(default=None, ge=30, le=1200, description=_dpi)

    def inches(self, otherwise: float) -> float:
        """The width in inches; ``otherwise``: millimetres where none is given."""
        return (otherwise if self.width_mm is None else self.width_mm) / MM


AS_NEEDED = SizeOptions()
Evaluation = Annotated[File, Reads()]
FIGURES = "what evaluate wrote with -o (JSON, with the --metrics), or a total of counts"
Drawn = Annotated[File, Writes("picture")]
OUT = "a .png, .svg or .pdf file"


@dataclass(frozen=True)
class PartitionPicture(SizeOptions, Output):
    """Draw a partition: rows by client and class, and rows per client."""

    STAGE: ClassVar = "stages.plot:partition_picture"
    files: Annotated[Files, Reads("partition")] = Field(description="partition files, side by side")
    out: Drawn = Field(description=OUT)


@dataclass(frozen=True)
class ConfusionPicture(SizeOptions, Output):
    """Draw the confusion matrix of an evaluation."""

    STAGE: ClassVar = "stages.plot:confusion_picture"
    file: Evaluation = Field(description=FIGURES)
    out: Drawn = Field(description=OUT)


@dataclass(frozen=True)
class ReliabilityPicture(SizeOptions, Output):
    """Draw the accuracy of a head by its confidence, and the number of rows by confidence."""

    STAGE: ClassVar = "stages.plot:reliability_picture"
    file: Evaluation = Field(description=FIGURES)
    out: Drawn = Field(description=OUT)


@dataclass(frozen=True)
class RoundsPicture(SizeOptions, Output):
    """Draw error, accuracy, seconds and bytes of every round; for several runs the accuracies."""

    STAGE: ClassVar = "stages.plot:rounds_picture"
    _files = "a run folder, JSON of evaluate --each-round, or a head file; several are compared"
    files: Annotated[Files, Reads()] = Field(description=_files)
    out: Drawn = Field(description=OUT)
