"""A million rows and ten thousand clients: seconds and peak memory of every stage.

    python benchmarks/bench_scale.py [ROWS [CLIENTS [DIM [CLASSES]]]] [--keep] [--files-dim 256]
                                     1000000 10000  1280 100

Rows are made as `synthetic.py` says and imported as int16; everything is removed at the end unless
--keep is given. The disk holds 4 × ROWS × DIM bytes at a time. Each stage is a command of its own,
in one thread. It is run with a tenth of the rows and with a tenth of the clients, too: the ratios
of processor seconds should be about 10 and 1.

A client's file has d²/2 numbers however few rows it has. So the stages with a file a client have a
tenth of the rows, of --files-dim features: 10,000 clients of 1,280 would write 20 to 30 GB.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from measure import machine

COMMAND = Path(sys.executable).with_name("afltool")
MB = 1e6


@dataclass(frozen=True)
class Took:
    """What a command took: seconds, processor seconds, peak memory and bytes written."""

    wall: float
    cpu: float
    peak: float
    written: int


def measured(folder: Path, words: str, made: str) -> Took:
    """Run a command in ``folder``; ``made`` is the file or folder that it writes."""
    begun = time.perf_counter()
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with (folder / "log.txt").open("w") as log:
        child = subprocess.Popen(
            [str(COMMAND), *words.split()], cwd=folder, stdout=log, stderr=log, env=env
        )
        _, status, used = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{words}\n{(folder / 'log.txt').read_text()}")
    wall = time.perf_counter() - begun
    return Took(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, size(folder / made))


def make_rows(folder: Path, rows: int, classes: int, dim: int) -> None:
    """`synthetic.embeddings` in a process of its own: a child begins with its parent's peak."""
    numbers = map(str, (rows, classes, dim))
    script = Path(__file__).with_name("synthetic.py")
    made = [sys.executable, str(script), str(folder), *numbers]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)


def size(path: Path) -> int:
    if path.is_dir():
        return sum(p.stat().st_size for p in path.iterdir())
    return path.stat().st_size


def stages(clients: int) -> dict[str, tuple[str, str]]:
    """Each stage's command and what it makes, in order."""
    dealt = f"--scheme dirichlet --alpha 0.1 --clients {clients}"
    return {
        "import": ("import rows/x.npy --labels rows/y.npy -o train.h5", "train.h5"),
        "partition": (f"partition train.h5 {dealt} -o clients.h5", "clients.h5"),
        "local-stats --sum": (
            "local-stats train.h5 --partition clients.h5 --head linear --sum -o total.h5",
            "total.h5",
        ),
        "solve --ridge 1": ("solve total.h5 --ridge 1 -o head.h5", "head.h5"),
        "evaluate": ("evaluate head.h5 train.h5 -o metrics.json", "metrics.json"),
        "verify": ("verify train.h5", "train.h5"),
    }


def of_clients(clients: int) -> dict[str, tuple[str, str]]:
    """The stages of files of clients."""
    return {
        f"local-stats, {clients} files": (
            "local-stats train.h5 --partition clients.h5 --head linear -o stats",
            "stats",
        ),
        f"aggregate, {clients} files": ("aggregate stats -o sum.h5", "sum.h5"),
        f"verify, {clients} files": ("verify stats", "stats"),
    }


def road(folder: Path, rows: int, clients: int, dim: int, classes: int) -> dict[str, Took]:
    """Every stage of so many rows and clients, in a folder of their own."""
    folder.mkdir(parents=True)
    make_rows(folder / "rows", rows, classes, dim)
    found = {}
    for name, (words, made) in stages(clients).items():
        found[name] = measured(folder, words, made)
        if name == "import":
            shutil.rmtree(folder / "rows")
        took = found[name]
        print(f"  {name}: {took.wall:.1f} s, {took.peak / MB:.0f} MB", file=sys.stderr, flush=True)
    return found


def files(folder: Path, rows: int, clients: int, dim: int, classes: int) -> dict[str, Took]:
    """The stages with a file a client."""
    folder.mkdir(parents=True)
    make_rows(folder / "rows", rows, classes, dim)
    for words, made in list(stages(clients).values())[:2]:
        measured(folder, words, made)
    shutil.rmtree(folder / "rows")
    found = {}
    for name, (words, made) in of_clients(clients).items():
        found[name.split(",")[0]] = took = measured(folder, words, made)
        print(f"  {name}: {took.wall:.1f} s, {took.peak / MB:.0f} MB", file=sys.stderr, flush=True)
    return found


def table(title: str, sides: dict[str, dict[str, Took]]) -> None:
    """One line a stage; every side beside the first, and how many times it is the last one."""
    print(f"\n{title}")
    print("| stage | " + " | ".join(sides) + " | ratio of processor seconds |")
    print("| --- |" + " --- |" * (len(sides) + 1))
    first, *_, last = sides.values()
    for name in first:
        cells = [
            f"{t.wall:.1f} s ({t.cpu:.1f} cpu), {t.peak / MB:.0f} MB, {t.written / MB:.1f} MB"
            for t in (side[name] for side in sides.values())
        ]
        ratio = first[name].cpu / max(last[name].cpu, 0.01)
        print(f"| {name} | " + " | ".join(cells) + f" | {ratio:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--files-dim", type=int, default=256)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    known = (1_000_000, 10_000, 1280, 100)
    rows, clients, dim, classes = [*given.numbers, *known[len(given.numbers) :]]
    print(machine())
    at = Path(tempfile.mkdtemp(prefix="scale-", dir=given.folder))
    try:
        sides = {}
        for n, k in ((rows, clients), (rows, clients // 10), (rows // 10, clients)):
            place = at / f"{n}-{k}"
            sides[f"{n:,} rows, {k:,} clients"] = road(place, n, k, dim, classes)
            if not given.keep:
                shutil.rmtree(place)
        whole, fewer_clients, fewer_rows = sides.items()
        print("seconds (processor seconds), peak memory, bytes written; one thread")
        table("ten times the rows", dict([whole, fewer_rows]))
        table("ten times the clients", dict([whole, fewer_clients]))
        sides = {}
        for k in (clients, clients // 10):
            place = at / f"files-{k}"
            few = max(rows // 10, clients)
            name = f"{few:,} rows of {given.files_dim}, {k:,} files"
            sides[name] = files(place, few, k, given.files_dim, classes)
            if not given.keep:
                shutil.rmtree(place)
        table("a file a client: ten times the clients", sides)
    finally:
        if not given.keep:
            shutil.rmtree(at, ignore_errors=True)


if __name__ == "__main__":
    main()
