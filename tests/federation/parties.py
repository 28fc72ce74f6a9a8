"""Small federations for the tests: sites with rows, a server, a place in a folder."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from afltool.cli import main  # noqa: F401  (the heads are registered)
from afltool.embeddings import make_imported_space
from afltool.errors import UnreachableError
from afltool.federation import compute
from afltool.federation import keys as keys_
from afltool.federation import place as place_
from afltool.federation.agreement import Agreement, usual_threshold
from afltool.federation.keys import name_of
from afltool.federation.ledger import Ledger
from afltool.federation.rows import SiteRows
from afltool.federation.session import Member, Server
from afltool.heads import make_head
from afltool.math.gram import FixedPoint

DIM, CLASSES, BITS = 6, ("a", "b", "c"), 10
SPACE = make_imported_space("made-up", DIM, "int16", BITS)
HEADS = {
    "linear": ("linear", {"gamma": 1.0}),
    "random-features": ("random-features", {"width": 12, "compute": "fixed"}),
    "softmax": ("softmax", {"rounds": 2}),
    "deepafl": ("deepafl", {"layers": 1, "width": 8, "compute": "fixed"}),
    "safle": ("safle", {"buckets": 2, "ridge": 1.0}),
    "discriminant": ("discriminant", {"shrinkage": 0.1}),
}
NOISE = {"epsilon": 1.0, "delta": 1e-5, "clip": 4.0, "colluding": 0}


@cache
def key_of(name: str) -> keys_.Keys:
    """Names and keys are the same in all federations."""
    return keys_.Keys.of(name, Ed25519PrivateKey.generate())


class Near(place_.Place):
    """A folder that never keeps anybody waiting, so no call of it needs a thread."""

    def _reach(self, size, work, name):
        self._fs = fs, root = self._fs or place_._open_connection(self._url, self.url)
        try:
            return work(fs, f"{root}/{name}")
        except OSError as error:
            raise UnreachableError(f"{self.url} cannot be reached: {error}") from None


class Federation:
    """n sites, a server and a place in a folder; site i has 30 + i rows."""

    def __init__(self, root: Path, head="linear", n=3, threshold=None, rows=None, tests=None,
                 place=Near, **terms) -> None:  # fmt: skip
        self.root, self.place = root, place(str(root / "place"))
        name, options = HEADS[head] if isinstance(head, str) else head
        self.names = [f"site-{i:02d}" for i in range(n)]
        self.keys = {one: key_of(one) for one in (*self.names, "server")}
        self.rows, self.tests = rows or self.made_rows(), tests or {}
        dim, classes = self.rows["site-00"][0].shape[1], terms.pop("classes", CLASSES)
        self.first = make_head(name, options).bind(dim, len(classes))
        limits = {} if terms.get("noise") else {"max_rows": 64}
        self.agreed = Agreement(**{
            "members": tuple(sorted(self.keys[k].party for k in self.names)),
            "server": self.keys["server"].party, "head": compute.describe_head(self.first),
            "space": {**SPACE, "dim": dim}, "classes": classes, "max_rows": 0,
            "threshold": threshold or usual_threshold(n), **limits, **terms})  # fmt: skip
        self.begin()

    def begin(self) -> None:  # as after a start of their processes
        self.server = Server(self.place, self.root / "server", self.agreed, self.keys["server"])
        self.sites = {one: self.new_site(one) for one in self.names}

    def made_rows(self):
        rng, rows = np.random.default_rng(1), {}
        for i, one in enumerate(self.names):
            y = rng.integers(0, 3, 30 + i)
            X = rng.integers(-900, 900, (len(y), DIM)) + 800 * np.eye(3, DIM)[y]
            rows[one] = X.astype(np.int16), y.astype(np.int64)
        return rows

    def new_site(self, name: str, kind=Member, folder=None, again=False) -> Member:
        train, test = self.rows[name], self.tests.get(name)
        rows = SiteRows(lambda: [train], lambda: [test] if test else ())
        return kind(self.place, folder or self.root / name, self.agreed, self.keys[name],
                    rows, Ledger(self.root / "ledgers" / name, again))  # fmt: skip

    def party(self, name):
        return self.server if name == "server" else self.sites[name]

    def turn(self, *names):
        return {n: self.party(n).turn() for n in names}

    def rolled(self):  # everybody has come, and no sums have been sent
        self.turn("server", *self.names, "server")
        return self

    def until(self, number):
        """Turns of all until the server is in this round."""
        while self.server.turn() and self.server.newest_round() < number:
            self.turn(*self.names)
        return self

    def over(self, *names, late=None):
        """Whether all of these have come to the end; after ``late`` seconds without the others."""
        self.server.deadline = late
        return set(self.run(*names).values()) == {""}

    def run(self, *names):
        """Turns of these until nobody has anything to do; returns what each waits for."""
        names, before, waits = names or ("server", *self.names), None, {}
        while waits != before:
            before, waits = waits, self.turn(*names)
        return waits

    def gathered(self, *names, head=None):
        """The statistics of all rows of these sites, or all, for a head."""
        X, y = (np.concatenate([self.rows[n][k] for n in names or self.names]) for k in (0, 1))
        return compute.compute_statistics(
            self.agreed, head or self.first, [(FixedPoint(X, BITS), y)]
        )

    def numbers(self, *names):
        """What these send in round 1, without masks."""
        return self.server.layout(1).joined(self.gathered(*names)).view(np.int64)

    def pooled(self, *names):
        """The head that one place makes of all these rows."""
        head = self.first
        while head.phase() is not None:
            head = head.absorb(self.gathered(*names, head=head))[0]
        return head

    def solved(self, name):
        return self.party(name).head(self.party(name).newest_round())

    def is_pooled(self, *names, of=()):
        """Whether the server and these sites, or all, have the head of ``of``'s rows, or theirs."""
        found = {self.solved(n).digest() for n in ("server", *(names or self.names))}
        return found == {self.pooled(*(of or names)).digest()}

    def changed(self, root, names=None, **terms):
        """A session of these sites, or all, under other terms, with ledgers as they are now."""
        other = object.__new__(Federation)
        vars(other).update(vars(self), rows=dict(self.rows))
        if names is not None:
            terms |= {"members": tuple(self.keys[n].party for n in names), "threshold": len(names)}
        nonce = hashlib.md5(str(root).encode()).hexdigest()
        other.agreed = replace(self.agreed, nonce=nonce, **terms)
        other.names = [p.name for p in other.agreed.members]
        other.root, other.place = root, Near(str(root / "place"))
        root.mkdir(parents=True)
        shutil.copytree(self.root / "ledgers", root / "ledgers", symlinks=True)
        other.begin()
        return other

    # ------------------------------------------------------------ what is in the place, and said

    def at(self, kind, number, name) -> Path:
        return self.root / "place" / name_of(kind, number, name)

    def put(self, kind, number, name, payload, to=b"", box=None):
        """A message that a party signs, whatever it says."""
        data = (box or self.party(name).box).seal(kind, number, payload, to)
        self.at(kind, number, name).write_bytes(data)
        return data

    def counted(self, kind, number, name):
        assert self.server.take(kind, number, name)
        return self.server.digest_of(kind, number, name)

    def sent(self, pattern):
        return sorted(p.name for p in (self.root / "place").glob(pattern))

    def said(self, name="server"):
        return " | ".join(sorted(self.party(name)._said))


OVER = {}


def played(head="linear", **terms) -> Federation:
    """A session that is over, played once; tests read it, or play on by `Federation.changed`."""
    key = repr((head, terms))
    if key not in OVER:
        OVER[key] = Federation(Path(tempfile.mkdtemp(prefix="afltool-over-")), head, **terms)
        assert OVER[key].over()
    return OVER[key]
