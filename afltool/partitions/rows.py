"""Which client owns which row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..values.arrays import I64
from ..values.digest import Digest


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
        digest = Digest().text("row_ids", b"\n".join(self.row_ids.tolist()))
        digest.array("labels", self.labels, "<i8")
        digest.array("effective_labels", self.effective_labels, "<i8")
        digest.array("client", self.client, "<i4").json("names", list(self.names))
        return digest.json("held_out", np.flatnonzero(self.held_out).tolist()).hex()


def rows_digest(sorted_ids: NDArray[np.bytes_], labels: I64) -> str:
    """SHA-256 of row ids in byte order and their labels: which rows, whatever the backbone."""
    ids = b"\n".join(sorted_ids.tolist())
    return Digest().text("row_ids", ids).array("labels", labels, "<i8").hex()
