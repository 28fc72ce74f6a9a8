"""What `evaluate -o` and a run's summary hold, as far as pictures and model cards need it."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from pathlib import Path
from typing import Any

from ..errors import CorruptFileError
from .headers import mismatch, size, whole


def shares(value: Any) -> bool:
    """a list of numbers from 0 on or null, one at least"""
    return bool(value) and not mismatch(value, [SHARE])


def round_figures(value: Any) -> bool:
    """a phase with figures by name"""
    if not isinstance(value, dict) or not isinstance(value.get("phase"), str):
        return False
    return all(one is None or isinstance(one, (str, int, float)) for one in value.values())


OF_ONE_CLASS = ("sensitivity", "specificity")
SHARE = (size, None)  # null: the rows do not determine it
CONFUSION = {"head": {"name": str}, "per_class": dict, "confusion": [[whole]]}
BINS = dict.fromkeys(("weight", "confidence", "accuracy"), shares)
CURVE = {name: [SHARE] for name in ("false_positive", "true_positive")}
ROUNDS = {"top1": size, "n": whole, "rounds": [round_figures]}
OF_HEAD: dict[str, Any] = {
    "head": {"digest": str},
    "features": {"digest": str},
    "top1": size,
    "n": whole,
}


def check_evaluation(path: str | Path, found: Any, pattern: Any) -> None:
    """Refuse with `CorruptFileError` what does not fit a pattern of `files.headers`."""
    if wrong := mismatch(found, pattern):
        raise CorruptFileError(f"{path} is not what afltool evaluate … -o writes: {wrong}")


def figure_label(name: str, one: Any) -> str:
    """A figure's name for people, with the class that it is of, or that it is a mean over classes.

    Files that were written before these were named have neither.

    >>> figure_label("sensitivity", {"value": 0.9, "positive": "malignant"})
    'sensitivity (positive class: malignant)'
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
    >>> figure_text({"value": 0.9, "error": 0.002, "is": "bound"})
    '0.9000 ± 0.0020 at most'
    """
    if not isinstance(one, dict) or one.get("value") is None:
        return "–"
    text = f"{one['value']:.4f}"
    if one["is"] == "noisy":
        return f"{text} ± {one['sd']:.4f} by the noise"
    if one["is"] == "bound":
        return f"{text} ± {one['error']:.4f} at most"
    return f"{text} ({one['low']:.4f} to {one['high']:.4f})" if one.get("low") is not None else text


def check_lengths(path: str | Path, name: str, lists: Iterable[Sized]) -> None:
    """Refuse with `CorruptFileError` an entry whose lists have different lengths."""
    if len(set(map(len, lists))) > 1:
        raise CorruptFileError(
            f"{path} is not what afltool evaluate … -o writes: lists of different lengths in {name}"
        )
