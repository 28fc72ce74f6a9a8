"""What rows become between two rounds, kept on disk: a folder of arrays with one entry a row.

Only a shortcut: whatever is not in it is computed anew. A folder is named by what made it, is
filled under a partial name and renamed when it is whole; the one it replaces is then removed.
Nothing here is part of any result, so it is neither versioned nor documented as a format.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from . import schema
from .atomic import need_space

Array = NDArray[Any]
KNOWN = "known"  # which rows have entries, bool (n,)


class CarriedRows:
    """Arrays of ``rows`` rows in a folder; a part of the rows may have no entry."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.rows = folder, rows
        self.arrays: dict[str, Array] = {}
        self.known = np.zeros(rows, dtype=bool)

    @classmethod
    def open(cls, folder: Path, rows: int) -> CarriedRows | None:
        """What a finished round left behind; None if there is nothing that can be used."""
        found = cls(folder, rows)
        try:
            found.known = np.load(folder / f"{KNOWN}.npy", allow_pickle=False)
            for path in sorted(folder.glob("*.npy")):
                if path.stem != KNOWN:
                    found.arrays[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            return None
        sizes = {len(a) for a in (found.known, *found.arrays.values())}
        return found if sizes == {rows} and found.arrays else None

    def take(self, rows: NDArray[np.intp]) -> dict[str, Array] | None:
        """The entries of these rows, as copies; None unless every one of them has some."""
        if not self.known[rows].all():
            return None
        return {name: np.array(a[rows]) for name, a in self.arrays.items()}

    @property
    def partial(self) -> Path:
        return self.folder.with_name(self.folder.name + schema.PARTIAL)

    def put(self, rows: NDArray[np.intp], values: Mapping[str, Array]) -> None:
        """Add the entries of some rows."""
        if not len(rows) or not values:
            return
        if not self.arrays:
            self._create(values)
        for name, value in values.items():
            self.arrays[name][rows] = value
        self.known[rows] = True

    def _create(self, values: Mapping[str, Array]) -> None:
        size = sum(self.rows * v[:1].nbytes for v in values.values())
        need_space(self.folder.parent, size, f"what rows carry to the next round in {self.folder}")
        try:
            shutil.rmtree(self.partial, ignore_errors=True)
            self.partial.mkdir(parents=True)
            for name, value in values.items():
                self.arrays[name] = np.lib.format.open_memmap(
                    self.partial / f"{name}.npy", "w+", value.dtype, (self.rows, *value.shape[1:])
                )
        except OSError as error:
            raise InputError(f"cannot write {self.partial}: {error.strerror or error}") from None

    def finish(self, replaces: Path) -> None:
        """Give the folder its final name; remove the one of the round before."""
        if not self.arrays:
            return
        np.save(self.partial / f"{KNOWN}.npy", self.known)
        self.arrays.clear()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.replace(self.partial, self.folder)
        shutil.rmtree(replaces, ignore_errors=True)
