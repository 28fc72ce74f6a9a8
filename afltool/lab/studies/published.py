"""Frames of results, a line a result, and those that the papers have published.

Beside its options and figures, by name, a line has its ``kind`` (ours, also, published), its
``state`` (done; of a hole why: missing, failed, "<5"), and what was published behind ± (``spread``,
``spread_of``). An option that it does not have is NaN.

The papers' figures were measured with the papers' own backbones and weights, which are not always
the same as those here; every row of a table says that it is published. The file has the papers'
numbers as they are printed, and their settings by the names of our options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from ...errors import UsageError
from .options import FIGURES

#: Columns that are no options.
BESIDE = {"kind", "state", "spread", "spread_of", "paper", *FIGURES}
SETTING = "setting"  # what a paper says of a figure that no option of ours has
NOT_STATED = "not stated"  # the data set of a table whose paper does not name it
TABLE = Path(__file__).with_name("published.csv")


def make_frame(lines: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Lines as a frame whose cells are what the lines have: whole numbers stay whole."""
    return pd.DataFrame(lines, dtype=object)


def options_in(frame: pd.DataFrame) -> list[str]:
    return [str(name) for name in frame.columns if name not in BESIDE]


def plain(value: Any) -> Any:
    """A value that compares: 1 and 1.0 are equal, and so are 0.1 and '0.1'; None for none.

    >>> plain(1.0), plain("0.10"), plain(float("nan")), plain(False)
    ('1', '0.1', None, False)
    """
    if isinstance(value, bool) or value is None or value != value:
        return value if isinstance(value, bool) else None
    try:
        return f"{float(value):.12g}"
    except (TypeError, ValueError):
        return str(value)


@lru_cache(maxsize=1)
def _papers() -> pd.DataFrame:
    """Every published figure, by the names of our options and in our units."""
    raw = pd.read_csv(TABLE, dtype=str, keep_default_na=False)
    lines = []
    for one in raw.to_dict("records"):
        pairs = (text.split(" = ") for text in filter(None, one["options"].split("; ")))
        options = {name.replace("-", "_"): _number(value) for name, value in pairs}
        factor, value = FIGURES[one["figure"]].factor, _number(one["value"])
        known = not isinstance(value, str)  # such as "<5"
        figure = {one["figure"]: value / factor} if known else {}
        spread = {"spread": float(one["spread"]) / factor} if one["spread"] else {}
        names = {"paper": f"{one['paper']}-{one['table']}", "kind": "published"}
        names |= {"state": "done" if known else value, "spread_of": one["spread_of"]}
        lines.append({"data": one["data"], **options, "head": one["head"], **names, **figure})
        lines[-1] |= spread
    return make_frame(lines)


def _number(text: str) -> Any:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        return text


def papers() -> list[str]:
    return list(_papers()["paper"].unique())


def load_published(name: str) -> pd.DataFrame:
    """The figures of one table of a paper, such as afl-1 or deepafl-12; a data set may follow."""
    wanted = name.partition(":")[0].replace("table", "")
    if wanted not in papers():
        raise UsageError(
            f"there are no published figures {name!r}; known are {', '.join(papers())}"
        )
    return _papers()[_papers()["paper"] == wanted].dropna(axis="columns", how="all")
