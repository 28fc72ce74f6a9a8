"""Three sites and a server, each with a directory and a key, and the commands that each gives."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np

import afltool

NAMES = ("north", "south", "west")
CLASSES = ("a", "b", "c")
DEEPAFL = {"layers": 2, "width": 16, "compute": "fixed"}


def rows(folder: Path, seed: int = 0, n: int = 40):
    """Tables and feature files of three sites, and of all their rows."""
    rng, tables = np.random.default_rng(seed), {}
    for k, name in enumerate(NAMES):
        y = np.arange(n + k) % 3
        tables[name] = rng.normal(size=(len(y), 5)) + 2 * np.eye(3, 5)[y], np.array(CLASSES)[y]
    tables["pooled"] = tuple(np.concatenate([tables[n][k] for n in NAMES]) for k in (0, 1))
    folder.mkdir(parents=True, exist_ok=True)
    for name, (x, y) in tables.items():
        np.savez(folder / f"{name}.npz", x=x, y=y)
        afltool.import_embeddings(folder / f"{name}.npz", folder / f"{name}.h5", fraction_bits=10)
    return {name: folder / f"{name}.h5" for name in tables}


class Apart:
    """A session of three sites over ``url``, by the words of its commands."""

    def __init__(self, cli, at: Path, features, url: str = "", head: str = "linear", options=None,
                 test=None, new=("--max-rows", 1000)) -> None:  # fmt: skip
        self.cli, self.at, self.features, self.test = cli, at, features, test
        self.url, self.keys = url or str(at / "place"), at / "keys"
        assert cli("keys", "new", *NAMES, "server", "-o", self.keys).exit_code == 0
        self.first = afltool.head(head, at / "head0.h5", head_options=options or {})
        given = ("--evaluate", *new) if test else new
        made = cli(*self.new("--head", self.first, "-o", at / "server", *given))
        assert made.exit_code == 0, made.stderr
        self.said = made.stdout
        self.code = re.search(r"code  ([0-9a-f ]+)\n", made.stdout)[1]

    def new(self, *more):
        words = ("--members", self.keys, "--server", self.keys / "server.pub")
        return ("session", "new", *words, "--data", self.features["north"], *more)

    def serve(self, *more):
        out = self.at / "server"
        return ("session", "serve", self.url, "--key", self.keys / "server", "-o", out, *more)

    def join(self, name: str, *more, data=None, approve=True):
        begun = (self.at / name / "head-1.h5").exists()
        code = ("--approve", self.code) if approve and not begun else ()
        test = ("--test", self.test[name]) if self.test else ()
        return ("session", "join", self.url, "--key", self.keys / name, "--data",
                data or self.features[name], "-o", self.at / name, *test, *code, *more)  # fmt: skip

    def play(self, names=NAMES, most: int = 120):
        """Everybody in turn until all have the head; the server's summary."""
        for _ in range(most):
            for words in (self.serve("--once"), *(self.join(n, "--once") for n in names)):
                os.environ["AFLTOOL_STATE"] = f"{words[words.index('-o') + 1]}-state"
                done = self.cli(*words)
                assert done.exit_code == 0, (words, done.stderr)
            if all((self.at / n / "summary.json").exists() for n in ("server", *names)):
                return self.summary("server")
        raise AssertionError("not over")

    def summary(self, name: str):
        return json.loads((self.at / name / "summary.json").read_text())

    def pooled(self) -> str:
        """The digest of the head of all rows in one place."""
        at, head, number = self.at / "pooled", self.first, 0
        clients = afltool.partition(self.features["pooled"], at / "c.h5", scheme="iid", clients=3)
        while number == 0 or afltool.info(head)["phase"] is not None:
            number += 1
            total = at / f"total-{number}.h5"
            afltool.local_stats(self.features["pooled"], head, total, partition=clients, sum=True)
            head = afltool.solve(total, at / f"head-{number + 1}.h5", head=head)
        return afltool.info(head)["digest"]

    def sent_by(self, name: str):
        return sorted(p.name for p in Path(self.url).glob(f"*-{name}"))
