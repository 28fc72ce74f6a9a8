"""What a round computes: statistics of rows, their sum over clients, the head that the sum solves.

Pure functions on objects: no file, no option of a command. Stages, runs and federations compute by
these alone; what is read, checked before and written after is theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from ..errors import AflError, naming
from ..memory import NOTHING, Carried
from ..values.statistics import Client, ClientId, Context, Statistics, Sum

if TYPE_CHECKING:  # who only adds up loads no head
    from .base import Block, Head, Round

H = TypeVar("H", bound="Head")
Named = tuple[object, Statistics]


def statistics_of(
    head: Head,
    blocks: Iterable[Block],
    clients: Mapping[ClientId, Client],
    context: Context,
    carried: Carried = NOTHING,
) -> tuple[Statistics, Carried]:
    """The sums of rows for the next phase of ``head``, and what its next round may start from.

    Args:
        head: bound to the rows' d features and C classes, and not solved.
        blocks: rows X (n, d) with int64 labels y (n,); at least one block, which may have no rows.
        clients: whose rows they are.
        context: what other statistics must have in common with these: ``Context(space, classes,
            binding(head))`` of `heads.base.binding`.
        carried: what this function returned one round earlier for the same blocks.

    Raises:
        UsageError: the head is solved or not bound.
        InvalidDataError: a label is outside 0 … C − 1, or a number is not one of the head's format.
        NumericalError: integers could exceed int64.
    """
    sums, left = head.gather(blocks, clients, carried)
    return replace(sums, context=context), left


def total_of(
    parts: Iterable[Named], leaving: Iterable[Named] = (), repeats: bool = False
) -> Statistics:
    """Σ ``parts`` − Σ ``leaving``, one of them in memory at a time beside the sum.

    For integers any order and grouping gives the same bits. ``parts``: at least one, each with what
    an error calls it, such as its path or its member; ``leaving``: of clients that are in the sum.
    ``repeats``: add clients whose rows are in the sum by another name.

    Raises:
        MismatchError: statistics of another context, phase or shape; a client, or its rows, twice;
            one that leaves and is not in the sum.
        NumericalError: integers could exceed int64.
    """
    stream = iter(parts)
    total = Sum(next(stream)[1], repeats)
    for name, part in stream:
        with naming(name, AflError):
            total.add(part)
    for name, part in leaving:
        with naming(name, AflError):
            total.subtract(part)
    return total.result()


def solved(head: H, total: Statistics, validation: Statistics | None = None) -> tuple[H, Round]:
    """The head one phase further, from the sum over clients, and what is recorded of the round.

    ``validation``: the sum over held-out clients, for what is chosen by them.

    Raises:
        MismatchError: the total is of another phase.
        InvalidDataError: the total has no rows, or a number that is not finite.
        NumericalError: the numbers do not determine an answer.
    """
    return head.absorb(total, validation)
