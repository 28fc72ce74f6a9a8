"""Which class figures of one class are of, such as sensitivity, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import UsageError
from .figures import FIGURES

SHOWN = 20  # classes that a message names


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
