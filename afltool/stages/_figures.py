"""The figures that `evaluate` is asked for, and which class those of one class are of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import UsageError
from ..heads.base import Head
from ..math.metrics.figures import FIGURES
from ..options.solving import EvaluateOptions
from ..progress import log

SHOWN = 20  # classes that a message names


def figures_asked(o: EvaluateOptions) -> tuple[str, ...]:
    """The figures asked for; those of parts are accuracies where none is named."""
    if o.metrics is not None:
        return figure_names(o.metrics)
    return ("accuracy",) if o.by is not None or o.group is not None else ()


def figure_names(text: str | Iterable[Any]) -> tuple[str, ...]:
    """Names of figures from 'f1,auc'; `UsageError` for a name that does not exist.

    >>> figure_names("f1, auc")
    ('f1', 'auc')
    """
    parts = text.split(",") if isinstance(text, str) else [str(part) for part in text]
    names = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    unknown = [name for name in names if name not in FIGURES]
    if unknown or not names:
        raise UsageError(
            f"--metrics is a list of {', '.join(FIGURES)}; found {unknown[0] if unknown else ''!r}"
        )
    return names


def check_figures(head: Head, names: Sequence[str]) -> None:
    needed = [name for name in names if FIGURES[name].needs == "probabilities"]
    if needed and not head.log_probabilities:
        raise UsageError(
            f"--metrics {needed[0]} needs probabilities; a {head.name} head gives least-squares "
            "scores, which are not probabilities: leave it out, or train --head softmax"
        )


def positive_of(names: Sequence[str], classes: Sequence[str], given: str | None) -> int | None:
    """The positive class, said where it was not given."""
    found = positive_class(names, classes, given)
    if found is not None and given is None:
        log.info(
            "evaluate: the positive class is %s, the second of two; --positive %s takes the other",
            classes[found],
            classes[1 - found],
        )
    return found


def positive_class(names: Sequence[str], classes: Sequence[str], given: str | None) -> int | None:
    """The positive class for figures of these names: the given one, of two the second.

    None where no figure is of one class, or where only means over classes are left. `UsageError`
    for a class that does not exist or that no figure is of, and where one has to be given.

    >>> positive_class(["sensitivity"], ["malignant", "benign"], "malignant")
    0
    """
    asked = [name for name in names if FIGURES[name].one_class]
    if given is not None and not asked:
        theirs = ", ".join(name for name, one in FIGURES.items() if one.one_class)
        raise UsageError(f"--positive is for --metrics {theirs}; add one of these")
    if given is not None and given not in classes:
        more = f" … ({len(classes)} in all)" if len(classes) > SHOWN else ""
        raise UsageError(
            f"--positive is a class: {', '.join(classes[:SHOWN])}{more}; found {given!r}"
        )
    if given is not None:
        return list(classes).index(given)
    if len(classes) == 2:
        return 1 if asked else None
    unclear = [name for name in asked if not FIGURES[name].mean]
    if unclear:
        raise UsageError(
            f"--metrics {unclear[0]} is for one class against the rest, and there are "
            f"{len(classes)} classes: name it with --positive CLASS, or ask for the mean over "
            f"classes, --metrics macro-{unclear[0]}"
        )
    return None


def said_of(name: str, positive: str | None) -> dict[str, str]:
    """For JSON: the positive class that a figure is of, or that it is a mean over classes.

    >>> said_of("auc", None)
    {'average': 'macro'}
    """
    figure = FIGURES[name]
    if figure.one_class and positive is not None:
        return {"positive": positive}
    return {"average": "macro"} if figure.mean else {}
