"""What stages ask of any head: other options at the solve, whether a total fits, probabilities."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidDataError, MismatchError, UsageError
from ..math.softmax import softmax_in_place
from ..options.base import flag
from ..values.statistics import Statistics
from . import invariants
from .base import Classifier, Stored, Task, number_kind
from .options import HeadOptions

H = TypeVar("H", bound=Stored)
RULE_VERSION = 1  # of the score and the grid of `math.ridge_choice`: a change of either is another


def with_options(head: H, **changes: Any) -> H:
    """The same head with other values of options on which the statistics do not depend."""
    may = head.options.changeable()
    unknown = sorted(set(changes) - {f.name for f in fields(head.options)})
    if unknown:
        known = ", ".join(map(flag, sorted(may))) or "none of its options"
        why = f"the head {head.name!r} has no option {flag(unknown[0])}"
        raise UsageError(f"{why}; `solve` can change {known}")
    if fixed := sorted(set(changes) - may):
        raise UsageError(
            f"the head {head.name!r} fixes {flag(fixed[0])} before its first round: start anew"
        )
    return replace(head, options=replace(head.options, **changes))


def get_ridge_rule(options: HeadOptions, held_out: bool) -> dict[str, str]:
    """Which rule chooses the ridge of a head, with its version, as recipes name it; if one does."""
    ridge = getattr(options, "ridge", None)
    if ridge is None or (isinstance(ridge, float) and not held_out):
        return {}
    return {"ridge_rule": f"{'held-out' if held_out else 'gcv'} {RULE_VERSION}"}


def check_total(head: Task, total: Statistics) -> None:
    """Refuse with `InvalidDataError` a total whose arrays are not those of the next phase, or that
    no rows can have; integers may all be float64, as the pairwise law makes them."""
    if total.phase != head.phase():
        raise MismatchError(
            f"the total is of phase {total.phase!r}; the head's next one is {head.phase()!r}"
        )
    specs = head.array_specs(total.context.space.get("fraction_bits"))
    kinds = {name: number_kind(a) for name, a in total.arrays.items()}
    reals = set(kinds.values()) == {"f"}
    wanted = {n: (one.shape, "i" if one.exact and not reals else "f") for n, one in specs.items()}
    shapes = {name: (a.shape, kinds[name]) for name, a in total.arrays.items()}
    for name in sorted(wanted.keys() | shapes.keys()):
        if wanted.get(name) != shapes.get(name):
            found, expected = _choice_name(shapes.get(name)), _choice_name(wanted.get(name))
            raise InvalidDataError(
                f"the arrays do not fit a {head.name} head of {head.dim} features and "
                f"{head.classes} classes: {name!r} is {found}, expected {expected}"
            )
    invariants.check(replace(total, specs=specs))


def compute_reported_scores(head: Classifier, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The scores (n, C) that users see and figures rank: softmax of log-probabilities, row by row,
    and others as they are: of least squares only the order counts."""
    if not head.log_probabilities:
        return scores
    return softmax_in_place(scores.copy())[0]


def _choice_name(found: tuple[tuple[int, ...], str] | None) -> str:
    if found is None:
        return "absent"
    return f"{found[0]} of {'integers' if found[1] == 'i' else 'reals'}"
