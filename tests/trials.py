"""Sessions through files, as members and a server would do them by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rounds_under_masks import digest

import afltool
from afltool.files.heads import load_head
from afltool.files.session_folder import SessionFolder
from afltool.heads.base import binding
from afltool.privacy import identity, session
from afltool.privacy.offers import Offers
from afltool.privacy.roster import Roster


class Trial:
    """Sites with rows of their own, and keys; ``begin`` makes a session of them."""

    def __init__(self, folder: Path, sites: int = 3, rows: int = 12, dim: int = 4) -> None:
        self.folder, self.sites = folder, [f"site-{i}" for i in range(sites)]
        for i, name in enumerate(self.sites):
            rng = np.random.default_rng(i)
            x = rng.standard_normal((rows + i, dim)).astype(np.float32)
            np.savez(folder / f"{name}.npz", x=x, y=np.arange(rows + i) % 3)
            afltool.import_embeddings(folder / f"{name}.npz", self.rows(name))
        self.public = afltool.keys(self.sites, folder / "keys")
        self.server = afltool.keys(["server"], folder / "server")[0]

    def begin(self, name: str, **options) -> SessionFolder:
        """A session in a folder of this name."""
        options = {"head": "linear", "server": self.server, **options}
        afltool.session_new(options.pop("members", self.public), self.folder / name, **options)
        return SessionFolder(self.folder / name)

    def rows(self, name: str) -> Path:
        return self.folder / f"{name}.h5"

    def key(self, name: str) -> Path:
        if name == "server":
            return self.server.with_suffix(".key")
        return self.folder / "keys" / f"{name}.key"

    def me(self, name: str) -> identity.Identity:
        return identity.load(self.key(name))

    # ------------------------------------------------------------ steps

    def offer(self, at: SessionFolder, names=None) -> Path:
        for name in names or self.sites:
            afltool.mask_offer(at.session, at.offers, key=self.key(name))
        return at.offers

    def send(self, at: SessionFolder, number: int, name: str, out: Path | None = None, **more):
        masked = session.load(at.session).agreed.terms.masked
        given = {
            "client": name, "sign": self.key(name), "roster": at.session,
            "mask": (at.offers,) if masked else (), **({"again": True} if masked else {}), **more,
        }  # fmt: skip
        rows = given.pop("rows", self.rows(name))
        head = given.pop("head", at.head(number))
        return afltool.local_stats(rows, head, out or at.round(number) / "statistics", **given)

    def add_up(self, at: SessionFolder, number: int, files=None, **more) -> Path:
        given = {"roster": at.session, "key": self.key("server"), **more}
        if session.load(at.session).agreed.terms.masked:
            given = {"offers": (at.offers,), **given}
        out = given.pop("out", at.total(number))
        return afltool.aggregate(files or [at.round(number) / "statistics"], out, **given)

    def answer(self, at: SessionFolder, number: int, names=None, **more) -> Path:
        out = at.reveal(number, "x").parent
        given = {"roster": at.session, "offers": (at.offers,), **more}
        for name in names or self.sites:
            afltool.mask_reveal(at.request(number), out, key=self.key(name), **given)
        return out

    def whole(self, at: SessionFolder, number: int, names=None) -> Path:
        """A round of these members up to its total."""
        agreed = session.load(at.session).agreed
        for name in names or self.sites:
            self.send(at, number, name)
        made = self.add_up(at, number)
        if agreed.terms.masked and not agreed.all:
            return self.add_up(at, number, reveal=(self.answer(at, number, names),))
        return made

    def end(self, at: SessionFolder, names=None) -> None:
        for name in names or self.sites:
            afltool.mask_forget(at.session, key=self.key(name))

    def solve(self, at: SessionFolder, number: int) -> Path:
        return afltool.solve(at.total(number), at.head(number + 1), head=at.head(number))

    def check(self, at: SessionFolder, number: int, name: str, **more) -> Path:
        return self.add_up(at, number, key=self.key(name), check=True, **more)

    def pooled(self, at: SessionFolder, number: int, names=None) -> str:
        """The digest of `local-stats --sum` on the pooled rows: the known solution."""
        names, where = names or self.sites, at.round(number) / "pooled"
        raw = [dict(np.load(self.folder / f"{name}.npz")) for name in names]
        where.mkdir(parents=True, exist_ok=True)
        np.savez(where / "x.npz", **{k: np.concatenate([r[k] for r in raw]) for k in ("x", "y")})
        rows = afltool.import_embeddings(where / "x.npz", where / "x.h5")
        out = where / "out"
        return digest(afltool.local_stats(rows, at.head(number), out, client="all"))

    def roster(self, at: SessionFolder, number: int) -> Roster:
        return session.load(at.session).round(binding(load_head(at.head(number)).head))

    def offers(self, at: SessionFolder, number: int) -> Offers:
        return Offers.load(self.roster(at, number), [at.offers])
