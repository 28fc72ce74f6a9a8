"""What `evaluate -o` and a run's summary hold, as far as pictures and model cards need it."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from ..errors import CorruptFileError
from ..inputs import read_json
from .headers import Record, Size, Whole, misfit

Share = Size | None  # null: the rows do not determine it
Shares = Annotated[list[Share], Meta(min_length=1)]
OF_ONE_CLASS = ("sensitivity", "specificity")
MOST_BYTES = 256 << 20  # a confusion matrix of 10 million cells


class Alike(Struct):
    """All lists have one length."""

    def __post_init__(self) -> None:
        values = (getattr(self, name) for name in self.__struct_fields__)
        if len({len(one) for one in values if isinstance(one, list)}) > 1:
            raise ValueError("lists of different lengths")


class Named(Struct):
    name: str


class Digested(Struct):
    digest: str


class Cells(Alike):
    """The cells of a confusion matrix that are not 0, of 1,000 classes or more."""

    true: list[Whole]
    predicted: list[Whole]
    rows: list[Whole]


class Confusion(Struct):
    head: Named
    n: Whole
    per_class: Record
    confusion: list[list[Whole]] | Cells

    def __post_init__(self) -> None:
        cells, n = self.confusion, len(self.per_class)
        if isinstance(cells, list):
            fits = {len(cells), *map(len, cells)} == {n}
        else:
            fits = max([*cells.true, *cells.predicted], default=0) < n
        if not fits:
            raise ValueError(f"a confusion matrix that is not of {n} classes")


class Bins(Alike):
    weight: Shares
    confidence: Shares
    accuracy: Shares


class Figure(Struct):
    value: Share


class Ece(Struct):
    ece: Figure


class Reliability(Struct):
    reliability: Bins
    metrics: Ece


class OfHead(Struct):
    head: Digested
    features: Digested
    top1: Size
    n: Whole


class Rounds(Struct):
    """A phase with figures by name, for each round."""

    top1: Size
    n: Whole
    rounds: list[dict[str, str | int | float | bool | None]]

    def __post_init__(self) -> None:
        if not all(isinstance(one.get("phase"), str) for one in self.rounds):
            raise ValueError("rounds have no phase each")


def read_evaluation(path: Path, kind: Any) -> dict[str, Any]:
    """What `evaluate -o` wrote, of a type."""
    found = read_json(path, "what afltool evaluate … -o writes", MOST_BYTES)
    check_evaluation(path, found, kind)
    return dict(found)


def check_evaluation(path: str | Path, evaluation: Any, kind: Any) -> None:
    """Refuse with `CorruptFileError` what is not of a type."""
    if wrong := misfit(evaluation, kind):
        raise CorruptFileError(f"{path} is not what afltool evaluate … -o writes: {wrong}")


def figure_label(name: str, one: Any) -> str:
    """A figure's name for people, with the class that it is of, or that it is a mean over classes.

    Files that were written before these were named have neither.
    """
    known = one if isinstance(one, dict) else {}
    if isinstance(known.get("positive"), str):
        return f"{name} (positive class: {known['positive']})"
    if known.get("average") == "macro":
        return f"{name} (mean over classes)"
    return f"{name} (positive class not named)" if name in OF_ONE_CLASS else name


def figure_text(one: Any) -> str:
    """A figure of counts with its 95 % interval, or with the bound on its error.

    >>> figure_text({"value": 0.9, "low": 0.8, "high": 0.95, "is": "exact"})
    '0.9000 (0.8000 to 0.9500)'
    >>> figure_text({"value": 0.99, "error": 0.00001, "is": "bound"})
    '0.9900 ± 0.0001 at most'
    """
    if not isinstance(one, dict) or one.get("value") is None:
        return "–"
    text = f"{one['value']:.4f}"
    if one["is"] == "bound":
        beyond = one["error"] + abs(one["value"] - float(text))  # `text` is rounded
        return f"{text} ± {ceil(beyond * 1e4 - 1e-6) / 1e4:.4f} at most"
    return f"{text} ({one['low']:.4f} to {one['high']:.4f})" if one.get("low") is not None else text
