"""What a session costs: bytes each way and seconds of a processor, of one member and of the server.

    python benchmarks/bench_session.py HEAD SITES DIM [CLASSES] [ROWS]

All sites are in this process, over a directory. The first site and the server do everything; the
others send what they would send, and take heads from the server instead of solving. Bytes follow
from the head, the number of sites and the threshold alone.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from afltool.cli import app  # noqa: F401  (the heads are registered)
from afltool.embeddings import make_imported_space
from afltool.federation import keys
from afltool.federation.agreement import Agreement, usual_threshold
from afltool.federation.compute import describe_head
from afltool.federation.ledger import Ledger
from afltool.federation.place import Place
from afltool.federation.rows import SiteRows
from afltool.federation.session import Member, Server, Waiting
from afltool.heads import make_head

HEADS = {
    "linear": {"gamma": 1.0},
    "deepafl": {"layers": 5, "width": 1024, "compute": "fixed", "gamma": 1.0},
}
BITS = 9


class Sender(Member):
    """A site that believes the server, whose files it takes."""

    server: Path

    def next_head(self, number: int) -> None:
        for name in (f"head-{number + 1}.h5", f"total-{number}.h5"):
            if not (self.folder / name).exists():
                if not (self.server / name).exists():
                    raise Waiting("the server")
                shutil.copy(self.server / name, self.folder / name)
        for path in (self.server / "taken").glob(f"{number:03d}-sums-*"):  # they have the offers
            with suppress(FileExistsError):
                os.link(path, self.folder / "taken" / path.name)


def rows_of(site: int, n: int, dim: int, classes: int) -> SiteRows:
    rng = np.random.default_rng(site)
    y = rng.integers(0, classes, n)
    centers = np.random.default_rng(7).normal(size=(classes, dim))
    X = (rng.normal(size=(n, dim)) + centers[y]) * 2**BITS
    block = X.astype(np.int16), y
    return SiteRows(lambda: [block])


def session(at: Path, head: str, sites: int, dim: int, classes: int, rows: int):
    names = [f"site-{i:02d}" for i in range(sites)]
    for name in (*names, "server"):
        keys.new(name, at / "keys")
    people = {name: keys.load(at / "keys" / name) for name in (*names, "server")}
    first = make_head(head, HEADS[head]).bind(dim, classes)
    agreed = Agreement(
        members=tuple(people[n].party for n in names), server=people["server"].party,
        head=describe_head(first), space=make_imported_space("bench", dim, "int16", BITS),
        classes=tuple(map(str, range(classes))), threshold=usual_threshold(sites),
        max_rows=2 * rows,
    )  # fmt: skip
    Sender.server = at / "server"
    members = {
        name: (Member if i == 0 else Sender)(
            Place(str(at / "place")), at / name, agreed, people[name],
            rows_of(i, rows, dim, classes), Ledger(at / "ledgers" / name))
        for i, name in enumerate(names)
    }  # fmt: skip
    server = Server(Place(str(at / "place")), at / "server", agreed, people["server"])
    return {"server": server, **members}


def play(parties) -> dict[str, float]:
    """Turns of all until the end; the seconds of a processor of each."""
    seconds, waits = dict.fromkeys(parties, 0.0), dict.fromkeys(parties, "-")
    while waits["server"] or waits["site-00"]:
        for name, party in parties.items():
            begun = time.process_time()
            waits[name] = party.turn()
            seconds[name] += time.process_time() - begun
    return seconds


def main(head: str, sites: str, dim: str, classes: str = "100", rows: str = "2000") -> None:
    with TemporaryDirectory() as folder:
        at = Path(folder)
        parties = session(at, head, int(sites), int(dim), int(classes), int(rows))
        begun, seconds = time.monotonic(), play(parties)
        found = {
            "head": head, "sites": int(sites), "dim": int(dim), "classes": int(classes),
            "rows": int(rows), "rounds": parties["server"].newest_round() - 1,
            "wall_seconds": round(time.monotonic() - begun, 1),
        }  # fmt: skip
        for name, who in (("member", "site-00"), ("server", "server")):
            found |= {
                f"{name}_up": parties[who].place.up,
                f"{name}_down": parties[who].place.down,
                f"{name}_cpu_seconds": round(seconds[who], 2),
            }
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
