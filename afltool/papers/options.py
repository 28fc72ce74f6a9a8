"""Options of `study`, and of the tables that are made of one."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from ..options.fields import Options, option
from ..options.files import file_in
from ..options.plot import SizeOptions
from ..options.shards import Part, parse_part
from ..values.parsed import Parsed

STATISTICS = ("mean±sd", "mean±se", "mean", "median", "max")
MEASURED = (  # what `evaluate` measures of a head, and of a deep one after every layer
    "top1", "top5", "train_top1", "csr", "ifs", "dm", "train_csr", "train_ifs", "train_dm",
)  # fmt: skip
VALUES = (
    *MEASURED, "seconds", "upload_bytes", "download_bytes", "file_bytes", "exchanges", "density",
    "n",
)  # fmt: skip


@dataclass(frozen=True)
class Patterns(Parsed):
    """Names of cells, or patterns of names."""

    text: str
    patterns: tuple[str, ...]

    def __str__(self) -> str:
        return self.text


Cells = Part | Patterns


def parse_cells(text: str) -> Cells:
    """'linear-*,safle-0', or 'I/N'.

    >>> parse_cells("linear-*, safle-0").patterns
    ('linear-*', 'safle-0')
    """
    if "/" in text:
        return parse_part(text, "--only")
    return Patterns(text, tuple(one.strip() for one in text.split(",") if one.strip()))


@dataclass(frozen=True, kw_only=True)
class StudyOptions(Options):
    """How a study is carried out."""

    seeds: int | None = option(
        None, "number of seeds, from 0; they replace those of the study", at_least=1,
        at_most=100_000, in_run=False,
    )  # fmt: skip
    most: int = option(1000, "most cells that a study may have", at_least=1, in_run=False)
    only: Cells | None = option(
        None, "only these cells: their names in STUDY/cells, or patterns as linear-*, with "
        "commas between, or I/N for part I (from 0) of N", in_run=False, parse=parse_cells,
    )  # fmt: skip
    prepare: bool = option(
        False, "make only what cells share: features, and the partitions of baselines", in_run=False
    )


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """What of a study a table shows; a study says its own defaults."""

    rows: str | None = option(
        None, "options whose values are the rows, separated by commas; head is also the baseline",
        unset="the study's", examples=("head", "head,layers"),
    )  # fmt: skip
    columns: str | None = option(
        None, "options whose values are the columns", unset="the study's",
        examples=("alpha", "data,alpha"),
    )  # fmt: skip
    value: str | None = option(
        None, "figures, separated by commas", unset="the study's, else top1", examples=VALUES
    )
    stat: str | None = option(
        None, "statistic over seeds", choices=STATISTICS, unset="the study's, else mean±sd"
    )
    layers: str | None = option(
        None, "numbers of layers to show, such as 5,10,20, of heads evaluated after each round",
        unset="the study's, else only the last",
    )  # fmt: skip
    where: tuple[str, ...] = option(
        (), "NAME=VALUE: only these cells, such as alpha=0.1 or label=AFL; may be repeated"
    )
    published: str | None = option(
        None, "PAPER-TABLE such as afl-1: show a paper's figures as well, or none; afl-1:cifar10 "
        "where given features are of that data set",
        unset="the study's",
    )  # fmt: skip
    also: tuple[str, ...] = option(
        (),
        "NAME=FILE.csv: add results of another method; its columns are options and the value",
        path_in=file_in,
    )
    test: str | None = option(
        None, "compare every row with the first: χ² of the counts of one seed; McNemar's exact "
        "test on equal rows, of several seeds a bootstrap of rows and seeds; Student's paired t "
        "over seeds", choices=("chi2", "mcnemar", "t"),
    )  # fmt: skip

    def check(self) -> None:
        for name in names_of(self.value):
            if name not in VALUES:
                raise UsageError(f"--value is a list of {', '.join(VALUES)}; found {name!r}")
        for name, form in (("where", "NAME=VALUE"), ("also", "NAME=FILE.csv")):
            for text in getattr(self, name):
                if "=" not in text:
                    raise UsageError(f"--{name} is {form}; found {text!r}")
        numbers_of(self.layers)


@dataclass(frozen=True, kw_only=True)
class PictureOptions(SizeOptions):
    """What a picture of a study shows."""

    x: str = option(
        help="an option, or a figure such as upload_bytes", examples=("alpha", "layers")
    )
    y: str = option("top1", "a figure", examples=VALUES)
    by: str | None = option(
        None, "options that tell the lines apart", unset="head, and what differs within a head"
    )
    layers: str | None = option(
        None, "numbers of layers to draw, of heads evaluated after each round",
        unset="the study's; all with --x layers",
    )  # fmt: skip
    where: tuple[str, ...] = option(
        (), "NAME=VALUE: only these cells, such as alpha=0.1 or label=AFL; may be repeated"
    )


def names_of(text: str | None) -> list[str]:
    """The names in a list separated by commas, as options are called.

    Tables have the label, the baseline or the head of a cell under the one name ``head``.

    >>> names_of("alpha, shards-per-client"), names_of("label")
    (['alpha', 'shards_per_client'], ['head'])
    """
    names = [one.strip().replace("-", "_") for one in (text or "").split(",") if one.strip()]
    return ["head" if name in ("label", "baseline") else name for name in names]


def numbers_of(text: str | None) -> list[int]:
    """The numbers of ``--layers``.

    >>> numbers_of("5,10")
    [5, 10]
    """
    try:
        return [int(one) for one in (text or "").split(",") if one.strip()]
    except ValueError:
        raise UsageError(f"--layers is a list of numbers such as 5,10,20; found {text!r}") from None
