"""Options of `study`, and of the tables that are made of one; names, units, digits of figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import UsageError
from ..options import Options, flag, option
from ..options.evaluation import SizeOptions
from ..options.grammars import Part, parse_part
from ..options.shared import file_in
from ..values.parsed import Parsed, Written


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


#: What `evaluate` measures of a head, and of a deep one after every layer.
MEASURED = {
    "top1": Figure("top-1, %", 100, 2, "fraction"),
    "top5": Figure("top-5, %", 100, 2, "fraction"),
    "train_top1": Figure("training top-1, %", 100, 2, "fraction"),
    "csr": Figure("CSR", digits=3),
    "ifs": Figure("IFS", digits=3),
    "dm": Figure("DM", digits=3),
    "train_csr": Figure("training CSR", digits=3),
    "train_ifs": Figure("training IFS", digits=3),
    "train_dm": Figure("training DM", digits=3),
}
#: All figures of a cell.
VALUES = {
    **MEASURED,
    "best": Figure("best round's top-1, %", 100, 2, "fraction"),
    "top1_max": Figure("best client's top-1, %", 100, 2, "fraction"),
    "seconds": Figure("seconds", digits=1, unit="seconds"),
    "upload_bytes": Figure("MB sent by a client, at most", 1e-6, -3, "bytes"),
    "download_bytes": Figure("MB sent to a client", 1e-6, -3, "bytes"),
    "file_bytes": Figure("MB sent by a client, as files", 1e-6, -3, "bytes"),
    "exchanges": Figure("rounds of communication", unit="rounds"),
    "density": Figure("entries of the sums that are not 0, %", 100, 2, "fraction"),
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


@dataclass(frozen=True)
class Words(Written):
    """A list separated by commas: patterns of cells, options as Python calls them, figures."""

    words: tuple[str, ...]


@dataclass(frozen=True)
class Layers(Written):
    """Numbers of layers."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Pair(Parsed):
    """NAME=VALUE."""

    name: str
    value: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}"


Cells = Part | Words


def names_of(words: Words | None) -> list[str]:
    """The words of a list, if one is given."""
    return [] if words is None else list(words.words)


def numbers_of(layers: Layers | None) -> tuple[int, ...]:
    """The numbers of layers, if some are given."""
    return () if layers is None else layers.numbers


def parse_cells(text: str) -> Cells:
    """'linear-*,safle-0', or 'I/N'.

    >>> parse_cells("linear-*, safle-0").words
    ('linear-*', 'safle-0')
    """
    return parse_part(text, "--only") if "/" in text else Words(text, _split(text))


def parse_names(text: str) -> Words:
    """Names of options.

    Tables have the label, the baseline or the head of a cell under the one name ``head``.

    >>> parse_names("alpha, shards-per-client").words, parse_names("label").words
    (('alpha', 'shards_per_client'), ('head',))
    """
    names = [one.replace("-", "_") for one in _split(text)]
    return Words(text, tuple("head" if one in ("label", "baseline") else one for one in names))


def parse_figures(text: str) -> Words:
    """Names of figures."""
    names = parse_names(text)
    for name in names.words:
        if name not in VALUES:
            raise UsageError(f"--value is a list of {', '.join(VALUES)}; found {name!r}")
    return names


def parse_layers(text: str) -> Layers:
    """Numbers of layers, '5,10'."""
    try:
        return Layers(text, tuple(map(int, _split(text))))
    except ValueError:
        raise UsageError(f"--layers is a list of numbers such as 5,10,20; found {text!r}") from None


def parse_where(texts: tuple[str, ...]) -> tuple[Pair, ...]:
    """NAME=VALUE, several times."""
    return tuple(_pair("--where is NAME=VALUE", text) for text in texts)


def parse_also(texts: tuple[str, ...]) -> tuple[Pair, ...]:
    """NAME=FILE.csv, several times."""
    return tuple(_pair("--also is NAME=FILE.csv", text) for text in texts)


def _pair(form: str, text: str) -> Pair:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{form}; found {text!r}")
    return Pair(name, value)


def _split(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(",") if one.strip())


@dataclass(frozen=True, kw_only=True)
class StudyOptions(Options):
    """How a study is carried out."""

    _seeds = "number of seeds, from 0; they replace those of the study"
    seeds: int | None = option(None, _seeds, at_least=1, at_most=100_000, in_run=False)
    most: int = option(1000, "most cells that a study may have", at_least=1, in_run=False)
    _only = (
        "only these cells: their names in STUDY/cells, or patterns as linear-*, with "
        "commas between, or I/N for part I (from 0) of N"
    )
    only: Cells | None = option(None, _only, in_run=False, parse=parse_cells)
    _jobs = "processes that carry out cells at the same time, each with one thread"
    jobs: int = option(1, _jobs, at_least=1, at_most=1024, in_run=False)
    prepare: bool = option(
        False, "make only what cells share: features, and the partitions of baselines", in_run=False
    )


def where_option() -> Any:
    """--where, of tables and of pictures."""
    text = "NAME=VALUE: only these cells, such as alpha=0.1 or label=AFL; may be repeated"
    return option((), text, parse=parse_where)


@dataclass(frozen=True, kw_only=True)
class TableOptions(Options):
    """What of a study a table shows; a study says its own defaults."""

    _rows = "options whose values are the rows, separated by commas; head is also the baseline"
    rows: Words | None = option(
        None, _rows, unset="the study's", examples=("head", "head,layers"), parse=parse_names
    )
    _columns = "options whose values are the columns"
    columns: Words | None = option(
        None, _columns, unset="the study's", examples=("alpha", "data,alpha"), parse=parse_names
    )
    _value = "figures, separated by commas"
    value: Words | None = option(
        None, _value, unset="the study's, else top1", examples=tuple(VALUES), parse=parse_figures
    )
    stat: str | None = option(
        None, "statistic over seeds", choices=tuple(STATISTICS), unset="the study's, else mean±sd"
    )
    _layers = "numbers of layers to show, such as 5,10,20, of heads evaluated after each round"
    layers: Layers | None = option(
        None, _layers, unset="the study's, else only the last", parse=parse_layers
    )
    where: tuple[Pair, ...] = where_option()
    _published = (
        "PAPER-TABLE such as afl-1: show a paper's figures as well, or none; afl-1:cifar10 "
        "where given features are of that data set"
    )
    published: str | None = option(None, _published, unset="the study's")
    also: tuple[Pair, ...] = option(
        (),
        "NAME=FILE.csv: add results of another method; its columns are options and the value",
        path_in=file_in,
        parse=parse_also,
    )
    _test = (
        "compare every row with the first: McNemar's exact "
        "test on equal rows, of several seeds a bootstrap of rows and seeds; Student's paired t "
        "over seeds"
    )
    test: str | None = option(None, _test, choices=("mcnemar", "t"))


def refuse_options(options: TableOptions, why: str) -> None:
    """Refuse options of a study's table for what is no study."""
    if given := options.chosen():
        raise UsageError(f"{flag(min(given))} is for the table of a study; {why}: leave it out")


@dataclass(frozen=True, kw_only=True)
class PictureOptions(SizeOptions):
    """What a picture of a study shows."""

    x: Words = option(
        help="an option, or a figure such as upload_bytes",
        examples=("alpha", "layers"),
        parse=parse_names,
    )
    y: str = option("top1", "a figure", examples=tuple(VALUES))
    _by = "options that tell the lines apart"
    by: Words | None = option(
        None, _by, unset="head, and what differs within a head", parse=parse_names
    )
    _layers = "numbers of layers to draw, of heads evaluated after each round"
    layers: Layers | None = option(
        None, _layers, unset="the study's; all with --x layers", parse=parse_layers
    )
    where: tuple[Pair, ...] = where_option()
