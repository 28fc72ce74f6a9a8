"""A round under masks through files, as members and a server would do it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from conftest import embeddings

import afltool
from afltool.stages.inspect import info

HEAD = "linear"


class Round:
    """Sites with rows of their own, keys, a roster; every step is a stage on files."""

    def __init__(self, folder: Path, sites: int, threshold: int | None = None, rows: int = 40):
        self.folder, self.sites = folder, [f"site-{i}" for i in range(sites)]
        for i, name in enumerate(self.sites):
            raw = embeddings(folder / f"{name}.npz", rows + i, seed=i)
            afltool.import_embeddings(raw, folder / f"{name}.h5")
        self.head = afltool.head(HEAD, folder / "head0.h5")
        self.public = afltool.keys(self.sites, folder / "keys")
        self.server = afltool.keys(["server"], folder / "server")[0]
        self.new_roster("roster.json", threshold)

    def new_roster(self, name: str, threshold: int | None = None, **options) -> Path:
        """Another round of the same members; under masks unless ``options`` say otherwise."""
        options = {"server": self.server, "threshold": threshold, **options}
        self.roster = afltool.roster(
            self.public, self.folder / name, head=str(self.head), **options
        )
        self.where = self.folder / f"round-{name}"
        return self.roster

    def key(self, name: str) -> Path:
        return self.folder / "keys" / f"{name}.key"

    def plain(self, name: str) -> Path:
        return afltool.local_stats(
            self.folder / f"{name}.h5", self.head, self.folder / "plain", client=name
        )

    def signed(self, name: str, out: str = "signed", **options) -> Path:
        options = {"sign": self.key(name), "roster": self.roster, **options}
        return afltool.local_stats(
            self.folder / f"{name}.h5", self.head, self.where / out, client=name, **options
        )

    def offer(self, names) -> Path:
        for name in names:
            afltool.mask_offer(self.roster, self.where / "offers", key=self.key(name))
        return self.where / "offers"

    def masked(self, name: str, out: str = "masked", **options) -> Path:
        """Under this roster, whatever was masked before: most tests mask the same rows."""
        options = {"again": True, **options}
        return self.signed(name, out, mask=(self.where / "offers",), **options)

    def reveal(self, names, request: Path, out: str = "reveals") -> Path:
        for name in names:
            afltool.mask_reveal(
                request,
                self.where / out,
                key=self.key(name),
                roster=self.roster,
                offers=(self.where / "offers",),
            )
        return self.where / out

    def aggregate(self, files, reveal=(), out: str = "total.h5", **options) -> Path:
        given = {
            "roster": self.roster,
            "offers": (self.where / "offers",),
            "key": self.server.with_suffix(".key"),
        }
        return afltool.aggregate(files, self.where / out, reveal=reveal, **{**given, **options})

    def whole(self, offering, stayed) -> Path:
        """Every step, in order; returns the total."""
        self.offer(offering)
        files = [self.masked(name) for name in stayed]
        request = self.aggregate(files)
        return self.aggregate(files, (self.reveal(stayed, request),))

    def wanted(self, stayed, out: str = "plain.h5") -> str:
        """The digest of the sum without masks."""
        files = [self.plain(name) for name in stayed]
        path = afltool.aggregate(files, self.folder / out, overwrite=True)
        return digest(path)


def digest(path: Path) -> str:
    found: str = info(path)["digest"]
    return found


def numbers(path: Path) -> np.ndarray:
    """All arrays of a file in a row."""
    from afltool.files.hdf5 import read_file, read_header

    _, arrays = read_file(path, read_header(path)["kind"])
    return np.concatenate([np.ravel(arrays[k]) for k in sorted(arrays)])
