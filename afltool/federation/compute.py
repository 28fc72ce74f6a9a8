"""The only module here that computes statistics and heads: what the core's functions give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from ..errors import MismatchError
from ..heads import base, conditions, make_head, make_options
from ..heads.base import Block, Head, binding
from ..heads.evaluation import Evaluation
from ..math.blas import length, unpack
from ..math.ridge import gram_matrix
from ..values.arrays import F64, Array
from ..values.names import GRAM
from ..values.statistics import Client, ClientId, Context, Statistics
from .agreement import Agreement

CLOSE = 1e-9  # of the largest number of a column, where no system of equations is known
ROUNDINGS = 16  # of a solve by Cholesky, times (d + 8) ε: its backward error on any machine
LOSS_BITS = 24
H = TypeVar("H", bound=Head)
SLACK = 2.0  # of the loss of a point that momentum has moved


def first_head(agreed: Agreement) -> Head:
    """The head before its first round: of its name and options alone, nobody sends it."""
    head = make_head(agreed.head["name"], agreed.head["options"])
    head = head.bind(agreed.space["dim"], len(agreed.classes))
    if head.digest() != agreed.head["digest"]:
        raise MismatchError("this afltool makes another first head than was agreed on")
    return head


def described(head: Head) -> dict[str, Any]:
    """What an agreement says of a head before its first round."""
    return {"name": head.name, "options": head.options.as_dict(), "digest": head.digest()}


def evaluation_of(agreed: Agreement, head: Head) -> Head:
    """The round that counts test rows with a solved head."""
    o: Mapping[str, Any] = agreed.evaluation or {}
    return Evaluation.of([head], o["bins"], tuple(o["groups"]), o["min_cell"])


def context_of(agreed: Agreement, head: Head) -> Context:
    return Context(agreed.space, agreed.classes, binding(head))


def statistics_of(agreed: Agreement, head: Head, blocks: Iterable[Block]) -> Statistics:
    """What a site sums of its rows for a head."""
    return base.statistics_of(head, blocks, {}, context_of(agreed, head))[0]


def total_from(
    agreed: Agreement, head: Head, arrays: Mapping[str, Array], counts: Array, names: Iterable[str]
) -> Statistics:
    """The sum over members, as any other stage has it; refused if no rows can have it."""
    clients = {ClientId(name): Client(None) for name in sorted(names)}
    phase = head.phase()
    assert phase is not None
    total = Statistics(phase, dict(arrays), counts, context_of(agreed, head), clients)
    if not agreed.noise:
        conditions.check(total)
    return total


def solved(head: H, total: Statistics, ridge: float | None = None) -> H:
    """The head one phase further, as everybody solves it; ``ridge``: in place of its own."""
    if ridge is not None:
        options = make_options(head.name, {**head.options.as_dict(), "ridge": ridge})
        head = type(head).begin(options).bind(head.dim or 0, head.classes or 0)
    return base.solved(head, total)[0]


def check_point(own: Statistics, rows: int, classes: int) -> None:
    """Refuse a point at which this site's loss is above that of all sites' rows without a head.

    An honest head has a loss of at most ln C a row over all ``rows``, so of so much over those of
    one site. Larger weights are chosen to read single rows out of the gradient.
    """
    loss = own.arrays.get("loss")
    most = SLACK * rows * np.log(max(classes, 2))
    if loss is not None and float(loss[0]) * 2.0**-LOSS_BITS > most:
        raise MismatchError(
            f"the loss of this site's rows at the point of {own.phase!r} is beyond {most:.4g}, "
            "which no honest head has: a member or the server has chosen the point; stop"
        )


# ---------------------------------------------------------------- another machine's solve


def is_same(name: str, mine: Array, theirs: Array, before: Head, total: Statistics) -> bool:
    """Whether an array of a head is one that another machine may have solved.

    Integers are equal. Reals that solve a system M W = … have a small backward error, M (W' − W)
    beside ‖M‖‖W‖, column by column, however ill-conditioned M is; others are nearly equal.
    """
    if np.array_equal(mine, theirs):
        return True
    if mine.dtype.kind != "f" or mine.shape != theirs.shape or not np.isfinite(theirs).all():
        return False
    W, other = (a.reshape(len(a), -1) if a.ndim else a.reshape(1, 1) for a in (mine, theirs))
    if name == "factor" and mine.ndim == 1:  # a triangle of L, M = L Lᵀ
        L, K = (np.tril(unpack(a)) for a in (mine, theirs))
        apart = np.abs(L @ L.T - K @ K.T).max()
        return bool(apart <= _backward(len(L)) * np.abs(L @ L.T).max())
    solves = name.partition("-")[0] in ("weights", "point", "step", "best")
    M = _system(before, total, len(W)) if solves else None
    if M is None:
        return bool((np.abs(other - W).max(0) <= CLOSE * np.abs(W).max(0)).all())
    most = _backward(len(M)) * np.linalg.norm(M) * np.linalg.norm(W, axis=0)
    return bool((np.linalg.norm(M @ (other - W), axis=0) <= most).all())


def _backward(side: int) -> float:
    return ROUNDINGS * (side + 8) * float(np.finfo(float).eps)


def _system(before: Head, total: Statistics, side: int) -> F64 | None:
    """The matrix M (side, side) of what a round solves: a gram, or a bound of the curvature."""
    factor, gram = before.arrays().get("factor"), total.arrays.get(GRAM)
    if factor is not None and factor.shape == (length(side),):
        L = np.tril(unpack(factor))
        return np.asarray(L @ L.T)
    if gram is not None and gram.shape == (length(side),):
        G = gram_matrix(gram, total.context.space.get("fraction_bits"))
        ridge = getattr(before.options, "ridge", 0.0)
        least = _backward(side) * float(np.linalg.norm(G))
        known = float(ridge) if isinstance(ridge, int | float) else 0.0  # a rule finds its own
        return G + max(known, least) * np.eye(side)  # or nothing bounds a feature that no row has
    return None
