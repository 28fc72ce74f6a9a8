"""Options of `study`, and of the tables that are made of one; names, units, digits of figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ...errors import UsageError
from ...options.base import File, Holds, Options, Reads, Writes, flag, option
from ...options.common import Output
from ...options.look import Drawn, SizeOptions
from ...values.names import MEASURES


class Figure(NamedTuple):
    """A figure in tables: name, factor to its unit there, digits (-n: n in all), unit in CSV."""

    label: str
    factor: float = 1
    digits: int = 0
    unit: str = ""

    def text(self, value: float) -> str:
        scaled = value * self.factor
        return f"{scaled:.{self.digits}f}" if self.digits >= 0 else f"{scaled:.{-self.digits}g}"


def _share(label: str) -> Figure:
    return Figure(f"{label}, %", 100, 2, "fraction")


#: What `evaluate` measures of a head, and of a deep one after every layer.
MEASURED = {
    "top1": _share("top-1"),
    "top5": _share("top-5"),
    "train_top1": _share("training top-1"),
    **{name: Figure(name.upper(), digits=3) for name in MEASURES},
    **{f"train_{name}": Figure(f"training {name.upper()}", digits=3) for name in MEASURES},
}
#: All figures of a cell.
VALUES = {
    **MEASURED,
    "best": _share("best round's top-1"),
    "top1_max": _share("best client's top-1"),
    "seconds": Figure("seconds", digits=1, unit="seconds"),
    "upload_bytes": Figure("MB sent by a client, at most", 1e-6, -3, "bytes"),
    "download_bytes": Figure("MB sent to a client", 1e-6, -3, "bytes"),
    "file_bytes": Figure("MB sent by a client, as files", 1e-6, -3, "bytes"),
    "exchanges": Figure("rounds of communication", unit="rounds"),
    "density": _share("entries of the sums that are not 0"),
    "n": Figure("test rows", unit="rows"),
}
#: These, and what only papers have.
FIGURES = {**VALUES, "deviation": Figure("sum of absolute deviations", digits=-3)}


def parse_words(text: str | None) -> list[str]:
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def parse_names(text: str | None) -> list[str]:
    """Names of options as Python has them; the label, the baseline or the head is ``head``."""
    names = (one.replace("-", "_") for one in parse_words(text))
    return ["head" if one in ("label", "baseline") else one for one in names]


def parse_numbers(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(map(int, parse_words(text)))
    except ValueError:
        raise UsageError(f"--layers is a list of numbers such as 5,10,20; found {text!r}") from None


def parse_pair(text: str) -> tuple[str, str]:
    """The two sides of NAME=VALUE, as --where and --also have it."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"--where is NAME=VALUE, and --also is NAME=FILE.csv; found {text!r}")
    return name.strip(), value.strip()


_STUDY = "a TOML file, a name of --list, or the folder of a study"


@pydantic_dataclass(frozen=True, kw_only=True)
class StudyOptions(Options):
    _seeds = "number of seeds, from 0; they replace those of the study"
    seeds: int | None = option(None, _seeds, ge=1, le=100_000)
    _only = "only these cells: their names in STUDY/cells, or patterns as linear-*, with "
    _only += "commas between, or I/N for part I (from 0) of N"
    only: str | None = option(None, _only)
    _jobs = "processes that carry out cells at the same time, each with one thread"
    jobs: int = option(1, _jobs, ge=1, le=1024)


@pydantic_dataclass(frozen=True)
class RunStudy(StudyOptions):
    """Carry out a grid of runs and baselines; options given here replace those of the study."""

    STAGE: ClassVar = "lab.studies.execution:study"
    study: Annotated[str, Holds()] = Field(description=_STUDY)
    _out = "study directory"
    out: Annotated[Path | None, Writes("study")] = option(None, _out)
    _axes = "options of cells; a list is an axis"
    axes: dict[str, Any] = Field(default_factory=dict, kw_only=True, description=_axes)


_WHERE = "NAME=VALUE: only these cells, such as alpha=0.1 or label=AFL; may be repeated"


@pydantic_dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """What of a study a table shows; a study says its own defaults."""

    _rows = "options whose values are the rows, separated by commas; head is also the baseline "
    _rows += "(default: the study's)"
    rows: str | None = option(None, _rows, examples=["head", "head,layers"])
    _columns = "options whose values are the columns (default: the study's)"
    columns: str | None = option(None, _columns, examples=["alpha", "data,alpha"])
    _value = "figures, separated by commas (default: the study's, else top1)"
    value: str | None = option(None, _value, examples=list(VALUES))
    _layers = "numbers of layers to show, such as 5,10,20, of heads evaluated after each round "
    _layers += "(default: the study's, else only the last)"
    layers: str | None = option(None, _layers)
    where: tuple[str, ...] = option((), _WHERE)
    _published = "PAPER-TABLE such as afl-1: show a paper's figures as well, or none; "
    _published += "afl-1:cifar10 where given features are of that data set (default: the study's)"
    published: str | None = option(None, _published)
    _also = "NAME=FILE.csv: add results of another method; its columns are options and the value"
    also: Annotated[tuple[str, ...], Holds("[^=]*=(.*)")] = option((), _also)


@pydantic_dataclass(frozen=True)
class TableOf(TableOptions):
    """The table of a study: rows and columns by options, means over seeds."""

    _study = "the folder of a study, or a total of counts"
    study: Annotated[File, Reads()] = Field(description=_study)


PARQUET = ".parquet"
_SHOWN = {"out", "rows", "columns", "value", "where", "layers", "published", "format"}


@pydantic_dataclass(frozen=True, kw_only=True)
class Table(TableOf, Output):
    """Print the table of a study: rows and columns by options, means over seeds.

    Of a total of counts (evaluate --counts) the figures of each head, with intervals and bounds.
    """

    COMMON: ClassVar = frozenset(_SHOWN)
    PRINTS: ClassVar = "lab.studies.commands:print_table"
    _format = "form of the table"
    format: Literal["md", "csv", "latex", "json"] = option("md", _format)
    _out = "also write it to this file (.parquet: what --format csv has); - is stdout"
    out: Annotated[Path | None, Writes()] = option(None, _out)

    def check(self) -> None:
        super().check()
        self.needs("overwrite", "out")
        if self.out is not None and self.out.suffix == PARQUET and self.format != "md":
            raise UsageError(f"--format {self.format} is no {PARQUET} file: leave it out")


@pydantic_dataclass(frozen=True)
class Report(TableOptions, Output):
    """Write the page of a study: one HTML file with its tables, pictures, commands and digests.

    Of a run its figures, pictures, options and digests. Of a folder with heads, what members sent
    and a total of counts (evaluate --counts): members, bytes, figures with intervals, classes,
    groups, reliability, what left the sites.
    """

    STAGE: ClassVar = "lab.studies.pages:report"
    COMMON: ClassVar = frozenset(_SHOWN)
    _study = "the folder of a study, of a run, or of a finished trial"
    study: Annotated[File, Reads()] = Field(description=_study)
    out: Annotated[File, Writes()] = Field(description="an .html file")


def refuse_options(options: TableOptions, why: str) -> None:
    if given := options.changed_options():
        raise UsageError(f"{flag(min(given))} is for the table of a study; {why}: leave it out")


@pydantic_dataclass(frozen=True)
class StudyPicture(SizeOptions, Output):
    """Draw a figure of a study against an option: a line for each method, bars over seeds."""

    STAGE: ClassVar = "lab.studies.plots:study_picture"
    study: Annotated[File, Reads()] = Field(description="study directory")
    out: Drawn = Field()
    _x = "an option, or a figure such as upload_bytes"
    x: str = Field(kw_only=True, description=_x, examples=["alpha", "layers"])
    y: str = option("top1", "a figure", kw_only=True, examples=list(VALUES))
    _by = "options that tell the lines apart (default: head, and what differs within a head)"
    by: str | None = option(None, _by, kw_only=True)
    _layers = "numbers of layers to draw, of heads evaluated after each round "
    _layers += "(default: the study's; all with --x layers)"
    layers: str | None = option(None, _layers, kw_only=True)
    where: tuple[str, ...] = option((), _WHERE, kw_only=True)
