"""Options of `study`, and of the tables that are made of one; names, units, digits of figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

from ...errors import UsageError
from ...options.base import Choices, File, Holds, Options, Reads, Writes, flag, grammar
from ...options.common import Output
from ...options.grammars import parse_part
from ...options.look import Drawn, SizeOptions
from ...values.names import MEASURES


class Figure(NamedTuple):
    """What a table calls a figure, the factor to its unit there, and how many digits it has.

    ``digits`` behind the point; -n: n digits in all. ``unit``: in CSV and JSON, where figures
    are as the program measures them.
    """

    label: str
    factor: float = 1
    digits: int = 0
    unit: str = ""

    def text(self, value: float) -> str:
        """A value in the table's unit."""
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

STATISTICS = {
    "mean±sd": "mean ± standard deviation over seeds",
    "mean±se": "mean ± standard error over seeds",
    "mean": "mean over seeds",
    "median": "median over seeds",
    "max": "largest over seeds",
}


def words_of(text: str | None) -> list[str]:
    """The words of a list with commas between, if one is given."""
    return [one.strip() for one in (text or "").split(",") if one.strip()]


def names_of(text: str | None) -> list[str]:
    """Names of options as Python has them; the label, the baseline or the head is ``head``.

    >>> names_of("alpha, shards-per-client"), names_of("label")
    (['alpha', 'shards_per_client'], ['head'])
    """
    names = (one.replace("-", "_") for one in words_of(text))
    return ["head" if one in ("label", "baseline") else one for one in names]


def numbers_of(text: str | None) -> tuple[int, ...]:
    """The numbers of layers, if some are given."""
    try:
        return tuple(map(int, words_of(text)))
    except ValueError:
        raise UsageError(f"--layers is a list of numbers such as 5,10,20; found {text!r}") from None


def pair_of(text: str, form: str = "--where is NAME=VALUE") -> tuple[str, str]:
    """The two sides of a text such as NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{form}; found {text!r}")
    return name.strip(), value.strip()


def _each(form: str) -> Any:
    """The grammar of pairs."""

    def checked(texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            pair_of(text, form)
        return texts

    return grammar(checked)


def _figures(text: str) -> str:
    for name in names_of(text):
        if name not in VALUES:
            raise UsageError(f"--value is a list of {', '.join(VALUES)}; found {name!r}")
    return text


def _layers(text: str) -> str:
    return ",".join(map(str, numbers_of(text)))


def _cells(text: str) -> str:
    return str(parse_part(text, "--only")) if "/" in text else text


Layers = Annotated[str | None, grammar(_layers)]
Where = Annotated[tuple[str, ...], _each("--where is NAME=VALUE")]


_STUDY = "a TOML file, a name of --list, or the folder of a study"


@pydantic_dataclass(frozen=True, kw_only=True)
class StudyOptions(Options):
    """How a study is carried out."""

    _seeds = "number of seeds, from 0; they replace those of the study"
    seeds: int | None = Field(default=None, ge=1, le=100_000, description=_seeds)
    most: int = Field(default=1000, ge=1, description="most cells that a study may have")
    _only = "only these cells: their names in STUDY/cells, or patterns as linear-*, with "
    _only += "commas between, or I/N for part I (from 0) of N"
    only: Annotated[str | None, grammar(_cells)] = Field(default=None, description=_only)
    _jobs = "processes that carry out cells at the same time, each with one thread"
    jobs: int = Field(default=1, ge=1, le=1024, description=_jobs)
    _prepare = "make only what cells share: features, and the partitions of baselines"
    prepare: bool = Field(default=False, description=_prepare)


@pydantic_dataclass(frozen=True)
class RunStudy(StudyOptions):
    """Carry out a grid of runs and baselines; options given here replace those of the study."""

    STAGE: ClassVar = "lab.studies.execution:study"
    study: Annotated[str, Holds()] = Field(description=_STUDY)
    _out = "folder of the study"
    out: Annotated[Path | None, Writes("study")] = Field(default=None, description=_out)
    _axes = "options of cells; a list is an axis"
    axes: dict[str, Any] = Field(default_factory=dict, kw_only=True, description=_axes)


_WHERE = "NAME=VALUE: only these cells, such as alpha=0.1 or label=AFL; may be repeated"


@pydantic_dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """What of a study a table shows; a study says its own defaults."""

    _rows = "options whose values are the rows, separated by commas; head is also the baseline "
    _rows += "(default: the study's)"
    rows: str | None = Field(default=None, description=_rows, examples=["head", "head,layers"])
    _columns = "options whose values are the columns (default: the study's)"
    columns: str | None = Field(
        default=None, description=_columns, examples=["alpha", "data,alpha"]
    )
    _value = "figures, separated by commas (default: the study's, else top1)"
    value: Annotated[str | None, grammar(_figures)] = Field(
        default=None, description=_value, examples=list(VALUES)
    )
    _stat = "statistic over seeds (default: the study's, else mean±sd)"
    stat: Annotated[str | None, Choices(tuple(STATISTICS))] = Field(default=None, description=_stat)
    _layers = "numbers of layers to show, such as 5,10,20, of heads evaluated after each round "
    _layers += "(default: the study's, else only the last)"
    layers: Layers = Field(default=None, description=_layers)
    where: Where = Field(default=(), description=_WHERE)
    _published = "PAPER-TABLE such as afl-1: show a paper's figures as well, or none; "
    _published += "afl-1:cifar10 where given features are of that data set (default: the study's)"
    published: str | None = Field(default=None, description=_published)
    _also = "NAME=FILE.csv: add results of another method; its columns are options and the value"
    also: Annotated[tuple[str, ...], _each("--also is NAME=FILE.csv"), Holds("[^=]*=(.*)")] = Field(
        default=(), description=_also
    )
    _test = "compare every row with the first: McNemar's exact test on equal rows, of several "
    _test += "seeds a bootstrap of rows and seeds; Student's paired t over seeds"
    test: Literal["mcnemar", "t"] | None = Field(default=None, description=_test)


@pydantic_dataclass(frozen=True)
class TableOf(TableOptions):
    """The table of a study: rows and columns by options, a statistic over seeds."""

    _study = "the folder of a study, or a total of counts"
    study: Annotated[File, Reads()] = Field(description=_study)


PARQUET = ".parquet"
_SHOWN = {"out", "rows", "columns", "value", "stat", "where", "layers", "published", "format"}


@pydantic_dataclass(frozen=True, kw_only=True)
class Table(TableOf, Output):
    """Print the table of a study: rows and columns by options, a statistic over seeds.

    Of a total of counts (evaluate --counts) the figures of each head, with intervals and bounds.
    """

    COMMON: ClassVar = frozenset(_SHOWN)
    PRINTS: ClassVar = "lab.studies.commands:print_table"
    _format = "form of the table"
    format: Literal["md", "csv", "latex", "json"] = Field(default="md", description=_format)
    _out = "also write it to this file (.parquet: what --format csv has); - is stdout"
    out: Annotated[Path | None, Writes()] = Field(default=None, description=_out)

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
    """Refuse options of a study's table for what is no study."""
    if given := options.changed():
        raise UsageError(f"{flag(min(given))} is for the table of a study; {why}: leave it out")


@pydantic_dataclass(frozen=True)
class StudyPicture(SizeOptions, Output):
    """Draw a figure of a study against an option: a line for each method, bars over seeds."""

    STAGE: ClassVar = "lab.studies.plots:study_picture"
    study: Annotated[File, Reads()] = Field(description="the folder of a study")
    out: Drawn = Field()
    _x = "an option, or a figure such as upload_bytes"
    x: str = Field(kw_only=True, description=_x, examples=["alpha", "layers"])
    y: str = Field(default="top1", kw_only=True, description="a figure", examples=list(VALUES))
    _by = "options that tell the lines apart (default: head, and what differs within a head)"
    by: str | None = Field(default=None, kw_only=True, description=_by)
    _layers = "numbers of layers to draw, of heads evaluated after each round "
    _layers += "(default: the study's; all with --x layers)"
    layers: Layers = Field(default=None, kw_only=True, description=_layers)
    where: Where = Field(default=(), kw_only=True, description=_WHERE)
