"""What a server of very many clients needs: files, bytes, levels of the tree, seconds, memory.

    python benchmarks/bench_server.py [CLIENTS [PARTS]] [--dim 1280] [--sizes 24] [--folder DIR]
                                       100000   100

First a simulation. Each of CLIENTS tiny clients (2 rows of 16 features) writes a file of its own;
the files of each of PARTS parts are added into one sum, the sums into the total, as in a tree. The
files of a part are removed when their sum is there. The total must have the digest of `local-stats
--sum`, which never writes a client's file. A tenth of the clients is run as well: processor seconds
should be a tenth, and peak memory should not be less.

Then one client's file at --dim features (2 × dim rows, so that the gram has full rank) is written
--sizes times: its bytes, and the processor seconds that `aggregate` takes for one more of them. The
last table multiplies: it is arithmetic, not a measurement. Each command runs in one thread.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench_scale import COMMAND, MB, Took, make_rows, measured
from measure import machine

SMALL_DIM, ROWS, CLASSES = 16, 2, 10
FAN_IN = 1000


def prepared(folder: Path, rows: int, dim: int, clients: int) -> None:
    folder.mkdir(parents=True)
    make_rows(folder / "rows", rows, CLASSES, dim)
    measured(folder, "import rows/x.npy --labels rows/y.npy -o train.h5", "train.h5")
    dealt = f"partition train.h5 --scheme iid --clients {clients} -o clients.h5"
    measured(folder, dealt, "clients.h5")
    shutil.rmtree(folder / "rows")


def digest(path: Path) -> str:
    told = subprocess.run([COMMAND, "info", path, "--json"], capture_output=True, check=True)
    return str(json.loads(told.stdout)["digest"])


def added(steps: list[Took]) -> Took:
    return Took(
        sum(s.wall for s in steps), sum(s.cpu for s in steps), max(s.peak for s in steps),
        sum(s.written for s in steps),
    )  # fmt: skip


def tree(folder: Path, clients: int, parts: int) -> dict[str, Took]:
    """Files of clients, a sum for each part, the total; and the same total without files."""
    prepared(folder, clients * ROWS, SMALL_DIM, clients)
    words = "local-stats train.h5 --partition clients.h5 --head linear"
    written, leaves = [], []
    (folder / "sums").mkdir()
    for part in range(parts):
        written.append(measured(folder, f"{words} --only {part}/{parts} -o part", "part"))
        leaves.append(measured(folder, f"aggregate part -o sums/{part}.h5", f"sums/{part}.h5"))
        shutil.rmtree(folder / "part")
    found = {
        "clients write their files": added(written),
        "sums of the parts": added(leaves),
        "sum of the sums": measured(folder, "aggregate sums --complete -o total.h5", "total.h5"),
        "local-stats --sum instead": measured(folder, f"{words} --sum -o direct.h5", "direct.h5"),
    }
    assert digest(folder / "total.h5") == digest(folder / "direct.h5")
    return found


def one_file(folder: Path, dim: int, copies: int) -> tuple[float, float]:
    """Bytes of a client's file, and processor seconds of ``aggregate`` for one more of them."""
    prepared(folder, 2 * dim * copies, dim, copies)
    words = "local-stats train.h5 --partition clients.h5 --head linear"
    whole = measured(folder, f"{words} -o many", "many")
    measured(folder, f"{words} --only 0-{copies // 4 - 1} -o few", "few")
    spent = {
        name: min(measured(folder, f"aggregate {name} -o {name}-{i}.h5", f"{name}-{i}.h5").cpu
                  for i in range(3))
        for name in ("many", "few")
    }  # fmt: skip
    each = (spent["many"] - spent["few"]) / (copies - copies // 4)
    return whole.written / copies, each


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--dim", type=int, default=1280)
    parser.add_argument("--sizes", type=int, default=24)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    known = (100_000, 100)
    clients, parts = [*given.numbers, *known[len(given.numbers) :]]
    print(machine())
    at = Path(tempfile.mkdtemp(prefix="server-", dir=given.folder))
    try:
        whole = tree(at / "whole", clients, parts)
        tenth = tree(at / "tenth", clients // 10, max(1, parts // 10))
        print(f"{clients:,} clients of {ROWS} rows of {SMALL_DIM} features in {parts} parts")
        print("| step | processor seconds | of a tenth | peak | of a tenth | bytes |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name, took in whole.items():
            less = tenth[name]
            print(
                f"| {name} | {took.cpu:.1f} | {less.cpu:.1f} | {took.peak / MB:.0f} MB "
                f"| {less.peak / MB:.0f} MB | {took.written / MB:.1f} MB |"
            )
        size, each = one_file(at / "large", given.dim, given.sizes)
    finally:
        shutil.rmtree(at, ignore_errors=True)
    small = whole["sums of the parts"].cpu / clients
    print(f"\na file of {given.dim} features: {size / MB:.2f} MB, {1000 * each:.1f} ms to add")
    print(f"a file of {SMALL_DIM} features: {1000 * small:.1f} ms to add\n")
    print(f"| clients | files of {given.dim} features | levels, fan-in {FAN_IN:,} "
          "| one core adds | 100 cores add |")  # fmt: skip
    print("| --- | --- | --- | --- | --- |")
    for count in (10**5, 10**6):
        levels = math.ceil(math.log(count, FAN_IN))
        hours = count * each / 3600
        print(
            f"| {count:,} | {count * size / 1e12:.2f} TB | {levels} | {hours:.2f} h "
            f"| {36 * hours:.0f} s |"
        )


if __name__ == "__main__":
    main()
