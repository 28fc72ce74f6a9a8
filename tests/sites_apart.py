"""Three sites and a server of a session, each with a folder and a key, and a place between."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import afltool
from afltool.courier.party import Clock
from afltool.courier.server import serve
from afltool.courier.site import join
from afltool.options.privacy import JoinOptions, ServeOptions

NAMES = ("north", "south", "west")
DEEPAFL = {"head": "deepafl", "layers": 5, "width": 16, "compute": "fixed"}
SOFTMAX = {"head": "softmax", "rounds": 20}
ALL = {"protection": "masked", "threshold": "all"}
HEADS: dict[str, dict[str, Any]] = {"linear": {}, "deepafl": DEEPAFL, "softmax": SOFTMAX}
PROTECTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "signed": {"protection": "signed"},
    "masked": {"protection": "masked", "threshold": 2},
    "all": ALL,
    "noise": {"protection": "masked", "dp_epsilon": 5.0, "dp_delta": 1e-5, "clip": 3.0},
}
#: Every head and how its sums leave a site; noise is derived for the linear head alone.
MATRIX = [
    (head, how) for head in HEADS for how in PROTECTIONS if how != "noise" or head == "linear"
]


class Watch(Clock):
    """A time that only goes on when somebody sleeps; ``nap`` is done meanwhile."""

    def __init__(self, nap: Callable[[], object] = lambda: None) -> None:
        self.time, self.nap = 1_800_000_000.0, nap

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.nap()


def rows(folder: Path, rng: np.random.Generator, classes: int = 3, **how: Any) -> dict[str, Path]:
    """Features of three sites, one of which lacks a class, and of all their rows."""
    each = {name: rng.normal(size=(50 + i, 5)) for i, name in enumerate(NAMES)}
    labels = {name: rng.integers(0, classes - (name == "west"), len(x)) for name, x in each.items()}
    each["pooled"] = np.concatenate([each[name] for name in NAMES])
    labels["pooled"] = np.concatenate([labels[name] for name in NAMES])
    (folder / "classes.txt").write_text("".join(f"{c}\n" for c in range(classes)))
    for name, x in each.items():
        np.savez(folder / f"{name}.npz", x=x, y=labels[name].astype(str))
        given = {"classes": folder / "classes.txt", "backbone": "b", **how}
        afltool.import_embeddings(folder / f"{name}.npz", out=folder / f"{name}.h5", **given)
    return {name: folder / f"{name}.h5" for name in each}


class Apart:
    """A session of three sites over ``url``."""

    def __init__(
        self,
        at: Path,
        features: dict[str, Path],
        url: str = "",
        head: str = "linear",
        test: dict[str, Path] | None = None,
        **agreed: Any,
    ) -> None:
        self.test = test
        self.at, self.features, self.url = at, features, url or str(at / "place" / "trial")
        self.keys = at / "keys"
        afltool.keys([*NAMES, "server"], self.keys)
        public = [self.keys / f"{name}.pub" for name in NAMES]
        agreed = {"protection": "plain", "space": features["north"], **agreed}
        agreed |= {"evaluate": True} if test else {}
        self.session = afltool.session_new(
            [], at / "server", head=head, members=public, server=self.keys / "server.pub", **agreed
        )
        self.digest = afltool.info(self.session)["digest"]
        self.clock = Watch()
        self.urls = ""  # where sites join, if it is elsewhere
        self.more: dict[str, Any] = {}  # options of each join

    def serve(self, **options: Any) -> None:
        given = {"key": self.keys / "server.key", "once": True, **options}
        serve(self.url, ServeOptions(**given), self.at / "server", clock=self.clock)

    def join(self, name: str, **options: Any) -> None:
        given = {"key": self.keys / f"{name}.key", "once": True, "approve": self.digest, **options}
        test = {"test": self.test[name]} if self.test else {}
        given = {"features": self.features[name], **test, **self.more, **given}
        join(self.urls or self.url, JoinOptions(**given), self.at / name, clock=self.clock)

    def is_over(self) -> bool:
        return all((self.at / name / "summary.json").exists() for name in ("server", *NAMES))

    def play(self, between: Callable[[int], object] = lambda turn: None, most: int = 120) -> Any:
        """Everybody in turn until all have the head; the server's summary."""
        for turn in range(most):
            self.serve()
            between(turn)
            for name in NAMES:
                self.join(name)
                between(turn)
            self.clock.time += 60
            if self.is_over():
                return json.loads((self.at / "server" / "summary.json").read_text())
        raise AssertionError(f"not over after {most} turns")

    def pooled(self, **options: Any) -> tuple[str, str]:
        """Digests of the last total and of the head, of all rows in one place."""
        at = self.at / "pooled"
        clients = afltool.partition(
            self.features["pooled"], at / "clients.h5", scheme="iid", clients=3
        )
        head, number = self.at / "server" / "head-1.h5", 0
        while afltool.info(head)["phase"] is not None:
            number += 1
            total = at / f"total-{number}.h5"
            afltool.local_stats(self.features["pooled"], head, total, partition=clients, sum=True)
            head = afltool.solve(total, at / f"head-{number + 1}.h5", head=head, **options)
        if self.test:
            total = afltool.counts(head, self.test["pooled"], at / "counts")
        return afltool.info(total)["digest"], afltool.info(head)["digest"]
