"""Which client owns which row: computed from labels, row ids and a seed alone, never from features.

    iid               rows shuffled and dealt evenly
    dirichlet         per class, shares of the clients drawn from Dirichlet(α)       (NIID-1, LDA)
    shards            rows sorted by label, cut into K·s shards, s dealt to a client (NIID-2)
    by-attribute      one client per value of a metadata column: hospital, user, camera
    file              the client of every row as somebody else decided it
    dirichlet-pfl     the split that the published AFL and DeepAFL programs make
    pathological-pfl  what those programs call sharding

Every partition is disjoint and complete. Rows are put in canonical order (by row id) first, so the
same ids in any order get the same clients. Partition, held-out clients and label noise each have a
random stream of their own, so that noise or held-out clients leave the rows where they are.

Sources: He et al., "AFL", CVPR 2025 (section 4.1, table 2: α, s, IID); Tang et al., "DeepAFL", ICLR
2026 (appendix E.2); Bacellar et al., "SAFLe", CVPR 2026 (section 4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..options.grammars import parse_numbers, parse_part
from ..values.arrays import I64, Digest
from ..values.names import places_of_numbers

ROWS, GROUPS = 3, 4  # purposes: the second word of a seed, as in `schemes`


@dataclass(frozen=True, eq=False, kw_only=True)
class Assignment:
    """A client for each of n rows, in the caller's order.

    ``client`` (n,) int32: index into ``names``. ``names``: K names, "0" … "K-1" where clients are
    simulated. ``held_out`` (K,) bool: clients kept for validation. ``effective_labels`` (n,) int64:
    the labels that clients train with, after label noise.
    """

    client: NDArray[np.int32]
    names: tuple[str, ...]
    held_out: NDArray[np.bool_]
    effective_labels: I64

    def sizes(self) -> I64:
        """Rows of each client (K,)."""
        return np.bincount(self.client, minlength=len(self.names))

    def counts(self, n_classes: int) -> I64:
        """Rows of each class, as clients train with it, at each client (K, C)."""
        shape = len(self.names), n_classes
        cells = self.client.astype(np.int64) * n_classes + self.effective_labels
        return np.bincount(cells, minlength=shape[0] * n_classes).reshape(shape)

    def moved(self, order: I64) -> Assignment:
        """The same for rows in another order: row i is number ``order[i]`` there."""
        client, labels = np.empty_like(self.client), np.empty_like(self.effective_labels)
        client[order], labels[order] = self.client, self.effective_labels
        return Assignment(
            client=client, names=self.names, held_out=self.held_out, effective_labels=labels
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Partition(Assignment):
    """An assignment of rows that are known by their ids, in byte order of these.

    ``row_ids`` (n,) bytes; ``labels`` (n,) int64 as extracted; ``scheme``: its name and options.
    """

    row_ids: NDArray[np.bytes_]
    labels: I64
    classes: tuple[str, ...]
    scheme: Mapping[str, Any]

    def rows_digest(self) -> str:
        return rows_digest(self.row_ids, self.labels)

    def digest(self) -> str:
        digest = Digest().lines("row_ids", self.row_ids)
        digest.array("labels", self.labels, "<i8")
        digest.array("effective_labels", self.effective_labels, "<i8")
        digest.array("client", self.client, "<i4").json("names", list(self.names))
        return digest.json("held_out", np.flatnonzero(self.held_out).tolist()).hex()


def rows_digest(sorted_ids: NDArray[np.bytes_], labels: I64) -> str:
    """SHA-256 of row ids in byte order and their labels: which rows, whatever the backbone."""
    return Digest().lines("row_ids", sorted_ids).array("labels", labels, "<i8").hex()


def mean_total_variation(counts: NDArray[np.integer[Any]]) -> float:
    """Mean over non-empty clients k of ½ Σ_c |counts_kc / n_k − counts_·c / n|, in [0, 1).

    ``counts`` is clients × classes; without any row the answer is 0. It is 0 where every client
    looks like the pool, towards 1 where clients have nothing in common.

    >>> mean_total_variation(np.array([[4, 0], [0, 4], [0, 0]]))
    0.5
    """
    rows = counts.sum(axis=1)
    full = rows > 0
    if not full.any():
        return 0.0
    distance = np.abs(counts[full] / rows[full, None] - counts.sum(axis=0) / rows.sum())
    return float(0.5 * distance.sum(axis=1).mean())


def draw_clients(
    held_out: NDArray[np.bool_], share: float, seed: int, draw: int, turn: int = 0
) -> list[int]:
    """The clients of a round: draw number ``draw`` of a seed, see `HeadOptions.get_layer`.

    Every held-out client stays; with a share of 1 nothing is drawn. With ``turn`` 1 the draw is
    repeated until it is not the one of turn 0, if there is another one.
    """
    if share == 1:
        return list(range(len(held_out)))
    training, kept = np.flatnonzero(~held_out), np.flatnonzero(held_out).tolist()
    count = max(1, round(share * len(training)))

    def drawn(*words: int) -> list[int]:
        shuffled = np.random.default_rng([seed, draw, *words]).permutation(training)
        return sorted(shuffled[:count].tolist())

    clients, attempt = drawn(), 0
    while turn and count < len(training) and (not attempt or clients == drawn()):
        attempt += 1
        clients = drawn(attempt)
    return sorted([*clients, *kept])


def chosen_clients(drawn: Sequence[int], only: str | None, names: Sequence[str]) -> list[int]:
    """Those of the drawn clients at the places that ``only`` has, or that part of them.

    `UsageError` for a place that is the name of another client.
    """
    if only is None:
        return list(drawn)
    if "/" in only:
        return list(drawn[parse_part(only, "--only").of(len(drawn))])
    places, called = parse_numbers(only, len(names)), places_of_numbers(names)
    for k in places if len(places) < len(names) else ():
        if called.get(k, k) != k:
            raise UsageError(
                f"--only {only}: {k} can be read in two ways: the client named "
                f"{names[called[k]]!r} is at place {called[k]} (from 0), and at place {k} is "
                f"{names[k]!r}; --only I/{len(names)} is the client at place I"
            )
    return [k for k in drawn if k in set(places)]


def rows_for_testing(labels: I64, share: float, seed: int) -> NDArray[np.bool_]:
    """Rows drawn at random within each class, bool (n,).

    In all round(share · n); of a class with m rows share · m, rounded down, or up where the
    remainders are largest, the first class of equal ones.
    """
    rows = np.bincount(labels)
    wanted = share * rows
    taken = np.floor(wanted).astype(np.int64)
    rest = round(share * len(labels)) - int(taken.sum())
    taken[np.argsort(-(wanted - taken), kind="stable")[: max(rest, 0)]] += 1
    rng = np.random.default_rng([seed, ROWS])
    chosen = np.zeros(len(labels), bool)
    for k, count in enumerate(taken):
        chosen[rng.permutation(np.flatnonzero(labels == k))[:count]] = True
    return chosen


def groups_for_testing(labels: I64, groups: I64, share: float, seed: int) -> NDArray[np.bool_]:
    """The rows of whole groups, bool (n,); ``groups`` (n,) number them from 0.

    Groups come in random order. Each goes where the shares of the classes that are for testing stay
    nearest to ``share``: with c rows of each class in the group, S in all groups so far (this one
    too) and T in those for testing, the side is chosen by Σ (T − share · S)² / rows of the class.
    """
    counts = np.zeros((int(groups.max()) + 1, int(labels.max()) + 1))
    np.add.at(counts, (groups, labels), 1)
    weights = 1 / np.maximum(counts.sum(axis=0), 1)
    off, chosen = np.zeros(counts.shape[1]), np.zeros(len(counts), bool)  # off: T − share · S
    for group in np.random.default_rng([seed, GROUPS]).permutation(len(counts)):
        left = off - share * counts[group]
        taken = left + counts[group]
        chosen[group] = weights @ taken**2 < weights @ left**2
        off = taken if chosen[group] else left
    return chosen[groups]
