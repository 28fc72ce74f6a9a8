"""Options of the commands that look at files: info, verify, status, and every picture."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..errors import UsageError
from .base import Choices, Input, Inputs, Options, Result, option
from .common import Output, Printed, Threads

AnyFile = Annotated[Input, Field(description="any file that afltool wrote")]


@dataclass(frozen=True, kw_only=True)
class Found(Printed):
    """How what is found is printed."""

    field: str | None = option(None, "print only this field, such as report.ridge")

    def check(self) -> None:
        self.excludes("as_json", "field")


@dataclass(frozen=True)
class Info(Found):
    """Show what is in a file, and its digest; --json shows all, such as where it comes from."""

    PRINTS: ClassVar = "cli.calls:info"
    file: AnyFile = Field()


@dataclass(frozen=True)
class Diff(Printed):
    """Print in what two files of one kind differ: recipe, space, classes, clients, arrays."""

    STAGE: ClassVar = "stages.inspect:diff"
    PRINTS: ClassVar = "cli.calls:diff"
    first: AnyFile = Field()
    second: AnyFile = Field()


@dataclass(frozen=True)
class Store(Printed):
    """List what is kept: features, imported tables, frozen networks; --prune removes old files."""

    STAGE: ClassVar = "stages.inspect:store"
    PRINTS: ClassVar = "cli.calls:store"
    folder: Path | None = option(None, "a store (default: $AFLTOOL_STORE, ./afl-store, the cache)")
    _: KW_ONLY
    prune: float | None = option(None, "remove files unused for this many days", ge=0)


@dataclass(frozen=True)
class StatusOf(Found):
    """Show what of a run or study is done, running, failed or stale, and how to continue it."""

    PRINTS: ClassVar = "cli.calls:status"
    folder: Input = Field(description="directory of a run or study")


@dataclass(frozen=True)
class Verify(Threads, Printed):
    """Read every byte and compare every checksum and digest; stop at the first damaged file."""

    PRINTS: ClassVar = "cli.calls:verify"
    files: Inputs = Field(description="files, folders, or - for stdin")


# ---------------------------------------------------------------- pictures

MM = 25.4  # millimeters of an inch


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """The size of a picture: options of every `plot`."""

    width_mm: float | None = option(None, "figure width; a paper column has 85", ge=40, le=400)
    dpi: int | None = option(None, "pixels per inch of a .png file (default: 150)", ge=30, le=1200)

    def inches(self, otherwise: float) -> float:
        """The width in inches; ``otherwise``: millimeters where none is given."""
        return (otherwise if self.width_mm is None else self.width_mm) / MM


AS_NEEDED = SizeOptions()
Drawn = Annotated[Result, Field(description="a .png, .svg or .pdf file")]
SEVERAL = ("partition",)  # kinds that take several files
#: Kinds of pictures: what is drawn, of which files.
KINDS = {
    "partition": "rows by client and class, of partition files side by side",
    "confusion": "a confusion matrix, of evaluate -o or a total of counts",
    "reliability": "accuracy by confidence, of evaluate -o or a total of counts",
    "rounds": "figures of every round, of a run, evaluate -o or a head",
}


@dataclass(frozen=True)
class Picture(SizeOptions, Output):
    """Draw a picture."""

    STAGE: ClassVar = "stages.plot:plot"
    kind: Annotated[str, Choices(KINDS)] = Field(description="plot type")
    files: Inputs = Field(description="input files")
    out: Drawn = Field()

    def check(self) -> None:
        if len(self.files) != 1 and self.kind not in SEVERAL:
            raise UsageError(f"plot {self.kind} takes one file; found {len(self.files)}")
