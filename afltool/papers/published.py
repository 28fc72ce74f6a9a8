"""The papers' published figures, as records beside ours.

They were measured with the papers' own backbones and weights, which are not always the same as
those here; every row says that it is published. The file has the papers' numbers as they are
printed, and their settings by the names of our options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..files.columns import read_columns
from .crosstab import Record, plain
from .options import FIGURES

TABLE = Path(__file__).with_name("published.csv")
COLUMNS = ("paper", "table", "data", "head", "options", "figure", "value", "spread", "spread_of")
NOT_STATED = "not stated"  # the data set of a table whose paper does not name it


@lru_cache(maxsize=1)
def _tables() -> dict[str, list[dict[str, str]]]:
    """The lines of the file by PAPER-TABLE."""
    columns = read_columns(TABLE, COLUMNS)
    found: dict[str, list[dict[str, str]]] = {}
    for line in zip(*(columns[name] for name in COLUMNS), strict=True):
        one = dict(zip(COLUMNS, (text or "" for text in line), strict=True))
        found.setdefault(f"{one['paper']}-{one['table']}", []).append(one)
    return found


def names() -> list[str]:
    """PAPER-TABLE of every table that has figures."""
    return list(_tables())


def published(name: str) -> list[Record]:
    """The figures of one table of a paper, such as afl-1 or deepafl-12; a data set may follow."""
    wanted = name.partition(":")[0].replace("table", "")
    if wanted not in _tables():
        raise UsageError(f"there are no published figures {name!r}; known are {', '.join(names())}")
    return [_record(one) for one in _tables()[wanted]]


def _record(one: dict[str, str]) -> Record:
    axes = {"data": one["data"], **dict(_options(one["options"])), "head": one["head"]}
    factor = FIGURES[one["figure"]].factor
    try:
        figures = {one["figure"]: float(one["value"]) / factor}
    except ValueError:  # such as "<5"
        return Record(axes, {}, one["value"], kind="published")
    spread = float(one["spread"]) / factor if one["spread"] else None
    return Record(axes, figures, spread=spread, spread_of=one["spread_of"], kind="published")


def _options(text: str) -> Iterator[tuple[str, Any]]:
    """Names and values of ``alpha = 0.1; scheme = iid``."""
    for option in filter(None, text.split("; ")):
        name, value = option.split(" = ")
        yield name.replace("-", "_"), _number(value)


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


def beside(name: str, ours: Sequence[Record], columns: Sequence[str]) -> list[Record]:
    """Published records that have a column in our table: our data, and settings that we have.

    Given feature files do not tell their data set: ``afl-1:cifar10`` says that ours is that one.
    Figures of a data set that the paper does not name stand beside any.
    """
    name, _, told = name.partition(":")
    there = {NOT_STATED, *(told or record.axes.get("data") for record in ours)}
    keys = {tuple(plain(r.axes.get(c)) for c in columns) for r in ours}
    return [
        one
        for one in published(name)
        if one.axes["data"] in there and tuple(plain(one.axes.get(c)) for c in columns) in keys
    ]
